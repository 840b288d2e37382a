"""Random FP32 training scripts: a correct script of random shape, and a few random changes to it.

Everything follows from a `random.Random`. In the templates `M0`, `M1` stand for models, `O0`, `O1` for optimizers;
the layout decides what they are called: names of the module, parameters of a function, attributes of a trainer.
"""

from __future__ import annotations

import ast
import random
import re
import textwrap

from tests.migrate.random_changes import Changer

HEAD = """\
import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn
"""
_CLASS = """
class Net(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.body = nn.Linear(inputs, 5)
        self.head = nn.Linear(5, outputs)

    def forward(self, x):
        return self.head(torch.tanh(self.body(x)))
"""
_MAKE = """
def make_optimizer(params, lr=0.05):
    return torch.optim.SGD(params, lr=lr)
"""
_DEVICES = (
    'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")\n',
    'device = "cuda" if torch.cuda.is_available() else "cpu"\n',
    'DEVICE = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")\n',
    "use_cuda = torch.cuda.is_available()\n",
    "",
)
_NAMES = (("model", "head", "critic"), ("net", "classifier", "target"), ("encoder", "decoder", "netD"))
_OPTIMIZERS = (("optimizer", "optimizer_head", "optimizer_d"), ("optim", "opt_b", "opt_c"), ("opt", "opt2", "opt3"))
_MAKERS = (
    "torch.optim.SGD({}, lr=0.05)",
    "torch.optim.SGD({}, lr=0.05, momentum=0.9)",
    "torch.optim.Adam({}, lr=0.01)",
    "torch.optim.AdamW({}, lr=0.01)",
    "torch.optim.RMSprop({}, lr=0.01)",
)
_TESTS = ("i % 2 == 0", "i % 3 != 2", "i > 1", "i < 3", "x.sum() > 0", "epoch > 0", "float(loss) > 0.4", "i % 2")


def indented(lines: list[str]) -> list[str]:
    """Lines one step deeper."""
    return [f"    {line}" if line else line for line in lines]


