"""The autocast regions of a file, read without paths."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from amplint import check_source
from amplint.facts.regions import Region
from amplint.settings import DEFAULT, Settings
from amplint.source import SourceFile


def parsed(code: str, settings: Settings = DEFAULT) -> SourceFile:
    """A file with the usual imports above the code."""
    return SourceFile("import torch\nfrom contextlib import nullcontext\n" + dedent(code), "t.py", settings)


def only(code: str, settings: Settings = DEFAULT) -> Region:
    """The single region of the code."""
    (region,) = parsed(code, settings).regions.all
    return region


@pytest.mark.parametrize(
    ("call", "enabled", "devices", "dtypes"),
    [
        ('torch.autocast("cuda")', "on", {"cuda"}, {"float16"}),
        ('torch.autocast("cuda:1")', "on", {"cuda"}, {"float16"}),
        ('torch.amp.autocast(device_type="cpu")', "on", {"cpu"}, {"bfloat16"}),
        ('torch.amp.autocast("xpu", torch.bfloat16, False)', "off", {"xpu"}, {"bfloat16"}),
        ("torch.cuda.amp.autocast()", "on", {"cuda"}, {"float16"}),
        ("torch.cuda.amp.autocast(False)", "off", {"cuda"}, {"float16"}),
        ("torch.cuda.amp.autocast(flag, torch.bfloat16)", "flag", {"cuda"}, {"bfloat16"}),
        ("torch.cuda.amp.autocast_mode.autocast()", "on", {"cuda"}, {"float16"}),
        ("torch.cpu.amp.autocast(dtype=torch.half)", "on", {"cpu"}, {"float16"}),
        ('torch.autocast("cuda", dtype=torch.float32)', "on", {"cuda"}, {"float32"}),
        ('torch.autocast("cuda", dtype=None)', "on", {"cuda"}, {"float16"}),
        ('torch.autocast("cuda", dtype=x)', "on", {"cuda"}, set()),
        ('torch.autocast("cuda", dtype=torch.half if a else torch.bfloat16)', "on", {"cuda"}, {"float16", "bfloat16"}),
        ('torch.autocast("cuda", dtype=getattr(torch, "bfloat16"))', "on", {"cuda"}, {"bfloat16"}),
        ('torch.autocast("cuda", enabled=torch.cuda.is_available())', "on", {"cuda"}, {"float16"}),
        ('torch.autocast("cuda", enabled=device.type == "cuda")', "on", {"cuda"}, {"float16"}),
        ('torch.autocast("cuda", enabled=not False)', "on", {"cuda"}, {"float16"}),
        ('torch.autocast("cuda", enabled=args.amp and torch.cuda.is_available())', "flag", {"cuda"}, {"float16"}),
        ("torch.autocast(device.type)", "on", set(), set()),
        ('torch.autocast("cuda" if a else "cpu")', "on", {"cuda", "cpu"}, {"float16", "bfloat16"}),
        ('torch.autocast(f"cuda:{rank}")', "on", {"cuda"}, {"float16"}),
        ("torch.autocast(enabled=True)", "flag", set(), set()),
        ('torch.autocast("cuda", True)', "flag", set(), set()),
        ("torch.autocast(**kwargs)", "flag", set(), set()),
    ],
)
def test_reads_a_call(call: str, enabled: str, devices: set[str], dtypes: set[str]) -> None:
    region = only(f"with {call}:\n    pass")
    assert region.enabled == enabled
    assert region.devices == devices
    entry = region.autocasts[0]
    assert entry.dtypes == dtypes


HELD = """
class T:
    def __init__(self):
        self.c = torch.autocast("cuda")
    def f(self):
        with self.c:
            pass
