"""Rows with their places as a Spark frame, and the commit that marks some of them: DELETE and UPDATE without a key.

Whatever Spark can say about rows chooses them; what comes back to the driver is one bitmap for each file and task.
"""

import uuid
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType

from engine.lineage.after_commit import AfterCommit
from engine.lineage.batch_origin import batch_origin
from engine.log.table_log import tracks_changes
from engine.read.batch_read import BatchPlan
from engine.read.frames import pieces_frame
from engine.types.spark_types import spark_schema
from engine.write.batch_part import BatchSpec
from engine.write.sink import run_parts
from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.commit.table_commit import CommitResult
from filestore.manifest.commit_message import CommitMessage
from filestore.scan.data_split import DataSplit
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.change_tracking import ChangeSource
from filestore.table import Table
from filestore.table_store import TableStore
from filestore.write.row_deletion import FILE_FIELD, ROW_FIELD, Marks, read_with_places, replace_rows, united_deletes
from lsm.errors import InvalidInputError

FILE_NAME, ROW_NUMBER = FILE_FIELD.name, ROW_FIELD.name


def placed_frame(spark: SparkSession, store: TableStore, plan: BatchPlan, columns: Sequence[str]) -> DataFrame:
    """The rows of a plan with two more columns: in which file they are, and where.

    Args:
        spark: the session.
        store: opened with the schema that the rows shall have.
        plan: of it.
        columns: names, in the wanted order.
    """
    splits = file_splits(plan)
    schema = spark_schema([store.schema.field(name) for name in columns])
    schema = schema.add(FILE_NAME, StringType(), nullable=False).add(ROW_NUMBER, LongType(), nullable=False)
    return pieces_frame(spark, splits, schema, partial(read_with_places, store, columns=columns, filter=plan.filter))


def file_splits(plan: BatchPlan) -> list[DataSplit]:
    """The pieces of a plan. Raises: InvalidInputError when some rows are not in the table's own files."""
    splits = [piece for piece in plan.splits if isinstance(piece, DataSplit)]
    if len(splits) < len(plan.splits):
        raise InvalidInputError("rows of the log have no place in a file: fix=leave scan.log.union out")
    return splits


def marks_of(frame: DataFrame) -> Marks:
    """The places of a frame's rows, each once; the frame is computed."""
    places = frame.select(F.col(FILE_NAME), F.col(ROW_NUMBER)).mapInArrow(_bitmaps, "file string, rows binary")
    return united_deletes((each.file, _positions(each.rows)) for each in places.collect())


def commit_deletes(
    table: Table, plan: BatchPlan, marks: Marks, *, new_rows: DataFrame | None = None, options: Mapping[str, str]
) -> CommitResult:
    """Mark rows as deleted, and add others, in one commit.

    Args:
        table: whose.
        plan: in which the rows were found.
        marks: rows to delete.
        new_rows: to add; None: none.
        options: of the write, see ``Table.append``.

    Raises:
        ConflictError: files with these rows were rewritten meanwhile, or rows of them deleted; nothing is visible.
        OutcomeUnknownError: it may be visible.
    """
    if plan.snapshot is None or not marks:
        return CommitResult(snapshot=plan.snapshot)
    user, after = str(uuid.uuid4()), AfterCommit(table)
    origin = batch_origin(table, options, user, new_rows)
    added: list[CommitMessage] = []
    if new_rows is not None:
        live = LiveFiles(table, plan.snapshot)
        spec = BatchSpec(
            store=table,
            log=None,
            commit_user=user,
            batch_id=BATCH_IDENTIFIER,
            base_snapshot_id=plan.snapshot.id,
            max_sequence_numbers=live.max_sequence_numbers(),
            log_offsets={},
        )
        added = [message for result in run_parts(new_rows, spec) for message in result.messages]
    changes = ChangeSource.FILES if tracks_changes(table, options) else ChangeSource.NONE
    committable = Committable(identifier=BATCH_IDENTIFIER, changes=changes, properties=after.properties(origin))
    done = replace_rows(
        table, plan.snapshot, file_splits(plan), marks, added=added, commit_user=user, committable=committable
    )
    after.notify(done.snapshot, origin, commit_user=user, identifier=BATCH_IDENTIFIER)
    return done


def _bitmaps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """One bitmap of rows for each file."""
    found: defaultdict[str, BitMap64] = defaultdict(BitMap64)
    for batch in batches:
        encoded = batch.column(0).dictionary_encode()
        rows, codes = batch.column(1).to_numpy().astype(np.uint64), encoded.indices.to_numpy()
        for code, name in enumerate(encoded.dictionary.to_pylist()):
            found[name] |= BitMap64(rows[codes == code])
    columns = {"file": pa.array(found, pa.string()), "rows": pa.array([each.serialize() for each in found.values()])}
    yield pa.RecordBatch.from_pydict({**columns, "rows": columns["rows"].cast(pa.binary())})


def _positions(blob: bytes) -> np.ndarray:
    return np.frombuffer(BitMap64.deserialize(bytes(blob)).to_array(), np.uint64).astype(np.int64)
