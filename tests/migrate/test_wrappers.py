"""Objects around an optimizer: their methods that step it get the scaler, and what they do besides stays as it is."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_refusals import HEAD

WARMUP = """
class Warmup:
    def __init__(self, optimizer, steps):
        self.optimizer = optimizer
        self.steps = steps
        self.n = 0

    def step(self{parameters}):
        self.n += 1
        for group in self.optimizer.param_groups:
            group["lr"] = 0.1 * min(1.0, self.n / self.steps)
{body}

    def zero_grad(self):
        self.optimizer.zero_grad()

"""
STEP = "        self.optimizer.step()"
LOOP = """
for x, y in batches:
    opt.zero_grad()
    loss = F.mse_loss(model(x), y)
    loss.backward()
{before}    opt.step({arguments})
"""
MADE = "opt = Warmup(optimizer, 10)\n"


def script(
    parameters: str = "", body: str = STEP, before: str = "", arguments: str = "", made: str = MADE, loop: str = LOOP
) -> str:
    """A script with a wrapper and a loop that steps it."""
    wrapper = WARMUP.format(parameters=parameters, body=body)
    return HEAD + wrapper + made + loop.replace("{before}", before).replace("{arguments}", arguments)


def migrated(text: str) -> list[str]:
    result = migrate_source(text, "train.py")
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    assert migrate_source(result.text, "train.py").text == result.text
    return result.text.splitlines()


def reason(text: str) -> str:
    result = migrate_source(text, "train.py")
    assert result.text == text
    return result.loops[0].reason


def test_the_method_that_steps_gets_the_scaler() -> None:
    lines = migrated(script())
    at = lines.index("    def step(self, scaler):")
    assert lines[at + 4 : at + 6] == ["        scaler.step(self.optimizer)", "        scaler.update()"]
    at = lines.index("opt = Warmup(optimizer, 10)")
    assert lines[at + 1] == 'scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")'
    assert lines[-6:] == [
        "for x, y in batches:",
        "    opt.zero_grad()",
        "    with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=scaler.is_enabled()):",
        "        loss = F.mse_loss(model(x), y)",
        "    scaler.scale(loss).backward()",
        "    opt.step(scaler)",
    ]


def test_other_arguments_follow_the_scaler() -> None:
    lines = migrated(script(parameters=", metric=None", arguments="metric=loss.item()"))
    assert "    def step(self, scaler, metric=None):" in lines
    assert lines[-1] == "    opt.step(scaler, metric=loss.item())"


def test_a_clip_in_the_loop_unscales_the_inner_optimizer() -> None:
    lines = migrated(script(before="    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"))
    assert lines[-3:] == [
        "    scaler.unscale_(opt.optimizer)",
        "    nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "    opt.step(scaler)",
    ]


def test_a_clip_under_the_condition_of_the_step() -> None:
    loop = """
for i, (x, y) in enumerate(batches):
    loss = F.mse_loss(model(x), y)
    loss.backward()
    if i % 4 == 3:
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
"""
    assert migrated(script(loop=loop))[-5:] == [
        "    if i % 4 == 3:",
        "        scaler.unscale_(opt.optimizer)",
        "        nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        "        opt.step(scaler)",
        "        opt.zero_grad()",
    ]


def test_a_clip_in_the_method_unscales_there() -> None:
    body = '        nn.utils.clip_grad_norm_(self.optimizer.param_groups[0]["params"], 1.0)\n' + STEP
    lines = migrated(script(body=body))
    at = lines.index("        scaler.unscale_(self.optimizer)")
    assert "clip_grad_norm_" in lines[at + 1]
    assert lines[at + 2 : at + 4] == ["        scaler.step(self.optimizer)", "        scaler.update()"]


def test_a_wrapper_that_accumulates_updates_where_it_steps() -> None:
    body = "        if self.n % 4 == 0:\n            self.optimizer.step()\n            self.optimizer.zero_grad()"
    loop = "\nfor x, y in batches:\n    loss = F.mse_loss(model(x), y)\n    loss.backward()\n    opt.step()\n"
    lines = migrated(script(body=body, loop=loop))
    at = lines.index("        if self.n % 4 == 0:")
    assert lines[at + 1 : at + 4] == [
        "            scaler.step(self.optimizer)",
        "            scaler.update()",
        "            self.optimizer.zero_grad()",
    ]


def test_a_method_that_steps_by_another() -> None:
    body = "        self.take()\n\n    def take(self):\n        self.optimizer.step()"
    lines = migrated(script(body=body))
    assert "        self.take(scaler)" in lines
    assert "    def take(self, scaler):" in lines


def test_a_wrapper_under_the_name_of_its_optimizer() -> None:
    loop = LOOP.replace("opt.", "optimizer.")
    lines = migrated(script(made="optimizer = Warmup(optimizer, 10)\n", loop=loop))
    assert lines[-1] == "    optimizer.step(scaler)"


def test_an_optimizer_that_is_made_within() -> None:
    text = script(made="opt = Warmup(model.parameters(), 10)\n")
    text = text.replace("self.optimizer = optimizer", "self.optimizer = torch.optim.Adam(optimizer)")
    assert migrated(text)[-1] == "    opt.step(scaler)"


def test_the_scaler_comes_to_a_training_function_and_a_checkpoint() -> None:
    loop = """
