"""Binary cross entropy of probabilities, which CUDA autocast forbids: repaired where the sigmoid is in view.

All repairs are exact: in float32 they change nothing. A sigmoid that is called is given float32
(`torch.sigmoid(x.float())`), one that is a layer of a container becomes a layer that casts. The loss runs in an fp32
island; where a statement does more than that, or there are several, the loss itself becomes one that is an island.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from amplint.facts.training import losses
from amplint.facts.values import path_of, returns
from amplint.migrate.editor import Editor
from amplint.migrate.facts import Facts
from amplint.migrate.model import RefusalError
from amplint.migrate.numerics.half import HalfValues
from amplint.migrate.numerics.origins import Origins
from amplint.migrate.numerics.sigmoids import LAYER, Sigmoids
from amplint.migrate.regions.sinks import Sinks
from amplint.migrate.scalers.making import free_name
from amplint.migrate.tree import FUNCTIONS, header, owner_of, position, walk
from amplint.rewrite.statements import line_end, next_line

if TYPE_CHECKING:
    from amplint.source import SourceFile

_LOSS = "torch.nn.BCELoss"
_FUNCTION = "torch.nn.functional.binary_cross_entropy"
_ADVICE = (
    "BCELoss takes probabilities, which CUDA autocast forbids; let the model return logits and use BCEWithLogitsLoss"
)
_SAME_TENSOR = frozenset(("view", "squeeze", "reshape", "flatten", "contiguous", "unsqueeze", "float", "view_as", "to"))
_MOVES = frozenset(("to", "cuda", "cpu", "train", "eval"))
_HARMLESS = frozenset(("print", "type", "isinstance", "repr", "str", "hasattr", "callable", "id"))
_SIGMOID_CODE = '''\
class {name}({base}):
    """Sigmoid in float32: half precision rounds probabilities to 0 and 1."""

    def forward(self, input):
        return super().forward(input.float())'''
_LOSS_CODE = '''\
class {name}({base}):
    """BCELoss in float32: autocast does not allow it in half precision."""

    def forward(self, input, target):
        with torch.autocast(device_type=input.device.type, enabled=False):
            return super().forward(input.float(), target.float())'''
_FUNCTION_CODE = '''\
def {name}(input, target, *args, **kwargs):
    """Binary cross entropy in float32: autocast does not allow it in half precision."""
    with torch.autocast(device_type=input.device.type, enabled=False):
        return {base}(input.float(), target.float(), *args, **kwargs)'''


class Probabilities:
    """Repairs calls of `BCELoss` and `F.binary_cross_entropy`; `RefusalError` where it can't be done exactly."""

    def __init__(self, facts: Facts, sinks: Sinks, editor: Editor) -> None:
        self.facts = facts
        self.file: SourceFile = facts.file
        self.sinks = sinks
        self.editor = editor
        self.sigmoids = Sigmoids(facts, sinks)
        self._done: set[ast.AST] = set()
        self._known: set[ast.Call] = set()
        self._names: dict[str, str] = {}
        self._code: dict[ast.stmt, list[str]] = {}

    def repair(self, calls: list[ast.Call], origins: Origins) -> None:
        """Run losses and the sigmoids behind them in float32; `origins` follows what is no plain end of a model."""
        pending = [call for call in calls if call not in self._done]
        self._done.update(pending)
        given = {}
        for call in pending:
            given[call] = self._probabilities(call)
            found = self.sigmoids.behind(given[call]) or origins.all_of(given[call], is_difference=True)
            if not found:
                raise RefusalError(call, _ADVICE)
            for sigmoid in found:
                self.widen(sigmoid)
        makers = {call: self._makers(call.func) for call in pending}
        for is_object in (True, False):
            group = [call for call in pending if bool(makers[call]) is is_object]
            if len(group) == 1 and self._is_plain(group[0], origins.half):
                self._island(group[0], given[group[0]])
                continue
            for call in group:
                for maker in makers[call]:
                    self._rename(maker, "FullPrecisionBCELoss", _LOSS_CODE)
                if not is_object:
                    self._rename(call, "full_precision_bce", _FUNCTION_CODE)
        self._known.update(maker for found in makers.values() for maker in found)
        self._check_others()

    def _probabilities(self, call: ast.Call) -> ast.expr:
        """What a loss is given as probabilities."""
        named = next((k.value for k in call.keywords if k.arg == "input"), None)
        given = call.args[0] if call.args else named
        if given is None or isinstance(given, ast.Starred):
            raise RefusalError(call, _ADVICE)
        return given

    def _makers(self, node: ast.expr, depth: int = 0) -> list[ast.Call]:
        """The calls `nn.BCELoss()` that make the loss behind an expression, none where the loss is a function."""
        found: list[ast.Call] = []
        if depth > 6 or self.file.resolve(node):
            return found
        for value in self.file.values.of(node):
            if not isinstance(value, ast.Call):
                continue
            if _LOSS in self.file.resolve(value.func):
                found.append(value)
            elif isinstance(value.func, ast.Attribute) and value.func.attr in _MOVES:
                found += self._makers(value.func.value, depth + 1)
            else:
                made = [result for function in self.file.values.functions(value) for result in returns(function)]
                found += [maker for result in made for maker in self._makers(result, depth + 1)]
        return found

    def _check_others(self) -> None:
        """A loss that is called where this can't be seen may be called under autocast."""
        for call in self.file.names.calls:
            names = self.file.resolve(call.func)
            last = path_of(call.func).rsplit(".", 1)[-1]
            if last in ("BCELoss", "binary_cross_entropy") and not names and not self._is_own(call.func):
                raise RefusalError(call, f"what `{last}` is can't be seen; import it by name")
            if _LOSS not in names:
                continue
            place: ast.AST = call
            while isinstance(parent := self.file.parent(place), ast.Attribute) and parent.attr in _MOVES:
                place = self.file.parent(parent) or parent
            targets = _targets(self.file, place)
            seen = call in self._known or (bool(targets) and all(path_of(target) for target in targets))
            if not seen or not self._is_seen(place) or any(self._is_used_unseen(target) for target in targets):
                raise RefusalError(call, f"where this loss is called can't be seen: {_ADVICE}")

    def _is_used_unseen(self, target: ast.expr) -> bool:
        """Whether a name or attribute that holds a loss is called by way of another object, or goes to a place from
        which its calls can't be told, such as a list."""
        if isinstance(target, (ast.Tuple, ast.List)):
            return any(self._is_used_unseen(element) for element in target.elts)
        uses: list[ast.expr] = []
        if isinstance(target, ast.Attribute):
            uses += self.file.names.attributes.get(target.attr, ())
        elif isinstance(target, ast.Name):
            statement = self.file.statement(target)
            if isinstance(self.file.parent(statement), ast.ClassDef):
                uses += self.file.names.attributes.get(target.id, ())
                if not uses:
                    return True
            loads = self.file.names.loads.get(target.id, ())
            uses += [use for use in loads if any(b.node is statement for b in self.file.names.lookup(use))]
        return not all(self._is_seen(use) for use in uses if isinstance(getattr(use, "ctx", None), ast.Load))

    def _is_seen(self, use: ast.AST) -> bool:
        """Whether the calls of a loss can be told from where it stands."""
        parent = self.file.parent(use)
        if isinstance(parent, ast.keyword):
            parent = self.file.parent(parent)
        if isinstance(parent, ast.Call):
            if parent.func is use:
                return parent in self._done or bool(losses(self.file, parent))
            made = self.file.values.of(parent.func)
            is_own = any(isinstance(value, ast.ClassDef) for value in made) or self.file.values.functions(parent)
            return bool(is_own) or path_of(parent.func) in _HARMLESS
        if isinstance(parent, ast.Dict):
            return self._is_seen_in_dict(parent)
        if isinstance(parent, (ast.Tuple, ast.List)):
            above = self.file.parent(parent)
            return isinstance(above, ast.Assign) and isinstance(above.targets[0], (ast.Tuple, ast.List))
        return not isinstance(parent, (ast.Set, ast.Starred, ast.Subscript, ast.ListComp, ast.GeneratorExp, ast.For))

    def _is_seen_in_dict(self, holder: ast.Dict) -> bool:
        """Whether all that a dict is used for are items of constant keys."""
        statement = self.file.parent(holder)
        if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
            return False
        target = statement.targets[0]
        uses: list[ast.expr] = []
        if isinstance(target, ast.Attribute):
            uses += self.file.names.attributes.get(target.attr, ())
        elif isinstance(target, ast.Name):
            uses += self.file.names.loads.get(target.id, ())
        items = [self.file.parent(use) for use in uses if isinstance(getattr(use, "ctx", None), ast.Load)]
        return bool(items) and all(isinstance(i, ast.Subscript) and isinstance(i.slice, ast.Constant) for i in items)

    def _is_own(self, func: ast.expr) -> bool:
        """Whether a name is that of a class or function of the file."""
        return any(isinstance(value, (ast.ClassDef, *FUNCTIONS)) for value in self.file.values.of(func))

    # -- repairs ------------------------------------------------------------------------------------------------------

    def widen(self, sigmoid: ast.Call) -> None:
        """Run one sigmoid in float32, a layer of a container too."""
        names = self.file.resolve(sigmoid.func)
        if sigmoid in self._done or any("oftmax" in name for name in names) or self._is_softmax(sigmoid):
            return
        self._done.add(sigmoid)
        if LAYER in names:
            self._rename(sigmoid, "FullPrecisionSigmoid", _SIGMOID_CODE)
            return
        inner = sigmoid.args[0] if sigmoid.args else sigmoid.func.value  # type: ignore[attr-defined]
        if isinstance(inner, (ast.BinOp, ast.UnaryOp, ast.IfExp)):
            self.editor.replace(inner, f"({self.file.segment(inner)}).float()")
        else:
            self.editor.insert(self.file.span(inner).end, ".float()")

    @staticmethod
    def _is_softmax(call: ast.Call) -> bool:
        return isinstance(call.func, ast.Attribute) and call.func.attr == "softmax"

    def _is_plain(self, call: ast.Call, half: HalfValues) -> bool:
        """Whether a statement does little more than compute a loss of a name, so that it can be an island as it is."""
        statement = self.file.statement(call)
        if not isinstance(statement, (ast.Assign, ast.AugAssign, ast.Return)):
            return False
        if self.file.names.scope_of(call) is not self.file.names.scope_of(statement):
            return False  # names of a comprehension are not known outside of it
        graph = self.sinks.graph(owner_of(self.file, call))
        if any(isinstance(node, ast.Call) and graph.is_source(node) for node in walk(statement)):
            return False
        own = {id(node) for node in ast.walk(call)}
        others = [n for n in header(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
        if any(id(name) not in own and half.may_be(name) for name in others):
            return False  # an island takes no half precision
        given = self._probabilities(call)
        return isinstance(given, (ast.Name, ast.Attribute, ast.Call, ast.Subscript)) and bool(self._tensor(given))

    def _island(self, call: ast.Call, given: ast.expr) -> None:
        statement = self.file.statement(call)
        if not (isinstance(given, ast.Call) and given in self._done):
            self.editor.insert(self.file.span(given).end, ".float()")
        header = f"with torch.autocast(device_type={self._tensor(given)}.device.type, enabled=False):"
        self.editor.wrap(statement, statement, header)

    def _tensor(self, node: ast.expr) -> str:
        """A plain name of a tensor in an expression, whose device is that of the loss; empty where there is none."""
        for inner in ast.walk(node):
            if isinstance(inner, (ast.Name, ast.Attribute)) and path_of(inner) and not self.file.resolve(inner):
                parent = self.file.parent(inner)
                if isinstance(parent, ast.Subscript) and parent.value is inner:
                    return self.file.segment(parent)  # of a tuple or dict, which has no device itself
                if not (isinstance(parent, ast.Call) and parent.func is inner) and not isinstance(
                    parent, ast.Attribute
                ):
                    return path_of(inner)
                if isinstance(parent, ast.Attribute) and parent.attr in _SAME_TENSOR:
                    return path_of(inner)
        return ""

    # -- definitions --------------------------------------------------------------------------------------------------

    def _rename(self, call: ast.Call, name: str, code: str) -> None:
        """Call a class or function of our own in the place of torch's; it is defined behind the imports."""
        base = self.file.segment(call.func)
        if not self.file.resolve(call.func):
            raise RefusalError(call, _ADVICE)
        if name not in self._names:
            self._names[name] = free_name(self.file, (name, f"Amp{name}" if name[0].isupper() else f"amp_{name}"))
            self._define(call, code.format(name=self._names[name], base=base))
        self.editor.replace(call.func, self._names[name])

    def _define(self, call: ast.Call, code: str) -> None:
        file = self.file
        root = file.segment(call.func).split(".", 1)[0]
        bound = [file.statement(binding.node) for binding in file.names.module.bindings.get(root, [])]
        body = file.tree.body
        first = next((i for i, s in enumerate(body) if s in bound and position(s) < position(call)), None)
        if first is None or not all(isinstance(s, (ast.Import, ast.ImportFrom)) for s in bound):
            raise RefusalError(call, f"`{root}` is not imported at the top of the file; {_ADVICE}")
        while first + 1 < len(body) and isinstance(body[first + 1], (ast.Import, ast.ImportFrom)):
            first += 1
        self._code.setdefault(body[first], []).append("\n\n" + code.replace("    ", self.editor.unit()))

    def write(self) -> None:
        """Write the definitions that the repairs need."""
        for place, codes in self._code.items():
            encoded = self.file.encoded
            blank, at = 0, next_line(encoded, self.file.span(place).end)
            while at < len(encoded) and not encoded[at : line_end(encoded, at)].strip():
                blank, at = blank + 1, next_line(encoded, at)
            self.editor.insert_after(place, "\n".join(codes) + "\n" * max(0, 2 - blank))
        self._code.clear()


def _targets(file: SourceFile, value: ast.AST) -> list[ast.expr]:
    """What an assignment gives a value to, by a tuple or condition too."""
    parent = file.parent(value)
    while isinstance(parent, ast.IfExp):
        value, parent = parent, file.parent(parent)
    if isinstance(parent, ast.Assign):
        return parent.targets
    above = file.parent(parent) if isinstance(parent, ast.Tuple) else None
    target = above.targets[0] if isinstance(above, ast.Assign) else None
    if isinstance(parent, ast.Tuple) and isinstance(target, (ast.Tuple, ast.List)):
        return [t for t, v in zip(target.elts, parent.elts, strict=False) if v is value]
    return []


def is_probability_loss(file: SourceFile, call: ast.Call) -> bool:
    """Whether a call computes binary cross entropy of probabilities."""
    return "binary_cross_entropy" in losses(file, call)
