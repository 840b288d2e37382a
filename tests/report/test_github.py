from __future__ import annotations

from amplint.report import render
from tests.report.samples import CLIP, CONTEXT, IMPORT, MILD, diagnostic


def test_commands() -> None:
    assert render("github", [CLIP, IMPORT, MILD], CONTEXT) == (
        "::notice file=lib/a b.py,line=6,endLine=8,title=AMP604 other-rule::something is wrong\n"
        "::warning file=train.py,line=6,col=14,endLine=6,endColumn=22,title=AMP001 deprecated-amp-api::"
        "`torch.cuda.amp.autocast` is deprecated%0Ahelp: the device is a guess"
        "%0Afix available: Use `torch.amp.autocast` (unsafe)\n"
        "::error file=train.py,line=9,col=9,endLine=9,endColumn=24,title=AMP301 clip-before-unscale::"
        "gradients are clipped while they are scaled"
        "%0Afix available: Call `scaler.unscale_(optimizer)` before the clip [*]\n"
    )


def test_nothing_found() -> None:
    assert render("github", [], CONTEXT) == ""


def test_escapes() -> None:
    found = diagnostic(message="100%, a: b\r\nc", filename="a,b:c%.py")
    assert render("github", [found], CONTEXT) == (
        "::error file=a%2Cb%3Ac%25.py,line=1,col=1,endLine=1,endColumn=2,title=AMP301 clip-before-unscale::"
        "100%25, a: b%0D%0Ac\n"
    )


def test_paths_are_relative_to_the_root() -> None:
    found = diagnostic(filename="/project/lib/../x.py")
    assert render("github", [found], CONTEXT).startswith("::error file=x.py,")


def test_files_that_could_not_be_checked() -> None:
    context = CONTEXT._replace(errors=(("a.py", "permission denied"),))
    assert render("github", [], context) == "::error file=a.py,title=amplint::permission denied\n"
