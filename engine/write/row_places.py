"""Rows with their places as a Spark frame, and the commit that deletes some of them: DELETE and UPDATE without a key.

A Spark expression chooses the rows; the driver gets one bitmap for each file and task.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType

from engine.lineage.batch_origin import batch_origin
from engine.read.batch_plan import BatchPlan
from engine.read.frames import pieces_frame
from engine.request.writer_options import WriterOptions
from engine.types.spark_types import spark_schema
from engine.write.session import Upkeep, WriteSession
from engine.write.spark_runner import SparkRunner
from filestore.commit.table_commit import CommitResult
from filestore.scan.data_split import DataSplit
from filestore.table import FileTable
from filestore.table_store import TableStore
from filestore.write.row_deletion import FILE_FIELD, ROW_FIELD, DeletedPositions, read_with_places, united_deletes
from lsm.errors import InvalidInputError

FILE_NAME, ROW_NUMBER = FILE_FIELD.name, ROW_FIELD.name


def placed_frame(spark: SparkSession, store: TableStore, plan: BatchPlan, columns: Sequence[str]) -> DataFrame:
    """The rows of a plan with two more columns: in which file they are, and where.

    Args:
        spark: the session.
        store: opened with the schema of the returned rows.
        plan: of it.
        columns: names, in the wanted order.
    """
    splits = file_splits(plan)
    schema = spark_schema([store.schema.field(name) for name in columns])
    schema = schema.add(FILE_NAME, StringType(), nullable=False).add(ROW_NUMBER, LongType(), nullable=False)
    read = partial(read_with_places, store, columns=columns, filter=plan.filter)
    return pieces_frame(spark, splits, schema, read, name=plan.summary())


def file_splits(plan: BatchPlan) -> list[DataSplit]:
    """The pieces of a plan. Raises: InvalidInputError when some rows are not in the table's own files."""
    splits = [piece.own_split for piece in plan.pieces if piece.own_split is not None]
    if len(splits) < len(plan.pieces):
        raise InvalidInputError("rows of the log have no place in a file: fix=leave scan.log.union out")
    return splits


def places_of(frame: DataFrame) -> DeletedPositions:
    """The places of a frame's rows, each once; the frame is computed."""
    places = frame.select(F.col(FILE_NAME), F.col(ROW_NUMBER)).mapInArrow(_bitmaps, "file string, rows binary")
    return united_deletes((each.file, _positions(each.rows)) for each in places.collect())


def commit_deletes(
    table: FileTable,
    plan: BatchPlan,
    deletes: DeletedPositions,
    *,
    spark: SparkSession,
    new_rows: DataFrame | None = None,
    options: WriterOptions,
) -> CommitResult:
    """Delete rows, and add others, in one commit.

    Args:
        table: to write to.
        plan: in which the rows were found.
        deletes: rows to delete.
        spark: writes the new rows.
        new_rows: to add; None: none.
        options: of the write, see ``Table.append``.

    Raises:
        ConflictError: files with these rows were rewritten meanwhile, or rows of them deleted; nothing is visible.
        OutcomeUnknownError: it may be visible.
    """
    if plan.snapshot is None or not deletes:
        return CommitResult(snapshot=plan.snapshot)
    user = table.store.new_commit_user()
    session = WriteSession(
        table,
        SparkRunner(spark),
        commit_user=user,
        options=options,
        upkeep=Upkeep.REPLACE,
        origin=lambda batch_id, rows: batch_origin(table.store, options.pipeline_name, user, rows),
    )
    with session:
        return session.replace_rows(plan.snapshot, file_splits(plan), deletes, new_rows)


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
