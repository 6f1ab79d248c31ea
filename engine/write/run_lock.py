"""One run of a checkpoint: a lock that a process holds on its directory, and that ends with the process.

It is the kernel's lock on a file, so it outlives no kill, and asks no clock: there is nothing to renew and nothing that
gets too old. The file says who holds it. Where a checkpoint is not in a directory of this machine, or its file system
has no locks, a second run is found out by its first batch: a table refuses the earlier one, see ``QueryRun``.

A process has one lock on a checkpoint, of a run's block or of the newest query that holds it here.
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
from dataclasses import dataclass, replace
from typing import Final

from engine.checkpoint.checkpoint_files import OWN_FILES, checkpoint_root
from engine.runtime.units import age_text
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.job")

LOCK_FILE: Final = f"{OWN_FILES}run"
_WAIT_S: Final = 0.5
_ENDED_S: Final = 5.0  # a query that has ended lets go of its checkpoint within
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
            is_logged = False
            while (refused := _taken(location, _RUN, "or start this one with --wait; ")) is not None:
                if not waits:
                    raise refused
                if not is_logged:
                    logger.warning("waits until another run has ended: %s", refused)
                    is_logged = True
                if (stop or threading.Event()).wait(_WAIT_S):
                    yield False
                    return
            held.callback(release_checkpoint, location, _RUN)
        yield True


def hold_checkpoint(location: str, run_id: str) -> bool:
    """Hold the checkpoint of a query that has begun, until ``release_checkpoint``.

    Args:
        location: of the checkpoint.
        run_id: of this start of the query. An earlier one of the checkpoint in this process has ended.

    Returns:
        Whether the caller has to release it: no block or earlier call of this process holds it for this run.

    Raises:
        InvalidInputError: another process has it; the error names host, process and age.
    """
    held = _held.get(_root(location))
    if held is not None and held.run_id in (_RUN, run_id):
        return False
    end = time.monotonic() + _ENDED_S
    while (refused := _taken(location, run_id)) is not None:
        if time.monotonic() > end:
            raise refused
        time.sleep(_WAIT_S)
    return True


def release_checkpoint(location: str, run_id: str) -> None:
    """End what ``hold_checkpoint`` began, unless a newer query of this process or a run's block has it."""
    root = _root(location)
    with _guard:
        if root in _held and _held[root].run_id == run_id:
            os.close(_held.pop(root).lock)


@dataclass(frozen=True, slots=True)
class _Held:
    lock: int  # file descriptor
    run_id: str


_RUN: Final = ""  # a run's block holds it, whichever queries begin in it
_held: Final[dict[str | None, _Held]] = {}  # by directory, of this process
_guard: Final = threading.Lock()


def _forget() -> None:
    for each in _held.values():
        os.close(each.lock)
    _held.clear()


os.register_at_fork(after_in_child=_forget)  # a child that outlives this process would hold it


def _taken(location: str, run_id: str, fix: str = "") -> InvalidInputError | None:
    """Take the lock of a checkpoint, if it has one; the refusal if another process, or a run's block, has it."""
    root = _root(location)
    with _guard:
        held = _held.get(root)
        if held is not None and run_id != _RUN:
            _held[root] = replace(held, run_id=run_id)
            return None
        lock = None if root is None else _opened(root)
        if lock is None:
            return None
        if not _is_locked(lock, location):
            refused = _refusal(lock, location, fix)
            os.close(lock)
            return refused
        body = {"host": socket.gethostname(), "pid": os.getpid(), "started_s": int(time.time())}
        os.truncate(lock, 0)
        os.pwrite(lock, json.dumps(body).encode(), 0)
        _held[root] = _Held(lock, run_id)
        return None


def _root(location: str) -> str | None:
    """The directory of a checkpoint; None: it is not on this machine."""
    try:
        return os.path.realpath(checkpoint_root(location))
    except InvalidInputError:
        return None


def _opened(root: str) -> int | None:
    """The file of the lock; None: there can be none."""
    try:
        os.makedirs(root, exist_ok=True)
        return os.open(f"{root}/{LOCK_FILE}", os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:  # Spark reports where it cannot write
        logger.info("checkpoint without a lock: checkpoint=%s reason=%s", root, error)
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


def _refusal(lock: int, location: str, fix: str) -> InvalidInputError:
    try:
        body = json.loads(os.pread(lock, 4096, 0))
        age = age_text(max(0, int(time.time()) - body["started_s"]) * 1000)
        holder = f"host={body['host']} pid={body['pid']} age='{age}'"
    except (OSError, ValueError, KeyError, TypeError):
        holder = "host=unknown"  # it has just begun
    return InvalidInputError(
        f"another run has this checkpoint: checkpoint={location} {holder} "
        f"fix='end that run, {fix}two jobs need a checkpoint each'"
    )
