"""Shapes of reinforcement learning: policies, distributions, targets written by index, rollouts without gradients."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import migrate_source
from tests.migrate.test_hazards import REGION, migrated, refusal
from tests.migrate.test_refusals import HEAD

POLICY = """
from torch.distributions import Normal

class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean = nn.Linear(4, 2)
        self.log_std = nn.Linear(4, 2)

    def sample(self, x):
        mean, std = self.mean(x), self.log_std(x).exp()
        normal = Normal(mean, std)
        u = normal.rsample()
        action = torch.tanh(u)
        return action, normal.log_prob(u) - torch.log(1 - action.pow(2) + 1e-6)

policy = Policy().to(device)
optimizer = torch.optim.Adam(policy.parameters())
"""


class TestDistributions:
    def test_their_parameters_are_float32(self) -> None:
        text = migrated(
            POLICY
            + """
for x, y in batches:
    action, log_prob = policy.sample(x)
    loss = (log_prob - model(action)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
        )
        assert "        action, log_prob = policy.sample(x)\n        loss = (log_prob - model(action)).mean()\n" in text

    def test_where_they_are_made(self) -> None:
        text = migrated(
            """
            from torch.distributions import Categorical

            for x, y in batches:
                logits = model(x)
                policy = Categorical(logits=logits)
                loss = -(policy.log_prob(y) + Categorical(F.softmax(logits, dim=1)).entropy()).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """
        )
        assert (
            f"    {REGION}\n"
            "        logits = model(x)\n"
            "        policy = Categorical(logits=logits.float())\n"
            "        loss = -(policy.log_prob(y) + Categorical(F.softmax(logits, dim=1).float()).entropy()).mean()\n"
        ) in text

    def test_a_parameter_of_the_script_is_float32_already(self) -> None:
        text = migrated(
            """
            from torch.distributions import Normal

            log_std = nn.Parameter(torch.zeros(2))
            for x, y in batches:
                mean = model(x)
                loss = -Normal(mean, log_std.exp()).log_prob(y).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """
        )
        assert "loss = -Normal(mean.float(), log_std.exp()).log_prob(y).mean()" in text

    def test_parameters_that_can_not_be_cast_are_refused(self) -> None:
        assert refusal(
            """
            from torch.distributions import Normal

            for x, y in batches:
                out = model(x)
                loss = -Normal(*out.chunk(2, dim=1)).log_prob(y).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """
        ) == ("line 13: a distribution needs its parameters in float32; give each a name first")

    def test_a_logarithm_of_what_is_sampled_in_float32_is_safe(self) -> None:
        loop = """
for x, y in batches:
    action, log_prob = policy.sample(x)
    loss = (log_prob - y).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
        migrated(POLICY + loop)
        text = migrate_source(HEAD + POLICY.replace("torch.tanh(u)", "torch.tanh(mean)") + loop, "train.py").text
        assert "torch.tanh(mean.float())" in text
        assert "a logarithm is taken by hand" in refusal(POLICY.replace("torch.tanh(u)", "F.hardtanh(mean)") + loop)


class TestValuesWrittenByIndex:
    """CUDA and the CPU want one dtype for both sides of `index_put`."""

    LOOP = """
for x, y in batches:
    out = model(x)
    future = torch.zeros(8, device=device)
    with torch.no_grad():
        future[y > 0] = VALUE
    loss = F.mse_loss(out[:, 0], future)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

    def test_half_values_become_float32(self) -> None:
        text = migrated(self.LOOP.replace("VALUE", "out.max(1)[0].detach()"))
        assert "            future[y > 0] = out.max(1)[0].detach().float()\n" in text

    def test_data_stays(self) -> None:
        assert "            future[y > 0] = y[y > 0]\n" in migrated(self.LOOP.replace("VALUE", "y[y > 0]"))

    def test_a_half_target_becomes_float32(self) -> None:
        text = migrated(
            """
            for x, y in batches:
                out = model(x)
                wanted = out.clone().detach()
                wanted[rows, y] = y + out.max(1)[0]
                loss = F.mse_loss(out, wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """
        )
        assert (
            "        wanted = out.clone().detach().float()\n        wanted[rows, y] = (y + out.max(1)[0]).float()\n"
        ) in text


