"""AMP006: what is reported where, and what the fix makes of it."""

from __future__ import annotations

from textwrap import dedent

import pytest

from amplint import check_source, fix_source
from amplint.model import Diagnostic
from amplint.settings import Settings
from amplint.torch_api import Version

ONLY = Settings(select=("AMP006",))


def floor(version: Version) -> Settings:
    return ONLY._replace(target_torch=version, target_torch_source="pyproject.toml")


def found(text: str, settings: Settings = ONLY) -> list[Diagnostic]:
    return check_source(dedent(text).lstrip("\n"), "test.py", settings)


def places(text: str, settings: Settings = ONLY) -> list[tuple[int, int]]:
    return [tuple(diagnostic.location) for diagnostic in found(text, settings)]  # type: ignore[misc]


def fixed(text: str, settings: Settings = ONLY) -> str:
    result = fix_source(dedent(text).lstrip("\n"), "test.py", settings)
    assert result.messages == []
    return result.text


SHIM = """
    import torch
    from packaging.version import parse
    {flag}
    if {test}:
        scaler = torch.amp.GradScaler("cuda")
    else:
        scaler = torch.cuda.amp.GradScaler()
    """


@pytest.mark.parametrize(
    ("text", "version", "expected"),
    [
        ('import torch\ns = torch.amp.GradScaler("cuda")\n', (2, 0), [(2, 5)]),
        ('import torch\ns = torch.amp.GradScaler("cuda")\n', (2, 3), []),
        ('import torch\ns = torch.GradScaler("cuda")\n', (2, 2), [(2, 5)]),
        ("from torch.amp import GradScaler, autocast\ns = GradScaler()\n", (2, 0), [(1, 23)]),
        ("from torch.amp import GradScaler\n", (2, 4), []),
        ("from torch import amp\ns = amp.GradScaler()\n", (2, 0), [(2, 5)]),
        ('import torch\n@torch.amp.custom_fwd(device_type="cuda")\ndef f(): ...\n', (2, 3), [(2, 2)]),
        ('import torch\nwith torch.amp.autocast("cuda"): ...\n', (1, 11), [(2, 6)]),
        ('import torch\nwith torch.autocast("cuda"): ...\n', (1, 9), [(2, 6)]),
        ('import torch\nwith torch.autocast("cuda"): ...\n', (1, 10), []),
        ("import torch\na = torch.is_autocast_enabled()\n", (2, 0), []),
        ('import torch\na = torch.is_autocast_enabled("cuda")\n', (2, 3), [(2, 5)]),
        ("import torch\ns = torch.cpu.amp.GradScaler()\n", (2, 2), [(2, 5)]),
        ("import torch\ns = torch.cpu.amp.GradScaler()\n", (2, 3), []),
        ("from torch.cpu.amp import autocast\n", (1, 9), [(1, 27)]),
        ("from torch.cpu.amp import autocast\n", (1, 10), []),
        ("import torch\ns = torch.cuda.amp.GradScaler()\n", (1, 9), []),
        ("from torch import is_autocast_enabled as on\na = on('cuda')\n", (2, 3), [(2, 5)]),
        ('import torch\na = torch.get_autocast_dtype("cuda")\n', (2, 3), [(2, 5)]),
        ("import torch\nif args.amp:\n    s = torch.amp.GradScaler()\n", (2, 0), [(3, 9)]),
        ("import torch\nif has_new_api:\n    s = torch.amp.GradScaler()\n", (2, 0), []),
        ("import torch\nassert torch.__version__ >= '2.4'\ns = torch.amp.GradScaler()\n", (2, 0), []),
        ("import torch\nassert torch.__version__ >= '1.8'\ns = torch.amp.GradScaler()\n", (2, 0), [(3, 5)]),
        ("try:\n    from torch.amp import GradScaler\nexcept ImportError:\n    GradScaler = None\n", (2, 0), []),
        (
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from torch.amp import GradScaler\n",
            (2, 0),
            [],
        ),
        ('import torch\ndef f(s: "torch.amp.GradScaler"): ...\n', (2, 0), []),
        ("import torch\ns = torch.amp.GradScaler if torch.__version__ >= (2, 3) else None\n", (2, 0), []),
        ("import torch\ns = torch.amp.GradScaler() if NEW else torch.cuda.amp.GradScaler()\n", (2, 0), []),
    ],
)
def test_floor(text: str, version: Version, expected: list[tuple[int, int]]) -> None:
    assert places(text, floor(version)) == expected


def test_no_floor_no_finding() -> None:
    assert found("import torch\ns = torch.amp.GradScaler('cuda')\n") == []