def train(model, opt, batches):
    for x, y in batches:
        opt.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        opt.step()
    torch.save({"model": model.state_dict(), "optimizer": opt.optimizer.state_dict()}, "model.pt")

train(model, opt, batches)
"""
    lines = migrated(script(loop=loop))
    assert "def train(model, opt, scaler, batches):" in lines
    assert "        opt.step(scaler)" in lines
    assert '"optimizer": opt.optimizer.state_dict(), "scaler": scaler.state_dict()}' in "\n".join(lines)
    assert lines[-1] == "train(model, opt, scaler, batches)"


LOSS = """
class ComputeLoss:
    def __init__(self, head, opt=None):
        self.head = head
        self.opt = opt

    def __call__(self, hidden, y):
        loss = F.mse_loss(self.head(hidden), y)
        loss.backward()
        if self.opt is not None:
            self.opt.step()
            self.opt.optimizer.zero_grad()
        return loss.item()

def run_epoch(batches, model, compute):
    for x, y in batches:
        out = model(x)
        print(compute(out, y))

head = nn.Linear(2, 2).to(device)
"""


def test_objects_that_are_made_each_epoch_share_the_scaler_of_their_optimizer() -> None:
    loop = LOSS + "for epoch in range(3):\n    run_epoch(batches, model, ComputeLoss(head, opt))\n"
    lines = migrated(script(loop=loop))
    assert "    def __init__(self, head, opt=None, scaler=None):" in lines
    assert lines[lines.index("        self.opt = opt") + 1] == "        self.scaler = scaler"
    assert "        self.scaler.scale(loss).backward()" in lines
    assert "            self.opt.step(self.scaler)" in lines
    assert lines[-1] == "    run_epoch(batches, model, ComputeLoss(head, opt, scaler))"
    region = '        with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=device.type == "cuda"):'
    assert lines[lines.index("            out = model(x)") - 1] == region


def test_an_object_without_optimizer_gets_the_scaler_too_since_its_gradients_stay() -> None:
    loop = LOSS + "run_epoch(batches, model, ComputeLoss(head, opt))\nrun_epoch(batches, model, ComputeLoss(head))\n"
    lines = migrated(script(loop=loop))
    assert lines[-1] == "run_epoch(batches, model, ComputeLoss(head, scaler=scaler))"
    loop = loop.replace("ComputeLoss(head))", "ComputeLoss(head, None))")
    assert migrated(script(loop=loop))[-1] == "run_epoch(batches, model, ComputeLoss(head, None, scaler))"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            script(body=STEP + "\n" + STEP),
            "line 19: several steps share a backward, and which of them run can't be told",
        ),
        (
            script(loop=LOOP + "for i in range(3):\n    opt.step()\n"),
            "line 32: the loop before has stepped already, and a scaler's step without gradients left is an error; put "
            "this step under a condition that some are left",
        ),
        (
            script(loop=LOOP.replace("opt.step", "take") + "\n", made=MADE + "take = opt.step\n"),
            "line 19: no backward() comes before this step on every path of an iteration",
        ),
        (
            script(
                made=MADE + "class Other:\n    pass\n\nother = Other()\nother.opt = opt\n",
                before="    other.opt.step()\n",
            ),
            "line 35: `step` is used otherwise than by a plain call, so its parameters can't change",
        ),
        (
            script(
                body="        if self.n % 4 == 0:\n            self.optimizer.step()",
                before="    nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n",
            ),
            "line 31: gradients may be unscaled twice here",
        ),
        (
            script(made="opt = Warmup(torch.optim.LBFGS(model.parameters()), 10)\n"),
            "line 24: LBFGS evaluates the model several times a step, which GradScaler can't follow",
        ),
        (
            script(made="opt = Warmup(optimizer, 10) if warm else optimizer\n"),
            "line 30: `step` is used otherwise than by a plain call, so its parameters can't change",
        ),
        (
            script(body=STEP.replace("step()", "step(closure)"), parameters=", closure=None"),
            "line 19: the optimizer gets a closure, which may run the model more than once; GradScaler can't follow "
            "that",
        ),
        (
            script(
                made=MADE + "other = Warmup(torch.optim.SGD(model.parameters(), lr=1.0), 5)\n",
                before="    other.step()\n",
            ),
            "line 19: two optimizers share parameters, whose gradients would be unscaled twice",
        ),
    ],
)
def test_what_is_refused(text: str, expected: str) -> None:
    assert reason(text) == expected