class TestRollouts:
    def test_without_gradients_they_stay_as_they_are(self) -> None:
        text = HEAD + textwrap.dedent(
            """
            for epoch in range(3):
                values = torch.zeros(8)
                for step in range(8):
                    with torch.no_grad():
                        values[step] = model(states[step])[0]
                gain = returns - values
                for x, y in batches:
                    gain = (gain - gain.mean()) / (gain.std() + 1e-8)
                    loss = -(F.log_softmax(model(x), dim=1)[:, 0] * gain).mean()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            """
        )
        result = migrate_source(text, "train.py")
        assert [(loop.line, loop.status) for loop in result.loops] == [(11, "partly"), (15, "migrated")]
        assert result.text.count("with torch.autocast") == 1
        assert (
            "    for step in range(8):\n        with torch.no_grad():\n            values[step] = model" in result.text
        )

    def test_a_name_that_held_a_graph_holds_data_behind_detach(self) -> None:
        text = migrated(
            """
            def update(x, gain):
                loss = (model(x) * gain).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

            for x, y in batches:
                values = []
                values.append(model(x))
                values = torch.cat(values).detach()
                gain = y - values
                update(x, gain)
            """
        )
        assert text.count("with torch.autocast") == 1

    def test_what_acts_on_samples_gives_no_graph(self) -> None:
        text = migrated(
            """
            class Actor(nn.Module):
                def __init__(self):
                    super().__init__()
                    self.layer = nn.Linear(4, 2)

                def forward(self, x):
                    return self.layer(x)

                def act(self, x):
                    return torch.distributions.Categorical(logits=self(x)).sample().item()

            actor = Actor().to(device)
            optimizer = torch.optim.SGD(actor.parameters(), lr=0.1)
            for episode in range(3):
                taken = []
                for state in states:
                    taken.append(actor.act(state))
                loss = F.cross_entropy(actor(states), torch.tensor(taken))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """
        )
        assert f"    {REGION}\n        loss = F.cross_entropy(actor(states), torch.tensor(taken))\n" in text

    def test_a_memory_is_not_the_models_that_filled_it(self) -> None:
        text = migrated(
            """
            class Memory:
                def __init__(self):
                    self.kept = []

                def add(self, *entry):
                    self.kept.append(entry)

                def sample(self, n):
                    return torch.stack([x for x, _ in self.kept[-n:]])

            memory = Memory()
            for x, y in batches:
                memory.add(x, model(x))
                old = memory.sample(4)
                loss = model(old).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """
        )
        assert f"    old = memory.sample(4)\n    {REGION}\n        loss = model(old).mean()\n" in text


class TestNumpy:
    """NumPy has no bfloat16; arrays of float16 would change what is computed of them."""

    def test_in_a_helper(self) -> None:
        text = migrated(
            """
            def compute_loss(x, y):
                out = model(x)
                return F.mse_loss(out, y), dict(values=out.detach().numpy(), best=out.max(1)[1].numpy())

            for x, y in batches:
                loss, info = compute_loss(x, y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """
        )
        assert "dict(values=out.detach().float().numpy(), best=out.max(1)[1].numpy())" in text

    def test_errors_for_priorities(self) -> None:
        text = migrated(
            """
            for x, y in batches:
                out = model(x)[:, 0]
                errors = (out - model(y)[:, 0]).abs()
                loss = errors.pow(2).mean()
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                memory.update_priorities(errors.detach().cpu().numpy())
            """
        )
        assert "    memory.update_priorities(errors.detach().cpu().float().numpy())\n" in text

    def test_what_acts_outside_stays(self) -> None:
        text = migrated(
            """
            def act(x):
                return model(x).detach().numpy()

            for x, y in batches:
                act(x)
                loss = F.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """
        )
        assert "    return model(x).detach().numpy()\n" in text


