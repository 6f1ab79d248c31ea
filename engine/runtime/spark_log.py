"""Spark's log: what its JVM and its Python processes write to standard error, kept in a file of bounded size.

The file is appended to, and older parts are kept beside it (``.1`` is the newest), so that what ended a run can be read
after the next one has begun. It is never reached through a link, which someone else could have made.
"""

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from lsm.errors import InvalidInputError

_MAX_BYTES: Final = 32 << 20
"""Size at which the file's contents move to ``.1``; the processes that write it keep it open."""
_KEPT: Final = 3
_LOOK_S: Final = 30.0
_TAIL_BYTES: Final = 64 << 10


@contextmanager
def spark_output(log_file: str, *, max_bytes: int = _MAX_BYTES, look_s: float = _LOOK_S) -> Iterator[None]:
    """Redirect standard error, which Spark, its JVM and its workers inherit, to a file; ``sys.stderr`` stays.

    Args:
        log_file: appended to, and created for this user alone.
        max_bytes: of the file; checked now and then, so it may be exceeded for a short time.
        look_s: seconds between these checks.

    Raises:
        InvalidInputError: the file cannot be opened, or is a link.
    """
    log = _opened(log_file)
    rotate(log_file, log, max_bytes)
    sys.stderr.flush()
    terminal = os.dup(2)
    saved = sys.stderr
    os.dup2(log, 2)
    sys.stderr = os.fdopen(os.dup(terminal), "w", buffering=1, encoding="utf-8")
    end = threading.Event()
    looking = threading.Thread(target=_look, args=(log_file, log, max_bytes, look_s, end), daemon=True)
    looking.start()
    try:
        yield
    finally:
        end.set()
        looking.join()
        sys.stderr.close()
        sys.stderr = saved
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(log)


def rotate(log_file: str, log: int, max_bytes: int) -> None:
    """Move the contents of a file of at least ``max_bytes`` to ``.1``, those of ``.1`` to ``.2``, and so on.

    The file stays the same one: others have it open and append to it. What they write meanwhile may be lost.
    """
    if os.fstat(log).st_size < max_bytes:
        return
    with suppress(OSError):
        for number in range(_KEPT - 1, 0, -1):
            if os.path.lexists(f"{log_file}.{number}"):
                os.replace(f"{log_file}.{number}", f"{log_file}.{number + 1}")
        part = os.open(f"{log_file}.1", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        with open(log_file, "rb") as source, os.fdopen(part, "wb") as target:
            shutil.copyfileobj(source, target)
        os.ftruncate(log, 0)


def last_lines(log_file: str, count: int = 5) -> list[str]:
    """The last lines of a log that say something: no stack frames, no empty ones. [] when it cannot be read."""
    try:
        with open(log_file, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    said = [line.strip() for line in lines if line.strip() and not line.startswith(("\tat ", "\t...", "    at "))]
    return said[-count:]


def _opened(log_file: str) -> int:
    try:
        return os.open(log_file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        reason = "it is a link" if os.path.islink(log_file) else error.strerror
        raise InvalidInputError(
            f"the log of Spark cannot be opened: file={log_file} reason='{reason}' fix=--spark-log with another file"
        ) from error


def _look(log_file: str, log: int, max_bytes: int, look_s: float, end: threading.Event) -> None:
    while not end.wait(look_s):
        rotate(log_file, log, max_bytes)
