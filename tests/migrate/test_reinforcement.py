"""Shapes of reinforcement learning: policies, distributions, targets written by index, rollouts without gradients."""

from __future__ import annotations

import textwrap

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
        assert "a logarithm is taken by hand" in refusal(POLICY.replace("torch.tanh(u)", "torch.tanh(mean)") + loop)


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
