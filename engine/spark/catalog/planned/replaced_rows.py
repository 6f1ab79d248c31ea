"""Rows that Spark read of a table, replaced by those that it gives for them: what differs is written as changes."""

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from engine.read.frames import table_frame
from engine.request.changed_rows import ignores_deletes
from engine.request.read_keys import rows_to_change
from engine.spark_internals.session import empty_frame
from engine.table import Table
from engine.types.quoting import quoted
from engine.types.rows import ROW_KIND_COLUMN
from engine.types.spark_types import spark_schema
from filestore.commit.table_commit import CommitResult

_OLD: Final = "_fluvial_old"
_NEW: Final = "_fluvial_new"
_KEY: Final = "_fluvial_key"


def write_difference(
    spark: SparkSession, table: Table, read_snapshot_id: int, condition: str | None, new: DataFrame
) -> CommitResult:
    """Write what differs, in one commit. Without a key all rows are replaced.

    Args:
        spark: the session.
        table: as it was read.
        read_snapshot_id: 0: it was empty.
        condition: of the rows that were read, on key columns; None: all were.
        new: all rows that were read and stay, changed or not, and new ones.

    Raises:
        InvalidInputError: two rows of one key, or a row that goes from a table that ignores deletes.
        ConflictError: other writers committed meanwhile; nothing is visible: run the statement again.
    """
    if not table.schema.primary_keys:
        return table.overwrite(new, {}, read_snapshot_id=read_snapshot_id)
    old = empty_frame(spark, _columns(table))
    if read_snapshot_id:
        plan = table.read(options=rows_to_change({})).plan(filter=condition)
        old = table_frame(spark, plan, filter_text=condition)
    return table.append(changed_rows(old, new, table), read_snapshot_id=read_snapshot_id)


def changed_rows(old: DataFrame, new: DataFrame, table: Table) -> DataFrame:
    """The changes that make one state of rows another, by key.

    Args:
        old: rows of the table.
        new: what is in their place; a key that occurs twice is an error when the frame is computed.
        table: that has the columns and the key.

    Returns: the table's columns and ``_row_kind``; ``-U`` where its log takes it.
    """
    names, keys = table.schema.column_names, table.schema.primary_keys
    key = [f"{_KEY}{index}" for index in range(len(keys))]
    count = F.count(F.lit(1)).over(Window.partitionBy(*key))
    problem = F.concat(
        F.lit(f"several rows are for one key of the table: table={table.name} key="),
        F.to_json(F.struct(*[F.col(each).alias(name) for each, name in zip(key, keys, strict=True)])),
        F.lit(" fix=make the source's rows unique"),
    )
    once = F.when(count > 1, F.raise_error(problem)).otherwise(F.col(_NEW))
    given = _by_key(new, names, keys, key, _NEW).withColumn(_NEW, once)
    joined = given.join(_by_key(old, names, keys, key, _OLD), key, "full_outer")
    before, after = F.col(_OLD), F.col(_NEW)
    updates = [_image(_NEW, names, "+U")]
    if table.options.log_takes_old_rows:
        updates.insert(0, _image(_OLD, names, "-U"))
    gone = F.array(_image(_OLD, names, "-D"))
    if table.options.ignore_delete:
        gone = F.raise_error(F.lit(ignores_deletes(table.files, "MERGE")))
    is_changed = ~after.eqNullSafe(before) if _is_comparable(_columns(table)) else F.lit(True)
    rows = (
        F.when(before.isNull(), F.array(_image(_NEW, names, "+I")))
        .when(after.isNull(), gone)
        .when(is_changed, F.array(*updates))
    )
    return joined.select(F.explode(rows).alias("row")).select("row.*")


def _by_key(frame: DataFrame, names: Sequence[str], keys: Sequence[str], key: Sequence[str], side: str) -> DataFrame:
    whole = F.struct(*[F.col(quoted(name)) for name in names]).alias(side)
    return frame.select(*[F.col(quoted(name)).alias(as_key) for name, as_key in zip(keys, key, strict=True)], whole)


def _image(side: str, names: Sequence[str], kind: str) -> Column:
    row = F.col(side)
    return F.struct(*[row.getField(name).alias(name) for name in names], F.lit(kind).alias(ROW_KIND_COLUMN))


def _columns(table: Table) -> T.StructType:
    return spark_schema(table.schema.fields)


def _is_comparable(kind: T.DataType) -> bool:
    """Whether Spark compares two values; two that it cannot compare count as different."""
    match kind:
        case T.StructType():
            return all(_is_comparable(field.dataType) for field in kind.fields)
        case T.ArrayType():
            return _is_comparable(kind.elementType)
        case _:
            return not isinstance(kind, T.MapType | T.VariantType)
