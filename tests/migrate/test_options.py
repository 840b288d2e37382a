"""The options of a migration: the switch and the dtype that is asked for at run time."""

from __future__ import annotations

import textwrap

import pytest

from amplint.migrate import Options, migrate_source
from amplint.settings import Settings

LOOP = """
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, y in batches:
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(x), y)
    loss.backward()
    optimizer.step()
"""


def migrate(text: str, options: Options) -> str:
    """The migrated text of a script whose loops must all be migrated."""
    result = migrate_source(text, "train.py", Settings(), options)
    assert {loop.status for loop in result.loops} == {"migrated"}, result.loops
    return result.text


def test_switch_of_argparse() -> None:
    head = "import argparse\nimport torch\n\nparser = argparse.ArgumentParser()\nparser.add_argument('--lr')\n"
    text = migrate(f"{head}args = parser.parse_args()\n{LOOP}", Options(flag="use_amp"))
    assert (
        "parser.add_argument('--lr')\n"
        'parser.add_argument("--use-amp", action="store_true", help="train with automatic mixed precision")\n'
    ) in text
    assert 'scaler = torch.amp.GradScaler("cuda", enabled=args.use_amp and device.type == "cuda")' in text


def test_switch_that_exists() -> None:
    text = migrate(f"import torch\nuse_amp = False\n{LOOP}", Options(flag="use_amp"))
    assert text.count("use_amp = False") == 1
    assert 'enabled=use_amp and device.type == "cuda")' in text


def test_switch_as_a_constant() -> None:
    text = migrate(f"import torch\n{LOOP}", Options(flag="mixed"))
    assert text.startswith("import torch\n\nmixed = True\n")


def test_switch_of_click() -> None:
    body = textwrap.indent(LOOP.strip(), "    ")
    head = '@click.command()\n@click.option("--lr", default=0.1)\ndef main(lr):\n'
    text = migrate(f"import click\nimport torch\n\n\n{head}{body}\n", Options(flag="amp"))
    assert (
        '@click.option("--lr", default=0.1)\n'
        '@click.option("--amp", is_flag=True, help="train with automatic mixed precision.")\n'
        "def main(lr, amp):\n"
    ) in text
    assert 'enabled=amp and device.type == "cuda")' in text


def test_switch_of_a_dataclass() -> None:
    head = "from dataclasses import dataclass\nimport torch\n\n\n@dataclass\nclass Config:\n    lr: float = 0.1\n\n\n"
    text = migrate(f"{head}config = Config()\nprint(config.lr)\n{LOOP}", Options(flag="use_amp"))
    assert "    lr: float = 0.1\n    use_amp: bool = True\n" in text
    assert 'enabled=config.use_amp and device.type == "cuda")' in text


def test_switch_of_argparse_in_a_function() -> None:
    head = (
        "import argparse\nimport torch\n\n\ndef options():\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--lr')\n    return parser.parse_args()\n\n\n"
    )
    text = migrate(f"{head}settings = options()\n{LOOP}", Options(flag="use_amp"))
    line = '    parser.add_argument("--use-amp", action="store_true", help="train with automatic mixed precision")\n'
    assert f"    parser.add_argument('--lr')\n{line}    return parser.parse_args()\n" in text
    assert 'enabled=settings.use_amp and device.type == "cuda")' in text


def test_switch_of_a_function_whose_arguments_have_two_names_is_a_constant() -> None:
    head = (
        "import argparse\nimport torch\n\n\ndef options():\n    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--lr')\n    return parser.parse_args()\n\n\n"
    )
    text = migrate(f"{head}a = options()\nb = options()\n{LOOP}", Options(flag="use_amp"))
    assert "import torch\n\nuse_amp = True\n" in text
    assert 'enabled=use_amp and device.type == "cuda")' in text


def test_switch_whose_option_exists_is_refused() -> None:
    head = "import argparse\nimport torch\n\nparser = argparse.ArgumentParser()\n"
    text = f"{head}parser.add_argument('-e', '--batch-size')\nargs = parser.parse_args()\n{LOOP}"
    result = migrate_source(text, "train.py", Settings(), Options(flag="batch_size"))
    reason = "line 5: there is an option `batch_size` already; give --flag another name"
    assert [(loop.status, loop.reason) for loop in result.loops] == [("refused", reason)]
    assert result.text == text


def test_switch_whose_destination_exists_is_refused() -> None:
    head = (
        "import argparse\nimport torch\n\nparser = argparse.ArgumentParser()\nparser.add_argument('-a', dest='amp')\n"
    )
    text = f"{head}args = parser.parse_args()\n{LOOP}"
    result = migrate_source(text, "train.py", Settings(), Options(flag="amp"))
    assert [loop.reason for loop in result.loops] == [
        "line 5: there is an option `amp` already; give --flag another name"
    ]


