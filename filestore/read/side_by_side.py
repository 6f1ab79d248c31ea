"""Reading parts of a plan side by side, for callers that hold all rows: decoding and filters run beside Python."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

import pyarrow as pa

from filestore.table_view import TableView

T = TypeVar("T")

_MOST_THREADS: Final = 4


def batches_of_all(
    parts: Sequence[T],
    read: Callable[[T], Iterable[pa.RecordBatch]],
    *,
    is_raw: Callable[[T], bool],
    sharing: Callable[[int], Callable[[T], Iterable[pa.RecordBatch]]] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of all parts, in their order.

    Args:
        parts: of a plan.
        read: the rows of a part; called by threads.
        is_raw: whether reading a part merges nothing. If some part does, several are read at a time by ``sharing``:
            a merge takes as much memory as options say, once.
        sharing: given a number of threads, what reads a part in that part of the memory; None: parts are too small for
            threads to pay.
    """
    threads = min(_MOST_THREADS, os.cpu_count() or 1, len(parts))
    is_all_raw = all(map(is_raw, parts))
    if threads < 2 or not (is_all_raw or sharing):
        for part in parts:
            yield from read(part)
        return
    reader = read if is_all_raw or sharing is None else sharing(threads)
    pool = ThreadPoolExecutor(threads, thread_name_prefix="fluvial-read")
    try:
        for batches in pool.map(lambda part: [*reader(part)], parts):
            yield from batches
    finally:
        pool.shutdown(cancel_futures=True)


def sharing_memory(table: TableView, threads: int) -> TableView:
    """The table for merges that many threads do at a time: together they take what one may."""
    size_bytes = max(table.options.sort_spill_buffer_size_bytes // threads, 1)
    return table.with_options({"sort-spill-buffer-size": f"{size_bytes} b"})
