"""``fluvial tail``: the changes of a table as lines, ended cleanly by Ctrl-C, by a closed pipe, by a limit."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import Catalog, Table
from tests.support.markdown import ROOT
from tests.support.streams import rows
from tests.support.warehouses import ID_SCHEMA

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def table(catalog: Catalog) -> Table:
    made = catalog.create_table("db.t", ID_SCHEMA, primary_key=["id"])
    made.write(rows([1, 2]))
    made.write(rows([2], "a,b"))
    made.write(rows([1], kind="-D"))
    return made


@pytest.fixture
def tail(table: Table, fluvial: Run, tmp_path: Path) -> Callable[..., str]:
    def run(*arguments: str) -> str:
        code, out, err = fluvial("tail", "db.t", "--warehouse", str(tmp_path / "warehouse"), *arguments)
        assert code == 0, err
        return out

    return run


def test_forms(tail: Callable[..., str]) -> None:
    given = ("--from", "1")
    assert [json.loads(line) for line in tail(*given).splitlines()] == [
        {"_row_kind": "+I", "id": 1, "v": "x"},
        {"_row_kind": "+I", "id": 2, "v": "x"},
        {"_row_kind": "+I", "id": 2, "v": "a,b"},
        {"_row_kind": "-D", "id": 1, "v": "x"},
    ]
    assert tail(*given, "--format", "csv", "--kinds", "-D").splitlines() == ['"_row_kind","id","v"', '"-D",1,"x"']
    assert tail(*given, "--format", "table", "--columns", "v", "--where", "id = 2").splitlines() == [
        "_row_kind  v",
        "+I         x",
        "+I         a,b",
    ]
    assert tail("--limit", "0") == ""
    assert len(tail(*given, "--follow", "--limit", "3").splitlines()) == 3  # ends without waiting for a fourth


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--kinds", "+X"), "kind=+X"),
        (("--from", "missing"), "missing"),
        (("--serve", "8080"), "HOST:PORT"),
        (("--serve", "127.0.0.1:0", "--limit", "1"), "leave out"),
        (("--page", "x.html"), "--serve"),
    ],
)
def test_wrong_requests(table: Table, fluvial: Run, tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    code, _, err = fluvial("tail", "db.t", "--warehouse", str(tmp_path / "warehouse"), *arguments)
    assert code == 2
    assert said in err


@pytest.mark.sweep
@pytest.mark.parametrize("form", ["json", "csv", "table"])
@pytest.mark.parametrize("command", ["tail", "read"])
def test_an_output_that_is_full_is_an_error_as_any_other(table: Table, tmp_path: Path, command: str, form: str) -> None:
    """It asked to be reported. Also where all rows fit the buffer, which is written at the end."""
    given = [sys.executable, "-m", "engine.cli", command, "db.t", "--warehouse", str(tmp_path / "warehouse")]
    with open("/dev/full", "w") as full:
        done = subprocess.run([*given, "--format", form], cwd=ROOT, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert re.fullmatch(r"error: something cannot be written: reason=.*No space left on device fix=.*\n", done.stderr)


@pytest.mark.parametrize("command", ["tail", "read"])
def test_control_characters_of_a_value_do_not_reach_the_terminal(
    table: Table, fluvial: Run, tmp_path: Path, command: str
) -> None:
    """A terminal would obey them, and a row would take three lines."""
    table.write(rows([2], "a\nb\tc\x1b[31m\x9bd\u2028e"))
    _, out, _ = fluvial(command, "db.t", "--warehouse", str(tmp_path / "warehouse"), "--format", "table")
    (line,) = [line for line in out.split("\n") if r"a\nb" in line]
    assert r"a\nb\tc\x1b[31m\x9bd\u2028e" in line


@pytest.mark.sweep
@pytest.mark.parametrize("ending", ["Ctrl-C", "closed pipe"])
def test_a_following_command_ends_cleanly(table: Table, tmp_path: Path, ending: str) -> None:
    """Idle, with all that was printed in the pipe; no traceback."""
    command = [sys.executable, "-m", "engine.cli", "tail", "db.t", "--warehouse", str(tmp_path / "warehouse"), "-f"]
    command += ["--from", "full"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        assert json.loads(running.stdout.readline())["id"] == 2
        if ending == "Ctrl-C":
            running.send_signal(signal.SIGINT)
        else:
            running.stdout.close()
        assert running.wait(30) == 0
        assert running.stderr.read() == ""
