"""Training programs in a few lines each: what the engine must find is marked where it must be found.

`# !kind` at the end of a line is a violation blamed there; a program without marks must stay silent.
"""

from __future__ import annotations

import textwrap

HEAD = """\
import contextlib
import functools
import torch
from torch.amp import GradScaler, autocast
from torch.nn.utils import clip_grad_norm_, clip_grad_value_
"""

PROGRAMS: dict[str, str] = {}


def program(name: str, body: str) -> None:
    """Register a program under a sentence that says what it shows."""
    assert name not in PROGRAMS
    PROGRAMS[name] = HEAD + textwrap.dedent(body).strip("\n") + "\n"


def expected(text: str) -> set[tuple[int, str]]:
    """The (line, kind) pairs that a program's marks ask for."""
    return {
        (row, mark.strip())
        for row, line in enumerate(text.splitlines(), 1)
        if "# !" in line
        for mark in line.split("# !")[1].split(",")
    }


# -- order on one path ------------------------------------------------------------------------------------------------

program(
    "the documented loop",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            with autocast("cuda"):
                loss = loss_fn(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "clip without unscale_",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x), y)).backward()
            clip_grad_value_(model.parameters(), 1.0)  # !clip-before-unscale
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "unscale_ only after the clip",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x), y)).backward()
            clip_grad_norm_(model.parameters(), 1.0)  # !clip-before-unscale
            scaler.unscale_(opt)
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "clip by hand",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x), y)).backward()
            for p in model.parameters():
                p.grad.clamp_(-1, 1)  # !clip-before-unscale
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a threshold that is multiplied by the scale",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x), y)).backward()
            clip_grad_norm_(model.parameters(), 1.0 * scaler.get_scale())
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "unscale_ twice in a row",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x), y)).backward()
            scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.unscale_(opt)  # !unscale-twice
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "unscale_ after step",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x), y)).backward()
            scaler.step(opt)
            scaler.unscale_(opt)  # !unscale-after-step
            scaler.update()
""",
)
program(
    "step twice before update",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x), y)).backward()
            scaler.step(opt)
            scaler.step(opt)  # !scaler-step-twice
            scaler.update()
""",
)
program(
    "update before step",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x), y)).backward()
            scaler.update()  # !update-before-step
            scaler.step(opt)
""",
)
program(
    "no update at all, in a nested loop",
    """
    def train(model, opt, loaders, loss_fn, epochs):
        scaler = GradScaler()
        for epoch in range(epochs):
            for x, y in loaders[epoch]:
                opt.zero_grad()
                scaler.scale(loss_fn(model(x), y)).backward()
                scaler.step(opt)  # !missing-update
""",
)
program(
    "update once an epoch",
    """
    def train(model, opt, loaders, loss_fn):
        scaler = GradScaler()
        for loader in loaders:
            for x, y in loader:
                opt.zero_grad()
                scaler.scale(loss_fn(model(x), y)).backward()
                scaler.step(opt)  # !missing-update
            scaler.update()
""",
)
program(
    "the scaled loss is bound again and stepped without the scaler",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            loss = scaler.scale(loss_fn(model(x), y))
            loss.backward()
            opt.step()  # !step-bypasses-scaler
            scaler.update()
""",
)
program(
    "a plain step after unscale_",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x), y)).backward()
            scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), 1.0)
            opt.step()  # !step-bypasses-scaler
            scaler.update()
""",
)
program(
    "a plain step left over after the scaler's",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x), y)).backward()
            scaler.step(opt)
            scaler.update()
            opt.step()  # !double-step
""",
)
program(
    "scale() is never called",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            loss = loss_fn(model(x), y)
            loss.backward()  # !unscaled-backward
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "the result of scale() is thrown away",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            loss = loss_fn(model(x), y)
            scaler.scale(loss)
            loss.backward()  # !unscaled-backward
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "zero_grad between backward and step",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            scaler.scale(loss_fn(model(x), y)).backward()
            opt.zero_grad()  # !no-gradients-at-step
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "clip after the step",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x), y)).backward()
            scaler.step(opt)
            clip_grad_norm_(model.parameters(), 1.0)  # !clip-after-step
            scaler.update()
""",
)
program(
    "a norm of scaled gradients",
    """
    def train(model, opt, loader, loss_fn, log):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x), y)).backward()
            log(sum(p.grad.norm() for p in model.parameters()))  # !grad-read-before-unscale
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "an average over ranks is linear",
    """
    def train(model, opt, loader, loss_fn, world):
        scaler = GradScaler()
        for x, y in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x), y)).backward()
            for p in model.parameters():
                torch.distributed.all_reduce(p.grad)
                p.grad /= world
            scaler.step(opt)
            scaler.update()
""",
)

