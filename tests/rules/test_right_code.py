"""Code that looks wrong and is right: the rules on regions, losses and dtypes stay silent on it."""

from __future__ import annotations

from textwrap import dedent

import pytest

from amplint import check_source
from amplint.settings import Settings

from .helpers import HEADER

CODES = (*(f"AMP{number}" for number in range(103, 114)), *(f"AMP{number}" for number in range(401, 408)))

RIGHT = {
    "bfloat16 and no scaler": """
        def train(model, loader, optimizer):
            for x, y in loader:
                optimizer.zero_grad()
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
        """,
    "a scaler that is off, called all the same": """
        def train(model, loader, optimizer):
            scaler = torch.amp.GradScaler("cuda", enabled=False)
            for x, y in loader:
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = F.mse_loss(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        """,
    "one flag, tested more than once": """
        def train(model, loader, optimizer, use_amp):
            scaler = torch.amp.GradScaler("cuda") if use_amp else None
            for x, y in loader:
                with torch.autocast("cuda", enabled=use_amp):
                    loss = F.mse_loss(model(x), y)
                if use_amp:
                    scaler.scale(loss).backward()
                if not use_amp:
                    loss.backward()
                    optimizer.step()
                else:
                    scaler.step(optimizer)
                    scaler.update()
        """,
    "a callable scaler that does it all": """
        from timm.utils import NativeScaler
        def train(model, loader, optimizer):
            loss_scaler = NativeScaler()
            for x, y in loader:
                with torch.autocast("cuda"):
                    loss = F.mse_loss(model(x), y)
                loss_scaler(loss, optimizer, parameters=model.parameters())
        """,
    "half of the protocol: the loss": """
        class Objective:
            def __call__(self, x, y):
                with torch.autocast("cuda"):
                    return F.mse_loss(self.model(x), y)
        """,
    "half of the protocol: the step": """
        class Stepper:
            def __call__(self, loss):
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
        """,
    "the scaler goes to a framework": """
        def train(context, model, optimizer, x, y):
            scaler = context.wrap_scaler(torch.amp.GradScaler("cuda"))
            with torch.autocast("cuda"):
                loss = F.mse_loss(model(x), y)
            context.backward(scaler.scale(loss))
            context.step_optimizer(optimizer, scaler=scaler)
        """,
    "a subclass of the scaler": """
        class Careful(torch.amp.GradScaler):
            pass
        def train(model, loader, optimizer):
            scaler = Careful("cuda")
            for x, y in loader:
                with torch.autocast("cuda", dtype=torch.bfloat16):
                    loss = F.mse_loss(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        """,
    "autocast off around the loss, on float32 inputs": """
        def loss(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
                with torch.autocast("cuda", enabled=False):
                    return F.binary_cross_entropy(torch.sigmoid(out.float()), y.float())
        """,
    "autocast in evaluation": """
        @torch.inference_mode()
        def evaluate(model, loader):
            with torch.autocast("cuda"):
                return [model(x).float().cpu().numpy() for x in loader]
        """,
    "a region that suppresses nothing": """
        from contextlib import nullcontext, suppress
        def train(model, loader, optimizer, amp_autocast=suppress):
            for x, y in loader:
                with amp_autocast():
                    loss = F.mse_loss(model(x), y)
                with nullcontext():
                    loss.backward()
                optimizer.step()
        """,
    "arguments in a dict": """
        def train(model, loader, optimizer, amp):
            kw = {"device_type": "cuda", "enabled": amp}
            for x, y in loader:
                with torch.autocast(**kw):
                    loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
        """,
    "a shim for an older torch": """
        try:
            from torch.amp import GradScaler, autocast
        except ImportError:
            from torch.cuda.amp import GradScaler, autocast
        def train(model, loader, optimizer):
            for x, y in loader:
                with autocast("cuda"):
                    loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
        """,
    "scripted code": """
        class Net(nn.Module):
            def forward(self, x):
                with torch.cuda.amp.autocast(enabled=False):
                    return x.float() @ x.float()
        torch.jit.script(Net()).save("net")
        """,
    "a scaler that nothing uses": """
        def train(model, loader, optimizer):
            scaler = torch.amp.GradScaler("cuda")
            for x, y in loader:
                loss = F.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
        """,
    "the gradient penalty of the documentation": """
        def train(model, loader, optimizer):
            scaler = torch.amp.GradScaler("cuda")
            for x in loader:
                with torch.autocast("cuda"):
                    score = model(x)
                (g,) = torch.autograd.grad(scaler.scale(score.sum()), x, create_graph=True)
                g = g * (1.0 / scaler.get_scale())
                with torch.autocast("cuda"):
                    loss = model(x).mean() + g.norm()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        """,
    "an injected gradient that carries the scale": """
        class Inject(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x, g):
                ctx.save_for_backward(g)
                return x.new_ones(())
            @staticmethod
            def backward(ctx, scale):
                (g,) = ctx.saved_tensors
                return g * scale, None
        def loss(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
                return Inject.apply(out, out - y)
        """,
    "in a comment, a string and a docstring": '''
        def example():
            """
            with torch.autocast("cuda"): loss = F.binary_cross_entropy(p, y)
            """
            # ctx = torch.autocast("cuda"); loss.backward(); optimizer.step()
            return 'torch.autocast("cuda").__enter__()'
        ''',
    "autocast around DataParallel": """
        def train(net, loader, optimizer):
            model = nn.DataParallel(net)
            scaler = torch.amp.GradScaler("cuda")
            for x, y in loader:
                with torch.autocast("cuda"):
                    loss = F.mse_loss(model(x), y)
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
        """,
}


@pytest.mark.parametrize("snippet", RIGHT.values(), ids=RIGHT)
def test_silent(snippet: str) -> None:
    found = check_source(HEADER + dedent(snippet), "t.py", Settings(select=CODES))
    assert [(d.code, d.location.row) for d in found] == []
