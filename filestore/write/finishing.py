"""Finishing the files of many buckets side by side: most of the time goes to the file format and the disk."""

import os
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore, Event
from typing import Final, Protocol

_MANY: Final = 16  # buckets; fewer are finished sooner than threads start, and in one order
_MOST_THREADS: Final = 4
_AT_ONCE: Final = 32  # small files that a thread writes; the next ones are made meanwhile
_WAITING: Final = 2  # tasks for each thread, at work or next


class Finishable(Protocol):
    """A writer of one bucket, which shares nothing that changes with the others."""

    def encode(self) -> bool:
        """Make a small file in memory, so that ``finish`` only writes it; False: ``finish`` does it all."""

    def finish(self) -> None:
        """Write what is in memory, and finish the files that are open."""


class _Turns:
    """Threads that finish writers, a few ahead of which this one encodes."""

    def __init__(self, pool: ThreadPoolExecutor, threads: int) -> None:
        self.failed: Final = Event()
        self.futures: Final[list[Future[None]]] = []
        self._pool = pool
        self._free = BoundedSemaphore(threads * _WAITING)

    def give(self, writers: Sequence[Finishable]) -> None:
        """Have writers finished, one after the other; waits while enough others are."""
        self._free.acquire()
        self.futures.append(self._pool.submit(self._finish, writers))

    def _finish(self, writers: Sequence[Finishable]) -> None:
        try:
            for writer in writers:
                if self.failed.is_set():
                    return
                writer.finish()
        except BaseException:
            self.failed.set()
            raise
        finally:
            self._free.release()


def finish_all(writers: Sequence[Finishable]) -> None:
    """Finish all writers; when one fails no further one begins, and those at work end before its error is raised.

    Small files are made by this thread and written by others: encoding them is short and holds the interpreter's lock,
    writing them waits for the disk.
    """
    if len(writers) < _MANY:
        for writer in writers:
            writer.finish()
        return
    threads = min(_MOST_THREADS, 2 * (os.cpu_count() or 1))
    with ThreadPoolExecutor(threads, thread_name_prefix="fluvial-finish") as pool:
        turns = _Turns(pool, threads)
        try:
            _give_all(writers, turns)
        except BaseException:
            turns.failed.set()
            raise
    for future in turns.futures:
        future.result()


def _give_all(writers: Sequence[Finishable], turns: _Turns) -> None:
    small: list[Finishable] = []
    for writer in writers:
        if turns.failed.is_set():
            return
        if not writer.encode():
            turns.give([writer])
            continue
        small.append(writer)
        if len(small) == _AT_ONCE:
            turns.give(small)
            small = []
    if small:
        turns.give(small)
