"""Temporary directories on this machine that do not outlive their process for long.

A lock that the system releases when its process dies, however it dies, marks a directory as in use. So the leftovers of
a killed process can be recognised, and the first directory that another process creates removes them.
"""

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Final

from lsm.errors import InvalidInputError

PREFIX: Final = "fluvial-tail-"
_OWN: Final = "fluvial-user-"
_LEAST_AGE_S: Final = 600.0  # far longer than it takes to lock a new directory


@contextmanager
def scratch_directory() -> Iterator[str]:
    """A new, empty directory, removed at the end of the block."""
    _clear_once(tempfile.gettempdir())
    directory = tempfile.mkdtemp(prefix=PREFIX)
    holder = _hold(directory)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if holder is not None:
            os.close(holder)


def private_path(name: str) -> str:
    """The path of a file in the temporary directory, in a directory of this user that no other one may enter.

    Raises: InvalidInputError: another user has made that directory.
    """
    directory = os.path.join(tempfile.gettempdir(), f"{_OWN}{os.getuid()}")
    with suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise InvalidInputError(
            f"a directory for this user alone is another's, or open to others: path={directory} "
            f"mode={stat.S_IMODE(found.st_mode):o} owner={found.st_uid} fix='remove it, or set TMPDIR'"
        )
    return os.path.join(directory, name)


def remove_abandoned(parent: str, *, now_s: float) -> list[str]:
    """Remove the directories of processes that died; those that cannot be removed stay.

    Args:
        parent: their parent directory.
        now_s: epoch seconds; directories changed in the ten minutes before are skipped.

    Returns:
        Names of the removed directories.
    """
    removed = []
    for name in _names(parent):
        path = os.path.join(parent, name)
        with suppress(OSError):
            if os.path.islink(path) or now_s - os.stat(path).st_mtime < _LEAST_AGE_S:
                continue
            holder = _hold(path)
            if holder is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(holder)
                removed.append(name)
    return removed


@cache
def _clear_once(parent: str) -> None:
    remove_abandoned(parent, now_s=time.time())


def _names(parent: str) -> list[str]:
    with suppress(OSError):
        return sorted(name for name in os.listdir(parent) if name.startswith(PREFIX))
    return []


def _hold(directory: str) -> int | None:
    """A file descriptor that locks a directory; None when another process holds the lock, or locking fails."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor
