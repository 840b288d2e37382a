"""The monitor itself: what it counts, and that it leaves torch as it was."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_
from torch.overrides import TorchFunctionMode

from amplint.runtime import Monitor
from amplint.runtime.results import ScaleChange
from tests.runtime.training import loss_of, problem, scaler, sgd, violations

OWNERS = (
    torch.amp.GradScaler,
    torch.cuda.amp.GradScaler,
    torch.optim.Optimizer,
    torch.optim.SGD,
    nn.Module,
    torch.amp.autocast_mode.autocast,
    torch.Tensor,
    torch,
    torch.autograd,
    torch.nn.utils,
    torch.nn.utils.clip_grad,
    functional,
    torch._VF,
    sys.modules[__name__],
)


def attributes() -> list[dict[str, int]]:
    """The identity of every attribute of everything that the monitor touches."""
    return [{name: id(value) for name, value in vars(owner).items()} for owner in OWNERS]


def step_hooks() -> dict[int, object]:
    """torch's hooks for all optimizers."""
    hooks: dict[int, object] = vars(sys.modules[torch.optim.Optimizer.__module__])["_global_optimizer_pre_hooks"]
    return hooks


@pytest.mark.parametrize("options", [{}, {"dtypes": True, "gradients": True}])
def test_nothing_is_left_in_torch(options: dict[str, bool]) -> None:
    problem()
    before = attributes()
    monitor = Monitor(**options)
    monitor.install()
    during = attributes()
    namespace: dict[str, object] = {}
    exec("from torch.nn.utils import clip_grad_value_", namespace)
    monitor.uninstall()
    assert during != before
    assert attributes() == before
    assert dict(step_hooks()) == {}


def test_torch_is_as_before_after_an_exception() -> None:
    before = attributes()
    with pytest.raises(KeyError), Monitor():
        raise KeyError
    assert attributes() == before


def test_there_is_one_monitor_at_a_time() -> None:
    other = Monitor()
    with Monitor():
        with pytest.raises(RuntimeError, match=r"^a monitor is installed already$"):
            other.install()
        other.uninstall()
        assert torch.Tensor.__dict__["grad"] is not None
    assert "grad" not in vars(torch.Tensor)


def test_a_monitor_can_go_on_later() -> None:
    model, inputs, targets = problem()
    optimizer, scaling = sgd(model), scaler()
    monitor = Monitor()
    for _ in range(2):
        with monitor:
            optimizer.zero_grad()
            scaling.scale(loss_of(model, inputs, targets)).backward()
            scaling.step(optimizer)
            scaling.update()
    report = monitor.report()
    assert report.violations == ()
    assert (report.backward.scaled, report.steps) == (2, 2)


def test_skipped_steps_and_the_way_of_the_scale() -> None:
    model, inputs, targets = problem()
    with Monitor() as monitor:
        optimizer, scaling = sgd(model), scaler(2.0**127)
        for _ in range(3):
            optimizer.zero_grad()
            (scaling.scale(loss_of(model, inputs, targets)) * 4).backward()
            scaling.step(optimizer)
            scaling.update()
    report = monitor.report()
    assert (report.steps, report.skipped) == (3, 3)
    assert report.scalers[0].history == tuple(ScaleChange(update, 2.0 ** (127 - update)) for update in range(4))
    assert report.violations == ()


def test_skipped_steps_of_a_fused_optimizer() -> None:
    model, inputs, targets = problem()
    with Monitor() as monitor:
        optimizer, scaling = torch.optim.SGD(model.parameters(), lr=0.01, fused=True), scaler(2.0**127)
        for factor in (4.0, 2.0**-120):
            optimizer.zero_grad()
            (scaling.scale(loss_of(model, inputs, targets)) * factor).backward()
            scaling.step(optimizer)
            scaling.update()
    assert (monitor.report().steps, monitor.report().skipped) == (2, 1)


