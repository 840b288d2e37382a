"""Recurrent and attentive models: state that a model keeps, recursions in log space, masks filled in place."""

from __future__ import annotations

import pytest

from tests.migrate.test_hazards import migrated, refusal

RECURRENT = """
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 8)
        self.out = nn.Linear(8, 2)
        self.hidden = None

    def init_hidden(self):
        self.hidden = None

    def forward(self, x):
{start}        y, self.hidden = self.rnn(x, self.hidden)
        return self.out(y)

model = Recurrent().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches:
    model.init_hidden()
    loss = F.mse_loss(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


class TestStateOfAModel:
    """`self.hidden` is in half precision after a forward under autocast."""

    def test_a_forward_outside_of_the_loops_runs_under_autocast_too(self) -> None:
        header = 'with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=device.type == "cuda"):'
        assert migrated(RECURRENT.format(start="") + "print(model(x).sum())\n").endswith(
            f"    scaler.update()\n{header}\n    print(model(x).sum())\n"
        )

    def test_one_before_all_training_stays_in_float32(self) -> None:
        before, _, after = RECURRENT.format(start="").partition("for x, y")
        text = migrated(before + "print(model(first).sum())\nfor x, y" + after)
        assert text.startswith("print(model(first).sum())\nfor x, y in batches:\n")

    def test_it_must_not_come_to_a_forward_in_float32(self) -> None:
        assert refusal(RECURRENT.format(start="") + "if model(x).sum() > 0:\n    print(1)\n") == (
            "line 31: the model keeps `self.hidden` from one forward to the next, in half precision after one under "
            "autocast, and runs in float32 here; give it a new one first"
        )

    @pytest.mark.parametrize("new", ["model.init_hidden()", "model.hidden = None"])
    def test_a_new_one_is_float32(self, new: str) -> None:
        text = migrated(RECURRENT.format(start="") + f"{new}\nprint(model(x).sum())\n")
        assert text.endswith(f"    scaler.update()\n{new}\nprint(model(x).sum())\n")

    def test_one_that_each_forward_makes_anew_is_no_state(self) -> None:
        start = "        self.hidden = None\n"
        text = migrated(RECURRENT.format(start=start) + "print(model(x).sum())\n")
        assert text.endswith("    scaler.update()\nprint(model(x).sum())\n")

    def test_evaluation_runs_under_autocast_too(self) -> None:
        evaluation = (
            "values = []\nfor x in batches:\n    with torch.no_grad():\n        values.append(model(x).sum().item())\n"
        )
        header = 'with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=device.type == "cuda"):'
        assert migrated(RECURRENT.format(start="") + evaluation).endswith(
            f"    with torch.no_grad():\n        {header}\n            values.append(model(x).sum().item())\n"
        )


CRF = """
def log_sum_exp(v):
    top = v.max()
    return top + torch.log(torch.sum(torch.exp(v - top)))

class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        self.moves = nn.Parameter(torch.randn(2, 2))

    def forward(self, scores):
        alpha = scores[0]
        for score in scores[1:]:
{step}
        return {result}

