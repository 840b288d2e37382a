"""AMP004: what real torch says to each call that is reported, and to what the fix makes of it."""

from __future__ import annotations

import warnings
from textwrap import dedent

import pytest

from amplint import check_source, fix_source
from amplint.calls.call_faults import is_wrong_call
from amplint.model import Applicability
from amplint.settings import Settings
from amplint.source import SourceFile

ONLY = Settings(select=("AMP004",))

SETUP = """\
import functools
import torch
from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu")
scaler.scale(model(torch.ones(1, 2)).sum()).backward()
loss = model(torch.ones(1, 2)).sum()
flag = loss is not None
device = torch.device("cpu")


def enter(context):
    with context:
        return torch.is_autocast_enabled("cpu")


"""


def execute(text: str) -> dict[str, object]:
    """Run a text on real torch; returns its names."""
    names: dict[str, object] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(text, "snippet.py", "exec", dont_inherit=True), names)
    return names


def found(text: str, settings: Settings = ONLY) -> list[tuple[int, int]]:
    """The (row, column) of what is found in a text."""
    return [(d.location.row, d.location.column) for d in check_source(dedent(text), "t.py", settings)]


def fixed(text: str, settings: Settings = ONLY, *, unsafe: bool = False) -> str:
    """A text after the fixes."""
    result = fix_source(dedent(text), "t.py", settings, unsafe=unsafe)
    assert result.messages == []
    return result.text


