"""One run of a checkpoint: a lock that a process holds on its directory, and that ends with the process.

It is the kernel's lock on a file, so it outlives no kill, and asks no clock: there is nothing to renew and nothing that
gets too old. The file says who holds it. Where a checkpoint is not in a directory of this machine, or its file system
has no locks, a second run is found out by its first batch: a table refuses the earlier one, see ``QueryRun``.
"""

import errno
import fcntl
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from engine.checkpoint.checkpoint_files import OWN_FILES, checkpoint_root
from engine.runtime.units import age_text
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.job")

LOCK_FILE: Final = f"{OWN_FILES}run"
_WAIT_S: Final = 0.5
_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EROFS, errno.EACCES})


@contextmanager
def held_checkpoints(
    locations: Iterable[str], *, waits: bool = False, stop: threading.Event | None = None
) -> Iterator[bool]:
    """Hold the checkpoints of a run for the block.

    Args:
        locations: of the checkpoints.
        waits: wait until the run that holds one of them has ended, instead of an error.
        stop: ends the waiting.

    Yields:
        False: ``stop`` was set first, and they are not held.

    Raises:
        InvalidInputError: another run holds one; it names host, process and age.
    """
    with ExitStack() as held:
        for location in sorted({*locations}):
            lock = _opened(location)
            if lock is None:
                continue
            held.callback(os.close, lock)
            is_logged = False
            while not _is_locked(lock, location):
                error = _refusal(lock, location)
                if not waits:
                    raise error
                if not is_logged:
                    logger.warning("waits until another run has ended: %s", error)
                    is_logged = True
                if (stop or threading.Event()).wait(_WAIT_S):
                    yield False
                    return
            body = {"host": socket.gethostname(), "pid": os.getpid(), "started_s": int(time.time())}
            os.truncate(lock, 0)
            os.pwrite(lock, json.dumps(body).encode(), 0)
        yield True


def _opened(location: str) -> int | None:
    """The file of the lock; None: there can be none."""
    try:
        root = checkpoint_root(location)
    except InvalidInputError:
        return None
    try:
        root.mkdir(parents=True, exist_ok=True)
        return os.open(root / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:  # Spark reports where it cannot write
        logger.info("checkpoint without a lock: checkpoint=%s reason=%s", location, error)
        return None


def _is_locked(lock: int, location: str) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        logger.info("checkpoint without a lock: checkpoint=%s reason=%s", location, error)
    return True


def _refusal(lock: int, location: str) -> InvalidInputError:
    try:
        body = json.loads(os.pread(lock, 4096, 0))
        age = age_text(max(0, int(time.time()) - body["started_s"]) * 1000)
        holder = f"host={body['host']} pid={body['pid']} age='{age}'"
    except (OSError, ValueError, KeyError, TypeError):
        holder = "host=unknown"  # it has just begun
    return InvalidInputError(
        f"another run has this checkpoint: checkpoint={location} {holder} "
        "fix='end that run, or start this one with --wait; two jobs need a checkpoint each'"
    )
