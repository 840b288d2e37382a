"""AMP401: the parameters themselves are float16 while the optimizer goes through a scaler."""

from __future__ import annotations

import pytest

from .helpers import fixed, lines, rows

LOOP = """
def train(model, loader):
    model = model.half()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""

FOUND = [
    pytest.param(LOOP, [2], id="half"),
    pytest.param(LOOP.replace("model = model.half()", "model.half()"), [2], id="in place"),
    pytest.param(LOOP.replace("model.half()", "model.to(torch.float16)"), [2], id="to"),
    pytest.param(LOOP.replace("model.half()", 'model.to("cuda", dtype=torch.half)'), [2], id="to, with a device"),
    pytest.param(LOOP.replace("model.half()", "Net().cuda().half().train()"), [2], id="in a chain"),
    pytest.param(
        LOOP.replace("model.parameters(), lr=0.1", '[{"params": model.parameters(), "lr": 0.1}]'), [2], id="groups"
    ),
    pytest.param(
        """
        class Trainer:
            def __init__(self, net):
                self.net = net.to(torch.float16)
                self.opt = torch.optim.AdamW(self.net.parameters(), fused=True)
                self.scaler = torch.amp.GradScaler("cuda")
            def step(self, x):
                with torch.autocast("cuda"):
                    loss = self.net(x).float().mean()
                self.scaler.scale(loss).backward()
                self.scaler.step(self.opt)
                self.scaler.update()
        """,
        [3],
        id="attributes",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP401", snippet) == want


SILENT = {
    "only the input": LOOP.replace("    model = model.half()\n", "").replace("model(x)", "model(x.half())"),
    "bfloat16": LOOP.replace("model.half()", "model.to(torch.bfloat16)"),
    "another model": LOOP.replace("model = model.half()", "teacher = teacher.half()"),
    "back to float32": LOOP.replace("model.half()", "model.half().float()"),
    "on one branch": LOOP.replace("    model = model.half()", "    if pure:\n        model = model.half()"),
    "the scaler is off": LOOP.replace('GradScaler("cuda")', 'GradScaler("cuda", enabled=False)'),
    "the scaler has a flag": LOOP.replace('GradScaler("cuda")', 'GradScaler("cuda", enabled=amp)'),
    "no scaler": LOOP.replace("scaler.step(optimizer)", "optimizer.step()"),
    "after training": LOOP.replace("    model = model.half()\n", "") + "    return model.half()\n",
    "the optimizer is not in view": LOOP.replace("torch.optim.SGD(model.parameters(), lr=0.1)", "build(model)"),
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP401", snippet) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("    model = model.half()\n", ""),
        ("    model.half()  # faster\n", ""),
        ("    model = Net().half().cuda()\n", "    model = Net().cuda()\n"),
        ("    model = model.to(device, torch.float16)\n", "    model = model.to(device)\n"),
        ("    model = model.to(dtype=torch.half, device=device)\n", "    model = model.to(device=device)\n"),
    ],
)
def test_fix_keeps_float32(before: str, after: str) -> None:
    statement = "    model = model.half()\n"
    assert fixed("AMP401", LOOP.replace(statement, before)) == lines(LOOP.replace(statement, after))