RAISES = [
    # A value in the wrong place of the current autocast.
    ('enter(torch.autocast("cpu", flag))', TypeError, 'enter(torch.autocast("cpu", enabled=flag))'),
    ('enter(torch.amp.autocast("cpu", not flag))', TypeError, 'enter(torch.amp.autocast("cpu", enabled=not flag))'),
    (
        'enter(torch.autocast("cpu", True, torch.bfloat16))',
        TypeError,
        'enter(torch.autocast("cpu", enabled=True, dtype=torch.bfloat16))',
    ),
    (
        'enter(torch.autocast("cpu", True, torch.bfloat16, False))',
        TypeError,
        'enter(torch.autocast("cpu", enabled=True, dtype=torch.bfloat16, cache_enabled=False))',
    ),
    ("enter(torch.autocast())", TypeError, 'enter(torch.autocast("cpu"))'),
    ("enter(torch.autocast(enabled=flag))", TypeError, 'enter(torch.autocast("cpu", enabled=flag))'),
    ("enter(torch.autocast(flag))", ValueError, 'enter(torch.autocast("cpu", enabled=flag))'),
    ("enter(torch.autocast(torch.bfloat16))", ValueError, 'enter(torch.autocast("cpu", dtype=torch.bfloat16))'),
    ("enter(torch.autocast(device))", ValueError, "enter(torch.autocast(device.type))"),
    ("enter(torch.autocast(device_type=device))", ValueError, "enter(torch.autocast(device_type=device.type))"),
    ("enter(torch.autocast(model.weight.device))", ValueError, "enter(torch.autocast(model.weight.device.type))"),
    (
        "enter(torch.autocast(next(model.parameters()).device))",
        ValueError,
        "enter(torch.autocast(next(model.parameters()).device.type))",
    ),
    ('enter(torch.autocast(torch.device("cpu")))', ValueError, 'enter(torch.autocast(torch.device("cpu").type))'),
    ("enter(torch.autocast('CPU'))", RuntimeError, "enter(torch.autocast('cpu'))"),
    ('enter(torch.autocast("gpu"))', RuntimeError, 'enter(torch.autocast("cuda"))'),
    ('enter(torch.autocast("cpu", enable=flag))', TypeError, 'enter(torch.autocast("cpu", enabled=flag))'),
    ('enter(torch.autocast(device="cpu"))', TypeError, 'enter(torch.autocast(device_type="cpu"))'),
    ('enter(torch.autocast("cpu", device_type="cpu"))', TypeError, 'enter(torch.autocast("cpu"))'),
    ('enter(torch.autocast("cpu", enabled=1))', TypeError, 'enter(torch.autocast("cpu", enabled=True))'),
    ('enter(torch.autocast("cpu", enabled="false"))', TypeError, 'enter(torch.autocast("cpu", enabled=False))'),
    (
        'enter(torch.autocast("cpu", enabled=len([loss])))',
        TypeError,
        'enter(torch.autocast("cpu", enabled=bool(len([loss]))))',
    ),
    ('enter(torch.autocast("cpu", dtype="bfloat16"))', TypeError, 'enter(torch.autocast("cpu", dtype=torch.bfloat16))'),
    ('enter(torch.autocast("cpu", "bf16"))', TypeError, 'enter(torch.autocast("cpu", torch.bfloat16))'),
    (
        "torch.amp.is_autocast_available(device)",
        TypeError,
        "torch.amp.is_autocast_available(device.type)",
    ),
    (
        'enter(functools.partial(torch.autocast, "cpu", flag)())',
        TypeError,
        'enter(functools.partial(torch.autocast, "cpu", enabled=flag)())',
    ),
    # A call for the current class on a deprecated one.
    ('enter(torch.cpu.amp.autocast("cpu"))', TypeError, "enter(torch.cpu.amp.autocast())"),
    ('enter(torch.cpu.amp.autocast(device_type="cpu"))', TypeError, "enter(torch.cpu.amp.autocast())"),
    (
        'enter(torch.cpu.amp.autocast("cpu", torch.bfloat16, flag))',
        TypeError,
        "enter(torch.cpu.amp.autocast(dtype=torch.bfloat16, enabled=flag))",
    ),
    ('enter(torch.cpu.amp.autocast("cpu", flag))', TypeError, "enter(torch.cpu.amp.autocast(enabled=flag))"),
    (
        "enter(torch.cuda.amp.autocast(device_type=device.type))",
        TypeError,
        "enter(torch.amp.autocast(device_type=device.type))",
    ),
    (
        "enter(torch.cuda.amp.autocast(device=device.type))",
        TypeError,
        "enter(torch.amp.autocast(device_type=device.type))",
    ),
    (
        "enter(torch.cpu.amp.autocast(torch.bfloat16))",
        TypeError,
        "enter(torch.cpu.amp.autocast(dtype=torch.bfloat16))",
    ),
    (
        'enter(functools.partial(torch.cpu.amp.autocast, "cpu")())',
        TypeError,
        "enter(functools.partial(torch.cpu.amp.autocast)())",
    ),
    ('torch.cpu.amp.GradScaler("cpu").scale(loss)', TypeError, "torch.cpu.amp.GradScaler().scale(loss)"),
    (
        'torch.cpu.amp.GradScaler(device="cpu", enabled=flag)',
        TypeError,
        "torch.cpu.amp.GradScaler(enabled=flag)",
    ),
    ('torch.cpu.amp.GradScaler("cpu", 8.0)', None, "torch.cpu.amp.GradScaler(8.0)"),
    ('torch.cuda.amp.GradScaler(device="cpu")', TypeError, 'torch.amp.GradScaler(device="cpu")'),
    ('torch.cuda.amp.GradScaler("cpu").scale(loss)', None, 'torch.amp.GradScaler("cpu").scale(loss)'),
    # The scaler's constructor.
    ('torch.amp.GradScaler("cpu", enable=flag)', TypeError, 'torch.amp.GradScaler("cpu", enabled=flag)'),
    ('torch.amp.GradScaler(device_type="cpu")', TypeError, 'torch.amp.GradScaler(device="cpu")'),
    # custom_fwd and custom_bwd.
    ("torch.amp.custom_fwd(enter)", TypeError, 'torch.amp.custom_fwd(enter, device_type="cpu")'),
    ('torch.amp.custom_fwd("cpu")', TypeError, 'torch.amp.custom_fwd(device_type="cpu")'),
    ('torch.amp.custom_bwd(device="cpu")', TypeError, 'torch.amp.custom_bwd(device_type="cpu")'),
    (
        "@torch.amp.custom_fwd\ndef forward(ctx): ...",
        TypeError,
        '@torch.amp.custom_fwd(device_type="cpu")\ndef forward(ctx): ...',
    ),
    (
        "@torch.amp.custom_fwd(cast_inputs=torch.float32)\ndef forward(ctx): ...",
        TypeError,
        '@torch.amp.custom_fwd(cast_inputs=torch.float32, device_type="cpu")\ndef forward(ctx): ...',
    ),
    (
        "@torch.cuda.amp.custom_bwd()\ndef backward(ctx): ...",
        TypeError,
        "@torch.cuda.amp.custom_bwd\ndef backward(ctx): ...",
    ),
    (
        '@torch.cuda.amp.custom_bwd(device_type="cuda")\ndef backward(ctx): ...',
        TypeError,
        "@torch.cuda.amp.custom_bwd\ndef backward(ctx): ...",
    ),
    (
        '@torch.cuda.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)\ndef forward(ctx): ...',
        TypeError,
        "@torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)\ndef forward(ctx): ...",
    ),
    # Methods of the scaler.
    ("scaler.unscale(optimizer)", AttributeError, "scaler.unscale_(optimizer)"),
    ("scaler.backward(loss)", AttributeError, "scaler.scale(loss).backward()"),
    (
        "scaler.backward(loss, retain_graph=True, create_graph=False)",
        AttributeError,
        "scaler.scale(loss).backward(retain_graph=True, create_graph=False)",
    ),
    ("scaler.step()\nscaler.update()", TypeError, "scaler.step(optimizer)\nscaler.update()"),
    ("scaler.step(optimizer.step())", AttributeError, "scaler.step(optimizer)"),
    (
        "scaler.unscale_(optimizer)\nscaler.update(1024)",
        AttributeError,
        "scaler.unscale_(optimizer)\nscaler.update(1024.0)",
    ),
    (
        "scaler.unscale_(optimizer)\nscaler.update(2**10)",
        AttributeError,
        "scaler.unscale_(optimizer)\nscaler.update(float(2**10))",
    ),
    ("scaler.unscale_(model.parameters())", AttributeError, "scaler.unscale_(optimizer)"),
    ("scaler.step(model)", AttributeError, "scaler.step(optimizer)"),
    ("scaler.step(optimizer)\nscaler.update(optimizer)", AttributeError, "scaler.step(optimizer)\nscaler.update()"),
    ("scaler.scale(loss.backward())", ValueError, "scaler.scale(loss).backward()"),
    ("scaler.scale(loss.backward(retain_graph=True))", ValueError, "scaler.scale(loss).backward(retain_graph=True)"),
    ("scaler.scale(loss.item()).backward()", ValueError, "scaler.scale(loss).backward()"),
    ("scaler.unscale_()", TypeError, "scaler.unscale_(optimizer)"),
    ("scaler.zero_grad()", AttributeError, "optimizer.zero_grad()"),
    ("scaler.getScale()", AttributeError, "scaler.get_scale()"),
    ("scaler.state_dicts()", AttributeError, "scaler.state_dict()"),
]


