"""Random training programs: a correct loop of random shape, and a few random changes to it.

The choices come from a `random.Random`, which may be seeded or be hypothesis's (`strategies.randoms()`). A program
defines `train(...)`, whose parameters are models, optimizers, a loader and flags; see `truth.py` for how it is run.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from tests.flow.changes import Changer
from tests.flow.recorder import INIT_SCALE
from tests.flow.statements import Arm, Block, Node, lines, renamed

HEAD = """\
import contextlib
import torch
from torch.amp import GradScaler, autocast
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
"""
_CLAMP = "p.grad is None or p.grad.clamp_(-1, 1)"


class Program(NamedTuple):
    """A text, the flags that `train` takes, and its shape: `one` optimizer, two with a `joint` loss, or a `gan`.

    `given`: the scaler is a parameter.
    """

    text: str
    flags: tuple[str, ...]
    shape: str
    given: bool = False


class Writer(Changer):
    """Makes one program."""

    # -- the correct loop ---------------------------------------------------------------------------------------------

    def program(self) -> Program:
        """A whole program."""
        choice = self.choice
        self.in_class = self.sometimes(0.25)
        self.two = self.sometimes(0.3)
        shape = self.one_of("joint", "gan") if self.two else "one"
        scaler = self.scaler()
        if shape == "gan" and not self.given and self.sometimes(0.3):
            self.scaler_of_b = "scaler_b"
            scaler += [renamed(node, "scaler", "scaler_b") for node in scaler]
        loop = self.loop(shape)
        body: list[Node] = [] if self.in_class else list(scaler)
        body += loop
        for _ in range(choice.choice((0, 1, 1, 1, 2, 2, 3))):
            self.change(body)
        if self.sometimes(0.35):
            self.extract(body)
        if self.sometimes(0.2):
            self.batch_function(body)
        return self.text(body, scaler, shape)

    def scaler(self) -> list[Node]:
        """How the scaler comes to be."""
        made = f'GradScaler("cpu", init_scale={INIT_SCALE}'
        how = self.one_of("plain", "plain", "plain", "enabled", "none", "arms", "given")
        if how == "given":
            self.given = True
            return []
        if how == "enabled":
            self.amp_flag = self.flag()
            return [f"scaler = {made}, enabled={self.amp_flag})"]
        self.may_be_none = how in ("none", "arms")
        if how == "none":
            self.amp_flag = self.flag()
            return [f"scaler = {made}) if {self.amp_flag} else None"]
        if how == "arms":
            self.amp_flag = self.flag()
            return [
                Block(Arm(f"if {self.amp_flag}:", [f"scaler = {made})"]), Arm("else:", ["scaler = None"])),
            ]
        return [f"scaler = {made})"]

    def guarded(self, amp: list[Node], plain: list[Node], needed: bool, scaler: str = "scaler") -> list[Node]:
        """Statements for the scaler, behind a test where the scaler may be None."""
        if not needed:
            return amp
        flag = self.amp_flag
        test = self.one_of(f"if {flag}:", f"if {scaler} is not None:", f"if {scaler}:")
        if self.sometimes(0.15):
            return [Block(Arm(self.one_of(f"if not {flag}:", f"if {scaler} is None:"), plain), Arm("else:", amp))]
        return [Block(Arm(test, amp), Arm("else:", plain))]

    def loop(self, shape: str) -> list[Node]:
        """The loop over batches."""
        none = self.may_be_none
        accumulation = shape != "gan" and self.sometimes(0.3)
        zero_first = self.sometimes(0.6)
        body: list[Node] = []
        if shape == "gan":
            body += self.part("model_b", "opt_b", "loss_b", "loss_fn(model_b(model(x).detach()), y)", none)
            if self.sometimes(0.5) and isinstance(body[-1], str) and body[-1] == "scaler.update()":
                body.pop()
            body += self.part("model", "opt", "loss", "loss_fn(model_b(model(x)), y)", none)
        else:
            body += self.joint(shape, none, accumulation, zero_first)
        if self.sometimes(0.12):
            body.insert(self.choice.randrange(2), Block(Arm(f"if {self.data()}:", ["continue"])))
        if self.sometimes(0.1):
            caught = self.one_of("except ValueError:", "except Exception as error:")
            body = [Block(Arm("try:", body), Arm(caught, [self.one_of("continue", "pass", "opt.zero_grad()")]))]
        if self.boundary_name:
            body.insert(0, f"{self.boundary_name} = {self.boundary_test}")
        loop: list[Node] = [Block(Arm("for i, (x, y) in enumerate(loader):", body))]
        form = self.choice.random()
        if form < 0.1:
            loop = [Block(Arm("for i in range(len(loader)):", ["x, y = loader[i]", *body]))]
        elif form < 0.15:
            loop = ["i = -1", Block(Arm("while i + 1 < len(loader):", ["i += 1", "x, y = loader[i]", *body]))]
        if self.sometimes(0.2):
            loop = [Block(Arm("for epoch in range(2):", loop))]
        if self.sometimes(0.06):
            loop = [Block(Arm('with autocast("cpu", dtype=torch.bfloat16):', loop))]
        return loop

    def region(self, inner: list[Node]) -> list[Node]:
        """An autocast region."""
        options = self.one_of("dtype=torch.float16", "dtype=torch.bfloat16", "")
        if self.amp_flag and self.sometimes(0.5):
            options = f"{options}, enabled={self.amp_flag}".lstrip(", ")
        made = f'autocast("cpu"{", " if options else ""}{options})'
        form = self.choice.random()
        if form < 0.08:
            return [f"context = {made}", Block(Arm("with context:", inner))]
        if form < 0.16:
            return [Block(Arm(f"with {made} if {self.flag()} else contextlib.nullcontext():", inner))]
        if form < 0.22:
            entered: Node = f"stack.enter_context({made})"
            return [Block(Arm("with contextlib.ExitStack() as stack:", [entered, *inner]))]
        if form < 0.28:
            return [Block(Arm(f"with torch.enable_grad(), {made}:", inner))]
        return [Block(Arm(f"with {made}:", inner))]

    def clip(self, models: list[str]) -> list[Node]:
        """A clip of the gradients of models."""
        clips: list[Node] = []
        for model in models:
            call = self.one_of("clip_grad_norm_({}.parameters(), 1.0)", "clip_grad_value_({}.parameters(), 0.5)")
            clips.append(call.format(model))
        if self.sometimes(0.1):
            return [Block(Arm(f"for p in {model}.parameters():", [_CLAMP])) for model in models]
        if self.sometimes(0.2) and len(clips) == 1:
            clips = ["norm = clip_grad_norm_(model.parameters(), 1.0)"] if models == ["model"] else clips
        return clips

    def part(self, model: str, opt: str, loss: str, value: str, none: bool) -> list[Node]:
        """One optimizer's own backward, step and update."""
        scaler = self.scaler_of_b if opt == "opt_b" else "scaler"
        first: list[Node] = [f"{opt}.zero_grad()", *self.region([f"{loss} = {value}"])]
        clip = self.clip([model]) if self.sometimes(0.4) else []
        amp: list[Node] = [f"{scaler}.scale({loss}).backward()"]
        if clip:
            amp += [f"{scaler}.unscale_({opt})", *clip]
        amp += [f"{scaler}.step({opt})", f"{scaler}.update()"]
        plain: list[Node] = [f"{loss}.backward()", *clip, f"{opt}.step()"]
        return first + self.guarded(amp, plain, none, scaler)

    def joint(self, shape: str, none: bool, accumulation: bool, zero_first: bool) -> list[Node]:
        """One backward for one optimizer or for two."""
        models = ["model", "model_b"] if shape == "joint" else ["model"]
        opts = ["opt", "opt_b"] if shape == "joint" else ["opt"]
        forward = "model_b(model(x))" if shape == "joint" else "model(x)"
        zero: list[Node] = [f"{opt}.zero_grad()" for opt in opts]
        if self.sometimes(0.2):
            zero = [f"{model}.zero_grad()" for model in models]
        inner: list[Node] = []
        if self.sometimes(0.5):
            inner.append(f"out = {forward}")
            forward = "out"
        inner.append(f"loss = loss_fn({forward}, y)")
        losses = ["loss"]
        if self.sometimes(0.25) and forward == "out":
            inner.append("extra = aux_fn(out)")
            losses = ["loss", "extra"] if self.sometimes(0.5) else losses
            if len(losses) == 1:
                inner.append("loss = loss + extra")
        body: list[Node] = [*(zero if zero_first and not accumulation else []), *self.region(inner)]
        if accumulation and self.sometimes(0.5):
            body.append("loss = loss / 2")
        retain = "retain_graph=True" if len(losses) == 2 else ""
        scaled: list[Node] = [f"scaler.scale({losses[0]}).backward({retain})"]
        if self.sometimes(0.15) and not retain:
            scaled = ["scaled = scaler.scale(loss)", "scaled.backward()"]
        elif self.sometimes(0.08) and not retain:
            scaled = ["loss = scaler.scale(loss)", "loss.backward()"]
        unscaled: list[Node] = [f"{losses[0]}.backward({retain})"]
        for loss in losses[1:]:
            scaled.append(f"scaler.scale({loss}).backward()")
            unscaled.append(f"{loss}.backward()")
        clip = self.clip(models) if self.sometimes(0.5) else []
        end: list[Node] = []
        if clip:
            before: list[Node] = [f"scaler.unscale_({opt})" for opt in opts]
            end = [*before, *clip]
            if self.sometimes(0.3):
                end = [Block(Arm(f"if {self.flag()}:", end))]
        steps: list[Node] = [f"scaler.step({opt})" for opt in opts]
        if shape == "joint" and not self.in_class and self.sometimes(0.25):
            steps = [Block(Arm("for each in [opt, opt_b]:", ["scaler.step(each)"]))]
        end += [*steps, "scaler.update()"]
        plain: list[Node] = [*clip, *(f"{opt}.step()" for opt in opts)]
        after = zero if accumulation or not zero_first else []
        if self.sometimes(0.5) or not none:
            # one test for all, or none at all
            amp, fp32 = [*scaled], [*unscaled]
            boundary = self.boundary(accumulation)
            if none and self.sometimes(0.5):
                tail = self.guarded(end, plain, none) + after
                return body + self.guarded(amp, fp32, none) + self.at(boundary, tail)
            amp += self.at(boundary, end + (after if not none else []))
            fp32 += self.at(boundary, plain)
            rest = after if none else []
            return body + self.guarded(amp, fp32, none) + (self.at(boundary, rest) if rest else [])
        boundary = self.boundary(accumulation)
        tail = self.guarded(end, plain, none) + after
        return body + self.guarded(scaled, unscaled, none) + self.at(boundary, tail)

    def boundary(self, accumulation: bool) -> str:
        """The test for the end of an accumulation window, "" without one."""
        if not accumulation:
            return ""
        test = self.one_of("(i + 1) % 2 == 0", "i % 2 == 1", "(i + 1) % 2 == 0 or i + 1 == len(loader)")
        if self.boundary_name or self.sometimes(0.25):
            self.boundary_name = self.boundary_name or self.one_of("boundary", "last", "ready")
            self.boundary_test = self.boundary_test or test
            return self.boundary_name
        return test

    def at(self, boundary: str, inner: list[Node]) -> list[Node]:
        """Statements under the boundary's test."""
        return [Block(Arm(f"if {boundary}:", inner))] if boundary and inner else inner

    # -- the text -----------------------------------------------------------------------------------------------------

    def text(self, body: list[Node], scaler: list[Node], shape: str) -> Program:
        """The whole text."""
        extra = ["model_b", "opt_b"] if self.two else []
        source = "\n".join([*lines(body), *self.methods])
        flags = [
            name for name in ("use_amp", "flag", "warm") if re.search(rf"\b{name}\b", source + "\n".join(lines(scaler)))
        ]
        extra += ["scaler"] if self.given else []
        parameters = ", ".join(["model", "opt", *extra, "loader", "loss_fn", "aux_fn", *flags])
        parts = [HEAD, "", *self.helpers]
        if not self.in_class:
            return Program(
                "\n".join([*parts, f"def train({parameters}):", *lines(body, 1), ""]), tuple(flags), shape, self.given
            )
        held = ["model", "opt", *extra, *flags]
        made = ["scaler", "scaler_b", *held]
        batch = [re.sub(rf"\b({'|'.join(made)})\b(?!=)", r"self.\1", f"        {line}") for line in self.methods]
        if batch:
            batch = ["    def batch(self, i, x, y, loader, loss_fn, aux_fn):", *batch, ""]
        inside = [re.sub(rf"\b({'|'.join(made)})\b(?!=)", r"self.\1", line) for line in lines(body, 2)]
        setup = [re.sub(r"\b(scaler(?:_b)?)\b", r"self.\1", line) for line in lines(scaler, 2)]
        own = ", ".join(["self", *held])
        return Program(
            "\n".join(
                [
                    *parts,
                    "class Trainer:",
                    f"    def __init__({own}):",
                    *(f"        self.{name} = {name}" for name in held),
                    *setup,
                    "",
                    *batch,
                    "    def fit(self, loader, loss_fn, aux_fn):",
                    *inside,
                    "",
                    "",
                    f"def train({parameters}):",
                    f"    trainer = Trainer({', '.join(held)})",
                    "    trainer.fit(loader, loss_fn, aux_fn)",
                    "",
                ]
            ),
            tuple(flags),
            shape,
            self.given,
        )
