"""The edits that make one use of a deprecated name a use of its replacement, with the same effect."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from amplint.calls.call_edits import Arguments
from amplint.calls.call_faults import is_wrong_call
from amplint.calls.signatures import bind, is_unentered_autocast
from amplint.model import Edit, Span
from amplint.modernize import fstrings
from amplint.modernize.exports import TYPE_FORMS, last_name
from amplint.modernize.flow import Flow, follow, is_asked_for, is_handed_on
from amplint.modernize.gates import gate_edits
from amplint.modernize.moves import Move
from amplint.modernize.partials import partial_function
from amplint.modernize.refusal import RefusalError
from amplint.torch_api import APIS, CURRENT

if TYPE_CHECKING:
    from amplint.modernize.uses import Use
    from amplint.source import SourceFile

_CLASS_TESTS = ("isinstance", "issubclass", "assertIsInstance", "assertNotIsInstance")
_STARRED = "a `*` argument may hold positional arguments, whose order is another in the replacement"
_CALLERS = "code in other places may call it with arguments by position, whose meaning changes"
_COMPARED = "objects of the old class may be made elsewhere, which are not of exactly this class then"
_HANDED_ON = "it is handed on to code that can't be seen, which may call it with arguments by position"


class Rewrite(NamedTuple):
    """The edits of one use; `caution` says on what they rest where that can't be seen, "" where they are safe."""

    edits: tuple[Edit, ...]
    caution: str = ""


def rewrite(file: SourceFile, use: Use, callee: str) -> Rewrite:
    """Replace the name of a use by `callee`, and its arguments by those that the replacement takes.

    Raises `RefusalError` where it can't be shown that the program does the same.
    """
    literal = fstrings.literal_around(file, use.node, use.ref.call or use.node)
    made = _rewritten(file, use, callee)
    edits = made.edits if literal is None else fstrings.within(file, literal, made.edits)
    return made._replace(edits=(*edits, *gate_edits(file, use)))


def _rewritten(file: SourceFile, use: Use, callee: str) -> Rewrite:
    assert use.move is not None, "a module is rewritten where its contents are used"
    rename = Edit(_replaceable(file, use), callee)
    if use.link + 1 < len(use.ref.chain):
        return Rewrite((rename, *_attribute_edits(file, use)))
    if use.ref.call is not None:
        return Rewrite((rename, *_checked_call_edits(file, use, use.ref.call)))
    if use.ref.context == "annotation":
        return Rewrite((rename,))
    if use.ref.context == "base":
        edits, caution = _base_edits(file, use)
        return Rewrite((rename, *edits), caution)
    if is_unentered_autocast(file, use.ref):
        raise RefusalError("the context manager is not made by a call (AMP008)")
    if use.ref.context == "decorator":
        return Rewrite((Edit(rename.span, callee + _decoration(use.move)),))
    return _reference(file, use, rename)


def call_edits(file: SourceFile, call: ast.Call, move: Move) -> list[Edit]:
    """The edits on the arguments of a call of the old name."""
    arguments = Arguments(file, call)
    if move.kind == "custom":
        return [] if move.shim else arguments.append(f'device_type="{move.device}"')
    edits = [] if move.shim else arguments.prepend(f'"{move.device}"')
    if _takes_keywords(move):
        edits += _named(arguments, 0, _parameters(move))
    return edits


def _takes_keywords(move: Move) -> bool:
    """Whether arguments must be given by keyword: their order differs between the old and the new signature."""
    return move.kind == "autocast" or (move.kind == "scaler" and move.shim)


def _parameters(move: Move) -> tuple[str, ...]:
    """The positional parameters of the old name."""
    signature = APIS[move.old].signature(CURRENT)
    assert signature is not None, "a deprecated name still exists"
    return signature.positional


def _replaceable(file: SourceFile, use: Use) -> Span:
    """The span of the name, which is replaced as a whole."""
    if use.ambiguous:
        raise RefusalError(f"`{ast.unparse(use.node)}` may also be something else there")
    span = file.span(use.node)
    if not use.ref.fixable or b"#" in file.encoded[span.start : span.end]:
        raise RefusalError("its place in the text is not plain")
    return span


