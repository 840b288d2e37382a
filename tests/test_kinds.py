"""The kinds of expressions, by example."""

from __future__ import annotations

from textwrap import dedent

import pytest

from amplint.calls.kinds import (
    Classifier,
    is_named_like_a_device,
    is_named_like_a_dtype,
    is_named_like_a_scale,
    is_named_like_a_switch,
    last_name,
)
from amplint.settings import DEFAULT
from amplint.source import SourceFile


def kinds(text: str) -> list[tuple[str, str]]:
    """The kinds of the argument of the last call of `probe` in a text."""
    file = SourceFile(dedent(text), "t.py", DEFAULT)
    call = [c for c in file.names.calls if file.segment(c.func) == "probe"][-1]
    return sorted((kind.name, kind.text) for kind in Classifier(file).of(call.args[0]))


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("True", [("bool", "")]),
        ("not x", [("bool", "")]),
        ("a is None", [("bool", "")]),
        ("isinstance(x, int)", [("bool", "")]),
        ("torch.cuda.is_available()", [("bool", "")]),
        ("x and y > 0", [("bool", "")]),
        ("x or y > 0", [("bool", ""), ("unknown", "")]),
        ("3", [("number", "")]),
        ("2.0**16", [("number", "")]),
        ("-1", [("number", "")]),
        ("len(x)", [("number", "")]),
        ("None", [("none", "")]),
        ("'cuda'", [("string", "cuda")]),
        ("f'cuda:{rank}'", [("string", "cuda:{}")]),
        ("'cuda:' + str(rank)", [("string", "cuda:{}")]),
        ("'cuda:%d' % rank", [("string", "cuda:{}")]),
        ("str(x)", [("string", "")]),
        ("x.device.type", [("string", "")]),
        ("torch.float16", [("dtype", "")]),
        ("getattr(torch, 'bfloat16')", [("dtype", "")]),
        ("getattr(torch, name)", [("unknown", "")]),
        ("torch.get_autocast_dtype('cuda')", [("dtype", "")]),
        ("torch.float16 if half else None", [("dtype", ""), ("none", "")]),
        ("torch.device('cuda')", [("device", "")]),
        ("next(model.parameters()).device", [("device", "")]),
        ("torch.zeros(3).device", [("device", "")]),
        ("args.device", [("unknown", "")]),
        ("device or 'cuda:0'", [("string", "cuda:0"), ("unknown", "")]),
        ("(y := 3)", [("number", "")]),
        ("x @ y", [("unknown", "")]),
        ("lambda: 1", [("unknown", "")]),
    ],
)
def test_expressions(expression: str, want: list[tuple[str, str]]) -> None:
    assert kinds(f"import torch\nprobe({expression})\n") == want


@pytest.mark.parametrize(
    ("parameter", "want"),
    [
        ("x", [("unknown", "")]),
        ("x=False", [("bool", "")]),
        ("x: bool", [("bool", "")]),
        ("x: bool | None = None", [("bool", ""), ("none", "")]),
        ("x: Optional[float] = None", [("none", ""), ("number", "")]),
        ("x: 'torch.dtype'", [("dtype", "")]),
        ("x: torch.device", [("device", "")]),
        ("x: str = 'cuda:0'", [("string", ""), ("string", "cuda:0")]),
        ("x='cuda:0'", [("string", "cuda:0"), ("unknown", "")]),
        ("x=None", [("unknown", "")]),
        ("x=1", [("unknown", "")]),
        ("x: Config = True", [("unknown", "")]),
        ("x: 'not (python'", [("unknown", "")]),
        ("*x", [("unknown", "")]),
    ],
)
def test_parameters(parameter: str, want: list[tuple[str, str]]) -> None:
    assert kinds(f"import torch\ndef f({parameter}):\n    probe(x)\n") == want


def test_assignments_on_all_branches_count() -> None:
    text = """\
        import torch
        if a:
            x = torch.device("cpu")
        else:
            x = "cuda:1"
        probe(x)
        """
    assert kinds(text) == [("device", ""), ("string", "cuda:1")]


def test_a_later_assignment_replaces_an_earlier_one() -> None:
    assert kinds("import torch\nx = torch.device('cpu')\nx = x.type\nprobe(x)\n") == [("string", "")]


def test_a_name_that_is_made_of_itself() -> None:
    assert kinds("x = x or 'cuda'\nprobe(x)\n") == [("string", "cuda"), ("unknown", "")]


def test_attributes_of_a_class_and_its_base() -> None:
    text = """\
        import torch

        class Base:
            def __init__(self):
                self.x = torch.device("cpu")

        class Model(Base):
            def __init__(self, flag: bool):
                self.y = flag

            def run(self):
                probe(self.{})
        """
    assert kinds(text.format("x")) == [("device", "")]
    assert kinds(text.format("y")) == [("bool", "")]
    assert kinds(text.format("z")) == [("unknown", "")]
    assert kinds(text.format("run")) == [("unknown", "")]


@pytest.mark.parametrize(
    ("expression", "name"),
    [
        ("amp", "amp"),
        ("args.amp", "amp"),
        ("cfg['amp']", "amp"),
        ("cfg.get('amp', False)", "amp"),
        ("getattr(args, 'amp')", "amp"),
        ("cfg[0]", ""),
        ("f()", ""),
    ],
)
def test_last_name(expression: str, name: str) -> None:
    import ast

    assert last_name(ast.parse(expression, mode="eval").body) == name


@pytest.mark.parametrize(
    ("expression", "want"),
    [
        ("use_amp", "switch"),
        ("args.fp16", "switch"),
        ("fp16", ""),
        ("self._mixed_precision", "switch"),
        ("enabled", "switch"),
        ("amp_dtype", "dtype"),
        ("args.dtype", "dtype"),
        ("device", "device"),
        ("cfg.device_type", "device"),
        ("args.init_scale", "scale"),
        ("amplitude", ""),
        ("example", ""),
        ("scale", ""),
    ],
)
def test_names_that_say_what_they_hold(expression: str, want: str) -> None:
    import ast

    node = ast.parse(expression, mode="eval").body
    tests = {
        "switch": is_named_like_a_switch,
        "dtype": is_named_like_a_dtype,
        "device": is_named_like_a_device,
        "scale": is_named_like_a_scale,
    }
    assert [name for name, test in tests.items() if test(node)] == ([want] if want else [])
