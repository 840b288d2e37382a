"""Trainers whose forward, backward and step stand in methods of their own, or in those of subclasses."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

REGION = "with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=self.scaler.is_enabled()):"
MADE = '        self.scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")'
APART = """
class Trainer:
    def __init__(self):
        self.net = nn.Linear(4, 2).to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def forward(self, x, y):
        out = self.net(x)
        self.loss = F.mse_loss(out, y)

    def backward(self):
        self.loss.backward()

    def step(self):
        self.opt.step()

    def reset(self):
        self.opt.zero_grad()

"""
USED = """
for x, y in batches:
    trainer.reset()
    trainer.forward(x, y)
    trainer.backward()
    trainer.step()
"""
ONE = "trainer = Trainer()\n"
BASE = """
class Base:
    def __init__(self):
        self.net = nn.Linear(4, 2).to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def compute(self, x, y):
        raise NotImplementedError

    def after(self):
        pass

    def step(self):
        self.opt.step()

    def reset(self):
        self.opt.zero_grad()

    def run(self):
        for x, y in batches:
            self.reset()
            loss = self.compute(x, y)
            loss.backward()
            self.after()
            self.step()


class Sub(Base):
    def compute(self, x, y):
        return F.mse_loss(self.net(x), y)

"""


def migrated(body: str) -> list[str]:
    result = migrate_source(HEAD + body, "train.py")
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    return result.text.removeprefix(HEAD).splitlines()


def refused(body: str) -> str:
    result = migrate_source(HEAD + body, "train.py")
    assert result.text == HEAD + body
    return result.loops[0].reason


def test_methods_that_are_called_in_turn_from_outside() -> None:
    lines = migrated(APART + ONE + USED)
    assert lines[5] == MADE
    at = lines.index("    def forward(self, x, y):")
    assert lines[at + 1 : at + 4] == [
        f"        {REGION}",
        "            out = self.net(x)",
        "            self.loss = F.mse_loss(out, y)",
    ]
    assert "        self.scaler.scale(self.loss).backward()" in lines
    at = lines.index("        self.scaler.step(self.opt)")
    assert lines[at + 1] == "        self.scaler.update()"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("one, trainer = Trainer(), Trainer()\n" + USED, "line 19: no optimizer that trains on this is in view"),
        (
            "for trainer in [Trainer() for _ in range(2)]:\n    trainer.forward(0, 0)\n" + USED,
            "line 33: the forward that",
        ),
        ("def make():\n    return Trainer()\n\none, trainer = make(), make()\n" + USED, "line 19: no optimizer"),
        (ONE + USED + "    trainer.step()\n", "line 22: gradients that are left over"),
        (ONE + USED.replace("    trainer.reset()\n", ""), "line 22: gradients that are left over"),
        (
            ONE + USED.replace("    trainer.backward()\n", ""),
            "line 32: the optimizer is stepped here and no backward()",
        ),
        (
            ONE + USED.replace("    trainer.backward()", "    trainer.loss = trainer.loss * 2\n    trainer.backward()"),
            "line 19: the graph comes to this loss through `self.loss`, set elsewhere",
        ),
        (ONE + USED.replace(".step()", ".net.weight.grad.clamp_(0, 1)\n    trainer.step()"), "line 33: no optimizer"),
    ],
    ids=["two", "a list", "a factory", "two steps", "no reset", "no backward", "changed outside", "gradients outside"],
)
def test_methods_in_turn_that_may_not_fit_are_refused(body: str, reason: str) -> None:
    assert refused(APART + body).startswith(reason)


def test_a_sample_whose_graph_another_method_gets_as_an_argument() -> None:
    lines = migrated(
        """
class Agent:
    def __init__(self):
        self.net = nn.Linear(4, 2).to(device)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

    def act(self, x):
        return self.net(x).log_softmax(1)

    def learn(self, log_probs, rewards):
        loss = -(log_probs * rewards).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()

agent = Agent()
for x, rewards in batches:
    log_probs = agent.act(x)
    agent.learn(log_probs, rewards)
"""
    )
    at = lines.index("for x, rewards in batches:")
    assert lines[at + 1 :] == [
        '    with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=device.type == "cuda"):',
        "        log_probs = agent.act(x)",
        "    agent.learn(log_probs, rewards)",
    ]


def test_the_loss_is_computed_by_a_subclass() -> None:
    lines = migrated(BASE + "Sub().run()\n")
    at = lines.index(f"            {REGION}")
    assert lines[at + 1 : at + 3] == [
        "                loss = self.compute(x, y)",
        "            self.scaler.scale(loss).backward()",
    ]


def test_a_subclass_that_clips_has_its_gradients_unscaled_first() -> None:
    body = BASE + "    def after(self):\n        nn.utils.clip_grad_norm_(self.net.parameters(), 1)\n\nSub().run()\n"
    lines = migrated(body)
    at = lines.index("            self.after()")
    assert lines[at - 1] == "            self.scaler.unscale_(self.opt)"


CLIPS = "    def after(self):\n        nn.utils.clip_grad_norm_(self.net.parameters(), 1)\n\n"


@pytest.mark.parametrize(
    "classes",
    [
        f"class Other(Base):\n{CLIPS}Sub().run()\n",
        f"class Mixed:\n{CLIPS}class Other(Mixed, Sub):\n    pass\n\nOther().run()\n",
        "class Below(Sub):\n" + CLIPS.replace("nn", "super().after()\n        nn") + "Below().run()\n",
    ],
    ids=["made elsewhere", "a mixin", "a call of the base's"],
)
def test_all_classes_of_which_objects_may_be_made_count(classes: str) -> None:
    lines = migrated(BASE + "\n" + classes)
    at = lines.index("            self.after()")
    assert lines[at - 1] == "            self.scaler.unscale_(self.opt)"


def test_a_subclass_makes_the_optimizer() -> None:
    made = "        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)\n"
    body = BASE.replace(made, "        self.build()\n")
    lines = migrated(f"{body}    def build(self):\n{made}\nSub().run()\n")
    at = lines.index("    def build(self):")
    assert lines[at + 2] == MADE


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("    def reset(self):\n        pass\n", "line 21: gradients that are left over"),
        ("    def after(self):\n        self.opt.step()\n", "line 21: gradients that are left over"),
        ("    def step(self):\n        if self.ready:\n            self.opt.step()\n", "line 21: no backward()"),
        (
            "\nclass Frozen(Base):\n    def compute(self, x, y):\n        with torch.no_grad():\n"
            "            out = self.net(x)\n        return F.mse_loss(out.requires_grad_(), y)\n\nFrozen().run()\n",
            "line 21: this optimizer may step without gradients",
        ),
        (
            "\nclass Log(Base):\n    def compute(self, x, y):\n        return F.binary_cross_entropy(self.net(x), y)\n"
            "\nLog().run()\n",
            "line 42: BCELoss takes probabilities",
        ),
    ],
    ids=["no reset", "two steps", "a step on a condition", "no gradients", "probabilities"],
)
def test_what_a_subclass_does_otherwise_is_seen(override: str, reason: str) -> None:
    found = refused(f"{BASE}{override}\nSub().run()\n")
    assert found.startswith(reason), found