# -- branches ---------------------------------------------------------------------------------------------------------

program(
    "one flag tested three times",
    """
    def train(model, opt, loader, loss_fn, use_amp):
        scaler = GradScaler(enabled=use_amp)
        for x, y in loader:
            opt.zero_grad()
            loss = loss_fn(model(x), y)
            if use_amp:
                scaler.scale(loss).backward()
            else:
                loss.backward()
            if use_amp:
                scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), 1.0)
            if not use_amp:
                opt.step()
            else:
                scaler.step(opt)
                scaler.update()
""",
)
program(
    "one flag tested twice, and unscale_ forgotten",
    """
    def train(model, opt, loader, loss_fn, use_amp):
        scaler = GradScaler(enabled=use_amp)
        for x, y in loader:
            opt.zero_grad()
            loss = loss_fn(model(x), y)
            if use_amp:
                scaler.scale(loss).backward()
            else:
                loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)  # !clip-before-unscale
            if use_amp:
                scaler.step(opt)
                scaler.update()
            else:
                opt.step()
""",
)
program(
    "a scaler or None",
    """
    def train(model, opt, loader, loss_fn, scaler=None):
        for x, y in loader:
            opt.zero_grad()
            loss = loss_fn(model(x), y)
            if scaler is not None:
                scaler.scale(loss).backward()
                scaler.unscale_(opt)
            else:
                loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)
            if scaler:
                scaler.step(opt)
                scaler.update()
            else:
                opt.step()
""",
)
program(
    "made under one guard, tested by another",
    """
    def train(model, opt, loader, loss_fn, args):
        scaler = GradScaler() if args.amp else None
        for x, y in loader:
            opt.zero_grad()
            loss = loss_fn(model(x), y)
            if args.amp:
                scaler.scale(loss).backward()
            else:
                loss.backward()
            if scaler is not None:
                scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), 1.0)
            if args.amp:
                scaler.step(opt)
                scaler.update()
            else:
                opt.step()
""",
)
program(
    "a flag kept in a local",
    """
    def train(model, opt, loader, loss_fn, args):
        amp = args.fp16 and torch.cuda.is_available()
        scaler = GradScaler(enabled=amp)
        for x, y in loader:
            opt.zero_grad()
            loss = loss_fn(model(x), y)
            if amp:
                scaler.scale(loss).backward()
                scaler.unscale_(opt)
            else:
                loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)
            if args.fp16 and torch.cuda.is_available():
                scaler.step(opt)
                scaler.update()
            else:
                opt.step()
""",
)
program(
    "a guard that is bound again in between",
    """
    def train(model, opt, loader, loss_fn, warm):
        scaler = GradScaler()
        for i, x in enumerate(loader):
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            if warm:
                scaler.unscale_(opt)
            warm = i > 10
            if warm:
                scaler.unscale_(opt)  # !unscale-twice
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "is_enabled() guards",
    """
    def train(model, opt, loader, loss_fn, amp):
        scaler = GradScaler(enabled=amp)
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            if scaler.is_enabled():
                scaler.unscale_(opt)
            norm = clip_grad_norm_(model.parameters(), 1.0)
            if not torch.isfinite(norm):
                if scaler.is_enabled():
                    scaler.update()
                opt.zero_grad()
                continue
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "disabled by a literal",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler(enabled=False)
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "a threshold tested twice in two spellings",
    """
    def train(model, opt, loader, loss_fn, clip):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            if clip:
                scaler.unscale_(opt)
            if clip > 0:
                clip_grad_norm_(model.parameters(), clip)
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "match on the precision",
    """
    def train(model, opt, loader, loss_fn, precision):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            loss = loss_fn(model(x))
            match precision:
                case "fp16":
                    scaler.scale(loss).backward()
                    clip_grad_norm_(model.parameters(), 1.0)  # !clip-before-unscale
                    scaler.step(opt)
                    scaler.update()
                case _:
                    loss.backward()
                    opt.step()
""",
)
program(
    "update skipped by a continue",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.unscale_(opt)  # !update-skipped-on-path
            norm = clip_grad_norm_(model.parameters(), 1.0)
            if norm > 5:
                continue
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "update only now and then",
    """
    def train(model, opt, loader, loss_fn, log_every):
        scaler = GradScaler()
        for i, x in enumerate(loader):
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            scaler.step(opt)  # !update-skipped-on-path
            if i > log_every:
                scaler.update()
""",
)
program(
    "a NaN loss is skipped before scale()",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            loss = loss_fn(model(x))
            if torch.isnan(loss):
                continue
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
""",
)
program(
    "used where it may be unbound",
    """
    def train(model, opt, loader, loss_fn, amp):
        if amp:
            scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()  # !scaler-maybe-unbound
            scaler.step(opt)
            scaler.update()
""",
)

