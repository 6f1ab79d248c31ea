"""A snapshot of a table as a Spark frame.

Files that need no merging are given to Spark's own vectorised Parquet scan, so a compacted table reads as fast as
plain Parquet, with Spark's column pruning and push-down intact. Only the rest goes through Python, which merges it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from engine.spark_arrow import to_spark_batch
from engine.spark_types import spark_schema
from filestore.data_split import DataSplit
from filestore.predicates import Predicate, columns_of
from filestore.scan import Plan
from filestore.split_read import read_split
from filestore.table_schema import TableSchema
from filestore.table_store import TableStore

_SLOT = "_split"


def table_frame(
    spark: SparkSession,
    store: TableStore,
    plan: Plan,
    *,
    columns: Sequence[str] | None = None,
    filter_text: str | None = None,
) -> DataFrame:
    """The rows of a plan. The plan is fixed: a frame shows its snapshot for ever.

    Args:
        spark: the session.
        store: the table.
        plan: made with the same filter.
        columns: names, in the wanted order; None is all.
        filter_text: what the plan was made for; applied to every row.
    """
    fields = [store.schema.field(name) for name in columns] if columns else list(store.schema.fields)
    wanted = {field.name for field in fields} | (columns_of(plan.filter) if plan.filter is not None else set())
    read = [field for field in store.schema.fields if field.name in wanted]
    raw, rest = _divided(store, plan, [field.name for field in read])
    parts = []
    if raw:
        frame = spark.read.schema(spark_schema(read)).parquet(*raw)
        parts.append(frame.filter(F.expr(filter_text)) if filter_text else frame)
    if rest or not parts:
        parts.append(_merged(spark, store, rest, [field.name for field in read], plan.filter))
    frame = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    return frame.select(*[F.col("`" + field.name.replace("`", "``") + "`") for field in fields])


def _divided(store: TableStore, plan: Plan, names: Sequence[str]) -> tuple[list[str], list[DataSplit]]:
    """Paths for Spark's own scan, and the splits for ours."""
    raw: list[str] = []
    rest: list[DataSplit] = []
    for split in plan.splits:
        if all(_spark_can_read(store, split, file, names) for file in split.files):
            directory = store.bucket_dir(split.partition, split.bucket)
            raw.extend(file.external_path or f"{directory}/{file.file_name}" for file in split.files)
        else:
            rest.append(split)
    return [f"file://{path}" if path.startswith("/") else path for path in raw], rest


def _spark_can_read(store: TableStore, split: DataSplit, file: Any, names: Sequence[str]) -> bool:
    """Whether Spark's Parquet scan gives exactly the rows that ours would."""
    if not split.raw_convertible or split.deletion_vectors or not file.file_name.endswith(".parquet"):
        return False
    then = store.schema_of(file.schema_id)
    return all(_unchanged(then, store.schema, name) for name in names)


def _unchanged(then: TableSchema, now: TableSchema, name: str) -> bool:
    """A column is the same in both schemas, and of a type whose Parquet form Spark reads as we do."""
    field = now.field(name)
    old = next((each for each in then.fields if each.id == field.id), None)
    return (
        old is not None and old.name == name and old.type == field.type and field.type.root not in ("TIME", "MULTISET")
    )


def _merged(
    spark: SparkSession,
    store: TableStore,
    splits: Sequence[DataSplit],
    names: Sequence[str],
    predicate: Predicate | None,
) -> DataFrame:
    count = max(1, len(splits))
    slots = spark.range(0, len(splits), 1, count).select(F.col("id").alias(_SLOT))
    schema = spark_schema([store.schema.field(name) for name in names])
    return slots.mapInArrow(_SplitTask(store, splits, names, predicate), schema)


class _SplitTask:
    """What a Spark task runs: reads the splits whose numbers it is given."""

    def __init__(
        self, store: TableStore, splits: Sequence[DataSplit], names: Sequence[str], predicate: Predicate | None
    ) -> None:
        self._store = store
        self._splits = splits
        self._names = names
        self._predicate = predicate

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for slot in batch.column(0).to_pylist():
                for rows in read_split(self._store, self._splits[slot], columns=self._names, filter=self._predicate):
                    yield to_spark_batch(rows)
