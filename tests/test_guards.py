"""Which uses of the old API are fallbacks, and on which torch a node runs."""

from __future__ import annotations

import ast

import pytest

from amplint.settings import DEFAULT
from amplint.source import SourceFile
from amplint.torch_api import Version
from amplint.versions.guards import is_old
from amplint.versions.releases import TorchRange

SILENT = {
    "the usual import shim": (
        """
        try:
            from torch.amp import GradScaler, autocast
        except ImportError:
            from torch.cuda.amp import GradScaler, autocast
        scaler = GradScaler()
        """,
        {4: "version", 5: "shim"},
    ),
    "an attribute that is tried": (
        """
        import torch
        try:
            scaler = torch.amp.GradScaler(device=device)
        except (AttributeError, TypeError):
            scaler = torch.cuda.amp.GradScaler()
        """,
        {5: "version"},
    ),
    "a table by a flag": (
        """
        import torch
        GradScaler = {True: torch.amp.GradScaler, False: torch.cuda.amp.GradScaler}[hasattr(torch.amp, "GradScaler")]
        make = {False: lambda: torch.cuda.amp.autocast(), True: lambda: torch.amp.autocast("cuda")}[NEW]
        """,
        {2: "arm", 3: "arm"},
    ),
    "a flag set by a try": (
        """
        import torch
        try:
            from torch.amp import GradScaler
            NEW = True
        except ImportError:
            NEW = False
        scaler = GradScaler("cuda") if NEW else torch.cuda.amp.GradScaler()
        """,
        {7: "version"},
    ),
    "a name that may be None": (
        """
        try:
            from torch.amp import GradScaler
        except ImportError:
            GradScaler = None
        if GradScaler is None:
            from torch.cuda.amp import GradScaler
        """,
        {6: "version"},
    ),
    "an early return": (
        """
        import torch
        def make():
            if torch.__version__ >= "2.4":
                return torch.amp.GradScaler("cuda")
            return torch.cuda.amp.GradScaler()
        """,
        {5: "version"},
    ),
    "an early return of the old API": (
        """
        import torch
        def make(modern):
            if not modern:
                return torch.cuda.amp.GradScaler()
            return torch.amp.GradScaler("cuda")
        """,
        {4: "arm"},
    ),
    "a flag from elsewhere": (
        """
        import torch
        from project import NEW_API
        scaler = torch.amp.GradScaler("cuda") if NEW_API else torch.cuda.amp.GradScaler()
        """,
        {3: "arm"},
    ),
    "a default that a newer API overrides": (
        """
        from torch.cuda.amp import GradScaler
        from project import NEW
        if NEW:
            from torch.amp import GradScaler
        """,
        {1: "default"},
    ),
    "a default under suppress": (
        """
        import contextlib
        from torch.cuda.amp import GradScaler
        with contextlib.suppress(ImportError):
            from torch.amp import GradScaler
        """,
        {2: "default"},
    ),
    "the default of getattr": (
        """
        import torch
        custom_fwd = getattr(torch.amp, "custom_fwd", torch.cuda.amp.custom_fwd)
        """,
        {2: "default"},
    ),
    "getattr with None": (
        """
        import torch
        custom_fwd = getattr(torch.amp, "custom_fwd", None)
        if custom_fwd is None:
            custom_fwd = torch.cuda.amp.custom_fwd
        """,
        {4: "version"},
    ),
    "short circuits": (
        """
        import torch
        a = torch.__version__ < "2.4" and torch.cuda.amp.custom_fwd
        b = hasattr(torch.amp, "custom_fwd") or torch.cuda.amp.custom_fwd
        """,
        {2: "version", 3: "version"},
    ),
    "flags of a class and an object": (
        """
        import torch
        from packaging.version import parse
        class Trainer:
            NEW = parse(torch.__version__) >= parse("2.3")
            def __init__(self):
                self.modern = torch.__version__ >= "2.3"
                if self.NEW:
                    self.scaler = torch.amp.GradScaler()
                else:
                    self.scaler = torch.cuda.amp.GradScaler()
            def again(self):
                return torch.amp.GradScaler() if self.modern else torch.cuda.amp.GradScaler()
        """,
        {10: "version", 12: "version"},
    ),
    "functions that return the answer": (
        """
        import torch
        def is_new():
            return tuple(int(v) for v in torch.__version__.split("+")[0].split(".")[:2]) >= (2, 4)
        def at_least(version):
            return tuple(int(v) for v in torch.__version__.split(".")[:2]) >= version
        def has_scaler():
            if not hasattr(torch, "amp"):
                return False
            return hasattr(torch.amp, "GradScaler")
        a = torch.amp.GradScaler if is_new() else torch.cuda.amp.GradScaler
        b = torch.amp.custom_fwd if at_least((2, 4)) else torch.cuda.amp.custom_fwd
        c = torch.amp.GradScaler if has_scaler() else torch.cuda.amp.GradScaler
        """,
        {10: "version", 11: "version", 12: "version"},
    ),
    "a private function that only an old torch calls": (
        """
        import torch
        def _old():
            return torch.cuda.amp.GradScaler()
        def make():
            return torch.amp.GradScaler() if torch.__version__ >= "2.3" else _old()
        """,
        {3: "version"},
    ),
    "major and minor": (
        """
        import torch
        major, minor = map(int, torch.__version__.split(".")[:2])
        if major < 2 or (major == 2 and minor < 4):
            custom_fwd = torch.cuda.amp.custom_fwd
        """,
        {4: "version"},
    ),
    "match": (
        """
        import torch
        match torch.__version__ >= "2.4":
            case True:
                custom_fwd = torch.amp.custom_fwd
            case _:
                custom_fwd = torch.cuda.amp.custom_fwd
        """,
        {6: "version"},
    ),
    "match with guards": (
        """
        import torch
        match x:
            case _ if torch.__version__ >= "2.4":
                custom_fwd = torch.amp.custom_fwd
            case _:
                custom_fwd = torch.cuda.amp.custom_fwd
        """,
        {6: "version"},
    ),
    "a chain of elif": (
        """
        import torch
        if torch.__version__ >= (2, 4):
            f = None
        elif torch.__version__ >= (1, 10):
            f = torch.cuda.amp.custom_fwd
        """,
        {5: "version"},
    ),
    "a skipped test": (
        """
        import pytest, torch
        @pytest.mark.skipif(torch.__version__ >= "2.4", reason="old")
        def test_old():
            torch.cuda.amp.autocast()
        """,
        {4: "version"},
    ),
    "a loop that goes on": (
        """
        import torch
        while torch.__version__ < "2.4":
            torch.cuda.amp.autocast()
        for x in y:
            if torch.__version__ >= "2.4":
                continue
            torch.cuda.amp.autocast()
        """,
        {3: "version", 7: "version"},
    ),
    "an assertion": (
        """
        import torch
        assert torch.__version__ < (2,)
        torch.cuda.amp.autocast()
        """,
        {3: "version"},
    ),
    "the program ends on a new torch": (
        """
        import sys, torch
        if torch.__version__ >= (2,):
            sys.exit(1)
        torch.cuda.amp.autocast()
        """,
        {4: "version"},
    ),
    "an inverted test is another rule's": (
        """
        import torch
        scaler = torch.cuda.amp.GradScaler() if torch.__version__ >= "2.4" else torch.amp.GradScaler("cuda")
        """,
        {2: "arm"},
    ),
    "recovery from something that can't be seen": (
        """
        from torch.cuda.amp import GradScaler
        try:
            train()
        except Exception:
            scaler = GradScaler()
        """,
        {1: "", 5: "handler"},
    ),
    "a test of the version beside another": (
        """
        import torch
        def region(enabled):
            if enabled and hasattr(torch, "amp"):
                return torch.amp.autocast("cuda")
            if enabled and hasattr(torch.cuda, "amp"):
                return torch.cuda.amp.autocast()
        """,
        {6: "arm"},
    ),
    "what follows a try that returns": (
        """
        import torch
        def make():
            try:
                if hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler"):
                    return torch.amp.GradScaler("cuda")
            except Exception:
                return torch.cuda.amp.GradScaler()
            return torch.cuda.amp.GradScaler(enabled=False)
        """,
        {7: "handler", 8: "version"},
    ),
    "functions defined in a try": (
        """
        try:
            from torch import amp
            def region(): return amp.autocast("cuda")
        except Exception:
            from torch.cuda.amp import autocast as old
            def region(): return old()
        """,
        {5: "version", 6: "version"},
    ),
    "the signature is tried": (
        """
        import torch
        try:
            scaler = torch.amp.GradScaler("cuda")
        except TypeError:
            scaler = torch.cuda.amp.GradScaler()
        """,
        {5: "handler"},
    ),
    "a parser under another name": (
        """
        import torch
        from packaging.version import parse as V
        if V(torch.__version__) >= V("1.6.0"):
            if V(torch.__version__) >= V("2.0.0"):
                from torch.amp import autocast
            else:
                from torch.cuda.amp import autocast
        """,
        {7: "version"},
    ),
    "a version that a function takes apart": (
        """
        import torch
        def _parse():
            try:
                major, minor = torch.__version__.split(".")[:2]
            except ValueError:
                major, minor = 2, 0
            return major, minor
        _TORCH_MAJOR, _TORCH_MINOR = _parse()
        NEW = _TORCH_MAJOR > 2 or (_TORCH_MAJOR == 2 and _TORCH_MINOR >= 4)
        if not NEW:
            custom_fwd = torch.cuda.amp.custom_fwd
        """,
        {11: "version"},
    ),
    "both types": (
        """
        import torch
        def make() -> torch.amp.GradScaler | torch.cuda.amp.GradScaler: ...
        isinstance(x, (torch.amp.GradScaler, torch.cuda.amp.GradScaler))
        """,
        {2: "arm", 3: "arm"},
    ),
    "the state functions": (
        """
        import torch
        def dtype(device):
            try:
                return torch.get_autocast_dtype(device)
            except AttributeError:
                return torch.get_autocast_gpu_dtype()
        """,
        {6: "version"},
    ),
    "a call that an old torch refuses": (
        """
        import torch
        def enabled(device):
            try:
                return torch.is_autocast_enabled(device)
            except TypeError:
                return torch.is_autocast_cpu_enabled()
        """,
        {6: "version"},
    ),
}