@pytest.mark.parametrize(("bad", "error", "good"), RAISES, ids=[bad.replace("\n", "; ") for bad, _, _ in RAISES])
def test_torch_refuses_what_is_reported_and_takes_what_is_written(
    bad: str, error: type[Exception] | None, good: str
) -> None:
    assert len(found(SETUP + bad)) == 1
    if error is not None:
        with pytest.raises(error):
            execute(SETUP + bad)
    assert fixed(SETUP + bad, unsafe=True) == SETUP + good
    execute(SETUP + good)
    assert found(SETUP + good) == []


UNFIXED = [
    ('enter(torch.autocast("cpu", torch.bfloat16, True, None, None))', TypeError),
    ('torch.amp.GradScaler("cpu", growth_factor=1.0)', AssertionError),
    ('torch.amp.GradScaler("cpu", backoff_factor=1)', AssertionError),
    ('enter(torch.autocast("cpu", enabled="perhaps"))', TypeError),
    ('enter(torch.autocast("cpu", "int7"))', TypeError),
    ("value = scaler.scale(loss.backward())", ValueError),
    ('torch.amp.autocast("cpu", mode=3)', TypeError),
    ("torch.cuda.amp.custom_bwd()(enter)", TypeError),
    ("scaler.backward()", AttributeError),
]


