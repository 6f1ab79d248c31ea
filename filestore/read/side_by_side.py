"""Reading parts of a plan side by side, for callers that hold all rows: decoding and filters run beside Python."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import pyarrow as pa

T = TypeVar("T")

_MOST_THREADS: Final = 4


def batches_of_all(
    parts: Sequence[T], read: Callable[[T], Iterable[pa.RecordBatch]], *, is_raw: Callable[[T], bool]
) -> Iterator[pa.RecordBatch]:
    """The rows of all parts, in their order.

    Args:
        parts: of a plan.
        read: the rows of a part; called by threads.
        is_raw: whether reading a part merges nothing. Only if no part does, several are read at a time: a merge takes
            as much memory as options say, once.
    """
    threads = min(_MOST_THREADS, os.cpu_count() or 1, len(parts))
    if threads < 2 or not all(map(is_raw, parts)):
        for part in parts:
            yield from read(part)
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="fluvial-read")
    try:
        for batches in pool.map(lambda part: [*read(part)], parts):
            yield from batches
    finally:
        pool.shutdown(cancel_futures=True)
