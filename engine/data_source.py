"""``spark.read.format("fluvial")``: a snapshot of a table through Spark's Python data source interface.

Spark finds it by the installed module ``pyspark_fluvial``. What Spark pushes into a Python source stays with the
relation and leaks into other queries on it, which gives wrong answers (reports/spark.md, trap 1); so nothing is taken
from Spark, and users choose by options, which belong to one ``load()``: ``filter``, ``columns``,
``scan.snapshot-id``, ``scan.tag-name``.

A plan is made when Spark plans the query and is kept by Spark for that frame; a new ``load()`` plans anew.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from engine.catalog import Catalog
from engine.option_check import unknown_option
from engine.spark_arrow import to_spark_batch
from engine.spark_types import spark_schema
from engine.table import Table
from filestore.data_split import DataSplit
from filestore.split_read import read_split
from lsm.errors import InvalidInputError

FORMAT: Final = "fluvial"
_OPTIONS: Final = ("warehouse", "table", "columns", "filter", "scan.snapshot-id", "scan.tag-name", "path")


class FluvialDataSource(DataSource):
    """Entry point for Spark; one instance per ``load()``."""

    @classmethod
    def name(cls) -> str:
        """The word behind ``format``."""
        return FORMAT

    def schema(self) -> StructType:
        """The chosen columns, in their order."""
        table, columns = _table(self.options), _columns(self.options)
        return spark_schema([table.schema.field(name) for name in columns] if columns else table.schema.fields)

    def reader(self, schema: StructType) -> "SnapshotReader":
        """Reader of the columns that ``schema`` names: Spark passes on what the user gave to ``.schema(…)``."""
        return SnapshotReader(dict(self.options), schema.fieldNames())


class _Split(InputPartition):
    def __init__(self, split: DataSplit) -> None:
        super().__init__(None)
        self.split = split


class SnapshotReader(DataSourceReader):
    """Plans on the driver's side, reads in tasks."""

    def __init__(self, options: Mapping[str, str], names: list[str]) -> None:
        table = _table(options)
        read = table.read(snapshot_id=_integer(options, "scan.snapshot-id"), tag=options.get("scan.tag-name"))
        self._store = read.table
        self._names = names
        self._plan = read.plan(filter=options.get("filter"))

    def partitions(self) -> list[InputPartition]:
        """One per split."""
        return [_Split(split) for split in self._plan.splits]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one split; an empty table has one partition, which Spark makes without asking."""
        if isinstance(partition, _Split):
            for rows in read_split(self._store, partition.split, columns=self._names, filter=self._plan.filter):
                yield to_spark_batch(rows)


def _table(options: Mapping[str, str]) -> Table:
    for key in options:
        if key not in _OPTIONS:
            raise unknown_option(key, _OPTIONS, "read option")
    name, warehouse = options.get("table"), options.get("warehouse")
    if not name or not warehouse:
        raise InvalidInputError(
            'a table is named by two options: fix=.option("warehouse", "/data/warehouse").option("table", "db.t")'
        )
    return Catalog(warehouse).table(name)


def _columns(options: Mapping[str, str]) -> list[str]:
    return [name.strip() for name in options.get("columns", "").split(",") if name.strip()]


def _integer(options: Mapping[str, str], key: str) -> int | None:
    text = options.get(key)
    if text is None:
        return None
    if not text.isdigit():
        raise InvalidInputError(f"option is a number: {key}={text}")
    return int(text)
