"""Agents of reinforcement learning as objects in lists, each with optimizers of its own."""

from __future__ import annotations

from tests.migrate.test_placement import SCALER, migrated

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