chain = Chain().to(device)
for x, y in batches:
    loss = chain(model(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("step", "line"),
    [
        ("            alpha = torch.logsumexp(alpha[:, None] + self.moves + score, 0)", 21),
        ("            rows = [log_sum_exp(alpha + m) for m in self.moves]\n            alpha = torch.stack(rows)", 21),
    ],
)
def test_a_recursion_in_log_space_is_refused(step: str, line: int) -> None:
    assert refusal(CRF.format(step=step, result="log_sum_exp(alpha)")) == (
        f"line {line}: a recursion in log space builds on what half precision has rounded at each step"
    )


def test_a_sum_of_log_sum_exps_is_no_recursion() -> None:
    text = migrated(CRF.format(step="            alpha = alpha - log_sum_exp(score)", result="alpha.sum()"))
    assert "        loss = chain(model(x))\n" in text


ATTENTION = """
class Attention(nn.Module):
    def forward(self, q, k, mask):
        scores = {scores}
        {fill}
        return torch.softmax(scores, -1)

attend = Attention()
for x, y in batches:
    out = model(x)
    loss = F.mse_loss(attend(out, out, y > 0), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("fill", "after"),
    [
        ("scores.masked_fill_(mask, -1e9)", "scores = scores.float().masked_fill(mask, -1e9)"),
        ("scores = scores.masked_fill_(mask, -1e9)", "scores = scores.float().masked_fill(mask, -1e9)"),
        ("scores = torch.masked_fill(scores, mask, -1e9)", "scores = torch.masked_fill(scores.float(), mask, -1e9)"),
        ("scores = (scores / 2).masked_fill(mask, -1e9)", "scores = (scores / 2).float().masked_fill(mask, -1e9)"),
        ("scores = torch.masked_fill(scores / 2, mask, -1e9)", None),
        ("scores.masked_fill_(mask, -1e4)", "scores.masked_fill_(mask, -1e4)"),
    ],
)
def test_masks_beyond_float16_are_applied_to_float32(fill: str, after: str | None) -> None:
    from amplint.migrate import migrate_source
    from tests.migrate.test_refusals import HEAD

    text = migrate_source(HEAD + ATTENTION.format(scores="q @ k.T", fill=fill), "train.py").text
    after = after or "scores = torch.masked_fill((scores / 2).float(), mask, -1e9)"
    assert f"        scores = q @ k.T\n        {after}\n" in text


def test_a_tensor_that_may_have_another_name_is_not_filled_in_place() -> None:
    assert refusal(ATTENTION.format(scores="q", fill="scores.masked_fill_(mask, -1e9)")) == (
        "line 12: the constant of this mask exceeds the range of float16; use --dtype bfloat16"
    )


def test_a_forward_for_the_sake_of_the_state_is_in_the_region() -> None:
    text = migrated(
        RECURRENT.format(start="").replace("    loss =", "    for part in x:\n        model(part)\n    loss =")
    )
    assert (
        "    model.init_hidden()\n"
        "    with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=scaler.is_enabled()):\n"
        "        for part in x:\n"
        "            model(part)\n"
        "        loss = F.mse_loss(model(x), y)\n"
    ) in text


POINTERS = """
class Pointer(nn.Module):
    def __init__(self):
        super().__init__()
        self.query = nn.Linear(4, 4)
        self.vector = nn.Parameter(torch.rand(4))
        self.low = nn.Parameter(torch.tensor(-1e4), requires_grad=False)

    def forward(self, x, mask):
        scores = torch.bmm(self.vector.view(1, 1, 4), torch.tanh(self.query(x)).T[None])
        {fill}
        return torch.softmax(scores, -1)

pointer = Pointer().to(device)
for x, y in batches:
    loss = F.mse_loss(pointer(model(x), y > 0), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_a_product_of_a_parameter_is_half_precision() -> None:
    text = migrated(POINTERS.format(fill="scores[mask] = self.low"))
    assert "torch.tanh(self.query(x)).T[None]).float()\n        scores[mask] = self.low\n" in text


def test_a_mask_on_the_data_of_scores_changes_no_weights() -> None:
    text = migrated(POINTERS.format(fill="scores.data.masked_fill_(mask, -float('inf'))"))
    assert "cache_enabled" not in text


TEACHER = """
decoder = nn.Linear(2, 2).to(device)
decoding = torch.optim.SGD(decoder.parameters(), lr=0.1)
for x, y in batches:
    optimizer.zero_grad()
    decoding.zero_grad()
    loss = 0
    state = model(x)
    if forced:
        for step in range(3):
            loss += F.mse_loss(decoder(state), y)
    else:
        for step in range(3):
            state = decoder(state)
            {other}
    loss.backward()
    optimizer.step()
    decoding.step()
"""


def test_losses_that_both_arms_add_reach_both_optimizers() -> None:
    text = migrated(TEACHER.format(other="loss += F.mse_loss(state, y)"))
    assert text.endswith("    scaler.step(optimizer)\n    scaler.step(decoding)\n    scaler.update()\n")


def test_losses_that_one_arm_adds_may_reach_none() -> None:
    assert "may step without gradients" in refusal(TEACHER.format(other="print(state)"))


CARRIED = """
rnn = nn.GRU(4, 2).to(device)
opt = torch.optim.SGD(rnn.parameters(), lr=0.1)

def evaluate(x, h):
    with torch.no_grad():
        return rnn(x, h)[0].sum()

h = None
for x, y in batches:
    out, h = rnn(x, h)
    h = h.detach()
    loss = F.mse_loss(out, y)
    opt.zero_grad()
    loss.backward()
    opt.step()
{after}
"""


@pytest.mark.parametrize(
    ("after", "place"),
    [
        ("print(evaluate(x, h))", "line 14: `h`"),
        ("first = h[:1]\nprint(rnn(x, first)[0].sum())", "line 25: `first`"),
    ],
)
def test_a_state_in_half_precision_must_not_come_to_float32(after: str, place: str) -> None:
    assert refusal(CARRIED.format(after=after)) == (
        f"{place} comes here from a forward under autocast, in half precision, and the model runs in float32; give it "
        "a new state, or one in float32"
    )


@pytest.mark.parametrize(
    "after", ["print(evaluate(x, None))", "h = None\nout, h = rnn(x, h)", "print(evaluate(x, h.float()))"]
)
def test_a_new_state_may(after: str) -> None:
    assert migrated(CARRIED.format(after=after)).rstrip().endswith(after)


@pytest.mark.parametrize(
    ("first", "loss"),
    [
        ("out = pack_padded_sequence(model(x), lengths).data", "F.cross_entropy(out, y)"),
        ("out = pack_padded_sequence(model(x), lengths)", "F.cross_entropy(out.data, y)"),
        ("out = nn.utils.rnn.pack_sequence(model(x))", "F.cross_entropy(out.data, y)"),
    ],
)
def test_the_data_of_a_packed_sequence_has_the_graph_of_what_was_packed(first: str, loss: str) -> None:
    loop = f"""
from torch.nn.utils.rnn import pack_padded_sequence
for x, y, lengths in batches:
    optimizer.zero_grad()
    {first}
    loss = {loss}
    loss.backward()
    optimizer.step()
"""
    assert f"        {first}\n        loss = {loss}\n    scaler.scale(loss).backward()\n" in migrated(loop)
