"""AMP003: apex.amp is reported at its import; a plain loop is moved to torch.amp."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from amplint import check_source, fix_source
from amplint.settings import DEFAULT, Settings

ONLY = Settings(select=("AMP003",))

LOOP = """\
import torch
from apex import amp


def train(model, loader, optimizer, level="O1", clip=True):
    model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        optimizer.zero_grad()
        # the forward pass
        output = model(x)
        loss = (output - y).pow(2).mean()  # the loss

        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
        print(loss.item())
"""

MOVED = """\
import torch


def train(model, loader, optimizer, level="O1", clip=True):
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        x, y = x.cuda(), y.cuda()
        optimizer.zero_grad()
        # the forward pass
        with torch.amp.autocast("cuda", dtype=torch.float16):
            output = model(x)
            loss = (output - y).pow(2).mean()  # the loss

        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        print(loss.item())
"""


def found(text: str, settings: Settings = ONLY) -> list[tuple[int, int]]:
    """The (row, column) of what is found in a text."""
    return [(d.location.row, d.location.column) for d in check_source(text, "t.py", settings)]


def moved(text: str, settings: Settings = ONLY) -> str:
    """A text after the unsafe fixes."""
    result = fix_source(text, "t.py", settings, unsafe=True)
    assert result.messages == []
    return result.text


def refusal(text: str, settings: Settings = ONLY) -> str:
    """Why the one finding in a text has no fix."""
    [diagnostic] = check_source(text, "t.py", settings)
    assert diagnostic.fix is None
    assert moved(text, settings) == text
    prefix = "move to `torch.amp.autocast` and `torch.amp.GradScaler` by hand: "
    assert diagnostic.help.startswith(prefix)
    return diagnostic.help.removeprefix(prefix)


class TestFindings:
    def test_the_import_is_reported_and_its_uses_are_labelled(self) -> None:
        [diagnostic] = check_source(LOOP, "t.py", ONLY)
        assert (diagnostic.location, diagnostic.end_location) == ((2, 18), (2, 21))
        assert [(place.location.row, place.message) for place in diagnostic.related] == [
            (6, "used here"),
            (14, "used here"),
        ]

    def test_questions_about_the_module_are_no_uses(self) -> None:
        text = "import apex.amp as amp\nassert amp is not None\nif 'x' in amp.__dict__:\n    amp.x()\n"
        [diagnostic] = check_source(text, "t.py", ONLY)
        assert [place.location for place in diagnostic.related] == [(4, 5)]
        assert found("import apex\nassert apex.amp is not None\n") == []

    @pytest.mark.parametrize(
        ("text", "places"),
        [
            ("from apex import amp, optimizers\n", [(1, 18)]),
            ("import apex.amp as apex_amp\napex_amp.state_dict()\n", [(1, 8)]),
            ("from apex.amp import initialize, scale_loss\n", [(1, 22), (1, 34)]),
            ("import apex\napex.amp.state_dict()\napex.amp.load_state_dict(s)\n", [(2, 1)]),
            ("try:\n    from apex import amp\nexcept ImportError:\n    amp = None\namp.initialize(m, o)\n", [(2, 22)]),
            (
                "def f():\n    from apex import amp\n    amp.a()\ndef g():\n    from apex import amp\n",
                [(2, 22), (5, 22)],
            ),
            ("import apex\nfrom apex import amp\n@amp.float_function\ndef f(x): ...\n", [(2, 18)]),
        ],
    )
    def test_places(self, text: str, places: list[tuple[int, int]]) -> None:
        assert found(text) == places

    @pytest.mark.parametrize(
        "text",
        [
            "import apex\n",
            "import apex as amp\namp.normalization.FusedLayerNorm(8)\n",
            "from apex.parallel import DistributedDataParallel as DDP\n",
            "from apex.optimizers import FusedAdam\n",
            "from . import apex\napex.amp.initialize(m, o)\n",
            "from torch import amp  # not apex\namp.autocast('cuda')\n",
            "# from apex import amp\nx = 'from apex import amp'\n",
        ],
    )
    def test_silence(self, text: str) -> None:
        assert found(text) == []


class TestFix:
    def test_a_comment_behind_the_backward_pass_stays(self) -> None:
        text = moved(LOOP.replace("scaled_loss.backward()", "scaled_loss.backward()  # why"))
        assert text == MOVED.replace("backward()", "backward()  # why")

    def test_a_plain_loop(self) -> None:
        assert moved(LOOP) == MOVED

    def test_the_result_is_clean_and_stays_as_it_is(self) -> None:
        assert found(MOVED, DEFAULT) == []
        assert moved(MOVED) == MOVED

    def test_clipping_is_done_on_unscaled_gradients(self) -> None:
        clip = "        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)\n"
        text = LOOP.replace("        optimizer.step()\n", clip + "        optimizer.step()\n")
        want = MOVED.replace(
            "        scaler.step(optimizer)\n",
            "        scaler.unscale_(optimizer)\n"
            "        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
            "        scaler.step(optimizer)\n",
        )
        assert moved(text) == want
        assert found(want, DEFAULT) == []

    def test_arguments_of_backward_and_a_divided_loss(self) -> None:
        text = LOOP.replace("scale_loss(loss,", "scale_loss(loss / 4,").replace(
            "backward()", "backward(retain_graph=True)"
        )
        assert "        scaler.scale(loss / 4).backward(retain_graph=True)\n" in moved(text)

    def test_a_step_at_the_boundary_only(self) -> None:
        text = LOOP.replace("        optimizer.step()\n", "        if boundary:\n            optimizer.step()\n")
        assert moved(text) == MOVED.replace(
            "        scaler.step(optimizer)\n        scaler.update()\n",
            "        if boundary:\n            scaler.step(optimizer)\n            scaler.update()\n",
        )

    @pytest.mark.parametrize(
        ("options", "enabled"),
        [
            ('opt_level="O2"', ""),
            ('opt_level="O1", loss_scale="dynamic", verbosity=0', ""),
            ("enabled=True", ""),
            ('opt_level="O0"', ", enabled=False"),
            ("opt_level=level", ', enabled=level != "O0"'),
            ("enabled=use_amp", ", enabled=use_amp"),
            ("opt_level=level, enabled=use_amp", ', enabled=use_amp and level != "O0"'),
        ],
    )
    def test_options(self, options: str, enabled: str) -> None:
        text = moved(LOOP.replace('opt_level="O1")', f"{options})"))
        assert f'    scaler = torch.amp.GradScaler("cuda"{enabled})\n' in text
        region = ", enabled=scaler.is_enabled()" if enabled else ""
        assert f'        with torch.amp.autocast("cuda", dtype=torch.float16{region}):\n' in text

    def test_imports(self) -> None:
        assert moved(LOOP.replace("import amp", "import amp, optimizers")) == MOVED.replace(
            "import torch\n", "import torch\nfrom apex import optimizers\n"
        )
        assert moved(LOOP.replace("import amp", "import optimizers, amp")) == MOVED.replace(
            "import torch\n", "import torch\nfrom apex import optimizers\n"
        )
        assert moved(LOOP.replace("import torch\n", "", 1)) == MOVED
        assert moved(LOOP.replace("import torch\n", "import torch as th\n")).replace("th.", "torch.") == MOVED.replace(
            "import torch\n", "import torch as th\n"
        )

    def test_a_script_and_other_line_ends(self) -> None:
        script = LOOP[: LOOP.index("def")].rstrip() + "\n\n" + dedent(LOOP[LOOP.index("    model, opt") :])
        want = MOVED[: MOVED.index("def")].rstrip() + "\n\n" + dedent(MOVED[MOVED.index("    scaler =") :])
        assert moved(script) == want
        assert moved(script.replace("\n", "\r\n")) == want.replace("\n", "\r\n")

    def test_the_preferred_spelling(self) -> None:
        text = moved(LOOP, ONLY._replace(autocast="torch.autocast"))
        assert '        with torch.autocast("cuda", dtype=torch.float16):\n' in text


REFUSED = [
    (
        "from apex import amp\n",
        "try:\n    from apex import amp\nexcept ImportError:\n    pass\n",
        "import is conditional",
    ),
    ("from apex import amp\n", "if apex:\n    from apex import amp\n", "the import is conditional"),
    ("        optimizer.step()\n", "        optimizer.step()\n        amp.state_dict()\n", "has no counterpart"),
    ('opt_level="O1"', 'opt_level="O1", loss_scale=128.0', "the loss scale is fixed"),
    ('opt_level="O1"', 'opt_level="O1", num_losses=2', "options that have no counterpart"),
    ("model, optimizer = amp", "net, optimizer = amp", "under other names"),
    (
        "model, optimizer = amp.initialize(model, optimizer,",
        "model = amp.initialize(model,",
        "one model and one optimizer",
    ),
    ("scale_loss(loss, optimizer)", "scale_loss(loss, other)", "another optimizer than"),
    ("scale_loss(loss, optimizer)", "scale_loss(loss, optimizer, delay_unscale=True)", "more than the loss"),
    ("scaled_loss.backward()\n", "scaled_loss.backward()\n            log()\n", "more than the backward pass"),
    ("as scaled_loss:\n", "as scaled_loss:  # why\n", "a comment stands in"),
    ("as scaled_loss:", "as scaled_loss, lock:", "not the only thing"),
    ("        optimizer.step()\n", "", "does not step exactly once"),
    ("optimizer.step()", "optimizer.step(closure)", "steps with a closure"),
    ("        output = model(x)\n", "        output = run(x)\n", "do not stand before the backward pass"),
    ("        output = model(x)\n", "        output = model(x); log()\n", "shares its line"),
    (
        "        output = model(x)\n",
        "        output = model(x)\n        other.backward()\n",
        "must not run under autocast",
    ),
    ("    for x, y in loader:\n", "    scaler = StandardScaler()\n    for x, y in loader:\n", "`scaler` is taken"),
    ("optimizer.step()", "optimizer.step(); norm(amp.master_params(optimizer))", "something else than clipping"),
]


@pytest.mark.parametrize(("old", "new", "reason"), REFUSED)
def test_refusals(old: str, new: str, reason: str) -> None:
    assert old in LOOP
    assert reason in refusal(LOOP.replace(old, new, 1))


def test_the_loop_in_another_function_is_refused() -> None:
    lines = LOOP.splitlines(keepends=True)
    text = "".join([*lines[:6], "    return model, optimizer\n\n\ndef run(model, loader, optimizer):\n", *lines[6:]])
    assert "another function than the loop" in refusal(text)


def test_two_loops_are_refused() -> None:
    body = LOOP[LOOP.index("    for x, y") :]
    assert "only a single loop" in refusal(LOOP + body)


def test_an_old_torch_has_no_scaler_to_move_to() -> None:
    assert "no `torch.amp.GradScaler`" in refusal(LOOP, ONLY._replace(target_torch=(2, 2)))


def test_the_moved_loop_trains_on_real_torch() -> None:
    import torch

    text = MOVED.replace('"cuda"', '"cpu"').replace(".cuda()", "") + indent(
        dedent("""
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        before = model.weight.detach().clone()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        train(model, [(torch.randn(4, 3), torch.randn(4, 1)) for _ in range(3)], optimizer)
        """),
        "",
    )
    names: dict[str, torch.nn.Module | torch.Tensor] = {}
    exec(compile(text, "moved.py", "exec", dont_inherit=True), names)
    model, before = names["model"], names["before"]
    assert isinstance(model, torch.nn.Linear)
    assert isinstance(before, torch.Tensor)
    assert not torch.equal(model.weight, before)