def test_products_by_precision() -> None:
    model, inputs, targets = problem()
    weight = torch.ones(8, 2)
    recurrent = nn.LSTM(8, 4)
    with Monitor(dtypes=True) as monitor:
        loss_of(model, inputs, targets)
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            inputs @ weight
            torch.einsum("ij,jk->ik", inputs, weight)
            functional.conv1d(inputs[None], torch.ones(1, 32, 1))
        recurrent(inputs)
        inputs.mm(weight)
    assert monitor.report().products == (
        ("conv1d", "bfloat16", 1, 0),
        ("einsum", "bfloat16", 1, 0),
        ("linear", "float16", 2, 2),
        ("lstm", "float32", 1, 1),
        ("matmul", "bfloat16", 1, 0),
        ("mm", "float32", 1, 0),
    )


class Passing(TorchFunctionMode):
    """A mode that changes nothing, as `torch.set_default_device` is one that changes little."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def test_a_product_under_a_mode_counts_once() -> None:
    inputs = torch.ones(2, 2)
    with Monitor(dtypes=True) as monitor, Passing():
        functional.linear(inputs, inputs)
        inputs @ inputs
        inputs.mm(inputs)
        torch.matmul(inputs, inputs)
        functional.conv1d(inputs[None], torch.ones(1, 2, 1))
    assert monitor.report().products == (
        ("conv1d", "float32", 1, 0),
        ("linear", "float32", 1, 0),
        ("matmul", "float32", 2, 0),
        ("mm", "float32", 1, 0),
    )


def test_what_torch_reads_through_a_mode_is_not_read_by_the_script() -> None:
    model, inputs, targets = problem()
    with Monitor() as monitor, Passing():
        optimizer, scaling = sgd(model), scaler()
        for _ in range(2):
            optimizer.zero_grad()
            scaling.scale(loss_of(model, inputs, targets)).backward()
            scaling.step(optimizer)
            scaling.update()
    assert monitor.report().violations == ()


def test_counts_of_gradients() -> None:
    parameter = nn.Parameter(torch.ones(4))
    with Monitor(gradients=True) as monitor:
        optimizer, scaling = torch.optim.SGD([parameter], lr=0.1), scaler(1024.0)
        scaling.scale((parameter * torch.tensor([0.0, 1e-9, 1.0, float("inf")])).sum()).backward()
        scaling.step(optimizer)
        scaling.update()
    counts = monitor.report().gradients
    assert counts == (4, 1, 1, 4, 1, 1, 3, 0)
    assert counts is not None
    assert counts.lost == 0.0


def test_gradients_that_are_lost_and_those_that_are_zero() -> None:
    class Shrinking(torch.autograd.Function):
        """Its gradient is that of float16: 2**-20 of what comes."""

        @staticmethod
        def forward(ctx: Any, values: torch.Tensor) -> torch.Tensor:
            return values

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return (gradient * torch.tensor([0.0, 2.0**-20, 2.0**-12, 1.0])).half().float()

    counts = []
    for scale in (1.0, 2.0**-8, 2.0**-20):
        parameter = nn.Parameter(torch.ones(4))
        with Monitor(gradients=True) as monitor:
            optimizer, scaling = torch.optim.SGD([parameter], lr=0.1), scaler(scale)
            output = Shrinking.apply(parameter)  # type: ignore[no-untyped-call]
            scaling.scale(output.sum()).backward()
            scaling.step(optimizer)
        found = monitor.report().gradients
        assert found is not None
        counts.append((found.compared, found.underflowed, found.zero))
    assert counts == [(3, 0, 1), (3, 1, 2), (2, 1, 3)]


def test_only_some_backwards_are_looked_at_closely() -> None:
    model, inputs, targets = problem()
    with Monitor(gradients=True) as monitor:
        optimizer, scaling = sgd(model), scaler()
        for _ in range(9):
            optimizer.zero_grad()
            scaling.scale(loss_of(model, inputs, targets)).backward()
            scaling.step(optimizer)
            scaling.update()
    counts = monitor.report().gradients
    assert counts is not None
    assert (counts.values, counts.compared, counts.underflowed) == (9 * 161, 2 * 161, 0)


def test_a_graph_that_can_not_be_used_twice_is_left_alone() -> None:
    model, inputs, targets = problem()
    with Monitor(gradients=True) as monitor:
        optimizer, scaling = sgd(model), scaler()
        hidden = inputs.clone().requires_grad_()
        output = torch.utils.checkpoint.checkpoint(model, hidden, use_reentrant=True)
        scaling.scale(functional.mse_loss(output, targets)).backward()
        scaling.step(optimizer)
    counts = monitor.report().gradients
    assert counts is not None
    assert (counts.values, counts.compared, counts.lost) == (161, 0, None)


@pytest.mark.parametrize(
    ("enabled", "dtypes", "effective"), [(True, False, True), (True, True, True), (False, True, False)]
)
def test_whether_amp_did_anything(enabled: bool, dtypes: bool, effective: bool) -> None:
    model, inputs, targets = problem()
    with Monitor(dtypes=dtypes) as monitor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            output = model(inputs)
        functional.mse_loss(output.float(), targets).backward()
    assert monitor.report().effective is effective


def test_a_forward_outside_the_region_is_not_under_amp() -> None:
    model, inputs, targets = problem()
    with Monitor() as monitor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            pass
        functional.mse_loss(model(inputs), targets).backward()
    assert monitor.report().effective is False


def test_without_products_nothing_is_said() -> None:
    with Monitor() as monitor, torch.autocast("cpu", dtype=torch.bfloat16):
        pass
    assert monitor.report().effective is None


class Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return functional.linear(inputs, self.inner.weight) + torch.matmul(self.inner(inputs), inputs.t()).sum()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules_still_compile() -> None:
    table = torch.jit._builtins._get_builtin_table()
    before = dict(table)
    with Monitor(dtypes=True):
        assert torch.jit.script(Doubled())(torch.zeros(1, 2)).shape == (1, 2)
    assert table == before


def test_compiled_modules_are_counted_where_they_run() -> None:
    with Monitor(dtypes=True) as monitor:
        compiled = torch.compile(Doubled(), backend="eager", fullgraph=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output = compiled(torch.ones(1, 2))
        output.sum().backward()
    report = monitor.report()
    assert report.effective is True
    assert [(region.dtype, region.entries) for region in report.regions] == [("bfloat16", 1)]


def test_clip_is_seen_where_it_was_imported_by_name() -> None:
    model, inputs, targets = problem()
    with Monitor() as monitor:
        optimizer, scaling = sgd(model), scaler()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        norm = clip_grad_norm_(model.parameters(), 1.0)
        scaling.step(optimizer)
    assert norm > 100
    line = test_clip_is_seen_where_it_was_imported_by_name.__code__.co_firstlineno + 5
    assert violations(monitor.report()) == [("clip-before-unscale", line)]


def test_report_as_json() -> None:
    model, inputs, targets = problem()
    with Monitor(gradients=True) as monitor:
        optimizer, scaling = sgd(model), scaler()
        scaling.scale(loss_of(model, inputs, targets)).backward()
        optimizer.step()
        scaling.update(2.0)
    found = json.loads(monitor.report().to_json())
    first = test_report_as_json.__code__.co_firstlineno
    assert found["violations"] == [
        {
            "code": "AMP206",
            "level": "error",
            "message": "the optimizer stepped with gradients that still carry the scale, or skipped its check",
            "kind": "step-bypasses-scaler",
            "place": {"file": __file__, "line": first + 5, "function": "test_report_as_json"},
            "related": {"file": __file__, "line": first + 4, "function": "test_report_as_json"},
            "times": 1,
            "raised": False,
        }
    ]
    assert found["torch"] == torch.__version__
    assert found["effective"] is True
    assert found["backward"] == {"scaled": 1, "plain": 0, "mixed": 0, "in_autocast": 0}
    assert found["scalers"][0]["history"] == [{"update": 0, "scale": 1024.0}, {"update": 1, "scale": 2.0}]
    assert (found["plain_steps"], found["steps"], found["skipped"], found["products"]) == (1, 0, 0, None)
    assert found["gradients"]["values"] == 161
