"""Applies a truncate of the source: empties the table in a commit of its own, and writes the rows after it.

Only a batch that is not committed gets here. A replay repeats both steps, the first one on an empty table.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame

from engine.kafka.dead_letters import LETTERS, LettersPart
from engine.request.writer_options import SINK_KEYS, WriterOptions
from engine.spark_internals.session import is_shuffled
from engine.types.quoting import quoted
from engine.types.rows import ROW_KIND_COLUMN
from engine.write.session import LocalRunner, Upkeep, WriteSession
from engine.write.truncates import truncate_places
from filestore.commit.table_commit import TableCommit
from filestore.options.table_options import TableOptions
from filestore.table import FileTable
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatePlace:
    """Position of the newest truncate in a batch."""

    partition: int  # of the frame
    row: int  # of the partition


def place_of_truncate(frame: DataFrame, table: str) -> TruncatePlace:
    """Look for it, in a job of its own.

    Raises:
        InvalidInputError: other partitions have rows too, and which of them came before the truncate is not known.
    """
    columns = "partition int, rows long, last long"
    found = frame.select(quoted(ROW_KIND_COLUMN)).mapInArrow(_looked, columns).collect()
    filled = [each for each in found if each["rows"]]
    if is_shuffled(frame) or len(filled) != 1 or filled[0]["last"] < 0:
        raise InvalidInputError(
            f"a truncate of the source came with rows of other partitions, whose order with it is not known: "
            f"table={table} partitions={len(filled)} fix='let nothing between source and table shuffle the rows'"
        )
    return TruncatePlace(partition=filled[0]["partition"], row=filled[0]["last"])


@contextmanager
def sending_letters(frame: DataFrame, part: LettersPart) -> Iterator[None]:
    """A part of the frame's dead letters is sent by readings within: those of one batch together send each once."""
    context = getattr(frame.sparkSession, "sparkContext", None)
    if context is None:  # Spark Connect: each reading sends its own
        yield
        return
    context.setLocalProperty(LETTERS, part.value)
    try:
        yield
    finally:
        context.setLocalProperty(LETTERS, None)


def rows_behind(frame: DataFrame, place: TruncatePlace) -> DataFrame:
    """The rows of a frame behind a truncate."""
    return frame.mapInArrow(partial(_behind, place), frame.schema)


def empty_before(table: FileTable, commit_user: str, batch_id: int) -> None:
    """Remove all rows in a commit of its own, before this batch's rows are written; not when they already are.

    Removing the rows of an empty table again is harmless, so a replay may do it.

    Raises:
        FluvialError: see ``WriteSession.overwrite``.
    """
    if TableCommit(table.store, commit_user).find_committed(batch_id) is not None:
        return
    whole = table.with_options({TableOptions.dynamic_partition_overwrite.key: "false"})
    with WriteSession(
        whole,
        LocalRunner(),
        commit_user=f"{commit_user}-truncate",
        options=WriterOptions.parse({}, SINK_KEYS),
        upkeep=Upkeep.REPLACE,
        origin=lambda _batch_id, _rows: None,
    ) as session:
        session.overwrite([], None)


def _looked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: how many rows the partition has, and where the last truncate is; -1: there is none."""
    rows, last = 0, -1
    for batch in batches:
        places = truncate_places(batch)
        if places.size:
            last = rows + int(places[-1])
        rows += batch.num_rows
    yield pa.record_batch(
        {
            "partition": pa.array([_partition()], pa.int32()),
            "rows": pa.array([rows], pa.int64()),
            "last": pa.array([last], pa.int64()),
        }
    )


def _behind(place: TruncatePlace, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: what is behind the place."""
    left = place.row + 1 if _partition() == place.partition else 0
    for batch in batches:
        rest = batch.slice(min(left, batch.num_rows))
        left = max(0, left - batch.num_rows)
        if rest.num_rows:
            yield rest


def _partition() -> int:
    context = TaskContext.get()
    assert context is not None
    return int(context.partitionId())
