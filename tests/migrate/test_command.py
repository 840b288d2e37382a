"""The command `amplint migrate`: exit codes, the diff, written files, JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from amplint.cli import main

FIXTURES = Path(__file__).parent.parent.parent / "fixtures"
GOOD = (FIXTURES / "one_expression" / "before.py").read_text(encoding="utf-8")
AFTER = (FIXTURES / "one_expression" / "after.py").read_text(encoding="utf-8")
REFUSED = GOOD.replace("    optimizer.step()\n", "")


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A script in an empty current directory."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.py"
    path.write_text(GOOD, encoding="utf-8")
    return path


def test_prints_a_diff_and_leaves_the_file(script: Path, capsysbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["migrate", "train.py"]) == 0
    out, err = capsysbinary.readouterr()
    assert out.startswith(b"--- a/train.py\n+++ b/train.py\n")
    assert b"+scaler = torch.amp.GradScaler(" in out
    assert err.decode() == "train.py:11: migrated\n1 loop: 1 migrated, 0 partly, 0 refused.\n"
    assert script.read_text(encoding="utf-8") == GOOD


def test_apply_writes_the_file(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--apply", "train.py"]) == 0
    assert capsys.readouterr().out == ""
    assert script.read_text(encoding="utf-8") == AFTER


def test_keeps_line_ends_and_the_byte_order_mark(script: Path) -> None:
    script.write_bytes(b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode())
    assert main(["migrate", "--apply", "train.py"]) == 0
    assert script.read_bytes() == b"\xef\xbb\xbf" + AFTER.replace("\n", "\r\n").encode()


def test_refusal_exits_with_one(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text(REFUSED, encoding="utf-8")
    assert main(["migrate", "--apply", "train.py"]) == 1
    assert script.read_text(encoding="utf-8") == REFUSED
    assert "train.py:11: refused: line 15: " in capsys.readouterr().err


def test_json(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (script.parent / "other.py").write_text(REFUSED, encoding="utf-8")
    assert main(["migrate", "--output-format", "json", "."]) == 1
    entries = json.loads(capsys.readouterr().out)
    assert [sorted(entry) for entry in entries] == [["edits", "file", "line", "reason", "status"]] * 2
    assert [(Path(e["file"]).name, e["line"], e["status"]) for e in entries] == [
        ("other.py", 11, "refused"),
        ("train.py", 11, "migrated"),
    ]
    assert entries[0]["edits"] == []
    assert entries[1]["edits"][0]["location"] == {"row": 10, "column": 1}


def test_no_loops_exits_with_zero(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script.write_text("import torch\n", encoding="utf-8")
    assert main(["migrate", "train.py"]) == 0
    assert capsys.readouterr().err == "No training loops.\n"


def test_missing_path_exits_with_two(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "missing.py"]) == 2
    assert "missing.py" in capsys.readouterr().err


def test_usage_errors_exit_with_two(script: Path) -> None:
    assert main(["migrate"]) == 2
    assert main(["migrate", "--dtype", "float8", "train.py"]) == 2
    assert main(["migrate", "--flag", "class", "train.py"]) == 2
    assert main(["migrate", "--device", "tpu", "train.py"]) == 2
    assert main(["migrate", "--device", "cpu", "--dtype", "auto", "train.py"]) == 2
    assert main(["migrate", "--flag", "use-amp", "train.py"]) == 2
    assert main(["migrate", "--apply", "-"]) == 2


def test_bfloat16_has_no_scaler(script: Path) -> None:
    assert main(["migrate", "--apply", "--dtype", "bfloat16", "train.py"]) == 0
    text = script.read_text(encoding="utf-8")
    assert "GradScaler" not in text
    assert 'dtype=torch.bfloat16, enabled=device.type == "cuda"' in text


def test_old_torch_gets_the_old_scaler(script: Path) -> None:
    assert main(["migrate", "--apply", "--target-torch", "1.13", "train.py"]) == 0
    assert 'scaler = torch.cuda.amp.GradScaler(enabled=device.type == "cuda")' in script.read_text(encoding="utf-8")