REPORTED = {
    "a table by the device": """
        import torch
        made = {True: torch.amp.GradScaler, False: torch.cuda.amp.GradScaler}[torch.cuda.is_available()]
        """,
    "a table by a name": """
        import torch
        made = {"new": torch.amp.GradScaler, "old": torch.cuda.amp.GradScaler}[name]
        """,
    "a table of other things": """
        import torch
        made = {True: torch.amp.autocast, False: torch.cuda.amp.GradScaler}[flag]
        """,
    "a table that nothing chooses from": """
        import torch
        made = {True: torch.amp.GradScaler, False: torch.cuda.amp.GradScaler}
        """,
    "the old API comes first": """
        try:
            from torch.cuda.amp import GradScaler
        except ImportError:
            from torch.amp import GradScaler
        """,
    "a dummy for an old torch": """
        try:
            from torch.cuda.amp import GradScaler
        except ImportError:
            class GradScaler:
                pass
        """,
    "another library is missing": """
        try:
            from apex.parallel import DistributedDataParallel
        except ImportError:
            from torch.cuda.amp import autocast
        """,
    "another kind of error": """
        import torch
        try:
            step()
        except RuntimeError:
            torch.cuda.amp.autocast(enabled=False)
        """,
    "another device": """
        import torch
        def region(flag):
            if flag:
                return torch.amp.autocast("cpu")
            return torch.cuda.amp.autocast()
        """,
    "a test for the device": """
        import torch
        scaler = torch.amp.GradScaler(device) if device != "cuda" else torch.cuda.amp.GradScaler()
        """,
    "a test for the accelerator": """
        from project import is_npu_available
        if is_npu_available():
            from torch.npu.amp import GradScaler
        else:
            from torch.cuda.amp import GradScaler
        """,
    "a choice by several things": """
        import torch
        region = torch.amp.autocast(d) if (use and x != "cpu" and y is not None) else torch.cuda.amp.autocast()
        """,
    "an option": """
        import torch
        scaler = torch.cuda.amp.GradScaler() if args.amp else torch.amp.GradScaler("cuda", enabled=False)
        """,
    "two modes of a program": """
        import torch
        if mode == "first":
            torch.cuda.amp.autocast()
        else:
            torch.amp.autocast("cuda")
        """,
    "another kind of thing in the other arm": """
        import torch
        thing = torch.amp.GradScaler("cuda") if NEW else torch.cuda.amp.autocast()
        """,
    "a gate that only opens": """
        import torch
        if torch.__version__ >= "1.6":
            from torch.cuda.amp import autocast
        """,
    "constants": """
        import torch
        USE = False
        if USE:
            torch.cuda.amp.autocast()
        while True:
            torch.cuda.amp.autocast()
        """,
    "a default that another device overrides": """
        from torch.cuda.amp import GradScaler
        if device == "cpu":
            from torch.amp import GradScaler
        """,
    "a name that is assigned again in a circle": """
        import torch
        new = old
        old = new
        scaler = torch.cuda.amp.GradScaler() if old else None
        """,
}


