"""Evaluation loops that get autocast, and those that are left in float32."""

from __future__ import annotations

import pytest

from amplint.migrate import Options, migrate_source
from amplint.settings import Settings

SCRIPT = """import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()
hits, found = 0, []
with torch.no_grad():
    for x, y in batches:
        {}
"""
REGION = 'with torch.autocast(device_type=device.type, dtype=torch.float16, enabled=device.type == "cuda"):'
LARGER = (
    "evaluation is left in float32: the model is called inside a larger statement; "
    "write `output = model(...)` on a line of its own"
)


@pytest.mark.parametrize(
    "statement",
    [
        "found = model(x.to(device)).argmax(1)",
        "hits += (model(x.to(device)).argmax(-1) == y.to(device)).sum().item()",
        "hits += (torch.argmax(model(x.to(device)), dim=1) == y.to(device)).sum().item()",
        "found.append(model(x.to(device)).argmax(1))",
        "self.found = model(x.to(device)).argsort(1)",
    ],
)
def test_indices_of_an_output_may_come_from_half_precision(statement: str) -> None:
    result = migrate_source(SCRIPT.format(statement), "train.py", Settings(), Options())
    assert [(loop.line, loop.status) for loop in result.loops] == [(7, "migrated"), (14, "migrated")]
    assert f"        {REGION}\n            {statement}\n" in result.text


@pytest.mark.parametrize(
    "statement",
    [
        "hits += (model(x.to(device)) > 0).sum().item()",
        "hits += (model(x.to(device)).max(1)[0] > 0.5).sum().item()",
        "found.append(model(x.to(device)).max(1)[0])",
        "hits += model(x.to(device)).argmax(1).sum() + model(x.to(device)).sum()",
    ],
)
def test_values_of_an_output_stay_in_float32(statement: str) -> None:
    result = migrate_source(SCRIPT.format(statement), "train.py", Settings(), Options())
    assert [(loop.line, loop.status, loop.reason) for loop in result.loops] == [
        (7, "migrated", ""),
        (14, "partly", LARGER),
    ]
    assert f"    for x, y in batches:\n        {statement}\n" in result.text


def test_indices_that_go_to_numpy_keep_their_type() -> None:
    statement = "found = model(x.to(device)).argmax(1)\n        print(found.cpu().numpy())"
    result = migrate_source(SCRIPT.format(statement), "train.py", Settings(), Options())
    assert result.text.endswith(
        f"        {REGION}\n            found = model(x.to(device)).argmax(1)\n        print(found.cpu().numpy())\n"
    )


MOVE = "x, y = x.to(device), y.to(device)"


@pytest.mark.parametrize(
    ("inside", "after"),
    [
        (["output = model(x)"], ["hits += (output.cpu().numpy().argmax(1) == y.cpu().numpy()).sum()"]),
        (
            ["outputs = model(x)"],
            ["logits = outputs.logits", "hits += (torch.argmax(logits, dim=-1) == y).sum().item()"],
        ),
        (["outputs = model(x)"], ["hits += (outputs[0].argmax(1) == y).sum().item()"]),
        (
            ["output = model(x)", "_, index = torch.max(output, 1)", "loss = nn.functional.cross_entropy(output, y)"],
            ["hits += torch.sum(index == y.data)"],
        ),
        (
            ["output = model(x)", "flat = output.view(-1, 3)", "hits += nn.functional.cross_entropy(flat, y).item()"],
            ["found.append(len(x))"],
        ),
        (
            ["output, hits = model(x, hits)", "loss = nn.functional.cross_entropy(output, y)"],
            ["hits = tuple(part.detach() for part in hits)"],
        ),
        (
            [
                "if hits:",
                "    output = model(x)[0]",
                "else:",
                "    output = model(x)",
                "hits += nn.functional.cross_entropy(output, y).item()",
            ],
            ["found.append(len(x))"],
        ),
        (
            [
                "output = model(x)",
                "if isinstance(output, tuple):",
                "    output = output[0]",
                "hits += nn.functional.cross_entropy(output, y).item()",
            ],
            ["found.append(len(x))"],
        ),
    ],
)
def test_an_output_is_followed_to_a_loss_an_order_or_back_into_the_model(inside: list[str], after: list[str]) -> None:
    text = SCRIPT.format("\n        ".join([MOVE, *inside, *after]))
    result = migrate_source(text, "train.py", Settings(), Options())
    assert [(loop.line, loop.status) for loop in result.loops] == [(7, "migrated"), (14, "migrated")]
    assert (
        f"        {MOVE}\n        {REGION}\n            " + "\n            ".join(inside) + "\n        " in result.text
    )


@pytest.mark.parametrize(
    "after",
    [
        "logits = model(x).logits\n        hits += (logits > 0).sum()",
        "outputs = model(x)\n        logits = outputs.logits\n        hits += (logits > 0).sum()",
        "outputs = model(x)\n        values = outputs.detach().cpu().numpy()\n        hits += (values > 0).sum()",
        "output, hits = model(x, hits)\n        found.append(hits)",
        "if hits:\n            out = model(x)\n        else:\n            out = model(-x)\n        found.append(out)",
    ],
)
def test_values_are_followed_too(after: str) -> None:
    result = migrate_source(SCRIPT.format(f"{MOVE}\n        {after}"), "train.py", Settings(), Options())
    assert [loop.status for loop in result.loops] == ["migrated", "partly"]


@pytest.mark.parametrize("dtype", ["float16", "auto"])
@pytest.mark.parametrize(
    ("statement", "written"),
    [
        ("hits += (output.cpu().numpy().argmax(1) == y.numpy()).sum()", "output.float().cpu().numpy().argmax(1)"),
        ("values = output.detach().cpu().numpy()", "values = output.float().detach().cpu().numpy()"),
    ],
)
def test_what_goes_to_numpy_is_float32(statement: str, written: str, dtype: str) -> None:
    text = SCRIPT.format(f"output = model(x.to(device))\n        {statement}\n        best = np.argmax(found, axis=1)")
    text = text.replace("import torch\n", "import numpy as np\nimport torch\n", 1)
    result = migrate_source(text, "train.py", Settings(), Options(dtype=dtype))
    assert {loop.status for loop in result.loops} == {"migrated"}
    assert result.text.count(".float()") == 1
    assert written in result.text
