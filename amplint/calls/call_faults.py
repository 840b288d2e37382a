"""What is wrong with a call of the AMP API: it does not fit the signature, or a value lands in the wrong place.

A fault is reported where Python or torch refuses the call, and where torch takes it and does something else than the
text says. What the text does not show is left alone: `*` and `**` arguments, names with other candidates, parameters.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, NamedTuple

from amplint.calls.kinds import Classifier
from amplint.calls.signatures import Bound, apis, bind, signatures_from
from amplint.model import Applicability, Edit, Fix, Span
from amplint.torch_api import AUTOCAST_SPELLINGS, CURRENT, Api, Signature

if TYPE_CHECKING:
    from amplint.calls.arguments import ArgumentEdits
    from amplint.source import Ref, SourceFile

SAFE, UNSAFE = Applicability.SAFE, Applicability.UNSAFE


class Fault(NamedTuple):
    """One thing that is wrong with a call.

    `node` is the argument to blame, or the callee. `foreign` says that Python refuses the call or that it is written
    for the other class of the same name: what it should be in the current API can't be told before it is mended.
    """

    node: ast.expr | ast.keyword
    message: str
    fix: Fix | None = None
    help: str = ""
    foreign: bool = False


class Call(NamedTuple):
    """A call under judgement.

    `node` holds the arguments of the callee; for `functools.partial(f, x)` it is a call `f(x)` that the text does not
    have, and `partial` is True. `written` is the call in the text.
    """

    file: SourceFile
    ref: Ref
    api: Api
    node: ast.Call
    written: ast.Call
    bound: Bound
    kinds: Classifier
    partial: bool

    @property
    def callee(self) -> ast.expr:
        """The reference to what is called."""
        assert isinstance(self.ref.node, ast.expr)
        return self.ref.node

    def text(self, node: ast.AST) -> str:
        """The source of a node as messages quote it."""
        text = " ".join(self.file.segment(node).split())
        return text if len(text) <= 40 else f"{text[:37]}..."

    def arguments(self) -> ArgumentEdits:
        """The argument list, for edits."""
        from amplint.calls.arguments import ArgumentEdits

        return ArgumentEdits(self.file, self.written, skip=1 if self.partial else 0)

    def fix(self, title: str, *edits: list[Edit], safe: bool = True) -> Fix | None:
        """A fix made of groups of edits, None where one of them can't be made."""
        if not all(edits):
            return None
        return Fix(title, tuple(edit for group in edits for edit in group), SAFE if safe else UNSAFE)

    def modern_callee(self) -> list[Edit]:
        """Name the current class in place of a deprecated one; empty where the text has no `torch.` to go by."""
        floor = self.file.settings.target_torch or CURRENT
        name = self.file.settings.autocast if self.api.kind == "autocast" else self.api.replacement
        needed = AUTOCAST_SPELLINGS[name] if self.api.kind == "autocast" else self.api.replacement_since
        if needed is None or floor < needed:
            return []
        for link, candidates in zip(self.ref.chain, self.ref.names, strict=True):
            if candidates == ("torch",):
                start, end = self.file.span(link).end, self.file.span(self.callee).end
                return [Edit(Span(start, end), name.removeprefix("torch"))]
        return []


def call_faults(file: SourceFile, ref: Ref) -> tuple[Fault, ...]:
    """What is wrong with the call of a reference, or with its use as a bare decorator.

    A reference with several candidates is at fault only where every one of them would be; it is then not fixed.
    """
    if ref.context == "import" or not isinstance(ref.node, ast.expr) or not ref.fixable:
        return ()
    found = apis(ref.candidates)
    faults = [_faults_of(file, ref, api) for api in found]
    if not faults or not all(faults):
        return ()
    if len(faults) == 1:
        return faults[0]
    return tuple(fault._replace(fix=None, help="the name has several meanings here") for fault in faults[0])


def is_wrong_call(file: SourceFile, ref: Ref) -> bool:
    """Whether AMP004 reports a call that must be mended before it can be moved to the current API.

    True for calls that Python refuses (`torch.cuda.amp.autocast(enable=True)`) and for those written for the current
    class on the deprecated one (`torch.cuda.amp.GradScaler("cuda")`).
    """
    return any(fault.foreign for fault in call_faults(file, ref))


def _faults_of(file: SourceFile, ref: Ref, api: Api) -> tuple[Fault, ...]:
    from amplint.calls import autocast_faults, custom_function_faults, scaler_faults

    signatures = _signatures(file, ref, api)
    if not signatures:
        return ()
    if ref.context == "decorator":
        return tuple(custom_function_faults.bare(file, ref, api, signatures[0]))
    call, written = _call(file, ref)
    if call is None or written is None:
        return ()
    partial = call is not written
    judged = Call(file, ref, api, call, written, bind(call, signatures[0]), Classifier(file), partial)
    if partial:
        judged = judged._replace(bound=judged.bound._replace(missing=()))
    check = {
        "autocast": autocast_faults.find,
        "scaler": scaler_faults.find,
        "custom_fwd": custom_function_faults.find,
        "custom_bwd": custom_function_faults.find,
        "function": autocast_faults.find_in_query,
    }[api.kind]
    found = tuple(check(judged))
    if found or partial:
        return found
    return tuple(fault for older in signatures[1:] for fault in _on_older(judged, older, signatures[0]))


