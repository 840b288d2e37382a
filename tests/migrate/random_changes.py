"""Random changes to the statements of a training loop: branches, exits, helpers, other orders, uses of gradients."""

from __future__ import annotations

import ast
import builtins
import random
import re

_TESTS = ("i % 2 == 0", "i % 3 != 2", "i > 1", "i < 3", "x.sum() > 0", "epoch > 0")
_EXTRA = (
    "print(round(float(sum(p.grad.norm() for p in M0.parameters() if p.grad is not None)), 4))",
    "for p in M0.parameters():\n    if p.grad is not None:\n        p.grad.div_(2)",
    "M0.zero_grad()",
    "O0.zero_grad()",
    "O0.step()",
    "loss.backward()",
    "nn.utils.clip_grad_norm_(M0.parameters(), 0.3)",
    "M0.eval()",
    "M0.train()",
    "M0.load_state_dict(M0.state_dict())",
    "for g in O0.param_groups:\n    g['lr'] *= 0.9",
    "loss = loss + 0.1 * M0(x).mean()",
    "last = loss.detach()",
    "print(round(loss.item(), 4))",
)
_OWN = frozenset(
    (
        "torch", "nn", "F", "math", "itertools", "device", "DEVICE", "criterion", "p", "m", "q", "g", "t", "o", "part",
        "compute_loss", "forward_pass", "clip", "grad_norm", "update_ema",
    )
)  # fmt: skip
_BUILTINS = frozenset(dir(builtins))
Block = list[ast.stmt]


class Changer:
    """Changes lists of lines that are whole statements."""

    def __init__(self, choice: random.Random, layout: str) -> None:
        self.choice = choice
        self.layout = layout

    def changed(self, lines: list[str], functions: list[str]) -> list[str]:
        """The lines after some changes; helpers that statements moved into are added to `functions`."""
        tree = ast.parse("\n".join(lines))
        for _ in range(self.choice.choice((0, 0, 1, 1, 2, 3))):
            blocks = [b for b in _blocks(tree) if b is not tree.body]
            block = self.choice.choice(blocks)
            start = self.choice.randrange(len(block))
            end = min(len(block), start + self.choice.choice((1, 1, 2, 3)))
            self._change(block, start, end, functions)
        return ast.unparse(ast.fix_missing_locations(tree)).splitlines()

    def _change(self, block: Block, start: int, end: int, functions: list[str]) -> None:
        how = self.choice.randrange(13)
        part = block[start:end]
        test = self.choice.choice(_TESTS)
        if how == 0:
            block[start:end] = [_if(test, part, self._other(part))]
        elif how == 1:
            block[start:end] = [_if(test, part, [])]
        elif how == 2:
            block[start:end] = [self._try(part)]
        elif how == 3:
            header = self.choice.choice(("torch.enable_grad()", "torch.autograd.profiler.record_function('part')"))
            block[start:end] = _filled(f"with {header}:\n    pass", part)
        elif how == 4:
            word = self.choice.choice(("continue", "continue", "break"))
            block.insert(start, _if(test, ast.parse(f"for _ in (1,):\n    {word}").body[0].body, []))  # type: ignore[attr-defined]
        elif how == 5 and start + 1 < len(block):
            block[start], block[start + 1] = block[start + 1], block[start]
        elif how == 6 and len(block) > 1:
            del block[start]
        elif how == 7:
            block.insert(self.choice.randrange(len(block) + 1), block.pop(start))
        elif how in (8, 9):
            block[start:start] = ast.parse(self.choice.choice(_EXTRA)).body
        elif how == 10:
            block[start:end] = _filled("for again in range(2):\n    pass", part)
        elif how in (11, 12):
            self._extract(block, start, end, functions)

    def _other(self, part: Block) -> Block:
        """What may stand in the other arm."""
        again = ast.parse(ast.unparse(part)).body  # type: ignore[arg-type]
        others = [ast.parse(text).body for text in ("pass", "O0.zero_grad()", "O0.step()")]
        return self.choice.choice((again, *others))

    def _try(self, part: Block) -> ast.stmt:
        handler = self.choice.choice(("pass", "print('caught')", "raise"))
        tail = self.choice.choice(("", "", "\nelse:\n    pass", "\nfinally:\n    pass"))
        made = ast.parse(f"try:\n    pass\nexcept RuntimeError:\n    {handler}{tail}").body[0]
        assert isinstance(made, ast.Try)
        if made.orelse and len(part) > 1:
            made.body, made.orelse = part[:-1], part[-1:]
        else:
            made.body = part
        return made

    def _extract(self, block: Block, start: int, end: int, functions: list[str]) -> None:
        """Move statements into a helper that gets all names it reads and returns all that it sets."""
        part = block[start:end]
        nodes = [node for statement in part for node in ast.walk(statement)]
        if any(isinstance(node, (ast.Continue, ast.Break, ast.Return)) for node in nodes):
            return
        names = [node for node in nodes if isinstance(node, ast.Name)]
        stored = list(dict.fromkeys(n.id for n in names if isinstance(n.ctx, ast.Store)))
        stored_first: dict[str, bool] = {}
        for node in names:
            stored_first.setdefault(node.id, isinstance(node.ctx, ast.Store))
        read = [name for name, stored in stored_first.items() if name not in _OWN | _BUILTINS and not stored]
        augmented = {n.target.id for n in nodes if isinstance(n, ast.AugAssign) and isinstance(n.target, ast.Name)}
        read += [name for name in sorted(augmented) if name not in read]
        stored = [name for name in stored if name not in _OWN]
        name = self.choice.choice(("do_part", "run_step", "process")) + str(len(functions) or "")
        is_method = self.layout == "class"
        if is_method or (self.layout in ("module", "function") and self.choice.random() < 0.5):
            read = [name for name in read if not re.fullmatch(r"[MO]\d|OS|scheduler", name)]
        if is_method and any(re.fullmatch(r"[MO]\d", name) for name in stored):
            return
        call = f"{'self.' if is_method else ''}{name}({', '.join(read)})"
        if is_method:
            read = ["self", *read]
        body = ast.unparse(part)  # type: ignore[arg-type]
        if stored:
            body += f"\nreturn {', '.join(stored)}"
            call = f"{', '.join(stored)} = {call}"
        text = "\n".join(f"    {line}" for line in body.splitlines())
        functions.append(f"def {name}({', '.join(read)}):\n{text}")
        block[start:end] = ast.parse(call).body


def _blocks(tree: ast.Module) -> list[Block]:
    """All lists of statements, the deep ones more often."""
    found: list[Block] = []
    for node in ast.walk(tree):
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                found.append(block)
                if isinstance(node, ast.For) and len(block) > 3:
                    found += [block, block]
    return found


def _if(test: str, body: Block, orelse: Block) -> ast.stmt:
    return ast.If(ast.parse(test, mode="eval").body, body, orelse)


def _filled(text: str, body: Block) -> Block:
    made = ast.parse(text).body[0]
    made.body = body  # type: ignore[attr-defined]
    return [made]
