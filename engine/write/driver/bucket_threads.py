"""A batch written in threads of this process: every bucket in one of them, its rows in the order in which they came."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from itertools import chain

import numpy as np
import pyarrow as pa

from engine.types.rows import change_parts, row_buckets
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from filestore.commit.committable import discard
from filestore.compact.compactor import run_task
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.table_store import TableStore


def write_in_threads(spec: BatchSpec, batches: Sequence[pa.RecordBatch], *, most_threads: int) -> list[BucketResult]:
    """Write a batch, all of its rows. Raises: as ``write_parts``."""
    split = bucket_parts(spec, batches, most_threads)
    return write_parts(replace(spec, task_count=len(split)), [_drained(part) for part in split if part])


def write_parts(spec: BatchSpec, parts: Sequence[Iterable[pa.RecordBatch]]) -> list[BucketResult]:
    """Write the parts of a batch, each in a thread, and each bucket in one of them.

    Raises: as ``write_part``: of several errors the first part's, when all threads have ended.
    """
    if len(parts) <= 1:
        return [result for part in parts for result in write_part(spec, part)]
    with ThreadPoolExecutor(len(parts), thread_name_prefix="fluvial-write") as pool:
        written = [pool.submit(write_part, spec, part) for part in parts]
    failed = next((error for each in written if (error := each.exception()) is not None), None)
    if failed is None:
        return [*chain.from_iterable(each.result() for each in written)]
    if spec.log is None:  # else the log names files of the threads that have ended
        discard(spec.table.store, [message for result in _whole(written) for message in result.messages])
    raise failed


def bucket_parts(
    spec: BatchSpec, batches: Sequence[pa.RecordBatch], most_parts: int
) -> Sequence[deque[pa.RecordBatch]]:
    """The rows of each thread: bucket ``b`` is in part ``b % n``. Buckets that are not fixed are in one part."""
    table = spec.table
    count = min(most_parts, table.options.bucket)
    if count <= 1:
        return [deque(batches)]
    parts: list[deque[pa.RecordBatch]] = [deque() for _ in range(count)]
    for batch in batches:
        rows, _, _ = change_parts(batch, table)
        places = row_buckets(rows, table) % count
        for number, part in enumerate(parts):
            here = np.flatnonzero(places == number)
            if len(here) == batch.num_rows:
                part.append(batch)
            elif len(here):
                part.append(batch.take(pa.array(here)))
    return parts


def compact_in_threads(store: TableStore, tasks: Sequence[CompactionTask], *, most_threads: int) -> list[CommitMessage]:
    """Carry out compaction tasks and return what they wrote, in their order; the first error, when all have ended."""
    with ThreadPoolExecutor(max(1, min(most_threads, len(tasks))), thread_name_prefix="fluvial-compact") as pool:
        return list(pool.map(lambda task: run_task(store, task), tasks))


def _drained(rows: deque[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    while rows:  # what is in the memtable is not held here as well
        yield rows.popleft()


def _whole(written: Iterable[Future[list[BucketResult]]]) -> Iterator[BucketResult]:
    for each in written:
        if each.exception() is None:
            yield from each.result()