def _attribute_edits(file: SourceFile, use: Use) -> list[Edit]:
    """An attribute of the class, such as `GradScaler.step`: nothing more is to change but for constructors."""
    attribute = use.ref.chain[use.link + 1]
    assert isinstance(attribute, ast.Attribute), "a chain goes on with attributes"
    if use.move is not None and use.move.kind in ("scaler", "autocast") and attribute.attr not in _CONSTRUCTORS:
        return []
    call = use.ref.call
    if use.move is not None and attribute.attr == "__init__" and call is not None and _is_given_self(use, call):
        return _shifted_edits(file, call, use.move)
    raise RefusalError(f"`{ast.unparse(attribute)}` takes other arguments in the replacement")


_CONSTRUCTORS = ("__init__", "__new__", "__call__")


def _is_given_self(use: Use, call: ast.Call) -> bool:
    return use.link + 2 == len(use.ref.chain) and bool(call.args) and isinstance(call.args[0], ast.Name)


def _shifted_edits(file: SourceFile, call: ast.Call, move: Move) -> list[Edit]:
    """Arguments behind a first one that is none of the old name: `partial(autocast, ...)`, `__init__(self, ...)`."""
    arguments = Arguments(file, call)
    edits = [] if move.shim else arguments.insert_after(0, f'"{move.device}"')
    return edits + _named(arguments, 0, _parameters(move), skip=1) if _takes_keywords(move) else edits


def _checked_call_edits(file: SourceFile, use: Use, call: ast.Call) -> list[Edit]:
    assert use.move is not None
    if not is_wrong_call(file, use.ref):
        return call_edits(file, call, use.move)
    device = _device_given(call)
    signature = APIS[use.move.new].signature(CURRENT) if use.move.new in APIS else None
    if device is None or signature is None or not bind(call, signature).fits:
        raise RefusalError("the call fits neither the old nor the new signature (AMP004)")
    # Written for the new class: right as soon as it is that class. The fix of AMP004 must not take the device away at
    # the same time, so the device is replaced by itself.
    span = file.span(device)
    return [Edit(span, file.segment(span))]


def _device_given(call: ast.Call) -> ast.expr | ast.keyword | None:
    """The argument with which a call names a device, as only the current API takes one."""
    if call.args and isinstance(call.args[0], ast.Constant) and isinstance(call.args[0].value, str):
        return call.args[0]
    return next((keyword for keyword in call.keywords if keyword.arg in ("device", "device_type")), None)


def _named(arguments: Arguments, bound: int, parameters: tuple[str, ...], skip: int = 0) -> list[Edit]:
    """The edits that name positional arguments, without the first `bound` parameters and `skip` arguments."""
    edits: list[Edit] = []
    position = bound
    for index, item in enumerate(arguments.items):
        if index < skip or isinstance(item.node, ast.keyword):
            continue
        if isinstance(item.node, ast.Starred):
            raise RefusalError(_STARRED)
        if position >= len(parameters):
            raise RefusalError("there are more positional arguments than the old class takes")
        edits += arguments.name(index, parameters[position])
        position += 1
    return edits


def _decoration(move: Move) -> str:
    if move.kind != "custom":
        raise RefusalError("as a bare decorator it makes an object of the decorated function")
    return "" if move.shim else f'(device_type="{move.device}")'


# -- references without a call ----------------------------------------------------------------------------------------


def _reference(file: SourceFile, use: Use, rename: Edit) -> Rewrite:
    if _is_type_test(file, use.node) or is_asked_for(file, use.node):
        return Rewrite((rename,))
    parent = file.parent(use.node)
    if isinstance(parent, ast.Compare):
        return Rewrite((rename,), _COMPARED)
    if isinstance(parent, ast.Call) and parent.args[:1] == [use.node] and _is_partial(file, parent.func):
        return _partial_call(file, use, rename, parent)
    assert use.move is not None
    _refuse_second_meaning(file, use)
    flow = follow(file, use.node)
    if flow.complete and flow.alone:
        return Rewrite((rename, *_calls_of(file, flow, use.move)))
    return _indirect(file, use.move, rename, flow, use)