def _signatures(file: SourceFile, ref: Ref, api: Api) -> tuple[Signature, ...]:
    """The signatures that a reference may meet in the versions it runs on, the newest first."""
    versions = file.guards.range_at(ref.node)
    floor = file.settings.target_torch or CURRENT
    if versions.low is not None:
        floor = max(floor, versions.low)
    if versions.high is None:
        return signatures_from(api, min(floor, CURRENT))[::-1]
    before = [signature for signature in api.signatures if signature.since < versions.high]
    return tuple(before[-1:])


def _call(file: SourceFile, ref: Ref) -> tuple[ast.Call | None, ast.Call | None]:
    """The call of a reference with the arguments that it gets, and the call as it is written."""
    if ref.call is not None:
        return ref.call, ref.call
    parent = file.parent(ref.node)
    if not isinstance(parent, ast.Call) or parent.args[:1] != [ref.node]:
        return None, None
    if file.resolve(parent.func) != ("functools.partial",):
        return None, None
    assert isinstance(ref.node, ast.expr)
    return ast.Call(ref.node, parent.args[1:], parent.keywords), parent


def _on_older(call: Call, older: Signature, newest: Signature) -> list[Fault]:
    """What an older torch that the project supports makes of a call that the newest takes."""
    bound = bind(call.node, older)
    floor = call.file.settings.target_torch or CURRENT
    version = ".".join(map(str, max(floor, older.since)))
    for keyword in bound.unknown:
        return [
            Fault(
                keyword,
                f"torch {version}, which the project supports, has no parameter `{keyword.arg}` here: "
                "the call raises TypeError",
            )
        ]
    moved = [
        value
        for value, then, now in zip(call.node.args, older.positional, newest.positional, strict=False)
        if then != now and not isinstance(value, ast.Starred)
    ]
    moved += [value for value in bound.surplus if value not in moved]
    if not moved:
        return []
    index = call.node.args.index(moved[0])
    later = call.node.args[index:]
    names = newest.positional[index:]
    fixable = not any(isinstance(value, ast.Starred) for value in later) and all(
        name in older.positional + older.keyword for name in names[: len(later)]
    )
    where = older.positional[index] if index < len(older.positional) else ""
    arguments = call.arguments()
    return [
        Fault(
            moved[0],
            f"`{call.text(moved[0])}` is `{names[0]}` for the current torch, but "
            + (f"lands in `{where}`" if where else "is one argument too many")
            + f" on torch {version}, which the project supports",
            call.fix(
                "Pass it by keyword",
                *(arguments.name(value, name) for value, name in zip(later, names, strict=False)),
            )
            if fixable
            else None,
        )
    ]


def unexpected(call: Call, known: dict[str, str]) -> list[Fault]:
    """Faults for keywords that do not exist, surplus arguments and doubled ones; `known` are renamings by keyword."""
    faults: list[Fault] = []
    for keyword in call.bound.unknown:
        assert keyword.arg is not None
        name = call.api.name
        near = known.get(keyword.arg) or _near(keyword.arg, call)
        message = f"`{name}` has no parameter `{keyword.arg}`: the call raises TypeError"
        fix = None
        if near and near not in call.bound.arguments:
            message = f"`{name}` has no parameter `{keyword.arg}`, it is `{near}`: the call raises TypeError"
            fix = call.fix(f"Rename `{keyword.arg}` to `{near}`", call.arguments().name(keyword, near))
        faults.append(Fault(keyword, message, fix, foreign=True))
    for keyword in call.bound.duplicate:
        assert keyword.arg is not None
        first = call.bound.arguments[keyword.arg].value
        same = ast.dump(first) == ast.dump(keyword.value)
        faults.append(
            Fault(
                keyword,
                f"`{keyword.arg}` is given twice, by position and by keyword: the call raises TypeError",
                call.fix(f"Remove the second `{keyword.arg}`", call.arguments().remove(keyword)) if same else None,
                foreign=True,
            )
        )
    if call.bound.surplus:
        count = len(call.node.args) - len(call.bound.surplus)
        takes = f"at most {count} positional argument{'s' * (count != 1)}" if count else "no positional argument"
        faults.append(
            Fault(
                call.bound.surplus[0],
                f"`{call.api.name}` takes {takes}: the call raises TypeError",
                foreign=True,
            )
        )
    return faults


def _near(keyword: str, call: Call) -> str:
    """The one parameter that a misspelt keyword may mean, "" where there is none."""
    from difflib import get_close_matches

    signature = call.api.signature(CURRENT)
    assert signature is not None
    free = [name for name in signature.positional + signature.keyword if name not in call.bound.arguments]
    matches = get_close_matches(keyword.lower(), free, 2, 0.75)
    return matches[0] if len(matches) == 1 or (matches and matches[0].startswith(keyword.lower())) else ""
