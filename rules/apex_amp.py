"""AMP003: apex.amp, which torch.amp replaced."""

from __future__ import annotations

from collections.abc import Iterator

from amplint.apex import Group, NotMovedError, groups, move
from amplint.model import Applicability, Finding, Fix, Label, Level
from amplint.rule import rule
from amplint.source import SourceFile


@rule("AMP003", "apex-amp", level=Level.WARNING, fix=Applicability.UNSAFE, triggers=("apex",))
def apex_amp(file: SourceFile) -> Iterator[Finding]:
    """
    `apex.amp` is retired: it patches torch's functions when the program starts and is no longer developed, while
    `torch.amp` does the same inside torch.

    ```python bad
    import torch
    from apex import amp


    def train(model, loader, optimizer):
        model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
        for x, y in loader:
            optimizer.zero_grad()
            loss = (model(x) - y).pow(2).mean()
            with amp.scale_loss(loss, optimizer) as scaled_loss:
                scaled_loss.backward()
            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)
            optimizer.step()
    ```

    ```python good
    import torch


    def train(model, loader, optimizer):
        scaler = torch.amp.GradScaler("cuda")
        for x, y in loader:
            optimizer.zero_grad()
            with torch.amp.autocast("cuda", dtype=torch.float16):
                loss = (model(x) - y).pow(2).mean()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
    ```

    The finding stands at the import and lists the uses. The fix is unsafe, and made for a plain loop only: `O2` and
    `O3` keep the model in float16, which torch.amp does not, and a GradScaler can't read checkpoints that hold
    `amp.state_dict()`.
    """
    for group in groups(file):
        fix, why = _fix(file, group)
        yield Finding(
            "AMP003",
            file.span(group.first.node),
            "`apex.amp` is retired: torch.amp does the same without patching functions when the program starts",
            tuple(Label(file.span(use.node), "used here") for use in group.named),
            fix,
            help=f"move to `torch.amp.autocast` and `torch.amp.GradScaler` by hand: {why}" if why else "",
        )


def _fix(file: SourceFile, group: Group) -> tuple[Fix | None, str]:
    """The fix, or None and why there is none."""
    try:
        return move(file, group), ""
    except NotMovedError as error:
        return None, str(error)
