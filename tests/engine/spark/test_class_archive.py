"""The archive of Spark's classes is made once, whole or not at all, and never in anyone's way."""

import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from engine.spark import class_archive
from engine.spark.class_archive import SUBMIT_OPTIONS, SWITCH, class_sharing, make_archive, spark_archive
from engine.spark.class_training import starts_with
from tests.support.class_archive import ARCHIVE, QUICK

SUBMIT = Path(sys.prefix) / f"lib/python3.{sys.version_info.minor}/site-packages/pyspark/bin/spark-submit"


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the archive of a user without one would lie, with everything at its default."""
    monkeypatch.setenv("FLUVIAL_CACHE", str(tmp_path))
    monkeypatch.delenv(SWITCH, raising=False)
    monkeypatch.delenv(SUBMIT_OPTIONS, raising=False)
    class_archive._make_at_exit.cache_clear()
    found = spark_archive()
    assert found is not None
    return found


@pytest.fixture
def at_exit(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What this process would do when it ends."""
    found: list[object] = []
    monkeypatch.setattr("atexit.register", found.append)
    return found


def write_part(options: str) -> None:
    """As a JVM does that ends by itself."""
    [path] = [each.partition("=")[2] for each in options.split() if each.startswith("-XX:ArchiveClassesAtExit=")]
    Path(path).write_text("classes")


def is_whole(archive: Path) -> bool:
    return archive.read_text() == "classes"


def test_it_is_made_once_and_lies_where_sessions_look(archive: Path, at_exit: list[object]) -> None:
    with class_sharing():
        assert SUBMIT_OPTIONS not in os.environ
    with class_sharing():
        pass
    assert at_exit == [class_archive.start_making]  # once
    assert make_archive(archive, write_part, is_whole)
    assert not make_archive(archive, write_part, is_whole)
    assert archive.read_text() == "classes"
    assert {each.name for each in archive.parent.iterdir()} == {archive.name, archive.with_suffix(".lock").name}
    os.environ[SUBMIT_OPTIONS] = "-Dmine=1"
    with class_sharing():
        assert os.environ[SUBMIT_OPTIONS].startswith(f"-Dmine=1 -XX:SharedArchiveFile={archive} -Xshare:auto")
    assert os.environ[SUBMIT_OPTIONS] == "-Dmine=1"


@pytest.mark.parametrize(
    ("name", "value"),
    [(SWITCH, "false"), (SWITCH, " OFF"), (SUBMIT_OPTIONS, "-XX:SharedArchiveFile=mine.jsa"), ("PATH", "/none")],
)
def test_it_is_left_alone_where_it_is_turned_off_or_the_user_has_one_or_there_is_no_java(
    archive: Path, at_exit: list[object], monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    make_archive(archive, write_part, is_whole)
    monkeypatch.setenv(name, value)
    before = dict(os.environ)
    with class_sharing():
        assert dict(os.environ) == before
    assert at_exit == []


@pytest.mark.parametrize("left", [None, "cla"], ids=["nothing", "a part"])
def test_an_attempt_that_failed_is_not_repeated_for_a_day(
    archive: Path, at_exit: list[object], left: str | None
) -> None:
    def fail(options: str) -> None:
        if left is None:
            raise OSError("no room")
        write_part(options)
        [part] = archive.parent.glob(f".spark-*/{archive.name}")
        part.write_text(left)

    assert not make_archive(archive, fail, is_whole)
    assert not archive.exists()
    assert not make_archive(archive, write_part, is_whole)
    with class_sharing():
        pass
    assert at_exit == []
    note = archive.with_suffix(".lock")
    yesterday = time.time() - 90_000
    os.utime(note, (yesterday, yesterday))
    assert make_archive(archive, write_part, is_whole)


def test_one_process_makes_it_and_what_a_killed_one_left_goes(archive: Path) -> None:
    left = archive.parent / ".spark-killed"
    left.mkdir(parents=True)
    (left / archive.name).write_text("half")
    began, may_end = Event(), Event()

    def slow(options: str) -> None:
        began.set()
        may_end.wait(10)
        write_part(options)

    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(make_archive, archive, slow, is_whole)
        began.wait(10)
        assert not make_archive(archive, write_part, is_whole)
        assert not archive.exists()
        may_end.set()
        assert first.result()
    assert not left.exists()


def test_archives_of_old_versions_go(archive: Path) -> None:
    archive.parent.mkdir(parents=True)
    for age in range(4):
        old = archive.parent / f"spark-{age}.jsa"
        old.write_text("old")
        os.utime(old, (1e9 - age, 1e9 - age))
    assert make_archive(archive, write_part, is_whole)
    assert {each.name for each in archive.parent.glob("*.jsa")} == {"spark-0.jsa", "spark-1.jsa", archive.name}


@pytest.mark.sampled(1)
@pytest.mark.spark
@pytest.mark.parametrize("is_none", [False, True])
def test_a_jvm_maps_it_and_starts_without_it_where_it_is_none(archive: Path, tmp_path: Path, is_none: bool) -> None:
    """That of tests, made by the same process as a user's, in the place of one."""
    os.environ[SUBMIT_OPTIONS] = " ".join(QUICK)  # the fixture takes it back
    archive.parent.mkdir(parents=True)
    if is_none:
        archive.write_bytes(b"of another JVM" * 10_000)
    else:
        shutil.copy(ARCHIVE, archive)
    log = tmp_path / "cds.log"
    with class_sharing():
        options = os.environ[SUBMIT_OPTIONS]
        environment = {**os.environ, SUBMIT_OPTIONS: f"{options} -Xlog:cds=info:file={log}"}
        done = subprocess.run([SUBMIT, "--version"], env=environment, capture_output=True, text=True, check=True)
    assert ("Mapped dynamic region" in log.read_text()) != is_none, "make it again: rm .venv/spark-classes.jsa"
    assert starts_with(archive)
    assert "archive" not in done.stdout + done.stderr
