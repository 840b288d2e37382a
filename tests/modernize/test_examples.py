"""Every example is rewritten as it says, does the same on real torch, and warns no more."""

from __future__ import annotations

import pytest

from amplint import check_source, fix_source
from amplint.model import Applicability
from amplint.settings import Settings
from tests.modernize.execution import run
from tests.modernize.sections import sections

SETTINGS = Settings(select=("AMP001", "AMP002"))
SAFE = sections("safe.txt")
UNSAFE = sections("unsafe.txt")
REFUSED = sections("refused.txt")


@pytest.mark.parametrize("name", SAFE)
def test_safe_fix(name: str) -> None:
    before, after = SAFE[name]
    result = fix_source(before, "t.py", SETTINGS)
    assert result.text == after
    assert (result.messages, result.remaining) == ([], [])


@pytest.mark.parametrize("name", UNSAFE)
def test_unsafe_fix(name: str) -> None:
    before, after = UNSAFE[name]
    assert any(d.fix is not None and d.fix.applicability == Applicability.UNSAFE for d in check_source(before))
    result = fix_source(before, "t.py", SETTINGS, unsafe=True)
    assert result.text == after
    assert (result.messages, result.remaining) == ([], [])
    assert fix_source(before, "t.py", SETTINGS).text != after


@pytest.mark.parametrize("name", UNSAFE)
def test_an_unsafe_fix_says_on_what_it_rests(name: str) -> None:
    found = check_source(UNSAFE[name][0], "t.py", SETTINGS)
    unsafe = [d for d in found if d.fix is not None and d.fix.applicability == Applicability.UNSAFE]
    assert all(d.help.startswith("the fix is unsafe: ") for d in unsafe)


@pytest.mark.parametrize("name", REFUSED)
def test_no_fix_without_a_reason(name: str) -> None:
    before, reasons = REFUSED[name]
    after = fix_source(before, "t.py", SETTINGS, unsafe=True)
    told = [f"{d.location.row}: {d.help.removeprefix('not rewritten: ')}\n" for d in after.remaining]
    assert "".join(told) == reasons
    assert all(d.fix is None for d in after.remaining)


@pytest.mark.parametrize("name", [*SAFE, *UNSAFE])
def test_does_the_same_and_warns_no_more(name: str) -> None:
    before, after = (SAFE | UNSAFE)[name]
    old, new = run(before), run(after)
    assert old.error == ""
    assert new._replace(deprecations=[]) == old._replace(deprecations=[])
    assert new.deprecations == []


def test_the_examples_do_warn_before() -> None:
    silent = {name for name, (before, _) in (SAFE | UNSAFE).items() if run(before).deprecations == []}
    assert silent == {
        "asynchronous",  # only defined
        "only_statement_of_a_function",  # an import warns of nothing
        "type_checking_block",
        "unused_imports",
        "tuple_of_decorators",  # never called
    }


@pytest.mark.parametrize("name", [*SAFE, *UNSAFE, *REFUSED])
def test_fixing_twice_changes_nothing(name: str) -> None:
    before = (SAFE | UNSAFE | REFUSED)[name][0]
    once = fix_source(before, "t.py", SETTINGS, unsafe=True).text
    assert fix_source(once, "t.py", SETTINGS, unsafe=True).text == once


@pytest.mark.parametrize("name", SAFE)
def test_line_ends_stay(name: str) -> None:
    before, after = SAFE[name]
    result = fix_source(before.replace("\n", "\r\n"), "t.py", SETTINGS)
    assert result.text == after.replace("\n", "\r\n")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "import torch\r\nfrom torch.cuda.amp import autocast\n\n\nwith autocast(\n    True,\r\n):\r\n    pass\n",
            'import torch\r\n\n\nwith torch.amp.autocast(\n    "cuda",\n    enabled=True,\r\n):\r\n    pass\n',
        ),
        (
            "import torch\nfrom torch.cuda.amp import GradScaler\ns = GradScaler()",
            'import torch\ns = torch.amp.GradScaler("cuda")',
        ),
        ("import torch\nfrom torch.cuda.amp import GradScaler", "import torch\n"),
        (
            "\fimport torch\n\f\nfrom torch.cuda.amp import autocast\nwith autocast(): pass\n",
            '\fimport torch\n\f\nwith torch.amp.autocast("cuda"): pass\n',
        ),
    ],
    ids=["mixed line ends", "no final newline", "last line goes", "form feeds"],
)
def test_odd_white_space_stays(before: str, after: str) -> None:
    assert fix_source(before, "t.py", SETTINGS).text == after