def test_floor_message() -> None:
    [diagnostic] = found("import torch\ns = torch.amp.GradScaler()\n", floor((2, 0)))
    assert diagnostic.message == (
        "`torch.amp.GradScaler` needs torch 2.3, but the project supports torch 2.0 (pyproject.toml)"
    )
    assert diagnostic.help == "raise the oldest supported torch to 2.3, or test the version around the use"
    assert diagnostic.fix is None


@pytest.mark.parametrize(
    ("before", "after", "version"),
    [
        ('torch.amp.autocast("cuda", enabled=x)', 'torch.autocast("cuda", enabled=x)', (1, 11)),
        ('torch.amp.autocast("cuda", x)', 'torch.amp.autocast("cuda", x)', (1, 10)),
        ('torch.is_autocast_enabled("cuda")', "torch.is_autocast_enabled()", (2, 0)),
        ('torch.is_autocast_enabled("cpu")', "torch.is_autocast_cpu_enabled()", (2, 0)),
        ('torch.get_autocast_dtype("cuda")', "torch.get_autocast_gpu_dtype()", (2, 0)),
        ('torch.set_autocast_dtype("cpu", d)', "torch.set_autocast_cpu_dtype(d)", (2, 0)),
        ("torch.get_autocast_dtype(device)", "torch.get_autocast_dtype(device)", (2, 0)),
    ],
)
def test_floor_fix(before: str, after: str, version: Version) -> None:
    assert fixed(f"import torch\na = {before}\n", floor(version)) == f"import torch\na = {after}\n"


@pytest.mark.parametrize(
    ("before", "after", "place"),
    [
        ('torch.__version__ >= "1.13"', 'torch.__version__ >= "2.3"', (5, 14)),
        ('parse(torch.__version__) >= parse("2.0.0")', 'parse(torch.__version__) >= parse("2.3.0")', (5, 14)),
        ("torch.__version__ >= (2, 0)", "torch.__version__ >= (2, 3)", (5, 14)),
        ("is_torch_version('>=', '2.0.0')", "is_torch_version('>=', '2.3.0')", (5, 14)),
        ('hasattr(torch, "amp")', 'hasattr(torch.amp, "GradScaler")', (4, 4)),
        ("hasattr(torch.amp, 'autocast')", "hasattr(torch.amp, 'GradScaler')", (4, 4)),
        ("use and hasattr(torch, 'amp')", "use and hasattr(torch.amp, 'GradScaler')", (4, 12)),
        ('str(torch.__version__) >= "2.4"', 'torch.__version__ >= "2.4"', (4, 4)),
        ('torch.__version__[:3] >= "2.4"', 'torch.__version__ >= "2.4"', (4, 4)),
        ('"2.4" <= torch.__version__.split("+")[0]', '"2.4" <= torch.__version__', (4, 4)),
        ("float(torch.__version__[:3]) >= 2.4", 'torch.__version__ >= "2.4"', (4, 4)),
        ('torch.version.__version__ >= "2.4"', 'torch.__version__ >= "2.4"', (4, 4)),
        ('torch.__version__ < "2.3"', 'torch.__version__ >= "2.3"', (5, 14)),
        ("not TORCH_2_4", "TORCH_2_4", (5, 14)),
        ('not hasattr(torch.amp, "GradScaler")', 'hasattr(torch.amp, "GradScaler")', (5, 14)),
    ],
)
def test_gate(before: str, after: str, place: tuple[int, int]) -> None:
    text = SHIM.format(flag="", test=before)
    assert places(text) == [place]
    assert fixed(text) == dedent(SHIM.format(flag="", test=after)).lstrip("\n")
    assert [d.fix.applicability.label for d in found(text) if d.fix] == ["safe"]


@pytest.mark.parametrize(
    ("test", "place"),
    [
        ("int(torch.__version__.split('.')[0]) >= 2", (5, 14)),
        ("_TORCH_GREATER_EQUAL_2_0", (5, 14)),
        ("hasattr(torch.cuda, 'amp')", (4, 4)),
        ("torch.__version__.split('.')[:2] >= ['2', '4']", (4, 4)),
        ("torch.__version__[:3] > '2.3'", (4, 4)),
        ("importlib.metadata.version('torch') >= '2.4'", (4, 4)),
    ],
)
def test_gate_without_a_fix_or_with_another(test: str, place: tuple[int, int]) -> None:
    assert places(SHIM.format(flag="", test=test)) == [place]


@pytest.mark.parametrize(
    "test",
    [
        'torch.__version__ >= "2.4"',
        'hasattr(torch.amp, "GradScaler")',
        'hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler")',
        'hasattr(torch, "compile")',
        "NEW_API",
        'torch.__version__.split("+")[0] >= "2.3" and torch.__version__ >= "2.3"',
    ],
)
def test_right_gates(test: str) -> None:
    expected = [(4, 4)] if "split" in test else []
    assert places(SHIM.format(flag="", test=test)) == expected


