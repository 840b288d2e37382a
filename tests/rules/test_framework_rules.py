"""AMP601 to AMP604: what the frameworks must do themselves."""

from __future__ import annotations

from textwrap import dedent

import pytest

from amplint import check_source, fix_source
from amplint.settings import Settings

ONLY = Settings(select=("AMP601", "AMP602", "AMP603", "AMP604"))


def found(code: str) -> list[tuple[str, int]]:
    """The (code, row) pairs of a text."""
    return [(d.code, d.location.row) for d in check_source(dedent(code), "t.py", ONLY)]


ACCELERATE = """
    import torch
    from accelerate import Accelerator


    def train(model, loader, optimizer, amp=True):
        accelerator = Accelerator({arguments})
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x in loader:
            loss = model(x).mean()
            {body}
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("arguments", "body", "rows"),
    [
        pytest.param('mixed_precision="fp16"', "loss.backward()", [("AMP601", 11)], id="fp16"),
        pytest.param("", "loss.backward()", [("AMP601", 11)], id="precision comes from the launcher"),
        pytest.param('mixed_precision="no"', "loss.backward()", [], id="full precision needs no scaling"),
        pytest.param('mixed_precision="bf16"', "loss.backward()", [], id="bfloat16 needs no scaling"),
        pytest.param(
            'mixed_precision="bf16", gradient_accumulation_steps=2',
            "loss.backward()",
            [("AMP601", 11)],
            id="accumulation is divided by the framework",
        ),
        pytest.param("", "accelerator.backward(loss)", [], id="the framework's own backward"),
        pytest.param(
            "",
            "accelerator.backward(loss) if amp else loss.backward()",
            [],
            id="the plain one on another path than the framework's",
        ),
        pytest.param("", "engine.backward(loss)", [], id="another engine's backward"),
    ],
)
def test_accelerate(arguments: str, body: str, rows: list[tuple[str, int]]) -> None:
    assert found(ACCELERATE.format(arguments=arguments, body=body)) == rows


def test_keywords_of_the_backward_are_kept() -> None:
    text = dedent(ACCELERATE).format(arguments="", body="loss.backward(retain_graph=True)")
    assert "            accelerator.backward(loss, retain_graph=True)\n" not in text
    assert "        accelerator.backward(loss, retain_graph=True)\n" in fix_source(text, "t.py", ONLY).text


def test_optimizer_that_was_not_prepared_is_silent() -> None:
    text = ACCELERATE.format(arguments="", body="loss.backward()").replace(
        "model, optimizer, loader =", "model, loader ="
    )
    assert found(text) == []


def test_clip_after_unscaling_by_the_framework_is_silent() -> None:
    body = "accelerator.backward(loss); accelerator.unscale_gradients(); torch.nn.utils.clip_grad_norm_(p, 1.0)"
    assert found(ACCELERATE.format(arguments="", body=body)) == []


def test_holder_in_an_attribute_and_in_an_annotated_parameter() -> None:
    assert found(
        """
        from accelerate import Accelerator

        class Trainer:
            def __init__(self, model, optimizer):
                self.accelerator = Accelerator()
                self.model, self.optimizer = self.accelerator.prepare(model, optimizer)

            def step(self, x):
                self.model(x).mean().backward()
                self.optimizer.step()

        def train(accelerator: Accelerator, model, optimizer, x):
            model, optimizer = accelerator.prepare(model, optimizer)
            loss = model(x).mean()
            loss.backward()
            optimizer.step()
        """
    ) == [("AMP601", 10), ("AMP601", 16)]


FABRIC = """
    from lightning import Fabric

    fabric = Fabric(precision="16-mixed")
    model, optimizer = fabric.setup(model, optimizer)
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
"""


def test_fabric_is_fixed() -> None:
    assert found(FABRIC) == [("AMP601", 7)]
    assert "\nfabric.backward(loss)\n" in fix_source(dedent(FABRIC), "t.py", ONLY).text


def test_lightning_with_automatic_optimization_is_not_ours() -> None:
    assert (
        found(
            """
            import pytorch_lightning as pl

            class Net(pl.LightningModule):
                def training_step(self, batch, batch_idx):
                    return self.net(batch).mean()

            class Other:
                automatic_optimization = False

                def step(self, loss):
                    loss.backward()
            """
        )
        == []
    )


def test_lightning_manual_optimization_through_a_base_class_of_the_file() -> None:
    assert found(
        """
        import pytorch_lightning as pl

        class Base(pl.LightningModule):
            pass

        class Net(Base):
            def __init__(self):
                super().__init__()
                self.automatic_optimization = False

            def training_step(self, batch, batch_idx):
                loss = self.net(batch).mean()
                loss.backward()
        """
    ) == [("AMP601", 14)]


def test_two_arms_of_a_test_are_not_together() -> None:
    assert (
        found(
            """
            import torch
            from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

            def build(module, sharded):
                if sharded:
                    return FSDP(module), None
                else:
                    return module, torch.amp.GradScaler("cuda")
            """
        )
        == []
    )


def test_fix_of_a_scaler_with_positional_values_is_left_to_the_user() -> None:
    text = dedent(
        """
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel as FSDP

        model = FSDP(module)
        scaler = torch.amp.GradScaler("cuda", 1024.0)
        """
    )
    assert found(text) == [("AMP603", 6)]
    assert fix_source(text, "t.py", ONLY, unsafe=True).text == text


def test_own_island_without_autocast_in_a_lightning_step_is_silent() -> None:
    assert (
        found(
            """
            import lightning.pytorch as pl
            import torch

            class Net(pl.LightningModule):
                def training_step(self, batch, batch_idx):
                    with torch.autocast("cuda", enabled=False):
                        return self.loss(batch.float())

            pl.Trainer(precision="16-mixed")
            """
        )
        == []
    )


FABRIC_CLIP = """
    import torch
    from lightning.fabric import Fabric

    def train(model, optimizer, loader, args):
        fabric = Fabric({arguments})
        model, optimizer = fabric.setup(model, optimizer)
        for x in loader:
            optimizer.zero_grad()
            fabric.backward(model(x).mean())
            {clip}
            optimizer.step()