@pytest.mark.parametrize(("bad", "error"), UNFIXED)
def test_reported_without_a_fix(bad: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        execute(SETUP + bad)
    [diagnostic] = check_source(SETUP + bad, "t.py", ONLY)
    assert diagnostic.fix is None


SILENTLY_WRONG = [
    ("torch.amp.GradScaler(flag)", "torch.amp.GradScaler(enabled=flag)"),
    ("torch.amp.GradScaler(8.0)", 'torch.amp.GradScaler("cpu", 8.0)'),
    ("torch.amp.GradScaler(8.0, 4.0, 0.25, 7)", 'torch.amp.GradScaler("cpu", 8.0, 4.0, 0.25, 7)'),
    ("torch.cpu.amp.GradScaler(flag)", "torch.cpu.amp.GradScaler(enabled=flag)"),
    ('torch.amp.GradScaler("cpu", flag)', 'torch.amp.GradScaler("cpu", enabled=flag)'),
    ("ShardedGradScaler(8.0)", "ShardedGradScaler(init_scale=8.0)"),
]


@pytest.mark.parametrize(("bad", "good"), SILENTLY_WRONG)
def test_arguments_that_torch_ignores(bad: str, good: str) -> None:
    assert len(found(f"{SETUP}x = {bad}\n")) == 1
    assert fixed(f"{SETUP}x = {bad}\n", unsafe=True) == f"{SETUP}x = {good}\n"
    assert found(f"{SETUP}x = {good}\n") == []


def test_what_torch_makes_of_ignored_arguments() -> None:
    names = execute(
        SETUP
        + "a = torch.amp.GradScaler(8.0).get_scale(), torch.amp.GradScaler(False).is_enabled()\n"
        + "b = torch.amp.GradScaler('cpu', 8.0).get_scale()\n"
        + "c = torch.cpu.amp.GradScaler(False).scale(torch.ones(1)).item()\n"
    )
    assert names["a"] == (65536.0, True)
    assert names["b"] == 8.0
    assert names["c"] == 0.0


HEAD = "import torch\nfrom torch.amp import GradScaler, autocast\n"


@pytest.mark.parametrize(
    "line",
    [
        'autocast("cuda", amp_dtype)',
        'autocast("cuda", args.amp_dtype)',
        'autocast("cuda", getattr(torch, name))',
        'autocast("cuda", torch.float16 if fp16 else torch.bfloat16)',
        'autocast("cuda", torch.float16 if fp16 else None)',
        'autocast("cuda", None, use_amp)',
        'autocast("cuda", dtype=cfg["dtype"])',
        'autocast("cuda", enabled=args.amp)',
        'autocast("cuda", enabled=scaler is not None)',
        'autocast("cuda", enabled=use_amp and torch.cuda.is_available())',
        "autocast(device_type)",
        "autocast(device.type)",
        "autocast(args.device)",
        "autocast(self.device)",
        "autocast(batch.device)",
        'autocast("npu")',
        'autocast("mps")',
        "autocast(*args)",
        "autocast(**kwargs)",
        "autocast(enabled=True, **kwargs)",
        'autocast("cuda", *rest)',
        "GradScaler()",
        "GradScaler(device)",
        "GradScaler(device=torch.device('cuda'))",
        'GradScaler("cuda:0")',
        "GradScaler(enabled=use_amp)",
        'GradScaler("cuda", 1024.0)',
        'GradScaler("cuda", growth_factor=2.0, backoff_factor=0.5)',
        'GradScaler("cuda", growth_factor=1.0, enabled=False)',
        "GradScaler(**kwargs)",
        "torch.cuda.amp.autocast(use_amp)",
        "torch.cuda.amp.autocast(True, torch.float16, False)",
        "torch.cuda.amp.autocast()",
        "torch.cuda.amp.GradScaler(2.0**10)",
        "torch.cuda.amp.GradScaler(65536.0, 2.0, 0.5, 2000, use_amp)",
        "torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)",
        "torch.cuda.amp.custom_bwd(function)",
        'torch.amp.custom_fwd(function, device_type="cuda")',
        "register(torch.amp.autocast)",
        "paddle.amp.GradScaler(True)",
        "scaler.unscale(optimizer)",
        "self.scaler.step()",
        "scaler.update()",
    ],
)
def test_silence(line: str) -> None:
    assert found(HEAD + line) == []


@pytest.mark.parametrize(
    ("line", "count"),
    [
        ('autocast("cuda", use_amp)', 1),
        ('autocast("cuda", args.mixed_precision)', 1),
        ('autocast("cuda", cfg["use_amp"])', 1),
        ('autocast("cuda", getattr(args, "amp", False))', 1),
        ('autocast("cuda", self._amp_enabled)', 1),
        ('autocast("cuda", fp16)', 0),
        ("autocast(use_amp)", 1),
        ("autocast(args.amp_dtype)", 1),
        ("GradScaler(args.fp16)", 1),
        ("GradScaler(args.init_scale)", 1),
        ("torch.cuda.amp.autocast(amp_dtype)", 1),
        ("torch.cuda.amp.autocast(device)", 1),
        ("torch.cuda.amp.GradScaler(device)", 1),
        ("torch.cuda.amp.GradScaler(args.use_amp)", 1),
    ],
)
def test_names_say_what_a_value_is_but_only_for_an_unsafe_fix(line: str, count: int) -> None:
    diagnostics = check_source(HEAD + line, "t.py", ONLY)
    assert len(diagnostics) == count
    assert all(d.fix is None or d.fix.applicability is Applicability.UNSAFE for d in diagnostics)


class TestIndexedDevices:
    TEXT = 'import torch\n\nwith torch.autocast("cuda:0"):\n    pass\n'

    def test_current_torch_takes_it_and_checks_less(self) -> None:
        names = execute("import torch\nx = torch.autocast('cuda:0')._enabled\n")
        assert names["x"] is True

    def test_reported_where_the_project_may_run_on_an_older_torch(self) -> None:
        assert found(self.TEXT) == [(3, 6)]
        assert found(self.TEXT, ONLY._replace(target_torch=(2, 3))) == [(3, 6)]
        assert found(self.TEXT, ONLY._replace(target_torch=(2, 4))) == []

    def test_a_literal_is_cut(self) -> None:
        assert fixed(self.TEXT) == 'import torch\n\nwith torch.autocast("cuda"):\n    pass\n'

    @pytest.mark.parametrize(
        "value", ['f"cuda:{rank}"', '"cuda:" + str(rank)', '"cuda:%d" % rank', '"cuda:{}".format(rank)']
    )
    def test_computed_names(self, value: str) -> None:
        text = f"import torch\ndevice = {value}\nctx = torch.autocast(device)\n"
        assert found(text) == [(3, 7)]
        assert fixed(text) == f"import torch\ndevice = {value}\nctx = torch.autocast(torch.device(device).type)\n"

    @pytest.mark.parametrize(
        ("context", "count"),
        [
            ('torch.autocast(device) if device == "cuda" else nullcontext()', 0),
            ('torch.autocast(device) if device in ("cuda", "cpu") else nullcontext()', 0),
            ('nullcontext() if device != "cuda" else torch.autocast(device)', 0),
            ('torch.autocast(device) if "cuda" in device else nullcontext()', 1),
            ('torch.autocast(device) if other == "cuda" else nullcontext()', 1),
            ('torch.autocast(device, enabled=device == "cuda")', 1),
        ],
    )
    def test_a_comparison_with_the_device_type(self, context: str, count: int) -> None:
        text = f'import torch\ndevice = "cuda:0" if torch.cuda.is_available() else "cpu"\ncontext = {context}\n'
        assert len(found(text)) == count

    def test_without_torch_in_reach_there_is_no_fix(self) -> None:
        text = 'from torch.amp import autocast\ndevice = "cuda:1" if ok else "cpu"\nctx = autocast(device)\n'
        [diagnostic] = check_source(text, "t.py", ONLY)
        assert (diagnostic.location.row, diagnostic.fix) == (3, None)


class TestOptions:
    TEXT = """\
        import argparse
        import torch

        parser = argparse.ArgumentParser()
        parser.add_argument("--device", {})
        parser.add_argument("-f", "--use-fast", action="store_true")
        args = parser.parse_args()
        context = torch.autocast(args.device, {})
        """

    @pytest.mark.parametrize(
        ("declared", "argument", "count"),
        [
            ('default="cuda:0"', "enabled=True", 1),
            ('default="cuda"', "enabled=True", 0),
            ('default="cuda:0", type=str', "enabled=True", 1),
            ('default="cuda:0", type=torch.device', "enabled=True", 1),
            ('default="cuda"', "args.use_fast", 1),
            ('default="cuda"', "enabled=args.use_fast", 0),
            ('default="cuda"', "enabled=args.device", 1),
            ('default="cuda"', "dtype=args.other", 0),
            ('default="cuda", dest="place"', "enabled=args.device", 0),
        ],
    )
    def test_what_the_file_declares(self, declared: str, argument: str, count: int) -> None:
        assert len(found(dedent(self.TEXT).format(declared, argument))) == count

    def test_a_flag_of_the_command_line_is_moved_safely(self) -> None:
        text = dedent(self.TEXT).format('default="cuda"', "args.use_fast")
        assert fixed(text) == text.replace("(args.device, args", "(args.device, enabled=args")

    def test_an_option_that_is_set_later_is_unknown(self) -> None:
        text = dedent(self.TEXT).format('default="cuda:0"', "enabled=True")
        assert found(text.replace("context", "args.device = torch.device(args.device).type\ncontext")) == []


class TestTorchVersions:
    @pytest.mark.parametrize(
        ("line", "target", "count"),
        [
            ('torch.autocast("cuda", torch.float16)', (1, 10), 1),
            ('torch.autocast("cuda", torch.float16)', (1, 11), 0),
            ("torch.cuda.amp.autocast(True, torch.float16)", (1, 9), 1),
            ("torch.cuda.amp.autocast(True, torch.float16)", (1, 10), 0),
            ("torch.cuda.amp.autocast(dtype=torch.float16)", (1, 9), 1),
            ('ShardedGradScaler("cuda", 8.0)', (2, 2), 1),
            ('ShardedGradScaler("cuda", 8.0)', (2, 3), 0),
            ('ShardedGradScaler(device="cuda")', (2, 2), 1),
            ("ShardedGradScaler(init_scale=8.0)", (2, 2), 0),
        ],
    )
    def test_the_oldest_supported_one(self, line: str, target: tuple[int, int], count: int) -> None:
        text = f"import torch\nfrom torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler\nx = {line}\n"
        assert len(found(text, ONLY._replace(target_torch=target))) == count

    def test_keywords_mean_the_same_in_all(self) -> None:
        text = 'import torch\nx = torch.autocast("cuda", torch.float16, True)\n'
        assert fixed(text, ONLY._replace(target_torch=(1, 10))) == (
            'import torch\nx = torch.autocast("cuda", dtype=torch.float16, enabled=True)\n'
        )

    def test_guards(self) -> None:
        text = """\
            import torch
            from packaging.version import parse
            from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

            if parse(torch.__version__) >= parse("2.3"):
                scaler = ShardedGradScaler("cuda", 8.0)
            else:
                scaler = ShardedGradScaler(8.0)
            """
        assert found(text) == []
        assert found(text, ONLY._replace(target_torch=(2, 0))) == []


class TestCandidates:
    def test_a_shim_is_at_fault_only_where_both_classes_are(self) -> None:
        shim = """\
            try:
                from torch.amp import autocast
            except ImportError:
                from torch.cuda.amp import autocast
            """
        assert found(dedent(shim) + "autocast(enabled=True)\n") == []
        assert found(dedent(shim) + "autocast(enable=True)\n") == [(5, 1)]
        assert fixed(dedent(shim) + "autocast(enable=True)\n", unsafe=True) == dedent(shim) + "autocast(enable=True)\n"

    def test_a_name_that_may_be_anything(self) -> None:
        assert found("from torch.amp import autocast\nif x:\n    autocast = other\nautocast(enable=True)\n") == []


class TestDevices:
    @pytest.mark.parametrize(
        ("head", "count"),
        [
            ("def f(device: torch.device):", 1),
            ("def f(device: 'torch.device | None' = None):", 1),
            ("def f(device: Optional[torch.device] = None):", 1),
            ("def f(device: str):", 0),
            ('def f(device: str = "cuda:0"):', 1),
            ('def f(device="cuda"):', 0),
            ("def f(device):", 0),
            ("def f(device: Union[str, torch.device]):", 0),
        ],
    )
    def test_parameters(self, head: str, count: int) -> None:
        assert len(found(f"import torch\n{head}\n    torch.autocast(device, enabled=False).__enter__()\n")) == count

    def test_a_test_of_the_type_is_trusted(self) -> None:
        text = """\
            import torch

            def f(device: torch.device):
                device_type = device.type if isinstance(device, torch.device) else device
                return torch.autocast(device_type)

            def g(device: torch.device):
                if isinstance(device, str):
                    return torch.autocast(device)
            """
        assert found(text) == []

    def test_properties_and_functions_of_the_file(self) -> None:
        text = """\
            import torch

            def pick():
                return torch.device("cuda" if torch.cuda.is_available() else "cpu")

            class Module(torch.nn.Module):
                @property
                def device(self) -> torch.device:
                    return next(self.parameters()).device

                def run(self, x):
                    with torch.autocast(self.device):
                        return self(x)

            context = torch.autocast(pick())
            """
        assert found(text) == [(12, 14), (15, 11)]

    @pytest.mark.parametrize(
        ("lines", "count"),
        [
            ("def forward(self, x):\n    return torch.autocast(x.device)", 1),
            ("def run(self, x):\n    return torch.autocast(x.device)", 0),
            ("def run(self, x):\n    x.shape\n    return torch.autocast(x.device)", 1),
            ("def run(self, x: torch.Tensor):\n    return torch.autocast(x.device)", 1),
            ("def run(self, x: Config):\n    x.dtype\n    return torch.autocast(x.device)", 0),
            ("def run(self, x):\n    y = torch.zeros(3)\n    return torch.autocast(y.device)", 1),
            ("def forward(self, args=None):\n    return torch.autocast(args.device)", 0),
        ],
    )
    def test_devices_of_tensors(self, lines: str, count: int) -> None:
        assert len(found(f"import torch\n{lines}\n")) == count


class TestDeviceHint:
    LINE = "with torch.autocast(enabled=True):\n    pass\n"

    @pytest.mark.parametrize(
        ("other", "device", "safe"),
        [
            ('torch.amp.GradScaler("cuda")', "cuda", True),
            ("torch.amp.GradScaler()", "cuda", True),
            ('torch.autocast("cpu")', "cpu", True),
            ("torch.cpu.amp.autocast()", "cpu", True),
            ("model.cuda()", "cuda", True),
            ("model", "cuda", False),
            ('torch.autocast("cpu"), torch.autocast("cuda")', "cuda", False),
            ("torch.autocast(device.type)", "cuda", False),
            ('model.cuda() or model.to("xpu")', "cuda", False),
        ],
    )
    def test_what_the_rest_of_the_file_says(self, other: str, device: str, safe: bool) -> None:
        text = f"import torch\n\n{other}\n{self.LINE}"
        [diagnostic] = check_source(text, "t.py", ONLY)
        assert diagnostic.fix is not None
        assert diagnostic.fix.applicability is (Applicability.SAFE if safe else Applicability.UNSAFE)
        assert f'torch.autocast("{device}", enabled=True)' in fixed(text, unsafe=True)


class TestScalers:
    @pytest.mark.parametrize(
        ("text", "rows"),
        [
            ("scaler = GradScaler()\nscaler.unscale(o)", [3]),
            ("scaler = GradScaler() if amp else None\nscaler.unscale(o)", [3]),
            ("scaler = GradScaler() if amp else Dummy()\nscaler.unscale(o)", []),
            ("scaler = None\nif amp:\n    scaler = GradScaler()\ndef f():\n    scaler.unscale(o)", [6]),
            ("def f(scaler: GradScaler):\n    scaler.unscale(o)", [3]),
            ("def f(scaler: GradScaler | None = None):\n    scaler.unscale(o)", [3]),
            ("def f(scaler: Optional[GradScaler]):\n    scaler.unscale(o)", [3]),
            ("def f(scaler):\n    scaler.backward(x)\nscaler = GradScaler()\nf(scaler)", [3]),
            ("def f(scaler: Other):\n    scaler.unscale(o)", []),
            ("def f(scaler):\n    scaler.unscale(o)", []),
            ("def f(scaler):\n    scaler.scale(loss).backward()\n    scaler.unscale(o)", [4]),
            ("def f(helper):\n    helper.scale(loss).backward()\n    helper.unscale(o)", []),
            ("class Own(GradScaler):\n    pass\nscaler = Own()\nscaler.unscale(o)", []),
            ("scaler = GradScaler()\nscaler.unscale = g\nscaler.stepp = g\nscaler.stepp()", []),
            ("scaler = GradScaler()\nif hasattr(scaler, 'unscale'):\n    scaler.unscale(o)", []),
            ("scaler = GradScaler()\nscaler.step(optimizer, **kw)\nscaler.update(scale)", []),
            ("scaler = GradScaler()\nscaler.scale(loss.item())", []),
        ],
    )
    def test_what_is_known_to_be_one(self, text: str, rows: list[int]) -> None:
        assert [row for row, _ in found(f"from torch.amp import GradScaler\n{text}\n")] == rows

    def test_attributes_of_self(self) -> None:
        text = """\
            from torch.amp import GradScaler

            class Trainer:
                other: GradScaler

                def __init__(self, amp):
                    self.scaler = GradScaler("cuda") if amp else None

                def step(self, loss):
                    self.scaler.backward(loss)
                    self.other.unscale(self.optimizer)
                    self.third.unscale(self.optimizer)
            """
        assert found(text) == [(10, 9), (11, 9)]

    def test_two_optimizers_leave_open_which_is_meant(self) -> None:
        text = """\
            from torch.amp import GradScaler

            def train(opt_g, opt_d):
                scaler = GradScaler("cuda")
                scaler.step(opt_g)
                scaler.step(opt_d)
                scaler.zero_grad()
            """
        [diagnostic] = check_source(dedent(text), "t.py", ONLY)
        assert (diagnostic.location.row, diagnostic.fix) == (7, None)
        assert diagnostic.help == "zero the gradients of the optimizer"


def test_the_argument_is_blamed_on_the_line_of_the_call() -> None:
    text = """\
        import torch

        with torch.autocast(
            "cuda",  # the device
            use_amp,  # the flag
        ):
            pass
        """
    assert found(text) == [(3, 6)]
    assert fixed(text, unsafe=True) == dedent(text).replace("use_amp,", "enabled=use_amp,")


def test_several_faults_of_a_call_are_mended_one_after_the_other() -> None:
    text = 'import torch\nx = torch.autocast(device="cuda:0", enable=1, dtype="half")\n'
    assert found(text) == [(2, 5)]
    assert fixed(text) == 'import torch\nx = torch.autocast(device_type="cuda", enabled=True, dtype=torch.float16)\n'


def test_comments_are_not_removed_with_an_argument() -> None:
    text = 'import torch\nx = torch.cuda.amp.GradScaler(\n    "cuda",  # why\n    enabled=amp,\n)\n'
    assert found(text) == [(2, 5)]
    assert fixed(text) == text


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('torch.cuda.amp.GradScaler("cuda")', True),
        ("torch.cuda.amp.autocast(enable=True)", True),
        ("torch.cuda.amp.autocast(torch.float16)", True),
        ("torch.cuda.amp.custom_bwd()", True),
        ("torch.cuda.amp.autocast(enabled=1)", False),
        ("torch.cuda.amp.GradScaler(True)", False),
        ("torch.cuda.amp.autocast(True)", False),
    ],
)
def test_what_must_be_mended_before_it_can_be_moved(line: str, wrong: bool) -> None:
    file = SourceFile(f"import torch\n{line}\n", "t.py", ONLY)
    assert any(is_wrong_call(file, ref) for ref in file.refs) is wrong


