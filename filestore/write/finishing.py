"""Finishing the files of many buckets side by side: most of the time goes to the file format and the disk."""

import os
from collections.abc import Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import Final, Protocol

_MANY: Final = 16  # buckets; fewer are finished sooner than threads start, and in one order
_MOST_THREADS: Final = 4


class Finishable(Protocol):
    """A writer of one bucket, which shares nothing that changes with the others."""

    def finish(self) -> None:
        """Write what is in memory, and finish the files that are open."""


def finish_all(writers: Sequence[Finishable]) -> None:
    """Finish all writers; when one fails no further one begins, and those at work end before its error is raised."""
    if len(writers) < _MANY:
        for writer in writers:
            writer.finish()
        return
    with ThreadPoolExecutor(min(_MOST_THREADS, 2 * (os.cpu_count() or 1)), thread_name_prefix="fluvial-finish") as pool:
        futures = [pool.submit(writer.finish) for writer in writers]
        _, left = wait(futures, return_when=FIRST_EXCEPTION)
        for future in left:
            future.cancel()
    for future in futures:
        if not future.cancelled():
            future.result()
