"""What users give to ``spark.read`` and ``spark.readStream``: which table, and how it is read this time.

Options of the table that say how to read (``scan.*``, ``log.scan*``, ``read.*``, ...) are in force unless the reader is
given another value; so this parses what was given into a table with those options on top.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from pyspark.sql.types import LongType, StringType, StructField, StructType, TimestampType

from engine.lineage.origins import JOB_KEY
from engine.read.find_state import find_snapshot, open_difference
from engine.request.branch_choice import BRANCH_KEY, SCAN_BRANCH_KEY
from engine.request.option_check import check_belongs
from engine.request.place_options import ROW_KEYS, TABLE_PLACE_KEYS, RowOptions
from engine.request.read_keys import BATCH_KEYS, DIFF_KEYS, STREAM_KEYS
from engine.request.read_request import ReadRequest, is_mode, metadata_columns, wanted_difference
from engine.spark.named_table import is_place_key, named_table
from engine.stream.options import StreamOptions
from engine.stream.position.start import parse_start
from engine.table import Table
from engine.types.row_changes import MetadataColumn
from engine.types.rows import ROW_KIND_COLUMN
from engine.types.spark_types import spark_arrow_schema, spark_schema
from filestore.options.references import with_secrets
from filestore.options.table_options import TableOptions, canonical_options
from filestore.table import FileTable

_READER_KEYS: Final = (*ROW_KEYS, JOB_KEY)  # what no table has
_SPELLED: Final = {key.lower(): key for key in (*TABLE_PLACE_KEYS, *_READER_KEYS, *BATCH_KEYS, *STREAM_KEYS)}
_BRANCHES: Final = frozenset({BRANCH_KEY, SCAN_BRANCH_KEY})
_TRAVELS: Final = frozenset({"scan.version", "scan.savepoint-id", "scan.watermark"})
_METADATA_TYPES: Final = {
    MetadataColumn.LOG_OFFSET: LongType(),
    MetadataColumn.LOG_TIMESTAMP: TimestampType(),
    MetadataColumn.SNAPSHOT_ID: LongType(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """A table with the reader's options in force, and the rows and columns that are wanted."""

    table: FileTable
    columns: tuple[str, ...]  # () is all
    filter: str | None
    job: str | None  # pipeline.name: of the job in the catalog's lineage
    given: Mapping[str, str] = field(repr=False)  # of the table's options, those that the reader was given

    @classmethod
    def parse(cls, options: Mapping[str, str], keys: tuple[str, ...], *, opened: Table | None = None) -> "ReadOptions":
        """Open the table and put the given options on top of its own.

        Args:
            options: as Spark passes them; keys may be in any case that Spark makes of them.
            keys: those of the table's options that this way of reading understands.
            opened: the table that the options name, where it is open already.

        Raises:
            InvalidInputError: an unknown key (names the nearest), a value that cannot be read, no table named, no such
                table.
        """
        named = spelled_options(options)
        given = given_to_reader(named, keys)
        table = named_table(named) if opened is None or not _BRANCHES.isdisjoint(named) else opened
        files = table.files if keys == STREAM_KEYS else _at_schema(table.files, named)
        return cls(
            table=files.with_options(given),
            columns=chosen_columns(named),
            filter=named.get("filter"),
            job=named.get(JOB_KEY),
            given=given,
        )

    def request(self) -> ReadRequest:
        """What a batch read is asked for. Raises: InvalidInputError."""
        return ReadRequest.parse(self.table.options, self.given)

    def spark_schema(self) -> StructType:
        """The columns to read, then ``_row_kind`` with ``read.changelog``, then the metadata columns asked for.

        Raises:
            InvalidInputError: a chosen column does not exist, there is no such state, or ``log.scan`` lacks its time.
        """
        table, options = self._at_its_schema(), self.table.options
        is_of_streams = TableOptions.scan_mode.key in self.given and not is_mode(options.scan_mode)
        if is_of_streams or TableOptions.log_scan.key in self.given:  # refused by load(), before a query runs
            parse_start(options, self.given)
        schema = spark_schema(table.schema.fields_of(self.columns) if self.columns else table.schema.fields)
        if options.read_changelog:
            if options.log_deletes_have_key_only:
                # a delete in such a log has its key only
                keys = table.schema.primary_keys
                schema = StructType(
                    [StructField(each.name, each.dataType, each.nullable or each.name not in keys) for each in schema]
                )
            schema = schema.add(ROW_KIND_COLUMN, StringType(), nullable=False)
        for column in metadata_columns(options):
            schema = schema.add(column.value, _METADATA_TYPES[column])
        return schema

    def _at_its_schema(self) -> FileTable:
        """The table, with the columns of its time when a state of the past is read."""
        if not _TRAVELS.isdisjoint(self.given):
            return find_snapshot(self.table, self.request()).table
        between = None if self.given.keys().isdisjoint(DIFF_KEYS) else wanted_difference(self.table.options)
        return self.table if between is None else open_difference(self.table, between).table


def _at_schema(table: FileTable, named: Mapping[str, str]) -> FileTable:
    """The table with the version of its schema that a frame was made with. Raises: InvalidInputError."""
    schema_id = RowOptions.schema_id.read(named)
    if schema_id is None or schema_id == table.store.schema.id:
        return table
    return FileTable(table.store.at_schema(schema_id))


def stream_options(read: ReadOptions, schema: StructType) -> StreamOptions:
    """The stream of a reader, in the columns that Spark wants. Raises: InvalidInputError."""
    read.table.schema.fields_of(read.columns)
    wanted = spark_arrow_schema(schema)
    return StreamOptions.parse(read.table, read.given, wanted, filter=read.filter, job=read.job)


def given_to_reader(named: Mapping[str, str], keys: tuple[str, ...]) -> dict[str, str]:
    """The options of a reader that concern the table, checked without the table.

    Args:
        named: see ``spelled_options``.
        keys: those of the table's options that this way of reading understands.

    Raises:
        InvalidInputError: an option is not of this way of reading, or its value cannot be read.
    """
    given = {key: value for key, value in named.items() if not is_place_key(key) and key not in _READER_KEYS}
    what = "stream option" if keys == STREAM_KEYS else "read option"
    check_belongs(given, (*TABLE_PLACE_KEYS, *_READER_KEYS, *keys), what)
    return given


def spelled_options(options: Mapping[str, str]) -> dict[str, str]:
    """Options under today's keys, in their declared case, with the secrets that are given by reference."""
    return with_secrets(canonical_options({_SPELLED.get(key.lower(), key): value for key, value in options.items()}))


def chosen_columns(named: Mapping[str, str]) -> tuple[str, ...]:
    """The names in option ``columns``; () is all."""
    return tuple(each.strip() for each in named.get("columns", "").split(",") if each.strip())