class Writer:
    """Makes one script."""

    def __init__(self, choice: random.Random) -> None:
        self.choice = choice
        self.helpers: dict[str, str] = {}
        self.kinds: list[str] = []
        self.names = choice.choice(_NAMES)
        self.optimizer_names = choice.choice(_OPTIMIZERS)
        self.count = choice.choice((1, 1, 1, 2, 2, 3))
        self.holds: list[tuple[int, ...]] = []  # the models whose parameters each optimizer has
        self.epilogue: list[str] = []
        self.prologue: list[str] = []
        self.kept = ""  # the kind of a collection of all optimizers, `OS`
        self.carried = False  # whether a hidden state is carried over

    def one_of(self, *options: str) -> str:
        """A random option."""
        return self.choice.choice(options)

    def sometimes(self, chance: float) -> bool:
        """True with this chance."""
        return self.choice.random() < chance

    # -- models and optimizers ----------------------------------------------------------------------------------------

    def model(self) -> str:
        """An expression that makes a model of two to two numbers."""
        self.kinds.append(kind := self.one_of("linear", "sequential", "class"))
        if kind == "class":
            self.helpers["Net"] = _CLASS
            return "Net(4, 4)"
        return "nn.Linear(4, 4)" if kind == "linear" else "nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4))"

    def moved(self, expression: str, device: str) -> str:
        """The expression on the script's device."""
        if device.startswith("use_cuda"):
            return expression
        name = "DEVICE" if device.startswith("DEVICE") else "device"
        return f"{expression}.to({name})" if device else expression

    def parameters(self, models: tuple[int, ...]) -> str:
        """The parameters of models, as an optimizer gets them."""
        calls = [f"M{m}.parameters()" for m in models]
        if len(calls) == 1:
            part = self.kinds[models[0]] == "class" and self.sometimes(0.15)
            plain = f"M{models[0]}.head.parameters()" if part else calls[0]
            return self.one_of(
                plain, plain, plain, f"list({plain})", f"[{{'params': {plain}}}]",
                f"filter(lambda p: p.requires_grad, {plain})", f"[p for p in {plain} if p.requires_grad]",
            )  # fmt: skip
        return self.one_of(
            f"itertools.chain({', '.join(calls)})",
            " + ".join(f"list({call})" for call in calls),
            "[" + ", ".join(f"{{'params': {call}}}" for call in calls) + "]",
            "[p for m in (" + ", ".join(f"M{m}" for m in models) + ") for p in m.parameters()]",
        )

    def setup(self, device: str) -> list[str]:
        """The lines that make models and optimizers."""
        lines = [f"M{m} = {self.moved(self.model(), device)}" for m in range(self.count)]
        if device.startswith("use_cuda"):
            lines += ["if use_cuda:", *(f"    M{m}.cuda()" for m in range(self.count))]
        every = list(range(self.count))
        if self.count > 1 and self.sometimes(0.4):
            self.holds = [tuple(every)]
            if self.sometimes(0.12):
                self.holds.append((0,))
        else:
            self.holds = [(m,) for m in every]
            if self.sometimes(0.06):
                self.holds.append((0,))
        if self.sometimes(0.08):
            lines.append(f"for p in M{self.count - 1}.{self.one_of('parameters()', 'parameters()')}:")
            lines.append("    p.requires_grad = False")
        for number, models in enumerate(self.holds):
            given = self.parameters(models)
            if self.sometimes(0.12):
                lines.append(f"params{number} = {given if given.startswith(('[', 'list')) else f'list({given})'}")
                given = f"params{number}"
            made = self.choice.choice(_MAKERS).format(given)
            if self.sometimes(0.1):
                made = f"{self.helper('make_optimizer', _MAKE)}({given})"
            lines.append(f"O{number} = {made}")
        every_optimizer = [f"O{number}" for number in range(len(self.holds))]
        if len(every_optimizer) > 1 and self.sometimes(0.3):
            self.kept = self.one_of("list", "tuple", "dict")
            items = ", ".join(f"'o{n}': {o}" if self.kept == "dict" else o for n, o in enumerate(every_optimizer))
            lines.append("OS = " + {"list": "[{}]", "tuple": "({})", "dict": "{{{}}}"}[self.kept].format(items))
        return lines

    # -- one phase ----------------------------------------------------------------------------------------------------

    def helper(self, name: str, text: str) -> str:
        """A helper function of the script; returns its name."""
        self.helpers[name] = textwrap.dedent(text)
        return name

    def forward(self, models: tuple[int, ...], loss: str) -> list[str]:
        """Lines that compute a loss from models."""
        first = models[0]
        call = f"M{first}(x)"
        error = self.one_of("F.mse_loss({}, y)", "criterion({}, y)", "({} - y).pow(2).mean()", "F.l1_loss({}, y)")
        if len(models) > 1:
            second = models[1]
            how = self.choice.randrange(5)
            if how == 0:
                lines = [f"h = M{first}(x)", f"out = M{second}(h)"]
            elif how == 1:
                lines = [f"out = M{second}(torch.relu(M{first}(x)))"]
            elif how == 2:
                lines = [f"out = M{first}(x)", f"if {self.choice.choice(_TESTS[:5])}:", f"    out = out + M{second}(x)"]
            elif how == 3:
                lines = [f"out = M{first}(x) + M{second}(x)"]
            else:
                lines = ["out = x", f"for m in (M{first}, M{second}):", "    out = m(out)"]
            for third in models[2:]:
                lines.append(f"out = out + M{third}(x)")
            return [*lines, f"{loss} = {error.format('out')}"]
        how = self.choice.randrange(16)
        if how < 5:
            return [f"out = {call}", f"{loss} = {error.format('out')}"]
        if how < 7:
            return [f"{loss} = {error.format(call)}"]
        if how == 7:
            name = self.helper("compute_loss", """
                def compute_loss(net, x, y):
                    out = net(x)
                    return F.mse_loss(out, y)
                """)  # fmt: skip
            return [f"{loss} = {name}(M{first}, x, y)"]
        if how == 8:
            add = self.one_of("{0} += {1}", "{0} = {0} + {1}")
            return [
                f"{loss} = {self.one_of('0', '0.0')}",
                "for t in range(2):",
                "    " + add.format(loss, error.format(f"M{first}(x + t)")),
            ]
        if how == 9:
            total = self.one_of("sum(terms)", "torch.stack(terms).mean()", "sum(terms) / len(terms)")
            return [
                "terms = []",
                "for t in range(2):",
                f"    terms.append({error.format(f'M{first}(x * (t + 1))')})",
                f"{loss} = {total}",
            ]
        if how == 10:
            return [
                f"out = {call}",
                f"parts = {{'a': {error.format('out')}, 'b': out.abs().mean()}}",
                f"{loss} = parts['a'] + 0.1 * parts['b']",
            ]
        if how == 11:
            name = self.helper("forward_pass", """
                def forward_pass(net, x, y):
                    out = net(x)
                    return F.mse_loss(out, y), out
                """)  # fmt: skip
            return [f"{loss}, out = {name}(M{first}, x, y)"]
        if how == 12:
            return ["with torch.set_grad_enabled(True):", f"    out = {call}", f"    {loss} = {error.format('out')}"]
        if how == 13:
            return [
                "with torch.no_grad():",
                f"    goal = M{self.count - 1}(x)",
                f"{loss} = F.mse_loss({call}, goal + y)",
            ]
        if how == 14 and self.sometimes(0.5):
            self.carried = True
            cut = self.one_of("hidden = hidden.detach()", "hidden = hidden.data")
            return [cut, f"hidden = torch.tanh(M{first}(x) + 0.1 * hidden)", f"{loss} = {error.format('hidden')}"]
        if how == 14:
            weights = f"sum(p.abs().sum() for p in M{first}.parameters())"
            return [f"out = {call}", f"{loss} = {error.format('out')} + 0.01 * {weights}"]
        return [f"result = {{'out': {call}}}", f"{loss} = " + error.format("result['out']")]

    def between(self, loss: str) -> list[str]:
        """Lines between forward and backward."""
        found = []
        if self.sometimes(0.2):
            value = f"{loss}.item()"
            found.append(self.one_of(f"total += {value}", f"print(round({value}, 5))", f"history.append({value})"))
        if self.sometimes(0.08):
            found += [
                self.one_of(
                    f"if torch.isnan({loss}):", f"if not math.isfinite({loss}.item()):", f"if {loss}.item() > 1.4:"
                ),
                "    " + self.one_of("continue", "break", "raise ValueError('loss')"),
            ]
        return found

    def gradients(self, models: tuple[int, ...]) -> list[str]:
        """Lines that clip, change or read gradients."""
        found: list[str] = []
        for m in models:
            how = self.choice.randrange(9)
            one = f"M{m}.parameters()"
            if how < 3:
                where = self.one_of("torch.nn.utils", "nn.utils")
                found.append(f"{where}.clip_grad_norm_({one}, {self.one_of('1.0', '0.1')})")
            elif how == 3:
                found.append(f"nn.utils.clip_grad_value_({one}, 0.05)")
            elif how == 4:
                change = self.one_of(
                    "p.grad.div_(2)",
                    "p.grad.data.clamp_(-0.1, 0.1)",
                    "p.grad *= 0.5",
                    "p.grad.data = p.grad.data * 0.5",
                )
                found += [f"for p in {one}:", "    if p.grad is not None:", f"        {change}"]
            elif how == 5:
                found.append(f"print(round(sum(float(p.grad.norm()) for p in {one} if p.grad is not None), 4))")
            elif how == 6:
                name = self.helper("clip", """
                    def clip(net):
                        for p in net.parameters():
                            if p.grad is not None:
                                p.grad.data.clamp_(-0.1, 0.1)
                    """)  # fmt: skip
                found.append(f"{name}(M{m})")
            elif how == 7:
                name = self.helper("grad_norm", """
                    def grad_norm(net):
                        return sum(p.grad.pow(2).sum().item() for p in net.parameters() if p.grad is not None) ** 0.5
                    """)  # fmt: skip
                found.append(self.one_of(f"norm = {name}(M{m})", f"print(round({name}(M{m}), 4))"))
            else:
                found.append(f"norm = nn.utils.clip_grad_norm_({one}, 0.5)")
                if self.sometimes(0.5):
                    found += ["if norm > 0.6:", "    print('large')"]
        return found

    def zero(self, optimizer: int) -> str:
        """A reset of gradients."""
        model = self.holds[optimizer][0]
        alone = len(self.holds[optimizer]) == 1
        return self.one_of(
            *[f"O{optimizer}.zero_grad()"] * 6,
            f"O{optimizer}.zero_grad(set_to_none={self.one_of('True', 'False')})",
            f"M{model}.zero_grad()" if alone else f"O{optimizer}.zero_grad()",
        )

    def backward(self, loss: str, models: tuple[int, ...]) -> list[str]:
        """Lines that go backward on a loss."""
        how = self.choice.randrange(18)
        first = models[0]
        if how == 0:
            return [f"{loss}.backward(retain_graph=True)", f"extra = M{first}(x).abs().mean()", "extra.backward()"]
        if how == 1:
            return [f"({loss} / 2).backward()"]
        if how == 2:
            return [f"extra = F.l1_loss(M{first}(x), y)", f"({loss} + extra).backward()"]
        if how == 3:
            return [
                f"{loss}.backward()",
                f"extra = 0.5 * F.l1_loss(M{first}(x + 1), y)",
                *self.between("extra"),
                "extra.backward()",
            ]
        if how == 4:
            return [f"for part in ({loss}, M{first}(x).pow(2).mean()):", "    part.backward()"]
        if how == 5:
            return [f"torch.autograd.backward({loss})"]
        return [f"{loss}.backward()"]

    def step(self, optimizer: int) -> list[str]:
        """Lines that step an optimizer."""
        return [f"O{optimizer}.step()"]

    def phase(self, optimizers: tuple[int, ...], loss: str) -> list[str]:
        """One forward, backward and step."""
        models = tuple(dict.fromkeys(m for o in optimizers for m in self.holds[o]))
        zeros = [self.zero(o) for o in optimizers]
        steps = [line for o in optimizers for line in self.step(o)]
        if self.kept and self.sometimes(0.15):
            steps = [re.sub(r"^O(\d)", r"OS['o\1']" if self.kept == "dict" else r"OS[\1]", line) for line in steps]
        if len(optimizers) > 1 and self.sometimes(0.25):
            group = ", ".join(f"O{o}" for o in optimizers)
            steps = [f"for o in {self.one_of('(', '[')}{group}", "    o.step()"]
            steps[0] += "):" if "(" in steps[0] else "]:"
            if self.kept and len(optimizers) == len(self.holds):
                steps[0] = {"dict": self.one_of("for o in OS.values():", "for _, o in OS.items():")}.get(
                    self.kept, self.one_of("for o in OS:", "for n, o in enumerate(OS):")
                )
            if self.sometimes(0.5):
                zeros = [steps[0], "    o.zero_grad()"]
        if self.sometimes(0.05):
            forward = [f"F.mse_loss(M{models[0]}(x), y).backward()"]
            backward: list[str] = []
        else:
            forward = [*self.forward(models, loss), *self.between(loss)]
            backward = self.backward(loss, models)
        gradients = self.gradients(models) if self.sometimes(0.3) else []
        if len(optimizers) == 1 and backward and self.sometimes(0.08):
            return self.closure(optimizers[0], zeros, [*forward, *backward, *gradients], loss)
        how = self.choice.randrange(10)
        if how < 4:
            return [*zeros, *forward, *backward, *gradients, *steps]
        if how < 6:
            return [*forward, *zeros, *backward, *gradients, *steps]
        if how < 8:
            return [*forward, *backward, *gradients, *steps, *zeros]
        k = self.one_of("2", "3")
        if self.sometimes(0.7) and backward:
            forward.append(f"{loss} = {loss} / {k}")
        test = self.one_of(
            f"if (i + 1) % {k} == 0:", f"if i % {k} == {k} - 1:", f"if (i + 1) % {k} == 0 or i + 1 == len(data):"
        )
        if self.sometimes(0.3):
            self.epilogue = steps
        inside = self.sometimes(0.7)
        return [
            *forward,
            *backward,
            *([] if inside else gradients),
            test,
            *indented([*(gradients if inside else []), *steps, *zeros]),
        ]

    def closure(self, optimizer: int, zeros: list[str], body: list[str], loss: str) -> list[str]:
        """A step that gets a closure."""
        if any(line.strip() in ("continue", "break") or "total" in line for line in body):
            body = [
                line for line in body if "total" not in line and not re.match(r"if|    (continue|break|raise)", line)
            ]
        call = self.one_of(f"{loss} = O{optimizer}.step(closure)", f"total += O{optimizer}.step(closure).item()")
        if "total" in call:
            call = f"{call}\n{loss} = torch.tensor(total)"
        return ["def closure():", *indented([*zeros, *body, f"return {loss}"]), *call.splitlines()]

    def after(self) -> list[str]:
        """Lines at the end of an iteration."""
        found = []
        if self.sometimes(0.1):
            found += [f"for p in M{self.count - 1}.parameters():", "    p.data.clamp_(-0.5, 0.5)"]
        if self.sometimes(0.1) and self.count > 1:
            name = self.helper("update_ema", """
                @torch.no_grad()
                def update_ema(net, average):
                    for p, q in zip(net.parameters(), average.parameters()):
                        if p.shape == q.shape:
                            q.mul_(0.9).add_(p, alpha=0.1)
                """)  # fmt: skip
            found.append(f"{name}(M0, M{self.count - 1})")
        if self.sometimes(0.15):
            found += ["if i % 2 == 0:", f"    print(i, round({self.one_of('loss.item()', 'total')}, 5))"]
        if self.sometimes(0.1):
            self.prologue.append("scheduler = torch.optim.lr_scheduler.StepLR(O0, 2, gamma=0.5)")
            found.append("scheduler.step()")
        return found

    def iteration(self) -> list[str]:
        """The body of the loop over batches."""
        every = tuple(range(len(self.holds)))
        device = self.one_of("", "x, y = x.to(device), y.to(device)")
        lines = [device] if device and self.has_device else []
        if len(every) == 1 or self.sometimes(0.45):
            lines += self.phase(every, "loss")
        else:
            for number in every:
                part = self.phase((number,), "loss" if number == 0 else f"loss{number}")
                if number and self.sometimes(0.25):
                    part = [f"if {self.choice.choice(_TESTS[:5])}:", *indented(part)]
                lines += part
        return [*lines, *self.after()]

    def loop(self) -> list[str]:
        """A training loop, the epochs included."""
        self.epilogue = []
        body = self.iteration()
        how = self.choice.randrange(10)
        if how < 7:
            lines = ["for i, (x, y) in enumerate(data):", *indented(body)]
        elif how == 7:
            lines = ["for i in range(len(data)):", "    x, y = data[i]", *indented(body)]
        elif how == 8:
            lines = ["i = -1", "for x, y in data:", "    i += 1", *indented(body)]
        else:
            lines = ["i = -1", "while i + 1 < len(data):", "    i += 1", "    x, y = data[i]", *indented(body)]
        lines += self.epilogue
        if self.sometimes(0.3):
            lines += self.evaluation()
        start = ["total = 0.0"] if self.sometimes(0.5) else []
        if self.carried:
            start.append("hidden = torch.zeros(6, 4)" + (".to(device)" if self.has_device else ""))
        return ["total = 0.0", "history = []", "for epoch in range(2):", *indented([*start, *lines])]

    def evaluation(self) -> list[str]:
        """An evaluation loop."""
        m = self.choice.randrange(self.count)
        return [
            f"M{m}.eval()",
            "with torch.no_grad():",
            "    hits = 0",
            "    for x, y in data:",
            f"        out = M{m}(x)",
            "        hits += (out.argmax(1) == y.argmax(1)).sum().item()",
            "print('hits', hits)",
            f"M{m}.train()",
        ]

    # -- the whole ----------------------------------------------------------------------------------------------------

    def script(self) -> str:
        """A whole script, changed at random."""
        device = self.choice.choice(_DEVICES)
        self.has_device = device.startswith("device")
        setup = self.setup(device)
        loops = self.loop()
        if self.sometimes(0.15):
            if self.sometimes(0.5):
                loops.append(f"O0 = {self.choice.choice(_MAKERS).format('M0.parameters()')}")
            loops += self.loop()
        prologue = list(dict.fromkeys(self.prologue))
        layout = self.one_of("module", "module", "function", "main", "class", "parameters")
        changer = Changer(self.choice, layout)
        head = [HEAD, "torch.manual_seed(0)", device, "criterion = nn.MSELoss()"]
        data = "data = [(torch.randn(6, 4), torch.rand(6, 4)) for _ in range(5)]"
        models = [f"M{m}" for m in range(self.count)]
        optimizers = [f"O{o}" for o in range(len(self.holds))] + (["OS"] if self.kept else [])
        last = f"for m in ({', '.join(models)},):\n    print(sum(p.abs().sum().item() for p in m.parameters()))"
        functions: list[str] = []
        loops = changer.changed(loops, functions)
        if layout == "module":
            main = [*setup, data, *prologue, *loops, last]
        elif layout == "main":
            inside = "\n".join([*setup, data, *prologue, *loops, last])
            functions.append("def main():\n" + textwrap.indent(inside, "    "))
            main = ["if __name__ == '__main__':\n    main()"]
        elif layout == "function":
            functions.append("def train(data):\n" + textwrap.indent("\n".join(loops), "    "))
            if any(line.lstrip().startswith("O0 =") for line in loops):
                functions[-1] = functions[-1].replace("\n", "\n    global O0\n", 1)
            main = [*setup, data, *prologue, "train(data)", last]
        elif layout == "parameters":
            given = ", ".join([*models, *optimizers, *(["scheduler"] if prologue else []), "data"])
            functions.append(f"def train({given}):\n" + textwrap.indent("\n".join(loops), "    "))
            main = [*setup, data, *prologue, f"train({given})", last]
        else:
            return self.trainer(head, setup, prologue, loops, functions, data, last)
        text = "\n".join([*head, *self.helpers.values(), *functions, *main]) + "\n"
        return self.named(text, "")

    def trainer(
        self, head: list[str], setup: list[str], prologue: list[str], loops: list[str], functions: list[str], data: str,
        last: str,
    ) -> str:  # fmt: skip
        """The same as a class."""
        inside = [*setup, *prologue]
        text = "\n".join(
            [
                *head,
                *self.helpers.values(),
                "class Trainer:",
                "    def __init__(self):",
                *textwrap.indent("\n".join(inside), " " * 8).splitlines(),
                "    def fit(self, data):",
                *textwrap.indent("\n".join(loops), " " * 8).splitlines(),
                *textwrap.indent("\n".join(functions), " " * 4).splitlines(),
                "    def report(self):",
                *textwrap.indent(last, " " * 8).splitlines(),
                data,
                "trainer = Trainer()",
                "trainer.fit(data)",
                "trainer.report()",
            ]
        )
        if prologue:
            text = re.sub(r"\bscheduler\b", "self.scheduler", text)
        if self.sometimes(0.1):
            text = re.sub(r"(?<![\w.'])loss\b(?!')", "self.loss", text)
        return self.named(text, "self.")

    def named(self, text: str, prefix: str) -> str:
        """The templates' names replaced, and the text laid out."""
        text = re.sub(r"\bM(\d)\b", lambda m: prefix + self.names[int(m[1])], text)
        text = re.sub(r"\bO(\d)\b", lambda m: prefix + (*self.optimizer_names, "optimizer_extra")[int(m[1])], text)
        text = re.sub(r"\bOS\b", f"{prefix}optimizers", text)
        text = ast.unparse(ast.parse(text)) + "\n"
        return self.joined(text) if self.sometimes(0.06) else text

    def joined(self, text: str) -> str:
        """Some simple statements on one line."""
        lines = text.splitlines()
        found: list[str] = []
        for line in lines:
            simple = re.match(r"( *)[\w.]+\.(zero_grad|backward|step)\(", line)
            before = re.match(r"( *)(?:[\w.]+ = |[\w.]+\.\w+\()", found[-1] if found else "")
            if simple and before and simple[1] == before[1]:
                found[-1] = f"{found[-1]}; {line.strip()}"
            else:
                found.append(line)
        return "\n".join(found) + "\n"


def script_of(seed: int) -> str:
    """The script that a seed stands for."""
    return Writer(random.Random(seed)).script()
