"""The kinds of violations that the monitor can see: codes in the catalogue of rules, levels and why they hurt.

Most come out of the tables of `amplint.flow.protocol`; the rest belong to autocast regions and to single calls.
"""

from __future__ import annotations

from typing import NamedTuple

from amplint.model import Level


class Kind(NamedTuple):
    """A kind of violation, by the code and level that the rule of the same name has."""

    code: str
    level: Level
    why: str


KINDS = {
    "backward-in-autocast": Kind(
        "AMP101",
        Level.WARNING,
        "backward() ran under autocast; where the forward left autocast for a part, gradients overflow or vanish",
    ),
    "step-in-autocast": Kind(
        "AMP102",
        Level.ERROR,
        "an optimizer step and the next forward share one autocast region, which serves the old weights from its cache",
    ),
    "autocast-reentered": Kind(
        "AMP107", Level.WARNING, "this autocast object was entered while it was active; autocast stays on afterwards"
    ),
    "autocast-around-yield": Kind(
        "AMP109",
        Level.WARNING,
        "this autocast region was left in another order than it was entered, so autocast stays on afterwards",
    ),
    "missing-update": Kind(
        "AMP201", Level.ERROR, "update() never came after this call; torch raises in the second iteration"
    ),
    "update-skipped-on-path": Kind(
        "AMP202", Level.ERROR, "the next iteration came without the update() that this call needs"
    ),
    "update-before-step": Kind(
        "AMP203", Level.ERROR, "update() came when the gradients had not been through step(); nothing was checked"
    ),
    "update-between-optimizers": Kind(
        "AMP204",
        Level.ERROR,
        "update() came between the steps of two optimizers; the second one divides by a scale that its gradients "
        "do not carry",
    ),
    "scaler-step-twice": Kind("AMP205", Level.ERROR, "step() ran twice for one optimizer without update() in between"),
    "step-bypasses-scaler": Kind(
        "AMP206", Level.ERROR, "the optimizer stepped with gradients that still carry the scale, or skipped its check"
    ),
    "double-step": Kind("AMP207", Level.ERROR, "the optimizer stepped again with gradients that a step had used"),
    "unscaled-backward": Kind(
        "AMP208",
        Level.ERROR,
        "backward() of a loss that was not scaled by the scaler that divides its gradients, which makes them vanish",
    ),
    "update-in-accumulation": Kind(
        "AMP209", Level.ERROR, "update() came with every micro-batch; it belongs where step() is"
    ),
    "scaler-step-with-closure": Kind(
        "AMP210", Level.ERROR, "a closure went to step(); its gradients are neither unscaled nor checked"
    ),
    "scaler-in-loop": Kind(
        "AMP211", Level.WARNING, "a new scaler serves an optimizer that had one; the scale starts from the top again"
    ),
    "optimizer-identity": Kind(
        "AMP213", Level.ERROR, "two optimizer objects share these parameters, so their gradients are divided twice"
    ),
    "no-gradients-at-step": Kind(
        "AMP214", Level.ERROR, "the optimizer's gradients were thrown away, or there are none"
    ),
    "clip-before-unscale": Kind(
        "AMP301", Level.ERROR, "gradients were clipped while they carried the scale; almost nothing is left of them"
    ),
    "grad-read-before-unscale": Kind(
        "AMP302", Level.WARNING, "gradients were read while they carried the scale; they are that many times too large"
    ),
    "unscale-twice": Kind("AMP303", Level.ERROR, "unscale_() ran twice for one optimizer without update() in between"),
    "unscale-after-step": Kind("AMP304", Level.ERROR, "unscale_() came after step()"),
    "unscale-in-accumulation": Kind(
        "AMP305", Level.ERROR, "another backward() added to gradients that unscale_() had divided already"
    ),
    "clip-after-step": Kind("AMP309", Level.WARNING, "gradients were clipped after they had been used; no effect"),
    "clip-error-if-nonfinite": Kind(
        "AMP310",
        Level.WARNING,
        "error_if_nonfinite=True turns an overflow, which the scaler would skip, into an exception",
    ),
    "half-parameters-with-scaler": Kind(
        "AMP401", Level.ERROR, "the parameters are float16 themselves; small updates are lost, and unscale_() refuses"
    ),
}
