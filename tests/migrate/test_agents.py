"""Agents of reinforcement learning as objects in lists, each with optimizers of its own."""

from __future__ import annotations

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_placement import SCALER, migrated, refusal
from tests.migrate.test_refusals import HEAD

AGENTS = """
class Agent:
    def __init__(self):
        self.net = nn.Linear(4, 2).to(device)
        self.opt = torch.optim.Adam(self.net.parameters())

class Agents:
    def __init__(self):
        self.agents = [Agent() for _ in range(2)]

    def update(self, x, y, i):
        agent = self.agents[i]
        agent.opt.zero_grad()
        loss = F.mse_loss(agent.net(x), y)
        loss.backward()
        agent.opt.step()

team = Agents()
for x, y in batches:
    team.update(x, y, 0)
"""


def test_an_object_that_is_picked_from_a_list_has_a_scaler_of_its_own() -> None:
    text = "\n".join(migrated(AGENTS))
    assert f"        self.opt = torch.optim.Adam(self.net.parameters())\n        self.{SCALER}\n" in text
    assert text.count("GradScaler") == 1
    assert "enabled=agent.scaler.is_enabled()):\n            loss = F.mse_loss(agent.net(x), y)\n" in text
    assert (
        "        agent.scaler.scale(loss).backward()\n"
        "        agent.scaler.step(agent.opt)\n"
        "        agent.scaler.update()\n"
    ) in text


SAMPLER = """
def sample(n):
    with torch.no_grad():
        x = torch.randn(n, 4, device=device)
        for t in reversed(range(1, 8)):
            noise = model(x)
            x = x - 0.1 * noise.repeat(1, 2)
    return x

for x, y in batches:
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_loop_that_feeds_a_model_what_it_computed_is_no_evaluation() -> None:
    lines = migrated(SAMPLER)
    assert lines[lines.index("            noise = model(x)") + 1] == "            x = x - 0.1 * noise.repeat(1, 2)"


def test_a_loop_that_measures_what_it_computed_is_one() -> None:
    text = SAMPLER.replace("    return x\n", "            print(F.mse_loss(noise, x[:, :2]))\n    return x\n")
    result = migrate_source(HEAD + text, "train.py")
    assert [loop.status for loop in result.loops] == ["partly", "migrated"]


def test_a_penalty_that_nothing_in_the_file_runs_is_left() -> None:
    unused = """
def sliced(net, x):
    x.requires_grad_(True)
    return torch.autograd.grad(net(x).sum(), x, create_graph=True)[0].pow(2).sum()
"""
    lines = migrated(unused + SAMPLER)
    assert "    return torch.autograd.grad(net(x).sum(), x, create_graph=True)[0].pow(2).sum()" in lines


def test_a_lambda_that_turns_what_a_model_gives_is_a_forward() -> None:
    lines = migrated(
        """
features = lambda nodes: model(nodes).t()
for x, y in batches:
    loss = F.mse_loss(features(x), y.t())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    )
    assert "        loss = F.mse_loss(features(x), y.t())" in lines


def test_an_object_that_is_given_a_lambda_has_no_graph_yet() -> None:
    lines = migrated(
        """
class Outer(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.features = features
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(self.features(x))

outer = Outer(lambda x: model(x)).to(device)
opt = torch.optim.SGD(outer.parameters(), lr=0.1)
for x, y in batches:
    loss = F.mse_loss(outer(x), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
"""
    )
    assert "outer = Outer(lambda x: model(x)).to(device)" in lines


HOOKED = """
for x, y in batches:
    out = model(x)
    out.register_hook({})
    loss = F.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize("hook", ["lambda grad: grad * 0.5", "lambda g: -g", "lambda g: weight * g", "lambda g: g / 2"])
def test_a_hook_that_multiplies_gradients_may_stay(hook: str) -> None:
    hooked = HOOKED.format(hook)
    lines = migrated(hooked)
    assert f"        out.register_hook({hook})" in lines


@pytest.mark.parametrize("hook", ["print", "lambda g: g.clamp(-1, 1)", "lambda g: g * g", "lambda g: 1 / g"])
def test_other_hooks_are_refused(hook: str) -> None:
    hooked = HOOKED.format(hook)
    assert refusal(hooked) == "line 11: a hook sees gradients while they are scaled"


def test_a_function_that_calls_itself() -> None:
    lines = migrated(
        """
def dice(out, y):
    if out.dim() == 1:
        total = out.sum() + y.sum()
        return 2 * torch.dot(out, y) / total
    score = 0
    for i in range(out.shape[0]):
        score += dice(out[i], y[i])
    return score / out.shape[0]

