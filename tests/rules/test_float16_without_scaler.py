"""AMP403: training under float16 autocast without a loss scale."""

from __future__ import annotations

import pytest

from amplint.settings import Settings

from .helpers import fixed, lines, rows

LOOP = """
def train(model, loader, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
"""

FOUND = [
    pytest.param(LOOP, [4], id="the default of CUDA"),
    pytest.param(LOOP.replace('torch.autocast("cuda")', "torch.cuda.amp.autocast()"), [4], id="the old class"),
    pytest.param(LOOP.replace('"cuda"', '"cuda", dtype=torch.half'), [4], id="torch.half"),
    pytest.param(LOOP.replace('"cuda"', '"cuda", enabled=torch.cuda.is_available()'), [4], id="on wherever it can be"),
    pytest.param(
        LOOP.replace('"cuda"', "device_type=device").replace("optimizer):", 'optimizer, device="cuda"):'),
        [4],
        id="a parameter whose default is cuda",
    ),
    pytest.param(
        LOOP.replace('"cuda"', '"cuda", dtype=torch.bfloat16 if bf16() else torch.float16'), [4], id="float16 at times"
    ),
    pytest.param(LOOP.replace("loss.backward()", "(loss / 4).backward()"), [4], id="divided"),
    pytest.param(
        """
        ctx = torch.autocast("cuda", dtype=torch.float16)
        def train(model, loader, optimizer):
            for x, y in loader:
                with ctx:
                    loss = F.mse_loss(model(x), y)
                loss = loss / 4
                loss.backward()
                optimizer.step()
        """,
        [1],
        id="held by the module: reported where the dtype is",
    ),
    pytest.param(
        """
        class Trainer:
            def compute(self, x, y):
                with torch.autocast("cuda"):
                    loss = F.mse_loss(self.model(x), y)
                return loss
            def go_back(self, loss):
                loss.backward()
            def step(self, x, y):
                loss = self.compute(x, y)
                self.go_back(loss)
                self.optimizer.step()
        """,
        [3],
        id="the region and the backward in helpers",
    ),
    pytest.param(
        """
        def train(model, loader, optimizer):
            scaler = torch.amp.GradScaler("cuda")
            for x, y in loader:
                with torch.autocast("cuda"):
                    loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
            torch.save({"scaler": scaler.state_dict()}, "ckpt")
        """,
        [6],
        id="a scaler that is never used: reported at the backward",
    ),
    pytest.param(
        """
        def train(model, loader, optimizer, kind):
            for x, y in loader:
                with {"bf16": torch.autocast("cuda", dtype=torch.bfloat16),
                      "fp16": torch.autocast("cuda", dtype=torch.float16)}[kind]:
                    loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
        """,
        [4],
        id="one entry of a dict",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP403", snippet) == want


SILENT = {
    "scaled and unscaled by hand under another name": """
        def f(model, opt, x, S):
            with torch.autocast("cuda"):
                loss = model(x).mean()
            (loss * S).backward()
            for p in model.parameters():
                p.grad.div_(S)
            opt.step()
        """,
    "bfloat16": LOOP.replace('"cuda"', '"cuda", dtype=torch.bfloat16'),
    "on the CPU": LOOP.replace('"cuda"', '"cpu"'),
    "off": LOOP.replace('"cuda"', '"cuda", enabled=False'),
    "off unless asked for": LOOP.replace("optimizer):", "optimizer, amp=False):").replace(
        '"cuda"', '"cuda", enabled=amp'
    ),
    "a dtype from outside": LOOP.replace('"cuda"', '"cuda", dtype=DTYPES[name]'),
    "a device from outside": LOOP.replace('"cuda"', "device.type"),
    "a bool in the place of the dtype": LOOP.replace('"cuda"', '"cuda", True'),
    "scaled": LOOP.replace("loss.backward()", "scaler.scale(loss).backward()"),
    "one of two arms is scaled": LOOP.replace(
        "        loss.backward()",
        "        if scaler:\n            scaler.scale(loss).backward()\n        else:\n            loss.backward()",
    ),
    "an unscaled loss before scaler.step is another rule's": LOOP.replace(
        "optimizer.step()", "scaler.step(optimizer)\n        scaler.update()"
    ),
    "so it is under another name": "gs = torch.amp.GradScaler()\n"
    + LOOP.lstrip("\n").replace("optimizer.step()", "gs.step(optimizer)"),
    "a callable scaler": LOOP.replace(
        "        loss.backward()\n        optimizer.step()", "        loss_scaler(loss, optimizer)"
    ),
    "the scaler is handed on": LOOP.replace("optimizer.step()", "finish(optimizer, scaler)"),
    "scaled by hand": LOOP.replace("loss.backward()", "(loss * loss_scale).backward()"),
    "a framework goes backward": LOOP.replace("loss.backward()", "accelerator.backward(loss)"),
    "evaluation": """
        def evaluate(model, loader, optimizer):
            with torch.no_grad(), torch.autocast("cuda"):
                loss = model(1)
            optimizer.step()
        """,
    "half of the protocol": """
        def loss(model, x, y):
            with torch.autocast("cuda"):
                return F.mse_loss(model(x), y)
        """,
    "no optimizer: an attack on the input": """
        def attack(model, x, y):
            with torch.autocast("cuda"):
                loss = F.mse_loss(model(x), y)
            loss.backward()
            return x.grad.sign()
        """,
    "another loss goes backward": """
        def train(model, x, y, optimizer):
            with torch.no_grad(), torch.autocast("cuda"):
                target = model(x)
            with torch.autocast("cuda"):
                metric = model(y)
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
        """,
    "arguments in a dict": LOOP.replace('"cuda"', "**amp_arguments"),
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP403", snippet) == []


AFTER = """
def train(model, loader, optimizer):
    scaler = torch.amp.GradScaler("cuda")
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = F.mse_loss(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""


def test_fix_puts_a_scaler_in() -> None:
    assert fixed("AMP403", LOOP) == lines(AFTER)


def test_fix_for_an_older_torch() -> None:
    want = AFTER.replace('torch.amp.GradScaler("cuda")', "torch.cuda.amp.GradScaler()")
    assert fixed("AMP403", LOOP, Settings(target_torch=(2, 0))) == lines(want)


@pytest.mark.parametrize(
    "snippet",
    [
        LOOP.replace("optimizer.step()", "nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        optimizer.step()"),
        LOOP.replace("optimizer.step()", "first_opt.step()\n        second_opt.step()"),
        LOOP.replace("optimizer.step()", "optimizer.step(closure)"),
        LOOP.replace("loss.backward()", "loss.backward(); other.backward()"),
    ],
    ids=["clips", "two optimizers", "closure", "two losses"],
)
def test_nothing_is_changed_in_a_loop_that_is_not_simple(snippet: str) -> None:
    assert rows("AMP403", snippet) == [4]
    assert fixed("AMP403", snippet) == lines(snippet)


def test_forward_that_is_decorated_is_found_by_its_callers() -> None:
    snippet = """
        class Net(nn.Module):
            @torch.autocast("cuda")
            def forward(self, x):
                return self.head(x)
        def train(loader, optimizer):
            net = Net()
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.mse_loss(net(x), y)
                loss.backward()
                optimizer.step()
        """
    assert rows("AMP403", snippet) == [2]
    assert rows("AMP403", snippet.replace("loss.backward()", "scaler.scale(loss).backward()")) == []
