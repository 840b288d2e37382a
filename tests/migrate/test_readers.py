"""Outputs for NumPy are cast where a tensor surely stands: models return tuples, dicts and objects, too."""

from __future__ import annotations

import pytest

from tests.migrate.test_hazards import migrated

LOOP = """
class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        h = self.fc(x)
        return {returned}

model = Pair().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches:
    out = model(x)
    loss = F.mse_loss({used}, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    {last}
"""


@pytest.mark.parametrize(
    ("returned", "used", "last", "cast"),
    [
        ("h", "out", "print(out.cpu().numpy())", "print(out.float().cpu().numpy())"),
        ("h", "out", "print(out.data.cpu().numpy())", "print(out.float().data.cpu().numpy())"),
        ("h, h", "out[0]", "print(out[0].cpu().numpy())", "print(out[0].float().cpu().numpy())"),
        ("[[h]]", "out[0][0]", "print(out[0][0].data.numpy())", "print(out[0][0].float().data.numpy())"),
        ("{'h': h}", "out['h']", "print(out['h'].cpu().numpy())", "print(out['h'].float().cpu().numpy())"),
        ("{'h': h}", "out['h']", "print(out.get('h').numpy())", "print(out.get('h').float().numpy())"),
        ("Result(h)", "out.logits", "print(out.logits.cpu().numpy())", "print(out.logits.float().cpu().numpy())"),
        ("[h, h]", "out[0]", "print(torch.cat(out).numpy())", "print(torch.cat(out).float().numpy())"),
        ("[h, h]", "out[0]", "print(torch.mm(out[1], y.t()))", "print(torch.mm(out[1].float(), y.t()))"),
    ],
)
def test_casts(returned: str, used: str, last: str, cast: str) -> None:
    assert migrated(LOOP.format(returned=returned, used=used, last=last)).splitlines()[-1].strip() == cast


BETWEEN = """
values = torch.zeros(8).to(device)
places = torch.zeros(8, dtype=torch.long).to(device)
index = torch.arange(8)
for x, y in batches:
    out = model(x)
    {line}
    loss = F.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("best = out.max(1)[1].cpu()", "best = out.max(1)[1].cpu()"),
        ("_, best = out.max(1); best = best.cpu()", "_, best = out.max(1); best = best.cpu()"),
        ("print(torch.max(out, 1)[1].cpu().numpy())", "print(torch.max(out, 1)[1].cpu().numpy())"),
        ("places[index] = out.max(1)[1]", "places[index] = out.max(1)[1]"),
        ("_, best = out.max(1); places[index] = best", "_, best = out.max(1); places[index] = best"),
        ("values[index] = out.max(1)[0]", "values[index] = out.max(1)[0].float()"),
        ("best, at = out.max(1); values[index] = best", "best, at = out.max(1); values[index] = best.float()"),
        (
            "best, at = torch.max(out, 1); values[index] = best",
            "best, at = torch.max(out, 1); values[index] = best.float()",
        ),
        ("best = out.max(1)[0].cpu()", "best = out.max(1)[0].float().cpu()"),
    ],
)
def test_places_of_maxima_are_no_outputs(line: str, written: str) -> None:
    assert f"        {written}\n" in migrated(BETWEEN.format(line=line))


@pytest.mark.parametrize(
    ("used", "last"),
    [
        ("out[0]", "print(out[1].cpu().numpy())"),
        ("out[0]", "print(out[-1].cpu().numpy())"),
        ("out.mean()", "print(best.cpu().numpy())"),
    ],
)
def test_other_parts_of_what_a_model_returns_stay_integers(used: str, last: str) -> None:
    body = LOOP.format(returned="h, h.argmax(1)", used=used, last=last)
    if "best" in last:
        body = body.replace("    out = model(x)", "    out, best = model(x)")
    assert migrated(body).endswith(f"    {last}\n")


def test_an_output_is_cast_for_numpy_once() -> None:
    """Also where it is known to be of half precision by its name, and by what it is computed of."""
    body = """
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(4, 4, batch_first=True)
        self.out = nn.Linear(4, 4)

    def forward(self, x, state):
        out, state = self.rnn(x, state)
        return torch.stack([self.out(out[:, t]) for t in range(out.size(1))], dim=1), state

rnn = Recurrent().to(device)
optimizer = torch.optim.SGD(rnn.parameters(), lr=0.1)
state = None
for x, y in batches:
    out, state = rnn(x, state)
    state = state.data
    loss = F.mse_loss(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(out.data.numpy().sum(), torch.softmax(out, 1).detach().numpy())
"""
    assert migrated(body).endswith(
        "    print(out.float().data.numpy().sum(), torch.softmax(out.float(), 1).detach().numpy())\n"
    )