# -- accumulation -----------------------------------------------------------------------------------------------------

program(
    "accumulation as documented, with a tail",
    """
    def train(model, opt, loader, loss_fn, accum):
        scaler = GradScaler()
        for i, (x, y) in enumerate(loader):
            scaler.scale(loss_fn(model(x), y) / accum).backward()
            if (i + 1) % accum == 0:
                scaler.unscale_(opt)
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
        if (i + 1) % accum != 0:
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
""",
)
program(
    "accumulation with a continue",
    """
    def train(model, opt, loader, loss_fn, accum):
        scaler = GradScaler()
        for i, (x, y) in enumerate(loader):
            scaler.scale(loss_fn(model(x), y) / accum).backward()
            if (i + 1) % accum:
                continue
            scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
""",
)
program(
    "the boundary in a local, asked three times",
    """
    def train(model, opt, loader, loss_fn, accum):
        scaler = GradScaler()
        for i, (x, y) in enumerate(loader):
            last_micro_batch = (i + 1) % accum == 0 or i + 1 == len(loader)
            scaler.scale(loss_fn(model(x), y) / accum).backward()
            if last_micro_batch:
                scaler.unscale_(opt)
            if last_micro_batch:
                clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(opt)
            if last_micro_batch:
                scaler.update()
                opt.zero_grad()
""",
)
program(
    "unscale_ on every micro-batch",
    """
    def train(model, opt, loader, loss_fn, accum):
        scaler = GradScaler()
        for i, (x, y) in enumerate(loader):
            scaler.scale(loss_fn(model(x), y) / accum).backward()
            scaler.unscale_(opt)  # !unscale-in-accumulation
            clip_grad_norm_(model.parameters(), 1.0)
            if (i + 1) % accum == 0:
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
""",
)
program(
    "update on every micro-batch",
    """
    def train(model, opt, loader, loss_fn, accum):
        scaler = GradScaler()
        for i, (x, y) in enumerate(loader):
            scaler.scale(loss_fn(model(x), y) / accum).backward()
            if (i + 1) % accum == 0:
                scaler.step(opt)
                opt.zero_grad()
            scaler.update()  # !update-in-accumulation
""",
)
program(
    "unscale_ between two losses of one step",
    """
    def train(model, opt, loader, first, second):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(first(model(x))).backward()
            scaler.unscale_(opt)  # !unscale-in-accumulation
            scaler.scale(second(model(x))).backward()
            scaler.step(opt)
            scaler.update()
""",
)

# -- exceptions -------------------------------------------------------------------------------------------------------

program(
    "update in finally",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            scaler.scale(loss_fn(model(x))).backward()
            try:
                scaler.step(opt)
            finally:
                scaler.update()
                opt.zero_grad()
""",
)
program(
    "a handler goes on without update",
    """
    def train(model, opt, loader, loss_fn, check):
        scaler = GradScaler()
        for x in loader:
            opt.zero_grad()
            scaler.scale(loss_fn(model(x))).backward()
            try:
                scaler.unscale_(opt)  # !update-skipped-on-path
                check(model)
                scaler.step(opt)
                scaler.update()
            except RuntimeError:
                continue
""",
)
program(
    "a handler for what the model raises",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        for x in loader:
            try:
                loss = loss_fn(model(x))
                scaler.scale(loss).backward()
                scaler.step(opt)
                scaler.update()
                opt.zero_grad()
            except RuntimeError:
                opt.zero_grad()
""",
)
program(
    "while True, next() and StopIteration",
    """
    def train(model, opt, loader, loss_fn):
        scaler = GradScaler()
        it = iter(loader)
        while True:
            try:
                x = next(it)
            except StopIteration:
                break
            with torch.enable_grad():
                with autocast("cuda"):
                    loss = loss_fn(model(x))
                scaler.scale(loss).backward()
            scaler.unscale_(opt)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
""",
)
