"""Temporary directories on this machine, of which none outlives its process for long.

A directory is held by a lock that the system frees when its process dies, however it dies. So what a killed process
left can be told from what is in use, and the first directory that another process makes clears it away.
"""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Final

PREFIX: Final = "fluvial-tail-"
_LEAST_AGE_S: Final = 600.0  # far longer than a new directory takes to be held


@contextmanager
def scratch_directory() -> Iterator[str]:
    """A new and empty directory, which is removed at the end."""
    _clear_once(tempfile.gettempdir())
    directory = tempfile.mkdtemp(prefix=PREFIX)
    holder = _hold(directory)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        if holder is not None:
            os.close(holder)


def remove_abandoned(parent: str, *, now_s: float) -> list[str]:
    """Remove the directories of processes that died; what cannot be removed stays.

    Args:
        parent: where they are.
        now_s: epoch seconds; what changed within ten minutes before is not looked at.

    Returns:
        Names of what was removed.
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
    """A descriptor that holds a directory; None when somebody else does, or nobody may."""
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