def test_a_flag_takes_its_new_version_as_name() -> None:
    text = SHIM.format(flag='TORCH_1_13 = parse(torch.__version__) >= parse("1.13.0")', test="TORCH_1_13")
    want = SHIM.format(flag='TORCH_2_3 = parse(torch.__version__) >= parse("2.3.0")', test="TORCH_2_3")
    assert places(text) == [(5, 14)]
    assert fixed(text) == dedent(want).lstrip("\n")


@pytest.mark.parametrize(
    "more",
    [
        "if TORCH_1_13:\n        compile()",
        '__all__ = ["TORCH_1_13"]',
        "TORCH_2_3 = True",
    ],
)
def test_a_flag_with_another_use_is_left(more: str) -> None:
    flag = f'TORCH_1_13 = parse(torch.__version__) >= parse("1.13")\n    {more}'
    text = SHIM.format(flag=flag, test="TORCH_1_13")
    assert len(found(text)) == 1
    assert fixed(text) == dedent(text).lstrip("\n")


def test_a_flag_without_a_version_in_its_name_keeps_it() -> None:
    text = SHIM.format(flag='NEW = torch.__version__ >= "1.13"', test="NEW")
    assert fixed(text) == dedent(SHIM.format(flag='NEW = torch.__version__ >= "2.3"', test="NEW")).lstrip("\n")


def test_a_text_comparison_is_blamed_where_it_stands() -> None:
    text = SHIM.format(flag='NEW = str(torch.__version__) >= "2.4"', test="NEW")
    assert places(text) == [(3, 7)]


def test_the_newest_name_decides() -> None:
    text = """
        import torch
        if torch.__version__ >= "2.0":
            from torch.amp import GradScaler, autocast, custom_fwd
        else:
            from torch.cuda.amp import GradScaler, autocast, custom_fwd
        """
    assert places(text) == [(3, 27), (3, 49)]
    assert fixed(text).splitlines()[1] == 'if torch.__version__ >= "2.4":'


def test_without_an_old_arm_raising_the_version_is_unsafe() -> None:
    text = 'import torch\nif torch.__version__ >= "1.13":\n    scaler = torch.amp.GradScaler()\n'
    [diagnostic] = found(text)
    assert diagnostic.fix is not None
    assert diagnostic.fix.applicability.label == "unsafe"
    assert fixed(text) == text


def test_a_floor_above_the_gate_makes_it_harmless() -> None:
    assert found(SHIM.format(flag="", test='torch.__version__ >= "1.13"'), floor((2, 3))) == []
    assert found(SHIM.format(flag="", test='str(torch.__version__) >= "1.6"'), floor((2, 3))) == []


def test_below_torch_amp_both_names_are_asked_for() -> None:
    want = 'if (hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler")):'
    assert want in fixed(SHIM.format(flag="", test='hasattr(torch, "amp")'), floor((1, 10)))


@pytest.mark.parametrize(
    "text",
    [
        'import torch\nif str(torch.__version__) >= "2.10":\n    compile()\n',
        'import torch\nif hasattr(torch, "amp"):\n    torch.amp.autocast("cuda")\n',
        'import torch\nif torch.__version__ < "1.10":\n    raise RuntimeError\ntorch.amp.GradScaler()\n',
        'import torch\nif torch.__version__.split("+")[0] >= "2.0":\n    torch.autocast("cuda")\n',
        "try:\n    from torch.cuda.amp import autocast\nexcept ImportError:\n    from torch.amp import autocast\n",
        "import paddle\nif paddle.__version__[:3] >= '2.4':\n    paddle.amp.GradScaler()\n",
    ],
)
def test_silent(text: str) -> None:
    assert found(text) == []


def test_messages_and_labels() -> None:
    [early] = found(SHIM.format(flag="", test='torch.__version__ >= "1.13"'))
    assert early.message == "`torch.amp.GradScaler` needs torch 2.3, but the test around it lets in torch 1.13 to 2.2"
    assert [(place.location.row, place.message) for place in early.related] == [(4, "this lets in torch 1.13 to 2.2")]
    [text] = found(SHIM.format(flag="", test='str(torch.__version__) >= "2.4"'))
    assert text.message == (
        "this cuts the version into text or numbers before it compares, so the answer for torch 2.10 is wrong"
    )
    [existence] = found(SHIM.format(flag="", test='hasattr(torch, "amp")'))
    assert existence.message == (
        '`hasattr(torch, "amp")` lets in torch 1.12 to 2.2, but `torch.amp.GradScaler` needs torch 2.3'
    )
    [inverted] = found(SHIM.format(flag="", test='torch.__version__ < "2.3"'))
    assert inverted.message == (
        "`torch.amp.GradScaler` needs torch 2.3, but stands in the arm for older versions:"
        " the test is the wrong way round"
    )
