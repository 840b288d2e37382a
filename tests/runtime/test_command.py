"""`amplint trace`: the script runs as Python itself would run it, and the report comes whatever happens."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from amplint.cli import main

LOOP = """
import sys
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = torch.amp.GradScaler("cpu", init_scale=16.0)
for _ in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.float16):
        loss = model(torch.ones(1, 2)).float().sum()
    scaler.scale(loss).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
"""

REPORT = """
train.py:12: error: AMP301 clip-before-unscale: gradients were clipped while they carried the scale; almost nothing is \
left of them (see train.py:11; 2 times)

AMP took effect: matrix products ran in low precision
autocast at train.py:9: cpu, float16, entered 2 times
backward: 2 of scaled losses, 0 of plain ones
scaler at train.py:6: 2 steps, 0 skipped, 2 updates, scale 16
1 violation of the protocol
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in the current directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(LOOP, encoding="utf-8")
    return path


def append(script: Path, line: str) -> None:
    """Add a line to the script."""
    script.write_text(LOOP + line + "\n", encoding="utf-8")


def test_the_report_goes_to_standard_error(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(script, "print(__name__, sys.argv, sys.path[0])")
    assert main(["trace", "train.py", "--json", "-x", "1"]) == 0
    output = capsys.readouterr()
    assert output.out == f"__main__ ['train.py', '--json', '-x', '1'] {script.parent}\n"
    assert output.err == REPORT


def test_nothing_of_the_run_is_left(script: Path) -> None:
    before = sys.argv, sys.path[:], sys.modules["__main__"]
    assert main(["trace", "train.py"]) == 0
    assert (sys.argv, sys.path, sys.modules["__main__"]) == before


@pytest.mark.parametrize(
    ("line", "code", "error"),
    [
        ("sys.exit(7)", 7, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit('stop')", 1, "stop\n"),
        (
            "raise ValueError('no')",
            1,
            "Traceback (most recent call last):\n"
            '  File "{path}", line 15, in <module>\n'
            "    raise ValueError('no')\nValueError: no\n",
        ),
        (
            "raise KeyboardInterrupt",
            130,
            "Traceback (most recent call last):\n"
            '  File "{path}", line 15, in <module>\n'
            "    raise KeyboardInterrupt\nKeyboardInterrupt\n",
        ),
    ],
)
def test_the_end_of_the_script(
    script: Path, capsys: pytest.CaptureFixture[str], line: str, code: int, error: str
) -> None:
    append(script, line)
    assert main(["trace", str(script)]) == code
    assert capsys.readouterr().err == error.format(path=script) + REPORT


def test_a_script_that_does_not_parse(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text("x = (\n", encoding="utf-8")
    assert main(["trace", "train.py"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f'  File "{script}", line 1\n    x = (\n')
    assert error.endswith(
        "AMP did nothing: no autocast region was entered\n"
        "backward: 0 of scaled losses, 0 of plain ones\n"
        "the protocol was kept\n"
    )


def test_json_on_standard_output(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--json", "train.py"]) == 0
    output = capsys.readouterr()
    assert output.err == ""
    found = json.loads(output.out)
    assert [(each["code"], each["place"]["line"], each["times"]) for each in found["violations"]] == [("AMP301", 12, 2)]


def test_json_in_a_file_although_the_script_goes_elsewhere(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    append(script, "import os; os.chdir('/')")
    assert main(["trace", "--dtypes", "--gradients", "--json", "report.json", "train.py"]) == 0
    assert capsys.readouterr() == ("", "")
    found = json.loads((script.parent / "report.json").read_text(encoding="utf-8"))
    assert found["products"] == [{"operation": "linear", "dtype": "float16", "calls": 2, "with_gradients": 2}]
    assert found["gradients"]["values"] == 12


def test_dtypes_and_gradients_as_text(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--dtypes", "--gradients", "train.py"]) == 0
    assert capsys.readouterr().err.splitlines()[-5:] == [
        "linear in float16: 2 times, 2 with gradients",
        "gradients lost to underflow: 0.00% of 6 values that are not 0 in float32, at least",
        "gradients after backward: 0.00% of 12 values 0, 0.00% below the normal numbers of float16",
        "gradients at the scaler's steps: 0.00% of 12 values 0, 0.00% inf or nan",
        "1 violation of the protocol",
    ]


def test_without_torch(script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["trace", "train.py"]) == 2
    assert capsys.readouterr().err == (
        "Error: `amplint trace` runs the script and needs torch, which is not installed here\n"
    )


def test_a_script_that_is_not_there(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "other.py"]) == 2
    assert "File 'other.py' does not exist." in capsys.readouterr().err


def test_torch_that_can_not_be_imported(
    script: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        """Finds a module, and fails to load it."""

        def find_spec(self, name: str, path: object = None, target: object = None) -> None:
            if name == "amplint.runtime.monitor":
                raise OSError("libcudart.so: cannot open shared object file")

    monkeypatch.delitem(sys.modules, "amplint.runtime.monitor", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken(), *sys.meta_path])
    assert main(["trace", "train.py"]) == 2
    assert capsys.readouterr().err == (
        "Error: torch can't be imported, so nothing was run (OSError: libcudart.so: cannot open shared object file)\n"
    )


def test_the_documented_keys_are_those_of_the_report(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "--dtypes", "--gradients", "--json", "train.py"]) == 0
    found = json.loads(capsys.readouterr().out)
    page = (Path(__file__).parent.parent.parent / "docs" / "trace.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?`(?:, `.*?`)*) \| (.*) \|$", page, flags=re.MULTILINE)
    documented = {key: set(re.findall(r"`(\w+)`", text)) for keys, text in rows for key in re.findall(r"`(\w+)`", keys)}
    assert set(found) == set(documented)
    for key, value in found.items():
        first = value[0] if isinstance(value, list) else value
        if isinstance(first, dict):
            assert set(first) <= documented[key], key
            assert {f"`{name}`" for name in first} <= set(re.findall(r"`\w+`", page))


def test_the_script_is_run_as_python_runs_it(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (script.parent / "neighbour.py").write_text("WORD = 'found'\n", encoding="utf-8")
    script.write_text(
        "import multiprocessing, sys\n"
        "from neighbour import WORD\n"
        "def work(number):\n    return number + 1\n"
        "if __name__ == '__main__':\n"
        "    with multiprocessing.get_context('fork').Pool(1) as pool:\n"
        "        print(WORD, pool.map(work, [1, 2]), __file__ == sys.argv[1])\n",
        encoding="utf-8",
    )
    assert main(["trace", "train.py", str(script)]) == 0
    output = capfd.readouterr()
    assert output.out == "found [2, 3] True\n"
    assert output.err == (
        "\nAMP did nothing: no autocast region was entered\n"
        "backward: 0 of scaled losses, 0 of plain ones\n"
        "the protocol was kept\n"
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--dtype", "train.py"], "No such option '--dtype'. Did you mean '--dtypes'?"),
        (["--json", "out.json", "--bogus", "train.py"], "No such option '--bogus'."),
    ],
)
def test_unknown_options_before_the_script_are_named(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", *words]) == 2
    assert error in capsys.readouterr().err
