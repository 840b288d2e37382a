from __future__ import annotations

import json

from amplint.report import render
from tests.report.samples import CLIP, CONTEXT, IMPORT, diagnostic

CLIP_OBJECT = {
    "code": "AMP301",
    "name": "clip-before-unscale",
    "level": "error",
    "message": "gradients are clipped while they are scaled",
    "filename": "train.py",
    "location": {"row": 9, "column": 9},
    "end_location": {"row": 9, "column": 24},
    "related": [
        {
            "message": "scaled here",
            "location": {"row": 8, "column": 9},
            "end_location": {"row": 8, "column": 38},
        }
    ],
    "fix": {
        "applicability": "safe",
        "message": "Call `scaler.unscale_(optimizer)` before the clip",
        "edits": [
            {
                "location": {"row": 9, "column": 1},
                "end_location": {"row": 9, "column": 1},
                "content": "        scaler.unscale_(optimizer)\n",
            }
        ],
    },
    "url": "https://example.org/AMP301",
}


def test_json_is_a_list_of_objects() -> None:
    report = render("json", [CLIP, IMPORT], CONTEXT)
    assert json.loads(report) == [IMPORT.to_json(), CLIP_OBJECT]
    assert report.endswith("]\n")


def test_json_of_nothing() -> None:
    assert render("json", [], CONTEXT) == "[]\n"


def test_json_lines_has_an_object_a_line() -> None:
    lines = render("json-lines", [CLIP, IMPORT], CONTEXT).split("\n")
    assert [json.loads(line) for line in lines[:-1]] == [IMPORT.to_json(), CLIP_OBJECT]
    assert lines[-1] == ""


def test_json_lines_of_nothing() -> None:
    assert render("json-lines", [], CONTEXT) == ""


def test_names_of_files_survive() -> None:
    found = diagnostic(filename="\u65e5/\udcff.py")
    assert json.loads(render("json", [found], CONTEXT))[0]["filename"] == "\u65e5/\udcff.py"
