"""The command ``fluvial simulate``."""

import json
from pathlib import Path

import pytest

from engine.cli.app import run_command
from engine.cli.exit_codes import EXIT_FAILED, EXIT_INVALID


@pytest.mark.sweep
def test_histories_are_counted_and_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["simulate", "--histories", "2", "--seed", "7", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["histories"], found["violations"]) == (2, [])
    assert run_command(["simulate", "--seed", "7", "--trace"]) == 0
    assert "replay: fluvial simulate --seed 7" in capsys.readouterr().out


@pytest.mark.sweep
def test_a_violation_is_printed_with_its_plan(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("filestore.maintenance.snapshot_expiry.other_references", lambda *_: [])
    plan = {
        "actors": [["compact-full", "expire"]], "setup": "versioned", "file_format": "parquet",
        "is_object_store": False, "seed": None, "rates": None, "choices": [],
    }  # fmt: skip
    assert run_command(["simulate", "--history", json.dumps(plan)]) == EXIT_FAILED
    said = capsys.readouterr().out
    assert "violation: files are missing" in said
    assert f"--history '{json.dumps(plan, separators=(',', ':'))}'" in said


@pytest.mark.sweep
def test_a_directory_of_the_warehouse_is_used_and_deleted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").mkdir()
    arguments = ["simulate", "--histories", "2", "--seed", "3", "--operations", "write,expire,tag"]
    assert run_command([*arguments, "--warehouse", str(tmp_path)]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
    assert "2 histories" in capsys.readouterr().out


def test_an_operation_that_does_not_exist_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["simulate", "--operations", "writes"]) == EXIT_INVALID
    assert "no such operation: operation=writes operations=['write'" in capsys.readouterr().err
