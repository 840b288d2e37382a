"""Names that other files import from here keep their name, and are rewritten only when asked."""

from __future__ import annotations

import pytest

from amplint import check_source, fix_source
from amplint.model import Applicability
from amplint.settings import Settings

ONLY = Settings(select=("AMP001",))
CAUTION = "the fix is unsafe: other files may import the name from here and call it the old way"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("from torch.cuda.amp import GradScaler, autocast\n", "from torch.amp import GradScaler, autocast\n"),
        ("import torch\nfrom torch.cuda.amp import autocast\n", "import torch\nfrom torch.amp import autocast\n"),
        ("from torch.cuda import amp  # cuda.amp\n", "from torch import amp  # cuda.amp\n"),
        ("import torch.cuda.amp as amp\n", "import torch.amp as amp\n"),
        ("from torch.cuda.amp import *\n", "from torch.amp import *\n"),
        (
            "import torch\nfrom torch.cuda.amp import autocast\n\nctx = autocast(True)\n",
            'import torch\nfrom torch.amp import autocast\n\nctx = autocast("cuda", enabled=True)\n',
        ),
    ],
)
def test_what_a_package_imports(text: str, want: str) -> None:
    found = check_source(text, "pkg/__init__.py", ONLY)
    assert {d.help for d in found} == {CAUTION}
    assert {d.fix.applicability for d in found if d.fix} == {Applicability.UNSAFE}
    assert fix_source(text, "pkg/__init__.py", ONLY).text == text
    assert fix_source(text, "pkg/__init__.py", ONLY, unsafe=True).text == want


def test_a_package_that_lists_its_exports_uses_the_others_itself() -> None:
    text = "import torch\nfrom torch.cuda.amp import GradScaler, autocast\n\n__all__ = ['GradScaler']\nautocast()\n"
    half = (
        "import torch\nfrom torch.cuda.amp import GradScaler\n\n__all__ = ['GradScaler']\n"
        'torch.amp.autocast("cuda")\n'
    )
    assert fix_source(text, "pkg/__init__.py", ONLY).text == half
    whole = half.replace("torch.cuda.amp", "torch.amp")
    assert fix_source(text, "pkg/__init__.py", ONLY, unsafe=True).text == whole


@pytest.mark.parametrize(
    "exported",
    [
        "__all__ = ['autocast']",
        "__all__ = ('x', 'autocast')",
        "__all__ += ['autocast']",
        "__all__: list[str] = ['autocast']",
        "__all__.extend(['autocast'])",
        "__all__.append('autocast')",
    ],
)
def test_names_in_all(exported: str) -> None:
    text = f"import torch\nfrom torch.cuda.amp import autocast\n\n__all__ = []\n{exported}\n"
    assert [d.help for d in check_source(text, "t.py", ONLY)] == [CAUTION]


@pytest.mark.parametrize(
    ("text", "unsafe"),
    [
        ("from torch.cuda.amp import autocast as autocast\n", True),
        ("if True:\n    from torch.cuda.amp import autocast as autocast\n", True),
        ("if True:\n    x = 1\n    from torch.cuda.amp import autocast as autocast\n", False),
        ("def f():\n    from torch.cuda.amp import autocast as autocast\n", False),
        ("from torch.cuda.amp import autocast  # noqa: F401\n", True),
        ("from torch.cuda.amp import autocast  # noqa: E402,F401 kept for others\n", True),
        ("from torch.cuda.amp import autocast  # noqa: E402\n", False),
        ("from torch.cuda.amp import autocast  # noqa: F401\nautocast()\n", False),
        ("from torch.cuda.amp import autocast\n", False),
    ],
)
def test_signs_of_a_re_export(text: str, unsafe: bool) -> None:
    found = check_source("import torch\n" + text, "t.py", ONLY)
    assert all(d.help == (CAUTION if unsafe else "") for d in found)
    assert all(d.fix is not None for d in found)


def test_a_function_under_an_old_name_that_others_import_is_left() -> None:
    text = "from torch import get_autocast_gpu_dtype as get_autocast_gpu_dtype\n"
    settings = Settings(select=("AMP002",))
    result = fix_source(text, "t.py", settings, unsafe=True)
    assert result.text == "from torch import get_autocast_dtype as get_autocast_gpu_dtype\n"


def test_a_shim_of_an_exported_name_is_unsafe() -> None:
    settings = ONLY._replace(target_torch=(2, 0), compat="shim")
    text = "import torch\nfrom torch.cuda.amp import GradScaler\n\n__all__ = ['GradScaler']\n"
    assert [d.help for d in check_source(text, "t.py", settings)] == [CAUTION]
    assert fix_source(text, "t.py", settings, unsafe=True).text == (
        "import torch\n\ntry:\n    from torch.amp import GradScaler\nexcept ImportError:  # torch < 2.3\n"
        "    from torch.cuda.amp import GradScaler\n\n__all__ = ['GradScaler']\n"
    )
