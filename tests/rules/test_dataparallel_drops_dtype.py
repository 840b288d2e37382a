"""AMP112: the replicas of DataParallel fall back to the default dtype."""

from __future__ import annotations

import pytest

from .helpers import rows

CALL = """
def f(net, x):
    model = nn.DataParallel(net)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return model(x)
"""

FOUND = [
    pytest.param(CALL, [4], id="local"),
    pytest.param(
        CALL.replace("nn.DataParallel(net)", "nn.DataParallel(net, device_ids=[0, 1]).cuda()"), [4], id="moved"
    ),
    pytest.param(
        """
        class T:
            def __init__(self, net):
                self.net = torch.nn.parallel.DataParallel(net) if many() else net
            def f(self, x):
                with torch.cuda.amp.autocast(dtype=torch.bfloat16):
                    return self.net(x)
        """,
        [6],
        id="attribute, on one branch",
    ),
    pytest.param(
        """
        def loss(model, x):
            return model(x).mean()
        def f(net, x):
            model = nn.DataParallel(net)
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return loss(model, x)
        """,
        [2],
        id="in a helper",
    ),
]


@pytest.mark.parametrize(("snippet", "want"), FOUND)
def test_found(snippet: str, want: list[int]) -> None:
    assert rows("AMP112", snippet) == want


SILENT = {
    "no dtype": CALL.replace(", dtype=torch.bfloat16", ""),
    "float16 is the default": CALL.replace("bfloat16", "float16"),
    "distributed": CALL.replace("nn.DataParallel", "nn.parallel.DistributedDataParallel"),
    "off": CALL.replace("bfloat16)", "bfloat16, enabled=False)"),
    "another device": CALL.replace('"cuda"', '"xpu"'),
    "the inner module": CALL.replace("return model(x)", "return model.module(x)"),
    "outside": CALL.replace("        return model(x)", "        pass\n    return model(x)"),
}


@pytest.mark.parametrize("snippet", SILENT.values(), ids=SILENT)
def test_silent(snippet: str) -> None:
    assert rows("AMP112", snippet) == []
