"""Gradients are followed over all ways to a step: what is left over, missing or unscaled twice is refused."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source

HEAD = """\
import torch
from torch import nn
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = nn.Linear(4, 2).to(device)
head = nn.Linear(4, 2).to(device)
opt = torch.optim.SGD(net.parameters(), lr=0.1)
opt_head = torch.optim.SGD(head.parameters(), lr=0.1)
"""
LEFT_OVER = "gradients that are left over from another step or another scale may reach this step; reset them"
SHARED = "two optimizers share parameters, whose gradients would be unscaled twice"
NONE = "this optimizer may step without gradients, which is an error under a scaler"


def result_of(body: str) -> tuple[str, str]:
    """The text behind the line that makes the scaler, and the first reason."""
    result = migrate_source(HEAD + textwrap.dedent(body), "train.py")
    return result.text, result.loops[0].reason if result.loops else "no loops"


REFUSED = {
    "gradients are never reset": (
        """
        for x, y in batches:
            loss = F.mse_loss(net(x), y)
            loss.backward()
            opt.step()
        """,
        f"line 14: {LEFT_OVER}",
    ),
    "one model of an optimizer is not reset": (
        """
        both = torch.optim.Adam(list(head.parameters()) + list(net.parameters()))
        for x, y in batches:
            loss = F.mse_loss(head(x) + net(x), y)
            head.zero_grad()
            loss.backward()
            both.step()
        """,
        f"line 16: {LEFT_OVER}",
    ),
    "the next loop resets too late": (
        """
        for x, y in batches:
            opt.zero_grad()
            F.mse_loss(net(x), y).backward()
            opt.step()
        for x, y in batches:
            F.l1_loss(net(x), y).backward()
            opt.step()
            opt.zero_grad()
        """,
        f"line 17: {LEFT_OVER}",
    ),
    "the other optimizer updates between": (
        """
        for i, (x, y) in enumerate(batches):
            F.mse_loss(net(x), y).backward()
            if (i + 1) % 2 == 0:
                opt.step()
                opt.zero_grad()
            opt_head.zero_grad()
            F.mse_loss(head(x), y).backward()
            opt_head.step()
        """,
        f"line 14: {LEFT_OVER}",
    ),
    "arms keep gradients of the other": (
        """
        for i, (x, y) in enumerate(batches):
            F.mse_loss(net(x) + head(x), y).backward()
            if i % 2 == 0:
                opt.step()
                opt.zero_grad()
            else:
                opt_head.step()
                opt_head.zero_grad()
        """,
        f"line 14: {LEFT_OVER}",
    ),
    "a model that is not used": (
        """
        for x, y in batches:
            opt.zero_grad()
            opt_head.zero_grad()
            F.mse_loss(net(x), y).backward()
            opt.step()
            opt_head.step()
        """,
        f"line 16: {NONE}",
    ),
    "a model that is used at times": (
        """
        for i, (x, y) in enumerate(batches):
            out = net(x)
            if i % 2:
                out = out + head(x)
            opt.zero_grad()
            opt_head.zero_grad()
            F.mse_loss(out, y).backward()
            opt.step()
            opt_head.step()
        """,
        f"line 19: {NONE}",
    ),
    "a model that is frozen": (
        """
        for p in head.parameters():
            p.requires_grad = False
        for x, y in batches:
            opt.zero_grad()
            opt_head.zero_grad()
            F.mse_loss(head(net(x)), y).backward()
            opt.step()
            opt_head.step()
        """,
        f"line 18: {NONE}",
    ),
    "a trainer's model that is used at times": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(4, 2)

            def forward(self, x):
                return self.body(x)

        class Trainer:
            def __init__(self):
                self.net, self.extra = Net(), Net()
                self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
                self.opt_extra = torch.optim.SGD(self.extra.parameters(), lr=0.1)

            def fit(self, batches):
                for i, (x, y) in enumerate(batches):
                    out = self.net(x)
                    if i % 2:
                        out = out + self.extra(x)
                    self.opt.zero_grad()
                    self.opt_extra.zero_grad()
                    F.mse_loss(out, y).backward()
                    self.opt.step()
                    self.opt_extra.step()
        """,
        f"line 34: {NONE}",
    ),
    "parameters of two optimizers in a list": (
        """
        params = list(net.parameters()) + list(head.parameters())
        both = torch.optim.SGD(params, lr=0.1)
        for x, y in batches:
            for o in [opt, both]:
                o.zero_grad()
            F.mse_loss(net(x) + head(x), y).backward()
            for o in [opt, both]:
                o.step()
        """,
        f"line 18: {SHARED}",
    ),
    "parameters of several models in a comprehension": (
        """
        class Trainer:
            def __init__(self):
                self.net, self.head = nn.Linear(4, 2), nn.Linear(4, 2)
                self.both = torch.optim.SGD([p for m in (self.net, self.head) for p in m.parameters()], lr=0.1)
                self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)

            def fit(self, batches):
                for x, y in batches:
                    self.both.zero_grad()
                    F.mse_loss(self.net(x) + self.head(x), y).backward()
                    self.both.step()
                    self.opt.step()
        """,
        f"line 22: {SHARED}",
    ),
    "a list of optimizers that share parameters, given to a function": (
        """
        def train(optimizers):
            for x, y in batches:
                for n, o in enumerate(optimizers):
                    o.zero_grad()
                F.mse_loss(net(x), y).backward()
                for n, o in enumerate(optimizers):
                    o.step()

        again = torch.optim.Adam(list(filter(lambda p: p.requires_grad, net.parameters())))
        both = [opt, again]
        train(both)
        """,
        f"line 17: {SHARED}",
    ),
    "a model made of others": (
        """
        class Both(nn.Module):
            def __init__(self, first, second):
                super().__init__()
                self.first, self.second = first, second

            def forward(self, x):
                return self.first(x) + self.second(x)

        both = Both(net, head)
        opt_both = torch.optim.SGD(both.parameters(), lr=0.1)

        def finish():
            opt.step()
            opt_both.step()

        for x, y in batches:
            opt_both.zero_grad()
            F.mse_loss(both(x), y).backward()
            finish()
        """,
        f"line 24: {SHARED}",
    ),
    "gradients of parameters that no optimizer holds": (
        """
        whole = nn.Sequential(net, head)
        for x, y in batches:
            opt.zero_grad()
            F.mse_loss(net(x) + head(x), y).backward()
            nn.utils.clip_grad_norm_(whole.parameters(), 1.0)
            opt.step()
        """,
        "line 16: the gradients that are used are not those of the optimizer's own parameters",
    ),
    "gradients of a model of which a part is trained": (
        """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(4, 4)
                self.head = nn.Linear(4, 2)

            def forward(self, x):
                return self.head(self.body(x))

        both = Net()
        tuned = torch.optim.SGD(both.head.parameters(), lr=0.1)
        for x, y in batches:
            tuned.zero_grad()
            F.mse_loss(both(x), y).backward()
            print(sum(p.grad.norm() for p in both.parameters()))
            tuned.step()
        """,
        "line 25: gradients of parameters that no optimizer holds are used here",
    ),
    "several tensors at once": (
        """
        for x, y in batches:
            opt.zero_grad()
            torch.autograd.backward([F.mse_loss(net(x), y), F.l1_loss(net(x), y)])
            opt.step()
        """,
        "line 13: what goes backward here is no plain `loss.backward()`",
    ),
    "a bound method": (
        """
        for x, y in batches:
            opt.zero_grad()
            go = F.mse_loss(net(x), y).backward
            go()
            opt.step()
        """,
        "line 13: what goes backward here is no plain `loss.backward()`",
    ),
    "a method by its name": (
        """
        for x, y in batches:
            opt.zero_grad()
            getattr(F.mse_loss(net(x), y), "backward")()
            opt.step()
        """,
        "line 13: what goes backward here is no plain `loss.backward()`",
    ),
    "a lambda": (
        """
        for x, y in batches:
            opt.zero_grad()
            list(map(lambda l: l.backward(), [F.mse_loss(net(x), y)]))
            opt.step()
        """,
        "line 13: what goes backward here is no plain `loss.backward()`",
    ),
    "a forward in the head of a loop": (
        """
        for x, y in batches:
            opt.zero_grad()
            for loss in (F.mse_loss(net(x), y), net(x).mean()):
                loss.backward()
            opt.step()
        """,
        "line 13: a model is run in the head of a statement that goes backward",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(name: str) -> None:
    body, reason = REFUSED[name]
    text, found = result_of(body)
    assert found[: len(reason)] == reason
    assert "scaler" not in text


MIGRATED = {
    "loops one after the other may share parameters": """
        for x, y in batches:
            opt.zero_grad()
            F.mse_loss(net(x), y).backward()
            opt.step()
        tuned = torch.optim.Adam(net.parameters())
        for x, y in batches:
            tuned.zero_grad()
            F.mse_loss(net(x), y).backward()
            tuned.step()
        """,
    "gradients that the other loss leaves are reset": """
        for x, y in batches:
            opt.zero_grad()
            F.mse_loss(net(x), y).backward()
            opt.step()
            opt_head.zero_grad()
            F.mse_loss(head(net(x)), y).backward()
            opt_head.step()
        """,
    "a detached forward reaches nothing": """
        for i, (x, y) in enumerate(batches):
            opt_head.zero_grad()
            F.mse_loss(head(net(x).detach()), y).backward()
            opt_head.step()
            if i % 5 == 0:
                F.mse_loss(net(x), y).backward()
                opt.step()
                opt.zero_grad()
        """,
    "each arm steps what it computed": """
        for i, (x, y) in enumerate(batches):
            opt.zero_grad()
            opt_head.zero_grad()
            if i % 2:
                F.mse_loss(net(x), y).backward()
                opt.step()
            else:
                F.mse_loss(head(x), y).backward()
                opt_head.step()
        """,
    "a helper for any optimizer": """
        def learn(model, optimizer, x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()

        for x, y in batches:
            learn(net, opt, x, y)
            learn(head, opt_head, x, y)
        """,
    "the models of one optimizer are reset one by one": """
        both = torch.optim.Adam(list(head.parameters()) + list(net.parameters()))
        for x, y in batches:
            loss = F.mse_loss(head(x) + net(x), y)
            head.zero_grad()
            net.zero_grad()
            loss.backward()
            both.step()
        """,
    "parts that are all of a model": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Linear(4, 4)
                self.head = nn.Linear(4, 2)

            def forward(self, x):
                return self.head(torch.relu(self.body(x)))

        both = Net()
        opt = torch.optim.SGD([{"params": both.body.parameters()}, {"params": both.head.parameters(), "lr": 1}], lr=0.1)
        for x, y in batches:
            opt.zero_grad()
            F.mse_loss(both(x), y).backward()
            nn.utils.clip_grad_norm_(both.parameters(), 1.0)
            opt.step()
        """,
    "the rest of a model is frozen": """
        both = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        for p in both.parameters():
            p.requires_grad = False
        both.head = nn.Linear(4, 2)
        tuned = torch.optim.SGD(both.head.parameters(), lr=0.1)
        for x, y in batches:
            tuned.zero_grad()
            F.mse_loss(both.head(both(x)), y).backward()
            nn.utils.clip_grad_norm_(both.parameters(), 1.0)
            tuned.step()
        """,
    "both arms run both models": """
        for i, (x, y) in enumerate(batches):
            h = net(x)
            if i % 2:
                loss = F.mse_loss(head(torch.cat([h, h], 1)), y)
            else:
                loss = F.l1_loss(head(torch.cat([h, h], 1)), y)
            opt.zero_grad()
            opt_head.zero_grad()
            loss.backward()
            opt.step()
            opt_head.step()
        """,
    "a filter may leave out what another optimizer has": """
        both = nn.ModuleDict({"net": net, "head": head})
        other = torch.optim.SGD([p for n, p in both.named_parameters() if "net" not in n], lr=0.1)
        for x, y in batches:
            opt.zero_grad()
            other.zero_grad()
            F.mse_loss(net(x) + head(x), y).backward()
            opt.step()
            other.step()
        """,
    "gradients are reset at the first of several rounds": """
        for i, (x, y) in enumerate(batches):
            if i % 2 == 0:
                opt.zero_grad()
            (F.mse_loss(net(x), y) / 2).backward()
            if (i + 1) % 2 == 0:
                opt.step()
        """,
    "the step stands in the else of a try": """
        for x, y in batches:
            opt.zero_grad()
            try:
                F.mse_loss(net(x), y).backward()
            except RuntimeError:
                print("skipped")
            else:
                opt.step()
        """,
    "optimizers in a tuple": """
        for x, y in batches:
            for o in (opt, opt_head):
                o.zero_grad()
            F.mse_loss(net(x) + head(x), y).backward()
            for o in (opt, opt_head):
                o.step()
        """,
}


@pytest.mark.parametrize("name", MIGRATED)
def test_is_migrated(name: str) -> None:
    text, reason = result_of(MIGRATED[name])
    assert "scaler.update()" in text, reason


def test_a_clip_in_a_helper_unscales_its_optimizer() -> None:
    text, _ = result_of(
        """
        def clip(model):
            for p in model.parameters():
                p.grad.clamp_(-1, 1)

        for x, y in batches:
            opt.zero_grad()
            opt_head.zero_grad()
            F.mse_loss(net(x) + head(x), y).backward()
            clip(net)
            nn.utils.clip_grad_norm_(head.parameters(), 1.0)
            opt.step()
            opt_head.step()
        """
    )
    assert "    scaler.unscale_(opt)\n    scaler.unscale_(opt_head)\n    clip(net)\n" in text


def test_the_functional_backward_is_scaled() -> None:
    text, _ = result_of(
        """
        for x, y in batches:
            opt.zero_grad()
            loss = F.mse_loss(net(x), y)
            torch.autograd.backward(loss)
            opt.step()
        """
    )
    assert "    torch.autograd.backward(scaler.scale(loss))\n    scaler.step(opt)\n    scaler.update()\n" in text


def test_a_helper_that_goes_backward_and_clips_unscales() -> None:
    text, _ = result_of(
        """
        def back(loss, optimizer, model, clip=1.0):
            optimizer.zero_grad()
            loss.backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)

        for x, y in batches:
            loss = F.mse_loss(net(x), y)
            back(loss, opt, net)
            opt.step()
        """
    )
    assert (
        "    scaler.scale(loss).backward()\n"
        "    scaler.unscale_(optimizer)\n"
        "    if clip:\n"
        "        nn.utils.clip_grad_norm_(model.parameters(), clip)\n"
    ) in text
    assert "    back(loss, opt, scaler, net)\n    scaler.step(opt)\n    scaler.update()\n" in text


def test_a_helper_that_unscales_twice_before_a_step_is_refused() -> None:
    text, reason = result_of(
        """
        def back(loss):
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)

        for x, y in batches:
            opt.zero_grad()
            back(F.mse_loss(net(x), y))
            back(F.l1_loss(net(x), y))
            opt.step()
        """
    )
    assert reason
    assert "scaler" not in text


def test_a_clip_in_a_loop_over_optimizers_unscales_there() -> None:
    text, _ = result_of(
        """
        optimizers = [opt, opt_head]
        for x, y in batches:
            for o in optimizers:
                o.zero_grad()
            F.mse_loss(net(x) + head(x), y).backward()
            for model, o in zip([net, head], optimizers):
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                o.step()
        """
    )
    assert text.endswith(
        "    for model, o in zip([net, head], optimizers):\n"
        "        scaler.unscale_(o)\n"
        "        nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
        "        scaler.step(o)\n"
        "    scaler.update()\n"
    )


LOSS_BATCH = """
def loss_batch(model, x, y, optimizer=None{more}):
    loss = F.mse_loss(model(x), y)
    {test}:
        loss.backward()
        optimizer.step()
        {reset}
    return loss.item()

