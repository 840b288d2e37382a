"""AMP104: binary cross entropy on probabilities under autocast."""

from __future__ import annotations

import pytest

from .helpers import fixed, lines, rows

FOUND = [
    pytest.param(
        """
        def f(model, x, y):
            with torch.autocast("cuda"):
                return F.binary_cross_entropy(model(x), y)
        """,
        [3],
        id="functional",
    ),
    pytest.param(
        """
        def f(model, x, y):
            criterion = nn.BCELoss()
            with torch.cuda.amp.autocast():
                return criterion(model(x), y)
        """,
        [4],
        id="local module",
    ),
    pytest.param(
        """
        class Net(nn.Module):
            @torch.autocast("cuda", dtype=torch.bfloat16)
            def forward(self, x, y, loss=nn.BCELoss()):
                return loss(x, y)
        """,
        [4],
        id="parameter's default in a decorated method",
    ),
    pytest.param(
        """
        class Net(nn.Module):
            def __init__(self):
                self.a, self.b = nn.L1Loss(), nn.BCELoss(reduction="none")
            def forward(self, x, y):
                return self.a(x, y) + self.b(x, y).mean()
        def train(x, y):
            net = nn.DataParallel(Net()).cuda()
            with torch.autocast("cuda"):
                return net(x, y)
        """,
        [5],
        id="attribute in a module that is called in a region",
    ),
    pytest.param(
        """
        def train(model, loader, criterion):
            for x, y in loader:
                with torch.autocast("cuda", enabled=True):
                    loss = criterion(model(x), y)
        def main(model, loader):
            train(model, loader, criterion=nn.BCELoss())
        """,
        [4],
        id="given by the caller",
    ),
    pytest.param(
        """
        def f(x, y, use_amp):
            with torch.autocast("cuda", enabled=use_amp):
                return F.binary_cross_entropy(x, y)
        """,
        [3],
        id="a flag: raises whenever it is set",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP104", snippet) == want


SILENT = {
    "outside every region": """
        def f(model, x, y):
            with torch.autocast("cuda"):
                out = model(x)
            return F.binary_cross_entropy(out.float(), y)
        """,
    "in a region that is off": """
        def f(model, x, y):
            with torch.autocast("cuda"):
                p = torch.sigmoid(model(x))
                with torch.autocast("cuda", enabled=False):
                    return F.binary_cross_entropy(p.float(), y)
        """,
    "decorated with autocast off": """
        class Loss(nn.Module):
            @torch.autocast("cuda", enabled=False)
            def forward(self, p, y):
                return F.binary_cross_entropy(p.float(), y)
        def train(model, x, y):
            loss = Loss()
            with torch.autocast("cuda"):
                return loss(model(x), y)
        """,
    "with logits": """
        def f(model, x, y):
            with torch.autocast("cuda"):
                return F.binary_cross_entropy_with_logits(model(x), y)
        """,
    "chosen by a flag: not certain": """
        def f(model, x, y, amp):
            loss = nn.BCEWithLogitsLoss() if amp else nn.BCELoss()
            with torch.autocast("cuda", enabled=amp):
                return loss(model(x), y)
        """,
    "not on the list of MPS": """
        def f(model, x, y):
            with torch.autocast("mps"):
                return F.binary_cross_entropy(model(x), y)
        """,
    "someone else's function": """
        from mine import binary_cross_entropy
        def f(model, x, y):
            with torch.autocast("cuda"):
                return binary_cross_entropy(model(x), y)
        """,
    "a nested function that is not called there": """
        def f(model, x, y):
            with torch.autocast("cuda"):
                def late(p):
                    return F.binary_cross_entropy(p, y)
                out = model(x)
            return late(out.float())
        """,
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP104", snippet) == []


def test_the_module_is_replaced_with_its_only_use() -> None:
    before = """
        def f(model, x, y):
            criterion = nn.BCELoss(reduction="sum")
            with torch.autocast("cuda"):
                loss = criterion(model(x).sigmoid(), y)
            return loss
        """
    after = """
        def f(model, x, y):
            criterion = nn.BCEWithLogitsLoss(reduction="sum")
            with torch.autocast("cuda"):
                loss = criterion(model(x), y)
            return loss
        """
    assert fixed("AMP104", before) == lines(after)


def test_a_module_with_two_uses_stays() -> None:
    before = """
        def f(model, x, y):
            criterion = nn.BCELoss()
            with torch.autocast("cuda"):
                loss = criterion(torch.sigmoid(model(x)), y)
            return loss + criterion(x, y)
        """
    assert fixed("AMP104", before) == lines(before)


def test_without_a_sigmoid_in_view_nothing_is_changed() -> None:
    before = """
        def f(model, x, y):
            with torch.autocast("cuda"):
                return F.binary_cross_entropy(model(x), y)
        """
    assert fixed("AMP104", before) == lines(before)


def test_held_by_a_dict_or_a_partial() -> None:
    snippet = """
        import functools
        bce = functools.partial(F.binary_cross_entropy, reduction="sum")
        class Task:
            def __init__(self):
                self.losses = {"mask": nn.BCELoss(), "pixels": nn.L1Loss()}
                self.others = nn.ModuleDict({"mask": nn.BCELoss()})
            def step(self, p, y):
                with torch.autocast("cuda"):
                    a = self.losses["pixels"](p, y) + self.losses["mask"](p, y)
                    return a + self.others["mask"](p, y) + bce(p, y)
        """
    assert rows("AMP104", snippet) == [9, 10, 10]
