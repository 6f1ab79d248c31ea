"""``fluvial sql``: from arguments, files, pipes and a terminal."""

import io
import json
import os
import pty
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.catalog import Catalog
from engine.cli.app import run_command
from engine.cli.exit_codes import EXIT_INVALID

ROOT = Path(__file__).resolve().parents[3]
Fluvial = Callable[..., tuple[int, str, str]]


@pytest.fixture
def fluvial(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Fluvial:
    """Runs ``fluvial sql`` on a warehouse of the test; gives exit code, output and error output."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_command(["sql", "--warehouse", str(tmp_path / "warehouse"), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_statements_from_argument_file_and_pipe(
    fluvial: Fluvial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tables.sql"
    file.write_text("-- made twice\nCREATE TABLE IF NOT EXISTS t (a INT);\nCREATE TABLE IF NOT EXISTS t (a INT);\n")
    assert fluvial("-f", str(file)) == (0, "", "")
    assert fluvial("--format", "csv", "SHOW TABLES") == (
        0,
        '"namespace","tableName","isTemporary"\n"default","t",false\n',
        "",
    )
    monkeypatch.setattr("sys.stdin", io.StringIO("CREATE DATABASE d; USE d; CREATE TABLE u (b INT); SHOW TABLES"))
    code, out, _ = fluvial("--format", "json")
    assert (code, json.loads(out)["tableName"]) == (0, "u")
    code, out, _ = fluvial("--database", "d", "SHOW TABLES")
    assert (code, "tableName" in out, " u " in out) == (0, True, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["SHOW TABLES;\nSELEC 1"], "line=2 column=1 near='SELEC'\n  SELEC 1\n  ^^^^^"),
        (["CREATE TABLE t (a INT) WITH ('bukket'='1')"], "did_you_mean=['bucket'"),
        (["-f", "nowhere.sql"], "file of statements cannot be read"),
        (["SHOW TABLES", "-f", "x"], "given twice"),
        (["DROP TABLE nope"], "no such database"),
    ],
)
def test_mistakes_are_told_with_exit_code_2(fluvial: Fluvial, arguments: list[str], words: str) -> None:
    code, out, err = fluvial(*arguments)
    assert (code, out) == (EXIT_INVALID, "")
    assert err.startswith("error: ")
    assert words in err


def test_long_results_are_cut_and_it_is_said(fluvial: Fluvial, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path / "warehouse"))
    for name in "abc":
        catalog.create_database(name)
    code, out, err = fluvial("--limit", "2", "--format", "csv", "SHOW DATABASES")
    assert (code, out.split()) == (0, ['"namespace"', '"a"', '"b"'])
    assert "only 2 rows" in err


@pytest.mark.sweep
def test_a_terminal_is_a_conversation(tmp_path: Path) -> None:
    """Statements end with ``;``, mistakes do not end the session, and the history is kept."""
    history = tmp_path / "history"
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "engine.cli", "sql", "--warehouse", str(tmp_path / "w")],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "FLUVIAL_SQL_HISTORY": str(history), "TERM": "dumb"},
        close_fds=True,
    )
    os.close(theirs)
    seen = _until(ours, "fluvial> ")
    os.write(ours, b"CREATE TABLE t\n(a INT); SHOW\nTABLES;\n")
    seen += _until(ours, "default")
    os.write(ours, b"SELEC 1;\n")
    seen += _until(ours, "did_you_mean=SELECT")
    os.write(ours, b"exit\n")
    assert process.wait(30) == 0
    os.close(ours)
    assert "->" in seen
    assert "SELEC 1;" in history.read_text()


def _until(terminal: int, words: str) -> str:
    seen, deadline = "", time.monotonic() + 60
    while words not in seen:
        assert time.monotonic() < deadline, seen
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen
