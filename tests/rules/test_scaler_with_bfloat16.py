"""AMP402: a loss scale for a dtype that has the range of float32."""

from __future__ import annotations

import pytest

from .helpers import fixed, lines, rows

LOOP = """
def train(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
"""

FOUND = [
    pytest.param(LOOP, [2], id="plain"),
    pytest.param(LOOP.replace('GradScaler("cuda")', 'GradScaler("cuda", enabled=True)'), [2], id="enabled=True"),
    pytest.param(LOOP.replace('"cuda")', '"cuda") if gpu else None', 1), [2], id="or None"),
    pytest.param(
        LOOP.replace('GradScaler("cuda")', "GradScaler(enabled=c.bf16)").replace(
            "bfloat16)", "bfloat16, enabled=c.bf16)"
        ),
        [2],
        id="one flag for both",
    ),
    pytest.param(
        """
        class Trainer:
            def __init__(self):
                self.scaler = torch.cuda.amp.GradScaler()
                self.ctx = torch.autocast("cuda", dtype=torch.bfloat16)
            def step(self, x, y):
                with self.ctx:
                    loss = F.mse_loss(self.model(x), y)
                self.scaler.scale(loss).backward()
                self.scaler.step(self.optimizer)
                self.scaler.update()
        """,
        [3],
        id="attributes",
    ),
    pytest.param(
        """
        def main(model, loader, opt):
            scaler = torch.amp.GradScaler("cuda")
            for _ in range(3):
                epoch(model, loader, opt, scaler)
        def epoch(model, loader, opt, amp_scaler):
            for x, y in loader:
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = F.mse_loss(model(x), y)
                amp_scaler.scale(loss).backward()
                amp_scaler.step(opt)
                amp_scaler.update()
        """,
        [2],
        id="passed to the function that trains",
    ),
    pytest.param(
        LOOP.replace('torch.amp.GradScaler("cuda")', "make()") + "def make():\n    return torch.amp.GradScaler()\n",
        [13],
        id="made by a function",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP402", snippet) == want


SILENT = {
    "float16": LOOP.replace("bfloat16", "float16"),
    "no dtype: float16 on CUDA": LOOP.replace(", dtype=torch.bfloat16", ""),
    "disabled": LOOP.replace('GradScaler("cuda")', 'GradScaler("cuda", enabled=False)'),
    "a flag of its own": LOOP.replace('GradScaler("cuda")', 'GradScaler("cuda", enabled=use_scaler)'),
    "enabled by the dtype": LOOP.replace('GradScaler("cuda")', 'GradScaler("cuda", enabled=dtype == torch.float16)'),
    "the dtype is a choice": LOOP.replace("dtype=torch.bfloat16", "dtype=torch.bfloat16 if new else torch.float16"),
    "the dtype is a parameter": LOOP.replace("dtype=torch.bfloat16", "dtype=dtype").replace(
        "optimizer):", "optimizer, dtype=torch.bfloat16):"
    ),
    "the dtype is not in view": LOOP.replace("torch.bfloat16", "self_dtype()"),
    "never used": """
        def train(model, loader, optimizer):
            scaler = torch.amp.GradScaler("cuda")
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = model(loader)
            loss.backward()
        """,
    "one region of two is float16": LOOP.replace(
        "        scaler.scale",
        '        with torch.autocast("cuda"):\n            loss = loss + model(x)\n        scaler.scale',
        1,
    ),
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP402", snippet) == []


def test_fix_takes_the_scaler_out() -> None:
    after = """
def train(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = F.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
"""
    assert fixed("AMP402", LOOP) == lines(after)


def test_a_scaled_sum_keeps_its_parentheses() -> None:
    assert "        (loss + 1).backward()\n" in fixed("AMP402", LOOP.replace("scale(loss)", "scale(loss + 1)"))


@pytest.mark.parametrize(
    "use",
    ["print(scaler.get_scale())", "save(scaler.state_dict())", "finish(scaler)"],
)
def test_a_scaler_with_other_uses_stays(use: str) -> None:
    snippet = LOOP.rstrip("\n") + f"\n        {use}\n"
    assert rows("AMP402", snippet) == [2]
    assert fixed("AMP402", snippet) == lines(snippet)