"""


@pytest.mark.parametrize(
    ("code", "row", "certain"),
    [
        ('ctx = torch.autocast("cuda")\nwith ctx:\n    pass', 4, True),
        ('ctx = nullcontext() if a else torch.autocast("cuda")\nwith ctx:\n    pass', 4, False),
        ('with torch.no_grad(), torch.autocast("cuda") as c:\n    pass', 3, True),
        ('@torch.autocast("cuda")\ndef f():\n    pass', 3, True),
        ('from functools import partial\nctx = partial(torch.autocast, "cuda")\nwith ctx():\n    pass', 5, True),
        ('ctx = lambda: torch.autocast("cuda")\nwith ctx():\n    pass', 4, True),
        ('def ctx():\n    return torch.autocast("cuda")\nwith ctx():\n    pass', 5, True),
        (
            'ctx = {"a": torch.autocast("cuda"), "b": nullcontext()}\nwith {"a": torch.autocast("cuda")}[k]:\n    pass',
            4,
            True,
        ),
        (
            HELD,
            8,
            True,
        ),
        ('async def f():\n    async with s, torch.autocast("cuda"):\n        pass', 4, True),
    ],
)
def test_finds_a_region(code: str, row: int, certain: bool) -> None:
    region = only(code)
    assert region.expression.lineno == row
    assert region.certain is certain
    assert region.devices == {"cuda"}


@pytest.mark.parametrize(
    "code",
    [
        "with open(path) as f:\n    pass",
        "with torch.no_grad():\n    pass",
        "with accelerator.autocast():\n    pass",
        "with nullcontext():\n    pass",
        "def f(ctx):\n    with ctx:\n        pass",
        "from mine import autocast\nwith autocast():\n    pass",
        "with torch.xpu.amp.autocast():\n    pass",
    ],
)
def test_finds_nothing_else(code: str) -> None:
    assert parsed(code).regions.all == ()


def test_a_context_manager_of_the_file() -> None:
    region = parsed(
        """
        from contextlib import contextmanager
        def f():
            with amp():
                pass
        @contextmanager
        def amp():
            with torch.autocast("cuda", dtype=torch.bfloat16):
                yield
        """
    ).regions.all[0]
    assert region.expression.lineno == 6
    assert region.dtypes == {"bfloat16"}
    assert not region.certain


def test_an_exit_stack() -> None:
    file = parsed(
        """
        def f(stack):
            before()
            stack.enter_context(torch.autocast("cuda"))
            if x:
                after()
        """
    )
    (region,) = file.regions.all
    by_name = {call.func.id: call for call in file.names.calls if isinstance(call.func, ast.Name)}
    assert file.regions.at(by_name["before"]) is None
    assert file.regions.at(by_name["after"]) is region


def test_a_wrapper_of_the_settings() -> None:
    region = only("with smart_autocast():\n    pass", Settings(wrappers=("smart_autocast",)))
    assert region.enabled == "flag"
    assert region.dtypes == frozenset()
    assert not region.certain


NESTED = """
def f(m, x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        one(x)
        with torch.autocast("cuda", enabled=False):
            two(x)
            def late():
                three(x)
        four(x)
    five(x)
    with torch.no_grad(), torch.autocast("cuda"), six(x):
        pass
"""


@pytest.mark.parametrize(
    ("name", "row"), [("one", 5), ("two", 7), ("three", None), ("four", 5), ("five", None), ("six", 13)]
)
def test_which_region_holds(name: str, row: int | None) -> None:
    file = parsed(NESTED)
    (call,) = [c for c in file.names.calls if isinstance(c.func, ast.Name) and c.func.id == name]
    region = file.regions.at(call)
    assert (None if region is None else region.expression.lineno) == row


def test_an_inner_region_takes_the_dtype_around_it() -> None:
    file = parsed(
        """
        with torch.autocast("cuda", dtype=torch.bfloat16):
            with torch.autocast("cuda"):
                pass
            with torch.cuda.amp.autocast():
                pass
        """
    )
    assert [region.dtypes for region in file.regions.all] == [{"bfloat16"}, {"bfloat16"}, {"float16"}]
    assert [region.outer is None for region in file.regions.all] == [True, False, False]


def test_functions_run_under_the_region_of_their_callers() -> None:
    file = parsed(
        """
        def inner(x):
            return probe(x)
        def middle(x):
            return inner(x)
        def outer(x):
            with torch.autocast("cuda"):
                return middle(x)
        """
    )
    (region,) = file.regions.all
    (call,) = [c for c in file.names.calls if isinstance(c.func, ast.Name) and c.func.id == "probe"]
    ((found, site),) = file.regions.active(call)
    assert found is region
    assert site is not None
    assert site.lineno == 10


@pytest.mark.parametrize(
    ("around", "want"),
    [
        ("with torch.no_grad():", True),
        ("with torch.inference_mode():", True),
        ("with torch.inference_mode(False):", False),
        ("with torch.set_grad_enabled(False):", True),
        ("with torch.set_grad_enabled(train):", False),
        ("with torch.enable_grad():", False),
        ("if x:", False),
    ],
)
def test_without_grad(around: str, want: bool) -> None:
    file = parsed(f"{around}\n    probe(1)")
    (call,) = [c for c in file.names.calls if isinstance(c.func, ast.Name) and c.func.id == "probe"]
    assert file.regions.without_grad(call) is want


def test_without_grad_by_decorator() -> None:
    file = parsed("@torch.no_grad()\ndef f():\n    probe(1)\n@torch.inference_mode\ndef g():\n    probe(1)")
    calls = [c for c in file.names.calls if isinstance(c.func, ast.Name) and c.func.id == "probe"]
    assert [file.regions.without_grad(call) for call in calls] == [True, True]


def test_the_last_context_entered_through_a_stack_holds_for_the_statements_below() -> None:
    file = parsed(
        """
        def f(stack, x):
            probe(0)
            stack.enter_context(torch.autocast("cuda"))
            probe(1)
            if x:
                stack.enter_context(torch.autocast("cpu"))
                probe(2)
            probe(3)
        """
    )
    calls = [c for c in file.names.calls if isinstance(c.func, ast.Name) and c.func.id == "probe"]
    regions = [file.regions.at(call) for call in calls]
    assert [region and region.expression.lineno for region in regions] == [None, 6, 9, 6]


def test_stack_entered_at_the_end_of_an_arm_holds_nothing_that_can_be_named() -> None:
    code = """
        def train(model, loader, optimizer, amp):
            for x in loader:
                with ExitStack() as stack:
                    if amp:
                        stack.enter_context(torch.autocast("cuda"))
                    loss = model(x).mean()
                loss.backward()
                optimizer.step()
        """
    assert parsed(code).regions.all == ()
    assert check_source("import torch\nfrom contextlib import ExitStack\n" + dedent(code), "t.py") == []
