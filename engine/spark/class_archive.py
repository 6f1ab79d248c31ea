"""The classes that Spark loads, kept as the JVM maps them (class data sharing): a session starts in 6 s instead of 10.

An archive fits one Java and one set of jars, which its name stands for. It lies in the user's cache (200 MB; the newest
three are kept). The first process without one has it made when it ends: by a process of its own, at the lowest
priority, see ``class_training``. A JVM ignores an archive that does not fit, and starts without.

Environment: ``FLUVIAL_CLASS_ARCHIVE=false`` turns it off; an archive that ``SPARK_SUBMIT_OPTS`` names comes before it.
"""

import atexit
import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Final

import pyspark

from engine.broker.class_archive import may_be_mapped
from engine.broker.jars import cache_dir

SWITCH: Final = "FLUVIAL_CLASS_ARCHIVE"
SUBMIT_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""Options of the JVM besides those of the session."""

_QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")  # an archive that does not fit is no error
_NO: Final = ("false", "off", "no", "0")
_OWN: Final = ("SharedArchiveFile", "ArchiveClassesAtExit", "-Xshare")
_PART: Final = ".spark-"  # what is being made
_KEPT: Final = 3
_AGAIN_AFTER_S: Final = 86_400  # an attempt that failed


def spark_archive() -> Path | None:
    """Where the archive for this machine's Java and the installed Spark lies, made or not; None: there is no Java."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin" if home else None)  # as Spark finds it
    if found is None:
        return None
    java = Path(found).resolve()
    jars = Path(pyspark.__file__).parent / "jars"
    stats = [each.stat().st_mtime_ns if each.exists() else 0 for each in (java, jars)]
    about = [str(java), pyspark.__version__, str(jars.resolve()), *map(str, stats)]
    return cache_dir() / "classes" / f"spark-{hashlib.sha256(chr(0).join(about).encode()).hexdigest()[:16]}.jsa"


@contextmanager
def class_sharing() -> Iterator[None]:
    """While the JVM of a session starts: it maps the archive, or this process has one made when it ends."""
    given = os.environ.get(SUBMIT_OPTIONS)
    if not is_on() or (given is not None and any(word in given for word in _OWN)):
        yield
        return
    archive = spark_archive()
    if archive is None:
        yield
    elif may_be_mapped(archive):
        os.environ[SUBMIT_OPTIONS] = " ".join(filter(None, (given, options_for(archive))))
        try:
            yield
        finally:
            os.environ.pop(SUBMIT_OPTIONS)
            if given is not None:
                os.environ[SUBMIT_OPTIONS] = given
    else:
        yield
        if not archive.exists():
            _make_at_exit(archive)


def is_on() -> bool:
    """Whether the user has not turned it off."""
    return os.environ.get(SWITCH, "").strip().lower() not in _NO


def options_for(archive: Path) -> str:
    """The options with which a JVM maps an archive: for ``spark.driver.extraJavaOptions`` where it is the user's."""
    return " ".join((f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", *_QUIET))


def make_archive(archive: Path, train: Callable[[str], None], check: Callable[[Path], bool]) -> bool:
    """Make an archive unless it is there, another process makes it, or that failed today; whether this one made it.

    Args:
        archive: appears whole or not at all.
        train: runs a JVM with the given options until it has ended by itself.
        check: whether a JVM starts with it: one that is cut off, by a full disk, would end every JVM.
    """
    with contextlib.suppress(OSError), _locked(archive) as note:
        if archive.exists() or not is_worth_trying(archive):
            return False
        for left in archive.parent.glob(f"{_PART}*"):
            shutil.rmtree(left, ignore_errors=True)  # of a process that was killed
        with tempfile.TemporaryDirectory(prefix=_PART, dir=archive.parent) as work:
            part = Path(work) / archive.name
            note.write_text("no archive was made\n", encoding="utf-8")  # unless what follows ends well
            train(" ".join((f"-XX:ArchiveClassesAtExit={part}", *_QUIET)))
            if part.exists() and check(part):
                part.chmod(0o600)
                part.replace(archive)
                note.write_text("", encoding="utf-8")
                for old in sorted(archive.parent.glob("spark-*.jsa"), key=lambda each: each.stat().st_mtime)[:-_KEPT]:
                    old.unlink()
                return True
    return False


def is_worth_trying(archive: Path) -> bool:
    """Whether no attempt of the last day has failed."""
    note = _note(archive)
    with contextlib.suppress(OSError):
        stat = note.stat()
        return stat.st_size == 0 or time.time() - stat.st_mtime > _AGAIN_AFTER_S
    return True


@contextmanager
def _locked(archive: Path) -> Iterator[Path]:
    """The note beside an archive, held by this process. Raises: BlockingIOError: another one has it."""
    archive.parent.mkdir(parents=True, exist_ok=True)
    note = _note(archive)
    with note.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield note


def _note(archive: Path) -> Path:
    return archive.with_suffix(".lock")


@cache
def _make_at_exit(archive: Path) -> None:
    if is_worth_trying(archive):
        atexit.register(start_making)


def start_making() -> None:
    """Have the archive made by a process that does not end with this one."""
    with contextlib.suppress(OSError):
        subprocess.Popen(
            [sys.executable, "-m", "engine.spark.class_training"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
