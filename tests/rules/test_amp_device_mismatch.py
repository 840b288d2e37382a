"""AMP407: scaler, autocast and tensors on different devices."""

from __future__ import annotations

import pytest

from .helpers import fixed, lines, rows

LOOP = """
def train(model, loader, optimizer):
    scaler = torch.amp.GradScaler()
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("xpu", dtype=torch.float16):
            loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""

MOVED = """
def predict(model, x):
    model.to("mps")
    x = x.to("mps")
    with torch.autocast("cuda"):
        return model(x)
"""

FOUND = [
    pytest.param(LOOP, [2], id="the default of the scaler"),
    pytest.param(LOOP.replace("GradScaler()", 'GradScaler("cuda")'), [2], id="written out"),
    pytest.param(LOOP.replace("GradScaler()", 'GradScaler(device="cuda:0")'), [2], id="with an index"),
    pytest.param(LOOP.replace("torch.amp.GradScaler()", "torch.cuda.amp.GradScaler()"), [2], id="the old class"),
    pytest.param(LOOP.replace('"xpu"', '"cuda"').replace("GradScaler()", 'GradScaler("cpu")'), [2], id="the reverse"),
    pytest.param(LOOP.replace('"xpu"', "DEVICE") + '\nDEVICE = "xpu"\n', [2], id="a constant of the module"),
    pytest.param(MOVED, [4], id="autocast where nothing goes"),
    pytest.param(MOVED.replace('.to("mps")', ".xpu()"), [4], id="moved by a method"),
    pytest.param(MOVED.replace('"mps"', 'torch.device("cpu")'), [4], id="a device object"),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP407", snippet) == want


SILENT = {
    "whatever accelerator the machine has": 'device = torch.accelerator.current_accelerator().type if ok else "cpu"\n'
    + LOOP.replace('"xpu"', "device_type=device"),
    "the same": LOOP.replace("GradScaler()", 'GradScaler("xpu")'),
    "both cuda": LOOP.replace('"xpu"', '"cuda"'),
    "the region's device is unknown": LOOP.replace('"xpu"', "device.type"),
    "the region's device is a parameter": LOOP.replace('"xpu"', "device").replace(
        "optimizer):", 'optimizer, device="cpu"):'
    ),
    "the scaler's device is a parameter": LOOP.replace("GradScaler()", "GradScaler(device)").replace(
        "optimizer):", 'optimizer, device="cuda"):'
    ),
    "the region is off": LOOP.replace("dtype=torch.float16", "enabled=False"),
    "the scaler is not used here": LOOP.replace("scaler.scale(loss).backward()", "loss.backward()"),
    "tensors where autocast is": MOVED.replace('"mps"', '"cuda"'),
    "somewhere": MOVED.replace('"mps"', "device"),
    "to two devices": MOVED.replace('"mps"', '"cuda"', 1),
    "a dtype is no device": MOVED.replace('"mps"', "torch.float32"),
    "results come back": """
        def predict(model, loader):
            for x in loader:
                with torch.autocast("cuda"):
                    out = model(x).cpu()
                total = out.to("cpu").sum().cpu()
        """,
    "nothing is moved": """
        def predict(model, x):
            with torch.autocast("cuda"):
                return model(x)
        """,
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP407", snippet) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("GradScaler()", 'GradScaler("xpu")'),
        ("GradScaler(init_scale=2.0)", 'GradScaler("xpu", init_scale=2.0)'),
        ('GradScaler("cuda", 2.0)', 'GradScaler("xpu", 2.0)'),
        ('GradScaler(device="cuda")', 'GradScaler(device="xpu")'),
    ],
)
def test_fix_makes_a_scaler_for_the_device(before: str, after: str) -> None:
    assert fixed("AMP407", LOOP.replace("GradScaler()", before)) == lines(LOOP.replace("GradScaler()", after))


def test_fix_moves_autocast() -> None:
    assert fixed("AMP407", MOVED) == lines(MOVED.replace('"cuda"', '"mps"'))


def test_the_old_class_has_no_other_device() -> None:
    snippet = LOOP.replace("torch.amp.GradScaler()", "torch.cuda.amp.GradScaler()")
    assert fixed("AMP407", snippet) == lines(snippet)