def test_an_output_that_is_changed_in_place_is_no_weight() -> None:
    text = migrated(
        """
        for x, y in batches:
            probabilities = F.softmax(model(x), dim=1)
            probabilities.data.clamp_(0.01, 0.99)
            loss = -(y * probabilities.log()).sum(1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert text.count("with torch.autocast") == 1


def test_the_scaler_follows_an_optimizer_with_the_default_none() -> None:
    text = migrated(
        """
        def train(x, optimizer=None, gamma=0.9):
            loss = gamma * model(x).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

        for x, y in batches:
            train(x, optimizer=optimizer, gamma=0.5)
        """
    )
    assert "def train(x, optimizer=None, scaler=None, gamma=0.9):\n" in text
    assert text.endswith("    train(x, optimizer=optimizer, scaler=scaler, gamma=0.5)\n")


AGENT = """\
import torch as T
import torch.nn as nn


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.optimizer = T.optim.Adam(self.parameters())
        self.device = T.device("cuda" if T.cuda.is_available() else "cpu")
        self.to(self.device)

    def forward(self, x):
        return self.layer(x)


class Agent:
    def __init__(self):
        self.network = Network()

    def learn(self, states, targets):
        states = states.to(self.network.device)
        loss = (self.network(states) - targets.to(self.network.device)).pow(2).mean()
        self.network.optimizer.zero_grad()
        loss.backward()
        self.network.optimizer.step()
"""


def test_torch_goes_by_the_name_that_the_script_gives_it() -> None:
    text = migrate_source(AGENT, "train.py").text
    assert text.startswith("import torch as T\nimport torch.nn as nn\n\n\nclass Network")
    assert (
        '        self.scaler = T.amp.GradScaler("cuda", enabled=self.network.device.type == "cuda")\n'
        "\n"
        "    def learn(self, states, targets):\n"
        "        states = states.to(self.network.device)\n"
        "        with T.autocast(\n"
        "            device_type=self.network.device.type, dtype=T.float16, enabled=self.scaler.is_enabled()\n"
        "        ):\n"
    ) in text


def test_the_scaler_waits_for_the_device() -> None:
    text = AGENT.replace(
        "        self.network = Network()\n",
        "        self.network = Network()\n"
        "        self.optimizer = T.optim.Adam(self.network.parameters())\n"
        '        self.device = T.device("cuda" if T.cuda.is_available() else "cpu")\n'
        "        self.network.to(self.device)\n",
    )
    text = text.replace("self.network.device", "self.device").replace("self.network.optimizer", "self.optimizer")
    assert (
        '        self.device = T.device("cuda" if T.cuda.is_available() else "cpu")\n'
        '        self.scaler = T.amp.GradScaler("cuda", enabled=self.device.type == "cuda")\n'
        "        self.network.to(self.device)\n"
    ) in migrate_source(text, "train.py").text


def test_a_product_before_numpy_is_cast_behind_it() -> None:
    text = migrated(
        """
        for x, y in batches:
            out = model(x)
            values = out.softmax(1).matmul(support).detach().numpy()
            loss = F.mse_loss(out, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert "        values = out.softmax(1).matmul(support).detach().float().numpy()\n" in text


MEMORY = """
class Memory:
    def __init__(self):
        self.log_probs = []

memory = Memory()
critic = nn.Linear(4, 1).to(device)
optimizer = torch.optim.Adam([*model.parameters(), *critic.parameters()])

def act(x):
    log_probs = F.log_softmax(model(x), dim=1)
    memory.log_probs.append(KEPT)
    return log_probs.argmax(1)

def learn(memory, x, rewards):
    gain = rewards - critic(x)
    loss = gain.pow(2).mean() - (torch.cat(memory.log_probs) * gain.detach()).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

for x, y in batches:
    act(x)
    learn(memory, x, y)
"""


class TestMemories:
    """A loss may have one part of its graph in view and another in an object that a second function fills."""

    def test_a_part_that_comes_through_one_is_refused(self) -> None:
        assert refusal(MEMORY.replace("KEPT", "log_probs")) == (
            "line 26: the graph comes to this loss through the container `memory.log_probs`, which another function "
            "fills"
        )

    def test_what_is_cut_off_before_is_data(self) -> None:
        text = migrated(MEMORY.replace("KEPT", "log_probs.detach()"))
        assert f"    {REGION}\n        gain = rewards - critic(x)\n" in text

    def test_what_is_cut_off_behind_is_data(self) -> None:
        text = MEMORY.replace("KEPT", "log_probs")
        text = migrated(text.replace("torch.cat(memory.log_probs)", "torch.cat(memory.log_probs).detach()"))
        assert f"    {REGION}\n        gain = rewards - critic(x)\n" in text


class TestLogarithmsOfPolicies:
    MODEL = """
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        x = self.layer(x)
        return F.softmax(x[:, :2], dim=1), x[:, 2]

policy = Policy().to(device)
optimizer = torch.optim.Adam(policy.parameters())
for x, y in batches:
    probabilities, values = policy(x)
    loss = (values - LOG).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

    def test_one_of_several_results_of_a_model_may_be_a_softmax(self) -> None:
        text = self.MODEL.replace("LOG", "torch.log(probabilities.gather(1, y))")
        text = migrate_source(HEAD + text, "train.py").text
        assert "        return F.softmax(x[:, :2].float(), dim=1), x[:, 2]\n" in text

    def test_what_is_computed_of_it_may_be_too(self) -> None:
        text = migrate_source(HEAD + self.MODEL.replace("LOG", "torch.log(1 - probabilities)"), "train.py").text
        assert "        return F.softmax(x[:, :2].float(), dim=1), x[:, 2]\n" in text

    def test_another_result_is_not(self) -> None:
        assert "a logarithm is taken by hand" in refusal(self.MODEL.replace("LOG", "torch.log(1 - values)"))


def test_models_in_lists_are_models() -> None:
    text = migrated(
        """
        actors = [nn.Linear(4, 2).to(device) for _ in range(2)]

        class Critic(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(6, 1)

            def forward(self, x, a):
                return self.layer(torch.cat([x, a], 1))

        critics = [Critic().to(device) for _ in range(2)]
        optimizers = [torch.optim.Adam(critic.parameters()) for critic in critics]
        for x, a in batches:
            for agent in range(2):
                value = critics[agent](x, a)
                loss = value.mean()
                optimizers[agent].zero_grad()
                loss.backward()
                optimizers[agent].step()
        """
    )
    assert f"        {REGION}\n            value = critics[agent](x, a)\n            loss = value.mean()\n" in text
    assert text.endswith("        scaler.step(optimizers[agent])\n        scaler.update()\n")


class TestTargets:
    """A target network runs under autocast where it stands beside the forward, though no gradient comes through it."""

    def test_cut_off_by_detach(self) -> None:
        text = migrated(
            """
            target = nn.Linear(4, 2).to(device)
            for x, y in batches:
                best, _ = target(x)
                best = best.detach().max(1)[0]
                wanted = y + 0.9 * best
                loss = F.mse_loss(model(x)[:, 0], wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """
        )
        assert f"    {REGION}\n        best, _ = target(x)\n        best = best.detach().max(1)[0]\n" in text

    def test_none_of_its_own_where_the_forward_is_elsewhere(self) -> None:
        text = migrated(
            """
            target = nn.Linear(4, 2).to(device)
            for x, y in batches:
                wanted = y + target(x).detach().max(1)[0]
                for _ in range(2):
                    loss = F.mse_loss(model(x)[:, 0], wanted)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
            """
        )
        assert "    wanted = y + target(x).detach().max(1)[0]\n    for _ in range(2):\n" in text

    def test_it_does_not_stand_for_a_forward_out_of_view(self) -> None:
        reason = refusal(
            """
            target = nn.Linear(4, 2).to(device)
            values = []

            def act(x):
                values.append(model(x))

            def learn(x, y):
                wanted = y + target(x).detach().max(1)[0]
                loss = F.mse_loss(torch.cat(values)[:, 0], wanted)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

            for x, y in batches:
                act(x)
                learn(x, y)
            """
        )
        assert "can't be told from the rest" in reason or "another function fills" in reason

    def test_what_acts_on_it_in_numpy_stays_outside(self) -> None:
        text = migrated(
            """
            for x, y in batches:
                action = model(x).detach().numpy()
                reward = env.step(action)
                loss = F.mse_loss(model(x)[:, 0], reward)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            """
        )
        assert f"    reward = env.step(action)\n    {REGION}\n        loss = F.mse_loss(" in text


def test_probabilities_that_numpy_chooses_by_come_from_float32() -> None:
    text = migrated(
        """
        for x, y in batches:
            logits = model(x)
            p = F.softmax(logits, dim=1)
            action = numpy.random.choice(2, p=p[0].detach().cpu().numpy())
            loss = -F.log_softmax(logits, dim=1)[0, action]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert "        p = F.softmax(logits.float(), dim=1)\n" in text


def test_a_model_is_followed_through_its_forward() -> None:
    text = TestLogarithmsOfPolicies.MODEL.replace("policy(x)", "policy.forward(x)")
    text = migrate_source(HEAD + text.replace("LOG", "torch.log(probabilities[0])"), "train.py").text
    assert "        return F.softmax(x[:, :2].float(), dim=1), x[:, 2]\n" in text


def test_a_distribution_that_a_class_of_the_script_makes() -> None:
    text = """
class Squashed:
    def __init__(self, loc, scale):
        self.base = torch.distributions.Normal(loc, scale)

    def log_prob(self, x):
        return self.base.log_prob(x)

for x, y in batches:
    loss = -Squashed(model(x), 0.5).log_prob(y).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    result = migrate_source(HEAD + text, "train.py")
    assert "        self.base = torch.distributions.Normal(loc.float(), scale)\n" in result.text


def test_gumbel_softmax_samples_in_float32() -> None:
    text = migrated(
        """
        for x, y in batches:
            loss = F.mse_loss(F.gumbel_softmax(model(x), hard=True), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert "        loss = F.mse_loss(F.gumbel_softmax(model(x).float(), hard=True), y)\n" in text


def test_a_softmax_that_is_written_by_index_is_cast_for_the_cpu() -> None:
    text = migrated(
        """
        for x, y in batches:
            out = model(x)
            weights = torch.zeros(8, 2, device=device)
            weights[y > 0] = F.softmax(out.detach()[y > 0], dim=1)
            loss = (out * weights).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert "        weights[y > 0] = F.softmax(out.detach()[y > 0], dim=1).float()\n" in text


def test_a_distribution_that_is_kept_as_an_attribute() -> None:
    text = """
class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.distribution = torch.distributions.Categorical

    def loss(self, x, y):
        return -self.distribution(F.softmax(self.layer(x), dim=1)).log_prob(y).mean()

policy = Policy().to(device)
optimizer = torch.optim.Adam(policy.parameters())
for x, y in batches:
    loss = policy.loss(x, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    text = migrate_source(HEAD + text, "train.py").text
    assert "        return -self.distribution(F.softmax(self.layer(x), dim=1).float()).log_prob(y).mean()\n" in text


NETWORKS = """
class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)
        self.optimizer = torch.optim.Adam(self.parameters())

    def forward(self, x):
        return self.layer(x)

    def train_net(self, target, x):
        loss = F.smooth_l1_loss(self.forward(x), target)
        self.optimizer.zero_grad()
        loss.mean().backward()
        self.optimizer.step()

def calc_target(network, x):
    with torch.no_grad():
        value = network(x)
        target = 1.0 + 0.9 * value
    return target

first, second = Network().to(device), Network().to(device)
for x, y in batches:
    target = calc_target(first, x)
    first.train_net(target, x)
    second.train_net(target, x)
"""


def test_a_method_of_a_model_that_trains_is_no_forward_and_a_target_without_gradients_no_graph() -> None:
    text = migrated(NETWORKS)
    assert (
        "        with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=self.scaler.is_enabled()):\n"
        "            loss = F.smooth_l1_loss(self.forward(x), target)\n"
        "        self.optimizer.zero_grad()\n"
        "        self.scaler.scale(loss.mean()).backward()\n"
        "        self.scaler.step(self.optimizer)\n"
        "        self.scaler.update()\n"
    ) in text
    assert text.endswith(NETWORKS[NETWORKS.index("first, second") :])


def test_a_rollout_without_gradients_is_no_evaluation() -> None:
    text = migrated(
        """
        for update in range(4):
            for step in range(8):
                with torch.no_grad():
                    values[step] = model(state).flatten()
                state, reward, done = env.step(values[step])
            for x, y in batches:
                loss = F.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        """
    )
    assert (
        "            values[step] = model(state).flatten()\n        state, reward, done = env.step(values[step])\n"
        in text
    )


def test_probabilities_that_are_clamped_in_place_are_no_weights() -> None:
    text = migrated(
        """
        for x, y in batches:
            dist = model(x)
            dist = dist.gather(1, y).squeeze(1)
            dist.data.clamp_(0.01, 0.99)
            loss = F.mse_loss(dist, y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    )
    assert "cache_enabled" not in text


def test_a_region_in_a_method_by_tabs_of_a_file_by_spaces_is_by_tabs() -> None:
    text = migrated(
        """
        def cycle(batches):
            yield from batches

        def train():
        \tfor x, y in cycle(batches):
        \t\tloss = F.mse_loss(model(x), y)
        \t\toptimizer.zero_grad()
        \t\tloss.backward()
        \t\toptimizer.step()

        train()
        """
    )
    assert f"\t\t{REGION}\n\t\t\tloss = F.mse_loss(model(x), y)\n" in text


@pytest.mark.parametrize("loss", ["a.mean()", "a + b", "(a - b) / 4", "-a / rounds"])
def test_a_loss_that_autocast_does_not_change_stays_behind_the_region(loss: str) -> None:
    text = migrated(
        f"""
        for x, y in batches:
            a, b = model(x), model(y)
            optimizer.zero_grad()
            ({loss}).backward()
            optimizer.step()
        """
    )
    assert (
        f"        a, b = model(x), model(y)\n    optimizer.zero_grad()\n    scaler.scale({loss}).backward()\n" in text
    )


@pytest.mark.parametrize("loss", ["a * 1e4", "a.sum()", "a / 1e-6", "a ** 2"])
def test_a_loss_that_it_may_change_is_bound_in_the_region(loss: str) -> None:
    text = migrated(
        f"""
        for x, y in batches:
            a = model(x)
            ({loss}).backward()
            optimizer.step()
            optimizer.zero_grad()
        """
    )
    assert f"        a = model(x)\n        loss = {loss}\n    scaler.scale(loss).backward()\n" in text


def test_a_helper_that_runs_two_models_keeps_the_cache_of_weights() -> None:
    text = migrated(
        """
        target = nn.Linear(4, 2).to(device)

        def compute_loss(x, y):
            values = model(x)
            with torch.no_grad():
                backup = target(x)
            return ((values - backup) ** 2).mean()

        for x, y in batches:
            optimizer.zero_grad()
            loss = compute_loss(x, y)
            loss.backward()
            optimizer.step()
        """
    )
    assert f"    {REGION}\n        loss = compute_loss(x, y)\n" in text


def test_a_weighted_sum_on_several_lines() -> None:
    text = migrated(
        """
        for x, y in batches:
            a, b = model(x), model(y)
            (a.sum() * 0.5 +
                b.sum()).backward()
            optimizer.step()
            optimizer.zero_grad()
            (a.mean() * weight +
                b.mean()).backward()
            optimizer.step()
            optimizer.zero_grad()
        """
    )
    assert "        loss = (a.sum() * 0.5 +\n        b.sum())\n    scaler.scale(loss).backward()\n" in text
    assert "    scaler.scale(a.mean() * weight +\n        b.mean()).backward()\n" in text
