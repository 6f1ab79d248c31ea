"""Spark's log outlives the next start, does not grow without end, and is never reached through a link."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.runtime.spark_log import last_lines, rotate, spark_output
from lsm.errors import InvalidInputError


def test_a_second_run_appends(tmp_path: Path) -> None:
    file = tmp_path / "spark.log"
    for number in range(2):
        with spark_output(str(file)):
            os.write(2, f"run {number}\n".encode())
            subprocess.run([sys.executable, "-c", "import os; os.write(2, b'a child\\n')"], check=True)
            sys.stderr.write("")  # still the terminal's
    assert file.read_text() == "run 0\na child\nrun 1\na child\n"
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_large_file_moves_away_under_its_writers(tmp_path: Path) -> None:
    """They append to the same file; three older parts are kept."""
    file = tmp_path / "spark.log"
    log = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    child = subprocess.Popen(
        [sys.executable, "-c", "import os\nwhile os.read(0, 1): os.write(2, b'child\\n'); os.write(1, b'x')"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    for number in range(6):
        os.write(log, f"{number}\n".encode())
        os.write(child.stdin.fileno(), b"x")
        os.read(child.stdout.fileno(), 1)
        rotate(str(file), log, 4)
    child.communicate()
    rotate(str(file), log, 4)
    os.close(log)
    assert file.read_text() == ""
    assert [(tmp_path / f"spark.log.{each}").read_text() for each in (1, 2, 3)] == [
        f"{number}\nchild\n" for number in (5, 4, 3)
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["spark.log", *(f"spark.log.{n}" for n in (1, 2, 3))]


def test_a_running_session_moves_its_file_away(tmp_path: Path) -> None:
    file = tmp_path / "spark.log"
    with spark_output(str(file), max_bytes=4, look_s=0.001):
        os.write(2, b"something\n")
        while not (tmp_path / "spark.log.1").exists() or file.stat().st_size:
            pass
    assert (tmp_path / "spark.log.1").read_text() == "something\n"


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_is_not_followed(tmp_path: Path, exists: bool) -> None:
    target = tmp_path / "target"
    if exists:
        target.write_text("whole")
    (tmp_path / "spark.log").symlink_to(target)
    refused = pytest.raises(InvalidInputError, match=r"file=.*spark.log reason='it is a link' fix=--spark-log")
    with refused, spark_output(str(tmp_path / "spark.log")):
        pass
    assert target.exists() == exists
    assert not exists or target.read_text() == "whole"


def test_the_last_lines_say_something(tmp_path: Path) -> None:
    file = tmp_path / "spark.log"
    frames = "".join(f"\tat org.apache.spark.X.y(X.scala:{number})\n" for number in range(30))
    file.write_text("INFO one\nERROR Executor: Exit as unable\n" + frames + "\nINFO three\n")
    assert last_lines(str(file), 2) == ["ERROR Executor: Exit as unable", "INFO three"]
    assert last_lines(str(tmp_path / "none")) == []