@pytest.mark.parametrize("quote", ['"', '"""'])
def test_calls_in_f_strings_are_harmless(quote: str) -> None:
    inner = "{torch.autocast(enable=True)} {scaler.getScale()} {scaler.unscale(o)}"
    text = f"import torch\nscaler = torch.amp.GradScaler()\nprint(f{quote}{inner}{quote})\n"
    result = fix_source(text, "t.py", ONLY, unsafe=True)
    compile(result.text, "t.py", "exec", dont_inherit=True)


def test_a_method_on_a_line_of_its_own() -> None:
    text = "import torch\nscaler = torch.amp.GradScaler()\n(scaler\n  . unscale(optimizer))\n"
    assert found(text) == [(3, 2)]
    assert fixed(text) == text.replace("unscale", "unscale_")


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("import torch\n@torch.amp.custom_fwd\ndef f(ctx): ...\n", [(2, 2)]),
        ("from torch.amp import custom_bwd\n@custom_bwd\ndef f(ctx): ...\n", [(2, 2)]),
        (
            "def f(grad_scaler, loss, o):\n    grad_scaler.scale(loss).backward()\n    grad_scaler.unscale(o)\n",
            [(3, 5)],
        ),
    ],
    ids=["custom_fwd", "custom_bwd", "a scaler from elsewhere"],
)
def test_found_in_a_file_that_names_no_other_part_of_the_api(text: str, want: list[tuple[int, int]]) -> None:
    assert found(text) == want


def test_private_members_are_no_misspelt_public_ones() -> None:
    assert found("import torch\nscaler = torch.amp.GradScaler()\nprint(scaler._scale, scaler._update)\n") == []