def _refuse_second_meaning(file: SourceFile, use: Use) -> None:
    """Leave `try: x = torch.cuda.amp.autocast / except: x = ...` alone: it means to run where there is none of it."""
    statement = file.statement(use.node)
    holder = file.parent(statement)
    if not isinstance(holder, ast.Try) or statement not in holder.body or not isinstance(statement, ast.Assign):
        return
    names = {target.id for target in statement.targets if isinstance(target, ast.Name)}
    for name in names:
        for binding in file.scope(statement).bindings.get(name, ()):
            if any(file.parent(binding.node) is handler for handler in holder.handlers):
                line = binding.node.lineno  # type: ignore[attr-defined]
                raise RefusalError(f"`{name}` has two meanings: line {line} binds it too")


def _calls_of(file: SourceFile, flow: Flow, move: Move) -> list[Edit]:
    """The edits on all calls of a variable that holds nothing but the old name."""
    edits = [edit for call in flow.calls for edit in call_edits(file, call, move)]
    for decorator in flow.decorators:
        end = file.span(decorator).end
        edits.append(Edit(Span(end, end), _decoration(move)))
    return edits


def _indirect(file: SourceFile, move: Move, rename: Edit, flow: Flow, use: Use) -> Rewrite:
    """A value that may be called in ways that can't be edited: it must take the old arguments as it is."""
    if move.kind == "custom" and move.shim:
        return Rewrite((rename,))
    if move.kind in ("custom", "query"):
        given = f'device_type="{move.device}"' if move.kind == "custom" else f'"{move.device}"'
        return Rewrite(_wrapped(file, use, rename, given))
    if not flow.complete or flow.decorators:
        if flow.decorators or move.shim or not is_handed_on(file, use.node):
            raise RefusalError(_HANDED_ON)
        return Rewrite(_wrapped(file, use, rename, f'"{move.device}"'), _CALLERS)
    for call in flow.calls:
        if call.args and (_takes_keywords(move) or move.device == "cuda"):
            raise RefusalError(
                f"the call of line {call.lineno} gives arguments by position to what may also be something else"
            )
    if move.kind == "scaler" and move.device == "cuda":
        return Rewrite((rename,), _caution(flow))  # with keywords only it needs no device: "cuda" is the default
    return Rewrite(_wrapped(file, use, rename, f'"{move.device}"'), _caution(flow))


def _caution(flow: Flow) -> str:
    return "" if flow.complete and not flow.shared else _CALLERS


def _wrapped(file: SourceFile, use: Use, rename: Edit, given: str) -> tuple[Edit, ...]:
    partial, imports = partial_function(file, use.node)
    return (Edit(rename.span, f"{partial}({rename.text}, {given})"), *imports)


def _partial_call(file: SourceFile, use: Use, rename: Edit, call: ast.Call) -> Rewrite:
    """`functools.partial(autocast, ...)`: the device comes first, the rest as in a call."""
    move = use.move
    assert move is not None
    if move.kind == "custom":
        return Rewrite((rename, *call_edits(file, call, move)))
    edits = [rename, *_shifted_edits(file, call, move)]
    if not _takes_keywords(move):
        return Rewrite(tuple(edits))
    given = len(call.args) - 1
    flow = follow(file, call)
    if flow.complete and flow.alone:
        return Rewrite((*edits, *(edit for inner in flow.calls for edit in _later_edits(file, inner, move, given))))
    if any(inner.args for inner in flow.calls):
        raise RefusalError("it is called with arguments by position where it may also be something else")
    return Rewrite(tuple(edits), _caution(flow))


def _later_edits(file: SourceFile, call: ast.Call, move: Move, given: int) -> list[Edit]:
    """The edits on a call of what `functools.partial` made with `given` positional arguments."""
    return _named(Arguments(file, call), given, _parameters(move))


def _is_partial(file: SourceFile, function: ast.expr) -> bool:
    return file.resolve(function) == ("functools.partial",)