"""
NORM = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"


@pytest.mark.parametrize(
    ("arguments", "clip", "rows"),
    [
        pytest.param('precision="16-mixed"', NORM, [("AMP602", 11)], id="mixed"),
        pytest.param("precision=16", NORM, [("AMP602", 11)], id="as a number"),
        pytest.param("precision=args.precision", NORM, [("AMP602", 11)], id="an option"),
        pytest.param("", NORM, [], id="full precision by default"),
        pytest.param('precision="bf16-mixed"', NORM, [], id="bfloat16 needs no scaling"),
        pytest.param('precision="16-true"', NORM, [], id="half parameters have no scaler"),
        pytest.param(
            'precision="16-mixed"', "fabric.clip_gradients(model, optimizer, max_norm=1.0)", [], id="Fabric's own"
        ),
    ],
)
def test_fabric_clip(arguments: str, clip: str, rows: list[tuple[str, int]]) -> None:
    assert found(FABRIC_CLIP.format(arguments=arguments, clip=clip)) == rows


@pytest.mark.parametrize(
    ("clip", "fixed"),
    [
        (NORM, "fabric.clip_gradients(model, optimizer, max_norm=1.0, error_if_nonfinite=False)"),
        (
            "torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)",
            "fabric.clip_gradients(model, optimizer, clip_val=0.5)",
        ),
        (NORM.replace("model.parameters()", "params"), None),
        (NORM.replace("1.0", "1.0, foreach=True"), None),
    ],
)
def test_fabric_clip_is_fixed_where_module_and_optimizer_are_known(clip: str, fixed: str | None) -> None:
    text = dedent(FABRIC_CLIP).format(arguments='precision="16-mixed"', clip=clip)
    assert found(text) == [("AMP602", 11)]
    assert fix_source(text, "t.py", ONLY).text == text.replace(clip, fixed or clip)


REGION = """
    import torch
    from accelerate import Accelerator

    def train(model, optimizer, loader, criterion, args):
        accelerator = Accelerator({arguments})
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for x, y in loader:
            with {region}:
                {body}
            accelerator.backward(loss)
            optimizer.step()
"""


@pytest.mark.parametrize(
    ("arguments", "region", "body", "rows"),
    [
        pytest.param(
            'mixed_precision="fp16"', 'torch.autocast("cuda")', "loss = model(x).loss", [("AMP604", 9)], id="the model"
        ),
        pytest.param(
            'mixed_precision="bf16"',
            "torch.cuda.amp.autocast()",
            "out = model(x); loss = out[0]",
            [("AMP604", 9)],
            id="and a part of its output",
        ),
        pytest.param(
            'mixed_precision="fp16"',
            'torch.autocast("cuda")',
            "loss = criterion(model(x), y)",
            [],
            id="a loss, which Accelerate does not cover",
        ),
        pytest.param("", 'torch.autocast("cuda")', "loss = model(x).loss", [], id="the precision is not in view"),
        pytest.param('mixed_precision="no"', 'torch.autocast("cuda")', "loss = model(x).loss", [], id="full precision"),
        pytest.param('mixed_precision="fp16"', "accelerator.autocast()", "loss = model(x).loss", [], id="its own"),
        pytest.param(
            'mixed_precision="fp16"',
            'torch.autocast("cuda", enabled=False)',
            "loss = model(x).loss",
            [],
            id="an island",
        ),
        pytest.param(
            'mixed_precision="fp16"', 'torch.autocast("cuda")', "loss = args.teacher(x).loss", [], id="another model"
        ),
    ],
)
def test_region_around_a_prepared_model(arguments: str, region: str, body: str, rows: list[tuple[str, int]]) -> None:
    assert found(REGION.format(arguments=arguments, region=region, body=body)) == rows


def test_region_around_a_parameter_named_like_a_prepared_model_is_silent() -> None:
    assert (
        found(
            """
            import torch
            from accelerate import Accelerator

            accelerator = Accelerator(mixed_precision="fp16")

            def evaluate(model, loader):
                for x in loader:
                    with torch.autocast("cuda"):
                        out = model(x)

            model = accelerator.prepare(make())
            evaluate(accelerator.unwrap_model(model), loader)
            """
        )
        == []
    )