def parsed(text: str) -> SourceFile:
    lines = text.splitlines()[1:] if text.startswith("\n") else text.splitlines()
    return SourceFile("\n".join(line[8:] for line in lines) + "\n", "test.py", DEFAULT)


def reasons(text: str) -> dict[int, str]:
    """Why each old name is left alone, by its line."""
    file = parsed(text)
    old = [ref for ref in file.refs if any(map(is_old, ref.candidates))]
    assert [file.guards.silences(ref) for ref in old] == [bool(file.guards.silence(ref)) for ref in old]
    return {ref.node.lineno: file.guards.silence(ref) for ref in old}


@pytest.mark.parametrize(("text", "expected"), SILENT.values(), ids=SILENT.keys())
def test_left_alone(text: str, expected: dict[int, str]) -> None:
    assert reasons(text) == expected


@pytest.mark.parametrize("text", REPORTED.values(), ids=REPORTED.keys())
def test_not_left_alone(text: str) -> None:
    found = reasons(text)
    assert found
    assert set(found.values()) == {""}


NEW, OLD = "torch.__version__ >= '2.4'", "torch.__version__ < '2.4'"
TRIED = "try:\n    torch.amp.custom_fwd\nexcept AttributeError:\n"


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        (f"if {NEW}:\n    here()\n", (2, 4), None),
        (f"if {NEW}:\n    pass\nelse:\n    here()\n", None, (2, 4)),
        ("if '1.5' <= digit_version(TORCH_VERSION) < digit_version('1.10.0'):\n    here()\n", (1, 5), (1, 10)),
        (f"if torch.__version__ >= '2.0':\n    if {OLD}:\n        here()\n", (2, 0), (2, 4)),
        ("if flag:\n    here()\n", None, None),
        (f"if flag and {NEW}:\n    here()\n", (2, 4), None),
        (f"if flag and {NEW}:\n    pass\nelse:\n    here()\n", None, None),
        (f"if flag or {NEW}:\n    pass\nelse:\n    here()\n", None, (2, 4)),
        (f"if {OLD}:\n    raise SystemExit\nhere()\n", (2, 4), None),
        (f"{TRIED}    raise\nhere()\n", (2, 4), None),
        (f"{TRIED}    here()\n", None, (2, 4)),
        (f"{TRIED}    pass\nelse:\n    here()\n", (2, 4), None),
        (f"if {OLD}:\n    if {NEW}:\n        here()\n", (2, 16), (2, 16)),
    ],
)
def test_range(text: str, low: Version | None, high: Version | None) -> None:
    file = SourceFile(f"import torch\nfrom mmengine.utils.dl_utils import TORCH_VERSION\n{text}", "test.py", DEFAULT)
    [call] = [call for call in file.names.calls if isinstance(call.func, ast.Name) and call.func.id == "here"]
    assert file.guards.range_at(call) == TorchRange(low, high)