def _is_type_test(file: SourceFile, node: ast.expr) -> bool:
    """Whether a class stands where only its identity counts: `isinstance(x, C)`, `case C():`, `C | None`."""
    child: ast.AST = node
    parent = file.parent(child)
    while isinstance(parent, (ast.Tuple, ast.List, ast.BinOp)):
        if isinstance(parent, ast.BinOp):
            return isinstance(parent.op, ast.BitOr)
        child, parent = parent, file.parent(parent)
    if isinstance(parent, ast.Subscript):
        return child is parent.slice and last_name(parent.value) in TYPE_FORMS
    if isinstance(parent, ast.keyword):
        return parent.arg == "bound"
    if isinstance(parent, ast.MatchClass):
        return child is parent.cls
    if isinstance(parent, ast.Call):
        name = last_name(parent.func)
        tested = parent.args[:2] if name == "issubclass" else parent.args[1:2]
        return (name in _CLASS_TESTS and child in tested) or (name == "cast" and child in parent.args[:1])
    return False


# -- base classes -----------------------------------------------------------------------------------------------------


def _base_edits(file: SourceFile, use: Use) -> tuple[list[Edit], str]:
    """A subclass: what its constructor hands up, or else what is given where it is made."""
    definition, move = file.parent(use.node), use.move
    assert isinstance(definition, ast.ClassDef)
    assert move is not None
    others = [base for base in definition.bases if base is not use.node and last_name(base) not in ("object", "ABC")]
    if others:
        raise RefusalError("the other base classes may hand on other arguments")
    constructor = _constructor(definition)
    if constructor is not None:
        calls = _super_calls(file, constructor, use.ref.candidates)
        return [edit for call in calls for edit in call_edits(file, call, move)], ""
    return _made_instances(file, definition, move)


def _constructor(definition: ast.ClassDef) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """The `__init__` of a class; raises `RefusalError` where something else makes its objects."""
    methods = {m.name: m for m in definition.body if isinstance(m, (ast.FunctionDef, ast.AsyncFunctionDef))}
    if "__new__" in methods or definition.decorator_list:
        raise RefusalError("how the class is made can't be seen")
    return methods.get("__init__")


def _super_calls(
    file: SourceFile, constructor: ast.FunctionDef | ast.AsyncFunctionDef, base: tuple[str, ...]
) -> list[ast.Call]:
    """The calls `super().__init__(...)` of a constructor; one of the base by its name is a use of its own."""
    found = []
    for node in ast.walk(constructor):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "__init__":
            owner = node.func.value
            if base and file.resolve(owner) == base:
                continue
            if not (isinstance(owner, ast.Call) and last_name(owner.func) == "super"):
                raise RefusalError("its constructor calls that of a base class by name")
            found.append(node)
    return found


def _made_instances(file: SourceFile, definition: ast.ClassDef, move: Move) -> tuple[list[Edit], str]:
    """A subclass without a constructor takes the arguments of its base: the device in front, for autocast needed."""
    calls, complete = _constructions(file, definition)
    if move.kind == "scaler" and move.device == "cuda":
        positional = [call for call in calls if call.args]
        caution = "" if calls and complete else _CALLERS
        return [e for call in positional for e in call_edits(file, call, move)], caution
    if not calls or not complete:
        raise RefusalError("the subclass may be made elsewhere, without the device that the replacement needs")
    return [edit for call in calls for edit in call_edits(file, call, move)], ""


def _constructions(file: SourceFile, definition: ast.ClassDef) -> tuple[list[ast.Call], bool]:
    """The calls whose arguments reach the base of a class without a constructor, and whether these are all.

    They are the calls of the class and what the constructors of its own subclasses hand up.
    """
    calls: list[ast.Call] = []
    complete = True
    for load in file.names.loads.get(definition.name, ()):
        if not any(binding.node is definition for binding in file.names.lookup(load)):
            continue
        parent = file.parent(load)
        if isinstance(parent, ast.Call) and parent.func is load:
            calls.append(parent)
        elif isinstance(parent, ast.ClassDef) and load in parent.bases and parent is not definition:
            constructor = _constructor(parent)
            if constructor is not None:
                calls += _super_calls(file, constructor, ())
            else:
                inner, seen = _constructions(file, parent)
                calls += inner
                complete = complete and seen
        elif not _is_type_test(file, load):
            complete = False
    return calls, complete