for x, y in batches:
    loss_batch(net, x, y, opt{given})
losses = [loss_batch(net, x, y{none}) for x, y in batches]
"""


@pytest.mark.parametrize(
    ("more", "test", "given", "none"),
    [
        ("", "if optimizer is not None", "", ""),
        ("", "if not optimizer is None", "", ", None"),
        ("", "if optimizer", "", ", optimizer=None"),
        (", train=True", "if train", ", train=True", ", train=False"),
    ],
)
def test_a_call_without_the_optimizer_goes_past_its_step(more: str, test: str, given: str, none: str) -> None:
    """As in `fit` and `loss_batch`: gradients are reset behind the step, and evaluation makes none."""
    body = LOSS_BATCH.format(more=more, test=test, given=given, none=none, reset="optimizer.zero_grad()")
    text, reason = result_of(body)
    assert not reason
    assert "        scaler.scale(loss).backward()\n        scaler.step(optimizer)\n        scaler.update()\n" in text
    assert f"    loss_batch(net, x, y, opt, scaler{given})\n" in text
    assert result_of(LOSS_BATCH.format(more=more, test=test, given=given, none=none, reset="pass"))[1].startswith(
        f"line 15: {LEFT_OVER}"
    )


def test_what_both_values_of_a_conditional_expression_reach_is_reached() -> None:
    body = """
    for x, y in batches:
        opt.zero_grad()
        out = net(x)
        losses = (F.mse_loss(out, y), 1)
        loss = losses[0] if isinstance(losses, tuple) else losses
        loss.backward()
        opt.step()
    """
    assert result_of(body)[1] == ""
    one = body.replace("losses[0] if isinstance(losses, tuple) else losses", "losses[0] if x.any() else head(x).sum()")
    assert result_of(one)[1] == f"line 17: {NONE}; step it where they are made"


BY_HAND = """
parameters = list(net.parameters())
others = list(head.parameters())
everything = parameters + others
opt = torch.optim.SGD(parameters, lr=0.1)
opt_head = torch.optim.SGD(others, lr=0.1)

