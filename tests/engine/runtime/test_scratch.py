"""Temporary directories: removed at the end, and after a kill by the next process."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from engine.runtime import scratch
from engine.runtime.scratch import PREFIX, private_path, remove_abandoned, scratch_directory
from lsm.errors import InvalidInputError

HOLDER = """
import sys, time
from engine.runtime.scratch import scratch_directory
with scratch_directory() as directory:
    print(directory, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    scratch._clear_once.cache_clear()
    return tmp_path


def names(home: Path) -> set[str]:
    return {each.name for each in home.iterdir()}


def age(path: Path) -> None:
    long_ago = time.time() - 3600
    os.utime(path, (long_ago, long_ago))


def test_a_directory_is_gone_at_the_end_of_its_use(home: Path) -> None:
    def fail() -> None:
        with scratch_directory() as directory:
            Path(directory, "bucket-0").mkdir()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert names(home) == set()


def test_what_a_killed_process_left_goes_and_what_is_in_use_stays(home: Path) -> None:
    """As a Spark worker that is out of memory dies."""
    with subprocess.Popen([sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        directory = Path(holder.stdout.readline().strip())
        assert directory.parent == home
        (directory / "bucket-0").mkdir()
        (directory / "bucket-0" / "data.parquet").write_bytes(b"x")
        age(directory)
        assert remove_abandoned(str(home), now_s=time.time()) == []
        holder.send_signal(signal.SIGKILL)
    assert directory.exists()
    with scratch_directory() as mine:
        assert names(home) == {Path(mine).name}


def test_a_young_directory_and_those_of_others_stay(home: Path) -> None:
    young, other, link = home / f"{PREFIX}young", home / "other-old", home / f"{PREFIX}link"
    for each in (young, other):
        each.mkdir()
    age(other)
    link.symlink_to(other)
    assert remove_abandoned(str(home), now_s=time.time()) == []
    assert names(home) == {young.name, other.name, link.name}
    age(young)
    assert remove_abandoned(str(home), now_s=time.time()) == [young.name]
    assert remove_abandoned(str(home / "nowhere"), now_s=0.0) == []


def test_a_file_of_a_user_is_in_a_directory_that_no_other_one_enters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that can be guessed was taken by who made it first: he read along."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.umask(0)
    try:
        path = Path(private_path("job.log"))
        assert private_path("job.log") == str(path)
    finally:
        os.umask(before)
    assert path.parent.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("how", ["open", "link", "file"])
def test_a_directory_that_another_user_may_have_made_is_refused(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    directory = Path(private_path("x")).parent
    directory.rmdir()
    match how:
        case "open":
            directory.mkdir()
            directory.chmod(0o777)
        case "link":
            (tmp_path / "mine").mkdir(mode=0o700)
            directory.symlink_to(tmp_path / "mine")
        case _:
            directory.touch(mode=0o600)
    with pytest.raises(InvalidInputError, match=f"path={directory} .*fix="):
        private_path("x")
