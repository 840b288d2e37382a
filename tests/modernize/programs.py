"""Programs put together at random from the ways in which real code imports and uses the deprecated API."""

from __future__ import annotations

from random import Random

PREAMBLE = "from torch import float16 as HALF\n\nFLAG = True\nOPTIONS = dict(enabled=True)\n"

TORCH = {
    "import torch\n": "torch",
    "import torch as th\n": "th",
    "import torch.nn\n": "torch",
    "import torch.nn as nn\nimport torch\n": "torch",
    "from torch import nn\n": "",
    "": "",
}

# Each import with the autocasts, scalers and function decorators that it brings.
IMPORTS: list[tuple[str, list[str], list[str], list[str]]] = [
    ("from torch.cuda.amp import autocast, GradScaler\n", ["autocast"], ["GradScaler"], []),
    (
        "from torch.cuda.amp import (\n    autocast as ac,  # regions\n    GradScaler as GS,\n    custom_fwd,\n)\n",
        ["ac"],
        ["GS"],
        ["custom_fwd"],
    ),
    ("from torch.cuda import amp\n", ["amp.autocast"], ["amp.GradScaler"], ["amp.custom_fwd"]),
    ("import torch.cuda.amp as tamp\n", ["tamp.autocast"], ["tamp.GradScaler"], []),
    ("import torch.cuda.amp\n", ["torch.cuda.amp.autocast"], [], []),
    ("from torch import cuda\n", ["cuda.amp.autocast"], [], ["cuda.amp.custom_bwd"]),
    ("from torch.cuda.amp.autocast_mode import custom_bwd, autocast as ac2\n", ["ac2"], [], ["custom_bwd"]),
    ("from torch.amp import GradScaler as NewScaler\n", [], [], []),
    ("from torch.cpu.amp import autocast as cpu_ac\n", ["cpu_ac"], [], []),
    ("import torch.cuda.amp.grad_scaler as gs\n", [], ["gs.GradScaler"], []),
]

FLAGS = ["True", "FLAG", "(FLAG and True)", "not FLAG", "bool(\n    1\n)"]
REGION = [
    "",
    "{}",
    " {} ",
    "enabled={}",
    "{}, HALF",
    "{}, HALF, False",
    "dtype=HALF",
    "**OPTIONS",
    "\n    {},\n    # no cache\n    cache_enabled=False,  # here\n",
]
SCALER = ["", "4.0", "4.0, 3.0", "enabled=FLAG", "*[8.0]", "growth_interval=3,", "\n    4.0,\n    growth_interval=7,\n"]


def _statement(random: Random, index: int, autocasts: list[str], scalers: list[str], decorators: list[str]) -> str:
    """One or more statements that use what is imported; "" where nothing serves."""
    autocast = random.choice(autocasts or [""])
    scaler = random.choice(scalers or [""])
    decorator = random.choice(decorators or [""])
    region = random.choice(REGION).format(random.choice(FLAGS))
    given = random.choice(SCALER)
    bound = random.choice(["dtype=HALF", "enabled=FLAG", "FLAG", "FLAG, HALF"])
    with_autocast = [
        f"with {autocast}({region}):\n    probe()\n",
        f"@{autocast}({region})\ndef f{index}(x):\n    probe()\nf{index}(1)\n",
        f"ctx{index} = {autocast}\nwith ctx{index}({region}):\n    probe()\n",
        f"import contextlib\nctx{index} = {autocast} if FLAG else contextlib.nullcontext\n"
        f"with ctx{index}():\n    probe()\n",
        f"import functools\nctx{index} = functools.partial({autocast}, {bound})\nwith ctx{index}():\n    probe()\n",
    ]
    with_scaler = [
        f"s{index} = {scaler}({given})\n",
        f"s{index} = {scaler}({given}) if FLAG else None\n",
        f"def f{index}(s: {scaler}, t: '{scaler}' = None) -> \"{scaler}\":\n    return isinstance(s, {scaler})\n"
        f"f{index}({scaler}({given}))\n",
    ]
    with_decorator = [f"@{decorator}\ndef f{index}(ctx):\n    probe()\n", f"c{index} = {decorator}(lambda ctx: 1)\n"]
    choices = [
        *(with_autocast if autocasts else []),
        *(with_scaler if scalers else []),
        *(with_decorator if decorators else []),
    ]
    return random.choice(choices) if choices else ""


def program(seed: int) -> str:
    """The program of a seed; the function `probe` must be there when it runs."""
    random = Random(seed)
    first = random.choice(list(TORCH))
    torch = TORCH[first]
    autocasts = [f"{torch}.cuda.amp.autocast", f"{torch}.cpu.amp.autocast"] if torch else []
    scalers = [f"{torch}.cuda.amp.GradScaler"] if torch else []
    decorators: list[str] = []
    imports = [first]
    for text, its_autocasts, its_scalers, its_decorators in random.sample(IMPORTS, random.randint(0, 3)):
        imports.append(text)
        autocasts, scalers, decorators = autocasts + its_autocasts, scalers + its_scalers, decorators + its_decorators
    random.shuffle(imports)
    body = ""
    for index in range(random.randint(1, 5)):
        code = _statement(random, index, autocasts, scalers, decorators)
        if code and random.random() < 0.5:
            lines = code.replace("\n", "\n    ").rstrip(" ")
            code = f"def run{index}():\n    {lines}run{index}()\n"
        body += code
    return "".join(imports) + PREAMBLE + random.choice(["", "\n", "\n\n"]) + body