for x, y in batches:
    loss = 1 - dice(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    )
    assert "        loss = 1 - dice(model(x), y)" in lines


def test_what_a_name_held_before_it_is_returned_is_no_graph() -> None:
    lines = migrated(
        """
def sample(n):
    x, picked = torch.zeros(n, 4, device=device), []
    for _ in range(3):
        output = model(x)
        x = output.multinomial(4, replacement=True).float()
        picked.append(x)
    output = torch.cat(picked, dim=1)
    return output

def train(batches):
    for x, y in batches:
        loss = F.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

data = sample(2)
train([(data, data)])
"""
    )
    assert lines[-2:] == ["data = sample(2)", "train([(data, data)])"]


PICKED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, data):
        x, index = data
        p = self.layer(x).exp()
        total = self.total(p, index)
        return p / (total + 1e-16)

    def total(self, p, index):
        sums = torch.zeros(p.shape, dtype=p.dtype, device=p.device)
        return sums.index_select(0, index)

net = Net().to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for x, y in batches:
    loss = F.mse_loss(net((x, y)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_what_is_picked_is_of_the_dtype_of_what_it_is_picked_from() -> None:
    assert "        return p / (total + 1e-16)" in migrated(PICKED)


ENSEMBLE = """
class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, x):
        return self.layer(x)

class Ensemble:
    def __init__(self, n):
        self.n = n
        self.critics, self.optimizers = [], []
        for i in range(n):
            critic = Critic().to(device)
            self.critics.append(critic)
        for i in range(n):
            self.optimizers.append(torch.optim.Adam(self.critics[i].parameters()))

    def target(self, x):
        with torch.no_grad():
            values = []
            for critic in self.critics:
                values.append(critic(x))
            return 1 + torch.cat(values, 1).min(1, keepdim=True)[0]

    def train(self, x):
        goal = self.target(x)
        values = []
        for i in range(self.n):
            values.append(self.critics[i](x))
        loss = F.mse_loss(torch.cat(values, 1), goal.expand(8, self.n))
        for i in range(self.n):
            self.optimizers[i].zero_grad()
        loss.backward()
        for i in range(self.n):
            self.optimizers[i].step()

ensemble = Ensemble(3)
for x, y in batches:
    ensemble.train(x)
"""


def test_models_and_optimizers_in_lists_by_an_index() -> None:
    text = "\n".join(migrated(ENSEMBLE))
    assert (
        "            goal = self.target(x)\n"
        "            values = []\n"
        "            for i in range(self.n):\n"
        "                values.append(self.critics[i](x))\n"
        "            loss = F.mse_loss(torch.cat(values, 1), goal.expand(8, self.n))\n"
        "        for i in range(self.n):\n"
        "            self.optimizers[i].zero_grad()\n"
        "        self.scaler.scale(loss).backward()\n"
        "        for i in range(self.n):\n"
        "            self.scaler.step(self.optimizers[i])\n"
        "        self.scaler.update()\n"
    ) in text


def test_a_mask_on_what_a_helper_returned_among_others() -> None:
    text = "\n".join(
        migrated(
            """
def both(x):
    return model(x), model(-x)

for x, y in batches:
    out, best = both(x)
    best[y == 0] = -9999999
    loss = F.mse_loss(out, best.max(1, keepdim=True)[0].detach())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
        )
    )
    assert "        best = best.float()\n        best[y == 0] = -9999999\n" in text


SOLVER = """
def solve(f, y, end):
    t, h = 0.0, 0.1
    while t < end:
        new = y + h * f(y)
        error = (new - y).pow(2).mean().sqrt().item()
        if error < 1e-5:
            {accept}
        h = h * min(5.0, 0.9 * error)
    return y

for x, y in batches:
    loss = F.mse_loss(model(solve(lambda z: z, x, 1.0)), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(("accept", "line"), [("t, y = t + h, new", 15), ("y = new\n            t += h", 16)])
def test_a_solver_that_adapts_its_steps_is_refused(accept: str, line: int) -> None:
    assert refusal(SOLVER.format(accept=accept)) == (
        f"line {line}: steps are chosen here by an error that half precision rounds away; keep the solver in float32"
    )


def test_a_solver_with_fixed_steps_is_none() -> None:
    lines = migrated(SOLVER.format(accept="t, y = t + 0.1, new"))
    assert "        loss = F.mse_loss(model(solve(lambda z: z, x, 1.0)), y)" in lines
