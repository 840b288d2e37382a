"""Optimizers without a name of their own, in tables, or made in several methods; parameters that are constants."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

TRAIN = """
def train(model, opt, batches):
    for x, y in batches:
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()

"""
SCALER = 'scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")'


def migrated(body: str) -> list[str]:
    result = migrate_source(HEAD + body, "train.py")
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    assert migrate_source(result.text, "train.py").text == result.text
    return result.text.removeprefix(HEAD).splitlines()


def reason(body: str) -> str:
    result = migrate_source(HEAD + body, "train.py")
    assert result.text == HEAD + body
    return result.loops[0].reason


def test_an_optimizer_that_is_made_in_a_call() -> None:
    lines = migrated(TRAIN + "train(model, torch.optim.Adam(model.parameters()), batches)\n")
    assert "def train(model, opt, scaler, batches):" in lines
    assert lines[-2:] == [SCALER, "train(model, torch.optim.Adam(model.parameters()), scaler, batches)"]


def test_optimizers_that_are_made_in_calls_in_a_loop_share_a_scaler() -> None:
    lines = migrated(
        TRAIN + "for lr in rates:\n    train(model, torch.optim.SGD(model.parameters(), lr=lr), batches)\n"
    )
    assert lines[-3:] == [
        SCALER,
        "for lr in rates:",
        "    train(model, torch.optim.SGD(model.parameters(), lr=lr), scaler, batches)",
    ]


def test_an_optimizer_that_is_made_in_a_call_beside_one_with_a_name() -> None:
    lines = migrated(
        TRAIN + "opt = torch.optim.SGD(model.parameters(), lr=0.1)\ntrain(model, opt, batches)\n"
        "train(model, torch.optim.Adam(model.parameters()), batches)\n"
    )
    assert lines.count(SCALER) == 1
    assert lines[lines.index(SCALER) - 1] == "opt = torch.optim.SGD(model.parameters(), lr=0.1)"


def test_an_optimizer_that_a_method_makes_anew_keeps_the_scaler_of_the_constructor() -> None:
    lines = migrated(
        """
class Trainer:
    def __init__(self):
        self.opt = torch.optim.Adam(model.parameters())

    def restart(self):
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def fit(self):
        for x, y in batches:
            self.opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            self.opt.step()
"""
    )
    at = lines.index("        self.opt = torch.optim.Adam(model.parameters())")
    assert lines[at + 1] == f"        self.{SCALER}"
    assert sum("GradScaler" in line for line in lines) == 1


def test_an_optimizer_that_two_other_methods_make_is_refused() -> None:
    body = """
class Trainer:
    def warm(self):
        self.opt = torch.optim.Adam(model.parameters())

    def restart(self):
        self.opt = torch.optim.SGD(model.parameters(), lr=0.1)

    def fit(self):
        for x, y in batches:
            self.opt.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            self.opt.step()
"""
    assert reason(body) == "line 21: `self.opt` is made in no method of this file, or in several"


EMPTY = """
class Nothing(torch.optim.Optimizer):
    def __init__(self):
        self.param_groups = []

    def step(self):
        pass

    def zero_grad(self):
        pass

def run(model, opt, batches, mode="train"):
    for x, y in batches:
        loss = F.mse_loss(model(x), y)
        if {test}:
            loss.backward()
            opt.step()
            opt.zero_grad()

run(model, optimizer, batches)
run(model, Nothing(), batches, mode="eval")
"""


@pytest.mark.parametrize("test", ['mode == "train"', 'mode in ("train",) or mode == "train"', 'not mode != "train"'])
def test_an_optimizer_without_parameters_that_never_steps(test: str) -> None:
    if " in " in test:
        assert reason(EMPTY.format(test=test)).endswith("which is an error under a scaler")
        return
    lines = migrated(EMPTY.format(test=test))
    assert 'def run(model, opt, scaler, batches, mode="train"):' in lines
    assert lines[-2:] == [
        "run(model, optimizer, scaler, batches)",
        'run(model, Nothing(), scaler, batches, mode="eval")',
    ]


@pytest.mark.parametrize("test", ["True", "enabled", 'mode != "test"'])
def test_an_optimizer_without_parameters_may_not_step(test: str) -> None:
    assert reason(EMPTY.format(test=test)) == (
        "line 24: this may step an optimizer that has no parameters, which is an error under a scaler"
    )


@pytest.mark.parametrize("made", ["{k: torch.optim.SGD(m.parameters(), lr=0.1) for k, m in parts.items()}", "SPELT"])
def test_optimizers_of_a_table_by_their_keys(made: str) -> None:
    made = made.replace("SPELT", '{"a": optimizer, "b": torch.optim.SGD(head.parameters(), lr=0.1)}')
    lines = migrated(
        f"""
head = nn.Linear(2, 2).to(device)
parts = {{"a": model, "b": head}}
opts = {made}
for x, y in batches:
    for key in opts:
        opts[key].zero_grad()
    loss = F.mse_loss(head(model(x)), y)
    loss.backward()
    for key in opts:
        opts[key].step()
"""
    )
    assert lines[-3:] == ["    for key in opts:", "        scaler.step(opts[key])", "    scaler.update()"]


def test_rounds_that_add_gradients_to_those_of_other_rounds_are_refused() -> None:
    body = """
head = nn.Linear(2, 2).to(device)
opts = [optimizer, torch.optim.SGD(head.parameters(), lr=0.1)]
for x, y in batches:
    for opt in opts:
        opt.zero_grad()
    for opt in opts:
        loss = F.mse_loss(head(model(x)), y)
        loss.backward()
        opt.step()
"""
    assert reason(body).startswith("line 17: ")
    apart = body.replace("    for opt in opts:\n        opt.zero_grad()\n", "", 1)
    lines = migrated(apart.replace("        loss =", "        opt.zero_grad()\n        loss ="))
    assert lines[-2:] == ["        scaler.step(opt)", "        scaler.update()"]