def test_switch_is_no_choice_of_another_option() -> None:
    head = "import argparse\nimport torch\n\nparser = argparse.ArgumentParser()\n"
    line = "parser.add_argument('--mode', choices=['amp', 'plain'], help='amp')\n"
    text = migrate(f"{head}{line}args = parser.parse_args()\n{LOOP}", Options(flag="amp"))
    assert line + 'parser.add_argument("--amp", action="store_true"' in text


def test_switch_whose_field_exists_is_refused() -> None:
    head = "from dataclasses import dataclass\nimport torch\n\n\n@dataclass\nclass Config:\n    lr: float = 0.1\n\n\n"
    text = f"{head}config = Config()\nprint(config.lr)\n{LOOP}"
    result = migrate_source(text, "train.py", Settings(), Options(flag="lr"))
    assert [loop.reason for loop in result.loops] == ["line 7: there is a field `lr` already; give --flag another name"]


def test_dtype_of_the_gpu() -> None:
    text = migrate(f"import torch\n{LOOP}", Options("auto"))
    assert (
        "import torch\n\n\ndef amp_dtype():\n"
        '    """bfloat16 where the GPU has it, else float16."""\n'
        "    if torch.cuda.is_available() and torch.cuda.is_bf16_supported():\n"
        "        return torch.bfloat16\n"
        "    return torch.float16\n"
    ) in text
    assert 'torch.amp.GradScaler("cuda", enabled=device.type == "cuda" and amp_dtype() == torch.float16)' in text
    assert 'dtype=amp_dtype(), enabled=device.type == "cuda"):' in text


def test_device_that_is_named() -> None:
    text = migrate(f"import torch\n{LOOP}", Options(device="cuda"))
    assert 'torch.amp.GradScaler("cuda", enabled=torch.cuda.is_available())' in text
    assert 'torch.autocast(device_type="cuda", dtype=torch.float16, enabled=scaler.is_enabled())' in text


@pytest.mark.parametrize(
    ("device", "scaler", "switch"),
    [
        ("cpu", 'torch.amp.GradScaler("cpu")', ""),
        (
            "mps",
            'torch.amp.GradScaler("mps", enabled=torch.backends.mps.is_available())',
            ", enabled=scaler.is_enabled()",
        ),
        ("xpu", 'torch.amp.GradScaler("xpu", enabled=torch.xpu.is_available())', ", enabled=scaler.is_enabled()"),
    ],
)
def test_devices_with_a_scaler_of_their_own(device: str, scaler: str, switch: str) -> None:
    text = migrate(f"import torch\n{LOOP}", Options(device=device))
    assert f"\nscaler = {scaler}\n" in text
    assert f'with torch.autocast(device_type="{device}", dtype=torch.float16{switch}):' in text


def test_bfloat16_on_the_cpu_needs_no_gpu() -> None:
    script = LOOP.replace('torch.device("cuda" if torch.cuda.is_available() else "cpu")', '"cpu"')
    result = migrate_source(f"import torch\n{script}", "train.py", Settings(), Options("bfloat16", "cpu"))
    assert 'with torch.autocast(device_type="cpu", dtype=torch.bfloat16):' in result.text
    assert [(loop.status, loop.reason) for loop in result.loops] == [("migrated", "")]


@pytest.mark.parametrize(
    ("device", "dtype", "floor", "reason"),
    [
        ("cpu", "float16", (2, 2), "float16 on cpu needs torch 2.3; raise --target-torch"),
        ("cpu", "bfloat16", (1, 10), ""),
        ("mps", "float16", (2, 7), "float16 on mps needs torch 2.8; raise --target-torch"),
        ("mps", "bfloat16", (2, 5), "bfloat16 on mps needs torch 2.6; raise --target-torch"),
        ("xpu", "bfloat16", (2, 4), ""),
    ],
)
def test_a_device_that_the_oldest_torch_lacks(device: str, dtype: str, floor: tuple[int, int], reason: str) -> None:
    settings = Settings()._replace(target_torch=floor)
    result = migrate_source(f"import torch\n{LOOP}", "train.py", settings, Options(dtype, device))
    assert [loop.reason for loop in result.loops] == [reason]


def test_a_taken_name_is_not_used_again() -> None:
    text = migrate(f"import torch\nscaler = None\n{LOOP}", Options())
    assert "grad_scaler = torch.amp.GradScaler(" in text
