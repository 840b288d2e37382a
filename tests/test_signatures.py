"""Arguments land where Python puts them; a call that Python would refuse does not fit."""

from __future__ import annotations

import ast
import inspect

import pytest

from amplint.calls.signatures import Bound, apis, bind, is_unentered_autocast, signatures_from
from amplint.settings import DEFAULT
from amplint.source import SourceFile
from amplint.torch_api import APIS, Signature

NEW = Signature((1, 11), ("device_type", "dtype", "enabled", "cache_enabled"), (), ("device_type",))
FWD = Signature((2, 4), ("fwd",), ("device_type", "cast_inputs"), ("device_type",))
OPEN = Signature((1, 6), ("fwd",), (), (), True)


def bound(text: str, signature: Signature = NEW) -> Bound:
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    return bind(call, signature)


def placed(found: Bound) -> dict[str, str]:
    return {name: ast.unparse(argument.value) for name, argument in found.arguments.items()}


def test_positions_and_keywords() -> None:
    found = bound('f("cuda", torch.float16, cache_enabled=False)')
    assert placed(found) == {"device_type": "'cuda'", "dtype": "torch.float16", "cache_enabled": "False"}
    assert found.fits
    assert found.arguments["dtype"].keyword is None
    assert found.arguments["cache_enabled"].keyword is not None
    assert found.value("enabled") is None


@pytest.mark.parametrize(
    ("text", "signature", "what"),
    [
        ("f()", NEW, "missing"),
        ("f(enabled=True)", NEW, "missing"),
        ('f("cuda", a, b, c, d)', NEW, "surplus"),
        ('f("cuda", enable=True)', NEW, "unknown"),
        ('f("cuda", device_type="cuda")', NEW, "duplicate"),
        ("f(g)", FWD, "missing"),
        ("f(g, 1, device_type='cuda')", FWD, "surplus"),
        ("f(g, device='cuda')", FWD, "unknown"),
    ],
)
def test_what_does_not_fit(text: str, signature: Signature, what: str) -> None:
    found = bound(text, signature)
    assert not found.fits
    assert getattr(found, what)


@pytest.mark.parametrize("text", ["f(*a)", "f(**k)", "f(*a, enabled=True)", "f(enabled=True, **k)", 'f("cuda", *a, b)'])
def test_what_unpacked_arguments_may_bring_is_not_missed(text: str) -> None:
    assert bound(text).fits


def test_after_a_star_no_position_is_known() -> None:
    found = bound("f(*a, b)")
    assert placed(found) == {}
    assert [ast.unparse(value) for value in found.unplaced] == ["b"]
    assert found.starred


def test_a_star_cannot_bring_a_keyword_only_parameter() -> None:
    assert bound("f(*a)", FWD).missing == ("device_type",)


def test_open_signature_takes_any_keyword() -> None:
    assert bound("f(cast_inputs=x)", OPEN).fits


def test_signatures_from_a_floor_to_the_current_torch() -> None:
    sharded = APIS["torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler"]
    assert [s.since for s in signatures_from(sharded, (1, 10))] == [(1, 12), (2, 3)]
    assert [s.since for s in signatures_from(sharded, (2, 2))] == [(1, 12), (2, 3)]
    assert [s.since for s in signatures_from(sharded, (2, 3))] == [(2, 3)]
    assert [s.since for s in signatures_from(APIS["torch.autocast"], (1, 10))] == [(1, 10), (1, 11)]
    assert [s.since for s in signatures_from(APIS["torch.amp.GradScaler"], (1, 13))] == [(2, 3)]


def test_apis_need_an_entry_for_every_candidate() -> None:
    assert [api.name for api in apis(("torch.autocast", "torch.cuda.amp.autocast"))] == [
        "torch.autocast",
        "torch.cuda.amp.autocast",
    ]
    assert apis(("torch.autocast", "?")) == ()
    assert apis(()) == ()


@pytest.mark.parametrize(
    ("line", "want"),
    [
        ("with autocast: pass", True),
        ("with open(x), autocast as a: pass", True),
        ("with autocast(): pass", False),
        ("stack.enter_context(autocast)", True),
        ("stack.enter_context(autocast())", False),
        ("@autocast\ndef f(): pass", True),
        ("@autocast()\ndef f(): pass", False),
        ("@autocast\nclass F: pass", False),
        ("ctx = autocast", False),
        ("register(autocast)", False),
        ("ctx = autocast\nwith ctx: pass", True),
        ("ctx = autocast if fast else nullcontext\nwith ctx: pass", True),
        ("ctx = autocast if fast else other\nwith ctx: pass", False),
        ("ctx = autocast()\nwith ctx: pass", False),
    ],
)
def test_unentered_autocast(line: str, want: bool) -> None:
    text = f"from contextlib import nullcontext\nfrom torch.cuda.amp import autocast\n{line}\n"
    file = SourceFile(text, "a.py", DEFAULT)
    assert any(is_unentered_autocast(file, ref) for ref in file.refs) is want


@pytest.mark.parametrize("name", [name for name, api in APIS.items() if api.kind in ("autocast", "scaler")])
def test_the_table_is_what_torch_has(name: str) -> None:
    import torch  # noqa: F401
    from torch.distributed.fsdp import sharded_grad_scaler  # noqa: F401

    target = _attribute(name)
    real = inspect.signature(vars(target)["__init__"])
    parameters = list(real.parameters)[1:]
    signature = APIS[name].signature((2, 13))
    assert signature is not None
    assert list(signature.positional) == parameters
    assert [n for n in parameters if real.parameters[n].default is inspect.Parameter.empty] == list(signature.required)


def _attribute(name: str) -> type:
    import importlib

    module, _, attribute = name.rpartition(".")
    found = getattr(importlib.import_module(module), attribute)
    assert isinstance(found, type)
    return found
