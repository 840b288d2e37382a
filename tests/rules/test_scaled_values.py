"""AMP306, AMP308, AMP310 and AMP311: scaled losses, vectors and gradients that are taken for plain ones."""

from __future__ import annotations

from textwrap import dedent, indent

import pytest

from amplint import check_source, fix_source
from amplint.settings import Settings

ONLY = Settings(select=("AMP306", "AMP308", "AMP310", "AMP311"))


def found(code: str) -> list[tuple[str, int]]:
    """The (code, row) pairs of a text."""
    return [(d.code, d.location.row) for d in check_source(dedent(code), "t.py", ONLY)]


def loop(*lines: str) -> str:
    """A loop with a scaler whose body, from row 5, are the given lines."""
    body = indent("\n".join(lines), "    ")
    return f'import torch\n\nscaler = torch.amp.GradScaler("cuda")\nfor x in loader:\n{body}\n'


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        pytest.param(["s = scaler.scale(loss)", "s.backward()", "total += s.item()"], [7], id="item"),
        pytest.param(["s = scaler.scale(loss)", "s.backward()", "total += s"], [7], id="accumulated"),
        pytest.param(["s = scaler.scale(loss)", "s.backward()", "losses.append(s)"], [7], id="collected"),
        pytest.param(["s = scaler.scale(loss)", "s.backward()", 'print(f"{s:.3f}")'], [7], id="printed"),
        pytest.param(["s = scaler.scale(loss)", "s.backward()", "x = s.detach().cpu().item()"], [7], id="chain"),
        pytest.param(["s = scaler.scale(loss)", "s.backward()", "x = s.item() / scaler.get_scale()"], [], id="divided"),
        pytest.param(["s = scaler.scale(loss)", "s.backward()", "ok = torch.isfinite(s)"], [], id="finite test"),
        pytest.param(["s = scaler.scale(loss)", "losses.append(s)", "sum(losses).backward()"], [], id="summed first"),
        pytest.param(["s = loss / 4", "s.backward()", "total += s.item()"], [], id="not scaled by a scaler"),
        pytest.param(["s = scaler.scale(loss)", "s.backward()", "wandb.log({'loss': s})"], [7], id="logged in a dict"),
        pytest.param(["s = scaler.scale(loss)", "s.backward()", "if s < best: save()"], [7], id="compared"),
        pytest.param(
            ["s = scaler.scale(loss)", "s.backward()", "if s < float('inf'): save()"], [], id="finite by size"
        ),
        pytest.param(
            ["t.loss = scaler.scale(t.loss)", "t.loss.backward()", "total += t.loss.item()"], [7], id="in an attribute"
        ),
        pytest.param(
            ["f = scaler.get_scale()", "s = scaler.scale(loss)", "s.backward()", "v = s.item()", "log(v / f)"],
            [],
            id="divided in a later statement",
        ),
        pytest.param(
            ["loss = scaler.scale(loss)", "loss.backward()", "loss = f()", "t += loss.item()"], [], id="rebound"
        ),
        pytest.param(
            ["if amp:", "    loss = scaler.scale(loss)", "    loss.backward()", "else:", "    print(float(loss))"],
            [],
            id="other arm",
        ),
    ],
)
def test_scaled_loss_used(lines: list[str], rows: list[int]) -> None:
    assert found(loop(*lines)) == [("AMP308", row) for row in rows]


def test_scaled_loss_with_a_name_of_its_own_is_replaced_by_the_loss() -> None:
    text = loop("scaled = scaler.scale(loss)", "scaled.backward()", "total += scaled.item()")
    assert fix_source(text, "t.py", ONLY, unsafe=True).text == text.replace("scaled.item()", "loss.item()")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("scaler.scale(losses).mean().backward()", "scaler.scale(losses.mean()).backward()"),
        ("scaler.scale(a + b).sum().backward()", "scaler.scale((a + b).sum()).backward()"),
        ("scaler.scale(f(x)).mean(dim=0).backward()", "scaler.scale(f(x).mean(dim=0)).backward()"),
    ],
)
def test_scaled_vector(before: str, after: str) -> None:
    assert found(loop(before)) == [("AMP311", 5)]
    assert fix_source(loop(before), "t.py", ONLY).text == loop(after)


def test_a_transform_named_scale_is_no_scaler() -> None:
    assert found("image = resize.scale(image).mean()\n") == []


CLIP = "torch.nn.utils.clip_grad_norm_(p, 1.0, error_if_nonfinite={value})"


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        pytest.param(["scaler.unscale_(opt)", CLIP.format(value="True")], [6], id="true"),
        pytest.param(["scaler.unscale_(opt)", CLIP.format(value="False")], [], id="false"),
        pytest.param(["scaler.unscale_(opt)", CLIP.format(value="strict")], [], id="an option"),
        pytest.param([CLIP.format(value="True"), "opt.step()"], [], id="no scaler in use"),
        pytest.param(["scaler.unscale_(opt)", "torch.nn.utils.clip_grad_norm_(p, 1.0, 2.0, True)"], [6], id="position"),
        pytest.param(["scaler.unscale_(opt)", "torch.nn.utils.clip_grad_norm_(p, 1.0, 2.0, False)"], [], id="off"),
    ],
)
def test_clip_error_if_nonfinite(lines: list[str], rows: list[int]) -> None:
    assert found(loop(*lines)) == [("AMP310", row) for row in rows]


def test_clip_under_a_scaler_with_another_name() -> None:
    text = loop("amp.unscale_(opt)", CLIP.format(value="True")).replace("scaler =", "amp =")
    assert found(text) == [("AMP310", 6)]


def test_clip_under_a_scaler_that_is_switched_off_is_silent() -> None:
    text = loop("scaler.unscale_(opt)", CLIP.format(value="True")).replace('"cuda"', '"cuda", enabled=False')
    assert found(text) == []


GRAD = "g = torch.autograd.grad({outputs}, x, create_graph=True)[0]"


@pytest.mark.parametrize(
    ("lines", "rows"),
    [
        pytest.param([GRAD.format(outputs="scaler.scale(out)"), "p = g.pow(2)"], [6], id="scaled"),
        pytest.param(["s = scaler.scale(out)", GRAD.format(outputs="s"), "p = g.pow(2)"], [7], id="scaled before"),
        pytest.param(
            [GRAD.format(outputs="scaler.scale(out)"), "g = g / scaler.get_scale()", "p = g.pow(2)"], [], id="divided"
        ),
        pytest.param([GRAD.format(outputs="out"), "p = g.pow(2)"], [], id="not scaled, dtype unknown"),
        pytest.param(["torch.autograd.grad(scaler.scale(out), x)"], [], id="no graph: not a penalty"),
    ],
)
def test_scaled_gradient_penalty(lines: list[str], rows: list[int]) -> None:
    assert found(loop(*lines)) == [("AMP306", row) for row in rows]


def test_penalty_from_unscaled_half_outputs() -> None:
    lines = [
        'with torch.autocast("cuda", dtype=torch.float16):',
        "    out = model(x)",
        GRAD.format(outputs="out"),
        "scaler.step(opt)",
    ]
    assert found(loop(*lines)) == [("AMP306", 7)]
    assert found(loop(*lines).replace("float16", "bfloat16")) == []
