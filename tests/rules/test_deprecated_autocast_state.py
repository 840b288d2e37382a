"""AMP002: the functions of the autocast state that have a device in their name."""

from __future__ import annotations

import warnings

import pytest
import torch

from amplint import check_source, fix_source
from amplint.settings import Settings
from amplint.torch_api import STATE_QUERIES

ONLY = Settings(select=("AMP002",))


def fixed(text: str, settings: Settings = ONLY) -> str:
    """A text after the safe fixes."""
    return fix_source(text, "t.py", settings).text


@pytest.mark.parametrize("query", STATE_QUERIES.values(), ids=lambda query: query.old)
def test_each_function_is_found_and_told_the_device(query) -> None:  # type: ignore[no-untyped-def]
    arguments = "" if "set_" not in query.old else "x"
    text = f"import torch\ny = {query.old}({arguments})\n"
    assert [(d.location.row, d.location.column) for d in check_source(text, "t.py", ONLY)] == [(2, 5)]
    given = f'"{query.device}"' + (f", {arguments}" if arguments else "")
    assert fixed(text) == f"import torch\ny = {query.new}({given})\n"


@pytest.mark.parametrize("query", STATE_QUERIES.values(), ids=lambda query: query.old)
def test_the_functions_do_the_same_on_real_torch(query) -> None:  # type: ignore[no-untyped-def]
    if "set_" in query.old:
        value = query.old.endswith("_enabled") or torch.get_autocast_dtype(query.device)
        reader = query.old.replace("set_", "is_" if query.old.endswith("_enabled") else "get_")
        text = f"import torch\nbefore = {reader}()\n{query.old}(value)\nseen = {reader}()\n{query.old}(before)\n"
    else:
        value, text = None, f"import torch\nseen = {query.old}()\n"
    outcomes = []
    for source in (text, fixed(text)):
        names = {"value": value}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            exec(source, names)
        outcomes.append((names["seen"], [w.category for w in caught if "deprecated" in str(w.message)]))
    assert outcomes[0][0] == outcomes[1][0]
    assert set(outcomes[0][1]) == {DeprecationWarning}
    assert outcomes[1][1] == []


def test_imported_functions_get_their_new_name() -> None:
    text = "from torch import get_autocast_gpu_dtype, nn\nprint(get_autocast_gpu_dtype(), nn)\n"
    assert fixed(text) == 'from torch import get_autocast_dtype, nn\nprint(get_autocast_dtype("cuda"), nn)\n'


def test_an_alias_stays() -> None:
    text = "from torch import is_autocast_cpu_enabled as on\nprint(on())\n"
    assert fixed(text) == 'from torch import is_autocast_enabled as on\nprint(on("cpu"))\n'


def test_a_bound_torch_is_used() -> None:
    text = "import torch\nfrom torch import get_autocast_gpu_dtype\nprint(get_autocast_gpu_dtype())\n"
    assert fixed(text) == 'import torch\nprint(torch.get_autocast_dtype("cuda"))\n'


def test_a_new_name_that_is_taken_is_not_bound_again() -> None:
    text = "from torch import get_autocast_gpu_dtype\nget_autocast_dtype = None\nget_autocast_gpu_dtype()\n"
    assert fixed(text) == text
    assert [d.help for d in check_source(text, "t.py", ONLY)] == [
        "not rewritten: `get_autocast_dtype` is already bound in this file"
    ] * 2


def test_two_functions_that_become_one_share_it() -> None:
    text = (
        "from torch import get_autocast_cpu_dtype, get_autocast_gpu_dtype\n"
        "print(get_autocast_cpu_dtype(), get_autocast_gpu_dtype())\n"
    )
    assert (
        fixed(text)
        == 'from torch import get_autocast_dtype\nprint(get_autocast_dtype("cpu"), get_autocast_dtype("cuda"))\n'
    )


def test_a_stored_function_is_told_the_device_at_once() -> None:
    text = "import torch\ntable = {'cpu': torch.get_autocast_cpu_dtype}\n"
    want = "import functools\n\nimport torch\ntable = {'cpu': functools.partial(torch.get_autocast_dtype, \"cpu\")}\n"
    assert fixed(text) == want


@pytest.mark.parametrize(
    "text",
    [
        "import torch\nprint(torch.is_autocast_enabled(), torch.get_autocast_dtype('cuda'))\n",
        "import torch\nif hasattr(torch, 'get_autocast_dtype'):\n    d = torch.get_autocast_dtype('cuda')\n"
        "else:\n    d = torch.get_autocast_gpu_dtype()\n",
        "import torch\ntry:\n    d = torch.get_autocast_dtype('cpu')\nexcept (AttributeError, TypeError):\n"
        "    d = torch.get_autocast_cpu_dtype()\n",
    ],
)
def test_silent(text: str) -> None:
    assert check_source(text, "t.py", ONLY) == []


def test_silent_where_an_older_torch_is_supported() -> None:
    text = "import torch\nprint(torch.get_autocast_gpu_dtype())\n"
    assert check_source(text, "t.py", ONLY._replace(target_torch=(2, 3))) == []
    assert len(check_source(text, "t.py", ONLY._replace(target_torch=(2, 4)))) == 1
