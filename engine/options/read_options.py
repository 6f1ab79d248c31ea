"""What users give to ``spark.read`` and ``spark.readStream``: which table, and how it is read this time.

Options of the table that say how to read (``scan.*``, ``log.scan*``, ``read.*``, ...) are in force unless the reader is
given another value; so this parses what was given into a table with those options on top.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from engine.catalog import Catalog
from engine.lineage.origins import JOB_KEY
from engine.read.diff_read import find_diff
from engine.request.branch_choice import branch_named
from engine.request.option_check import unknown_option
from engine.request.place_options import ROW_KEYS, TABLE_PLACE_KEYS
from engine.request.read_request import DIFF_KEYS, ReadRequest, wanted_diff
from engine.table import Table
from engine.types.row_changes import MetadataColumn
from engine.types.rows import ROW_KIND_COLUMN
from engine.types.spark_types import spark_schema
from filestore.options.catalog_options import is_catalog_option
from filestore.options.option import At
from filestore.options.table_options import TableOptions, canonical_options, keys_at
from lsm.errors import InvalidInputError

_READER_KEYS: Final = (*ROW_KEYS, JOB_KEY)  # what no table has
BATCH_KEYS: Final = keys_at(At.BATCH_READ)
"""Options of the table that a batch read may be given."""
STREAM_KEYS: Final = keys_at(At.STREAM_READ)
"""Options of the table that a stream may be given."""
_TRAVELS: Final = frozenset({"scan.version", "scan.savepoint-id", "scan.watermark"})
_FREE_PREFIX: Final = "log.kafka."
_METADATA_TYPES: Final = {
    MetadataColumn.LOG_OFFSET: LongType(),
    MetadataColumn.LOG_TIMESTAMP: TimestampType(),
    MetadataColumn.SNAPSHOT_ID: LongType(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """A table with the reader's options in force, and which of its rows and columns are wanted."""

    table: Table
    columns: tuple[str, ...]  # () is all
    filter: str | None
    job: str | None  # pipeline.name: of the job in the catalog's lineage
    given: Mapping[str, str]  # of the table's options, those that the reader was given

    @classmethod
    def parse(cls, options: Mapping[str, str], keys: tuple[str, ...]) -> "ReadOptions":
        """Open the table and put the given options on top of its own.

        Args:
            options: as Spark hands them over; keys may be in any case that Spark makes of them.
            keys: those of the table's options that this way of reading understands.

        Raises:
            InvalidInputError: an unknown key (names the nearest), no table named, no such table or column.
        """
        spelled = {key.lower(): key for key in (*TABLE_PLACE_KEYS, *_READER_KEYS, *BATCH_KEYS, *STREAM_KEYS)}
        named = canonical_options({spelled.get(key.lower(), key): value for key, value in options.items()})
        for key in named:
            if not is_place_key(key) and key not in (*_READER_KEYS, *keys) and not key.startswith(_FREE_PREFIX):
                raise unknown_option(key, (*TABLE_PLACE_KEYS, *_READER_KEYS, *keys), "read option")
        given = {key: value for key, value in named.items() if not is_place_key(key) and key not in _READER_KEYS}
        files = named_table(named).files.with_options(given)
        if not _TRAVELS.isdisjoint(given):  # a state of the past has the columns of its time
            files = files.read(version=ReadRequest.parse(files.options, given).version_in(files.store)).table
        elif not given.keys().isdisjoint(DIFF_KEYS) and (words := wanted_diff(files.options)) is not None:
            files = find_diff(files, words).table
        table = Table(files)
        for key in given:
            if not key.startswith(_FREE_PREFIX):
                _ = table.options[TableOptions.declared[key]]  # refuses a value that cannot be read, by name
        columns = tuple(each.strip() for each in named.get("columns", "").split(",") if each.strip())
        for column in columns:
            table.schema.field(column)
        return cls(table=table, columns=columns, filter=named.get("filter"), job=named.get(JOB_KEY), given=given)

    @property
    def spark_schema(self) -> StructType:
        """The columns to read, then ``_row_kind`` with ``read.changelog``, then the metadata columns asked for."""
        schema = spark_schema([self.table.schema.field(name) for name in self.names])
        if self.table.options.read_changelog:
            if self.table.options.log_format == "json":
                # a delete in such a log has its key only
                keys = self.table.schema.primary_keys
                schema = StructType(
                    [StructField(each.name, each.dataType, each.nullable or each.name not in keys) for each in schema]
                )
            schema = schema.add(ROW_KIND_COLUMN, StringType(), nullable=False)
        for name in self.table.options.read_metadata_columns:
            if name not in {*MetadataColumn}:
                raise unknown_option(name, [each.value for each in MetadataColumn], "column of read.metadata-columns")
            schema = schema.add(name, _METADATA_TYPES[MetadataColumn(name)])
        return schema

    @property
    def names(self) -> tuple[str, ...]:
        """The table's columns to read, in their order."""
        return self.columns or tuple(self.table.schema.column_names)


def is_place_key(key: str) -> bool:
    """Whether an option says where the table is: ``warehouse``, ``table``, or an option of the catalog."""
    return key in TABLE_PLACE_KEYS or is_catalog_option(key)


def named_table(options: Mapping[str, str]) -> Table:
    """Open the table that ``warehouse``, ``table`` and ``branch`` name, in the catalog that the others describe.

    Raises:
        InvalidInputError: an option is missing, two branches are named, or there is no such table or branch.
    """
    name, warehouse = options.get("table"), options.get("warehouse")
    if not name or not warehouse:
        raise InvalidInputError(
            'a table is named by two options: fix=.option("warehouse", "/data/warehouse").option("table", "db.t")'
        )
    base, branch = branch_named(name, options)
    return named_catalog(warehouse, options).table(base, branch=branch)


def named_catalog(warehouse: str, options: Mapping[str, str]) -> Catalog:
    """The catalog of a warehouse that is reached by those of the options that are a catalog's."""
    return Catalog(warehouse, options={key: value for key, value in options.items() if is_catalog_option(key)})
