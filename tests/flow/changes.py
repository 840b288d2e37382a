"""Random changes to a training loop: most of them break the protocol, some do not."""

from __future__ import annotations

import random
import re

from tests.flow.statements import Arm, Block, Node, bodies, lines

_NAMES = ("model", "model_b", "opt", "opt_b", "loader", "scaler", "scaler_b", "loss", "loss_b", "extra", "x", "y")


class Changer:
    """Makes random choices and remembers what the parts of a program must agree on."""

    def __init__(self, choice: random.Random) -> None:
        self.choice = choice
        self.flags: list[str] = []
        self.helpers: list[str] = []
        self.two = False
        self.in_class = False
        self.amp_flag = ""  # the flag that switches the scaler off
        self.may_be_none = False  # by making it None
        self.given = False  # the scaler is a parameter
        self.scaler_of_b = "scaler"  # the scaler of the second optimizer
        self.boundary_name = ""  # the name of the boundary's test
        self.boundary_test = ""
        self.methods: list[str] = []  # the body of a method for one batch

    def one_of(self, *options: str) -> str:
        """A random option."""
        return self.choice.choice(options)

    def sometimes(self, chance: float) -> bool:
        """True with this chance."""
        return self.choice.random() < chance

    def flag(self) -> str:
        """A flag, new or used before."""
        name = self.one_of("use_amp", "flag", "warm")
        if name not in self.flags:
            self.flags.append(name)
        return name

    def data(self) -> str:
        """A test on data or a flag."""
        return self.one_of("y.sum() > 0.5", "y > 0.5", "(high := y > 0.5)", self.flag(), "i == 3", "y < 0.5")

    def change(self, body: list[Node]) -> None:
        """Change something at random; most changes break the protocol, some do not."""
        places = [
            (block, at)
            for block in bodies(body)
            for at, node in enumerate(block)
            if isinstance(node, str) and re.search(r"scaler(_b)?\.|\.step\(|zero_grad|clip_|backward", node)
            if "GradScaler" not in node
        ]
        if not places:
            return
        block, at = self.choice.choice(places)
        node = block[at]
        assert isinstance(node, str)
        how = self.choice.randrange(11)
        if "backward" in node and how in (3, 9):
            return  # a round without any backward is not what the engine judges
        if how == 0:
            del block[at]
        elif how == 1:
            block.insert(at, node)
        elif how == 2 and at + 1 < len(block):
            block[at], block[at + 1] = block[at + 1], node
        elif how == 3:
            block[at] = Block(Arm(f"if {self.data()}:", [node]))
        elif how == 4:
            word = self.one_of("continue", "continue", "break", "return")
            block.insert(at, Block(Arm(f"if {self.data()}:", [word])))
        elif how == 5:
            block[at] = re.sub(r"^scaler(?:_b)?\.step\((\w+)\)$", r"\1.step()", node)
        elif how == 6:
            block[at] = re.sub(r"scaler(?:_b)?\.scale\((\w+)\)\.", r"\1.", node)
        elif how == 7:
            block[at] = Block(
                Arm("try:", [node]), Arm("except RuntimeError:", [self.one_of("pass", "continue", "raise")])
            )
        elif how == 8:
            block[at] = Block(
                Arm("try:", [node]), Arm("finally:", ["opt.zero_grad()" if self.sometimes(0.3) else "pass"])
            )
        elif how == 9:
            block[at] = Block(Arm(f"if {self.data()}:", [node]), Arm("else:", self.other(node)))
        else:
            self.merge(block, at)

    def other(self, node: str) -> list[Node]:
        """What may stand in the other arm."""
        plain = re.sub(r"^scaler(?:_b)?\.step\((\w+)\)$", r"\1.step()", node)
        plain = re.sub(r"scaler(?:_b)?\.scale\((\w+)\)\.", r"\1.", plain)
        return [self.one_of(plain, node, "scaler.update()")]

    def merge(self, block: list[Node], at: int) -> None:
        """Pull a statement into the region before it, or a step out of its place to the end of the block."""
        before = block[at - 1] if at else None
        if isinstance(before, Block) and before.arms[0].header.startswith("with "):
            before.arms[0].body.append(block.pop(at))
        else:
            block.append(block.pop(at))

    def extract(self, body: list[Node]) -> None:
        """Move a run of statements into a helper function."""
        choices = [
            (block, start, end)
            for block in bodies(body)
            for start in range(len(block))
            for end in range(start + 1, min(start + 4, len(block)) + 1)
            if all(isinstance(node, str) and _movable(node) for node in block[start:end])
        ]
        if not choices:
            return
        block, start, end = self.choice.choice(choices)
        moved = [node for node in block[start:end] if isinstance(node, str)]
        used = [name for name in _NAMES if any(re.search(rf"\b{name}\b", node) for node in moved)]
        name = self.one_of("finish", "helper", "apply")
        call: Node = f"{name}({', '.join(used)})"
        self.helpers += [f"def {name}({', '.join(used)}):", *(f"    {node}" for node in moved), "", ""]
        block[start:end] = [call]

    def batch_function(self, body: list[Node]) -> None:
        """Make the body of the loop a function of its own: a closure, or a method."""
        loops = [
            arm.body
            for block in bodies(body)
            for node in block
            if isinstance(node, Block)
            for arm in node.arms
            if arm.header == "for i, (x, y) in enumerate(loader):"
        ]
        inner = lines(loops[0]) if loops else ["break"]
        if any(line.strip() in ("break", "return") for line in inner):
            return
        inner = [re.sub(r"^(\s*)continue$", r"\1return", line) for line in inner]
        if self.in_class:
            self.methods = inner
            loops[0][:] = ["self.batch(i, x, y, loader, loss_fn, aux_fn)"]
            return
        loops[0][:] = ["batch(i, x, y)"]
        outer = next(
            at for at, node in enumerate(body) if isinstance(node, Block) and "loader" in "".join(lines([node]))
        )
        body[outer:outer] = ["def batch(i, x, y):", *(f"    {line}" for line in inner)]


def _movable(node: str) -> bool:
    return re.match(r"\w+ = ", node) is None and node not in ("continue", "break", "return", "raise", "pass")