def test_protected() -> None:
    file = parsed(
        """
        import contextlib
        import torch
        try:
            a()
        except ImportError:
            b()
        with contextlib.suppress(AttributeError), open(x):
            c()
        try:
            d()
        except ValueError:
            pass
        """
    )
    calls = {call.func.id: call for call in file.names.calls if isinstance(call.func, ast.Name)}
    assert {name: file.guards.is_protected(calls[name]) for name in "abcd"} == {
        "a": True,
        "b": False,
        "c": True,
        "d": False,
    }


def test_a_long_chain_of_flags_ends() -> None:
    flags = "".join(f"f{i} = not f{i - 1}\n" for i in range(1, 400))
    text = f"import torch\nf0 = torch.__version__ < '2.4'\n{flags}if f399:\n    torch.cuda.amp.autocast()\n"
    file = SourceFile(text, "test.py", DEFAULT)
    assert file.guards.silence(file.refs[-1]) == ""


def test_a_long_elif_chain_ends() -> None:
    arms = "".join(f"elif x == {i}:\n    return\n" for i in range(700))
    body = f"if x is None:\n    return\n{arms}else:\n    return\ntorch.cuda.amp.autocast()\n"
    text = "import torch\ndef f(x):\n" + "".join(f"    {line}\n" for line in body.splitlines())
    file = SourceFile(text, "test.py", DEFAULT)
    assert file.guards.silence(file.refs[-1]) == ""