def reset():
    for p in {whole}:
        if p.grad is not None:
            {reset}

for x, y in batches:
    F.mse_loss(net(x) + head(x), y).backward()
    opt.step()
    reset()
    F.mse_loss(net(x) - head(x), y).backward()
    opt_head.step()
    reset()
"""
TO_ZEROS = "data = p.grad.data\n            p.grad = torch.autograd.Variable(data.new().resize_as_(data).zero_())"


@pytest.mark.parametrize("reset", ["p.grad = None", "p.grad.zero_()", "p.grad = torch.zeros_like(p.grad)", TO_ZEROS])
@pytest.mark.parametrize("whole", ["everything", "parameters + others"])
def test_gradients_that_are_set_to_zeros_by_hand_are_reset(whole: str, reset: str) -> None:
    assert result_of(BY_HAND.format(whole=whole, reset=reset))[1] == ""


@pytest.mark.parametrize("whole", ["parameters", "net.parameters()", "opt.param_groups[0]['params']", "unknown"])
def test_gradients_of_one_optimizer_that_are_reset_leave_those_of_another(whole: str) -> None:
    assert result_of(BY_HAND.format(whole=whole, reset="p.grad = None"))[1].endswith(
        f"{LEFT_OVER} (zero_grad) before the first backward of each step"
    )


@pytest.mark.parametrize("read", ["data = p.grad.data\n            print(data)", "p.grad = 0.5 * p.grad"])
def test_what_reads_a_gradient_is_no_reset(read: str) -> None:
    assert result_of(BY_HAND.format(whole="everything", reset=read))[1] != ""
