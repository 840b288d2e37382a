"""Functions that use gradients and that nothing in the file runs."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

LOOP = """
for x, y in batches:
    optimizer.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""
CLIP = """
def clip(parameters):
    for p in parameters:
        p.grad.clamp_(-1, 1)
"""


def status(body: str) -> tuple[str, str]:
    loop = migrate_source(HEAD + body, "train.py").loops[0]
    return loop.status, loop.reason


@pytest.mark.parametrize(
    "body",
    [CLIP, "\nclass Tools:\n    def norms(self):\n        return [p.grad.norm() for p in model.parameters()]\n"],
    ids=["function", "method"],
)
def test_a_function_that_nothing_runs_is_no_obstacle(body: str) -> None:
    assert status(body + LOOP)[0] == "migrated"


@pytest.mark.parametrize(
    "body",
    [
        CLIP + "hooks = [clip]\n",
        CLIP + "name = 'clip'\n",
        CLIP + "found = globals()[input()]\n",
        CLIP + "found = getattr(object(), input(), None)\n",
        "import tools\n@tools.register" + CLIP,
        CLIP.replace("clip", "__getattr__"),
        "import tools\n\nclass Mine(tools.Callback):\n" + CLIP.replace("\n", "\n    ").replace("clip(", "clip(self, "),
    ],
    ids=["a list", "its name", "globals", "getattr", "a decorator", "a name for Python", "a class out of view"],
)
def test_a_function_that_may_be_run_is_an_obstacle(body: str) -> None:
    found, reason = status(body + LOOP)
    assert found == "refused"
    assert "uses gradients, and where it is called can't be seen" in reason
