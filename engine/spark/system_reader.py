"""System tables through ``format("fluvial")``: batch reads of all, and streams of ``audit_log`` and ``binlog``."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructType

from engine.request.branch_choice import READ_BRANCH_KEYS, branch_named
from engine.request.option_check import check_belongs
from engine.request.place_options import ROW_KEYS
from engine.request.read_keys import BATCH_KEYS, STREAM_KEYS
from engine.spark.named_table import check_table_id, is_place_key, named_catalog
from engine.spark.read_options import ReadOptions, chosen_columns, spelled_options, stream_options
from engine.spark.snapshot_reader import as_declared
from engine.stream.reader import HybridStreamReader
from engine.system_tables.binlog import packed
from engine.system_tables.names import (
    BINLOG,
    CHANGE_TABLES,
    ROW_TABLES,
    is_system_name,
    is_system_table,
    parse_system_name,
)
from engine.system_tables.read import AUDIT_KEYS, SystemRead, open_system
from engine.system_tables.row_tables import CHANGELOG_KEY, ROW_KIND, RowTable, open_row_table
from engine.types.rows import ROW_KIND_COLUMN
from engine.types.spark_arrow import to_spark_batch
from engine.types.spark_types import spark_schema
from filestore.layout.branch_names import SEPARATOR, on_branch_name
from filestore.layout.paths import MAIN_BRANCH
from filestore.options.parsing import boolean_of
from lsm.errors import InvalidInputError


def names_system_table(options: Mapping[str, str]) -> bool:
    """Whether the option ``table`` names a system table."""
    named = spelled_options(options)
    name, warehouse = named.get("table", ""), named.get("warehouse")
    if not is_system_name(name) or not warehouse or SEPARATOR in name:
        return is_system_name(name)
    return is_system_table(named_catalog(warehouse, named), name)


def system_schema(options: Mapping[str, str]) -> tuple[StructType, str]:
    """The chosen columns of the system table that options name, and the id of the table that it is of, or ""."""
    read, columns, _ = _opened(options, may_stream=True)
    schema = read.table_schema
    table_id = "" if read.name.table is None else read.files.store.table_id()
    return spark_schema(schema.fields_of(columns) if columns else schema.fields), table_id


class _Part(InputPartition):
    def __init__(self, piece: Any) -> None:
        super().__init__(None)
        self.piece = piece  # of a plan, or the rows themselves


class SystemReader(DataSourceReader):
    """Rows of the table itself are planned here and read in tasks; all others are read here."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Open the system table; ``schema`` has the columns to return, in this order."""
        read, _, filter = _opened(options)
        self._names = schema.fieldNames()
        self._nullable = [field.nullable for field in schema]
        self._rows: RowTable | None = None
        self._parts: list[Any] = []
        if read.name.table is not None and read.name.system in ROW_TABLES:
            self._rows = open_row_table(read.files, read.name.system, read.given, filter)
            self._parts = list(self._rows.plan.pieces)
        else:
            self._parts = list(read.to_batches(self._names, filter))

    def partitions(self) -> list[InputPartition]:
        """One for each piece."""
        return [_Part(piece) for piece in self._parts]

    def __getstate__(self) -> dict[str, Any]:
        """Tasks get their own piece from Spark."""
        return self.__dict__ | {"_parts": [], "_rows": None if self._rows is None else self._rows.without_pieces()}

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Rows of one piece; nothing has one partition, which Spark makes without asking."""
        if not isinstance(partition, _Part):
            return
        piece = partition.piece
        found = [piece] if self._rows is None else self._rows.batches(piece, self._names)
        for rows in found:
            yield as_declared(to_spark_batch(rows), self._nullable)


class ChangeStreamReader(HybridStreamReader):
    """A stream of a table with the kind of every row, under Paimon's name for that column; of the binlog in arrays."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        """Open the table that ``t$audit_log`` or ``t$binlog`` is of."""
        named = spelled_options(options)
        name = parse_system_name(named["table"])
        if name.system not in CHANGE_TABLES:
            raise InvalidInputError(
                f"only audit_log and binlog can be streamed: table={name} fix='use spark.read, not readStream'"
            )
        if not boolean_of(CHANGELOG_KEY, named.get(CHANGELOG_KEY, "true")):
            raise InvalidInputError(
                f"{name.system} always has row kinds: {CHANGELOG_KEY}={named[CHANGELOG_KEY]} fix=remove it"
            )
        table = on_branch_name(str(name.table), name.branch)
        inner = {**named, "table": table, CHANGELOG_KEY: "true"}
        self._is_packed = name.system == BINLOG
        self._wanted = schema.fieldNames()
        fields = StructType().add(ROW_KIND_COLUMN, StringType(), nullable=False)
        for field in schema:
            if field.name != ROW_KIND:
                inner_type = field.dataType.elementType if self._is_packed else field.dataType
                fields = fields.add(field.name, inner_type, self._is_packed or field.nullable)
        super().__init__(stream_options(ReadOptions.parse(inner, STREAM_KEYS), fields))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one part."""
        found = super().read(partition)
        for rows in packed(found, ROW_KIND_COLUMN) if self._is_packed else found:
            names = [ROW_KIND if name == ROW_KIND_COLUMN else name for name in rows.schema.names]
            yield rows.rename_columns(names).select(self._wanted)


def _opened(options: Mapping[str, str], *, may_stream: bool = False) -> tuple[SystemRead, tuple[str, ...], str | None]:
    """The system table, the chosen columns (none is all), and the filter.

    Args:
        options: as Spark passes them.
        may_stream: whether a stream of it may be started with the same options; they are none of this read then.
    """
    named = spelled_options(options)
    warehouse = named.get("warehouse")
    if not warehouse:
        raise InvalidInputError('the warehouse is missing: fix=.option("warehouse", "/data/warehouse")')
    name = parse_system_name(named["table"])
    if name.table is not None:
        on_branch = None if name.branch == MAIN_BRANCH else name.branch
        _, branch = branch_named(on_branch_name(name.table, on_branch or MAIN_BRANCH), named)
        name = replace(name, branch=branch or MAIN_BRANCH)
    named = {key: value for key, value in named.items() if key not in READ_BRANCH_KEYS}
    given = {key: value for key, value in named.items() if not is_place_key(key) and key not in ROW_KEYS}
    if may_stream and name.system in CHANGE_TABLES:
        check_belongs(given, (*BATCH_KEYS, *STREAM_KEYS), "read option")
        given = {key: value for key, value in given.items() if key in AUDIT_KEYS}
    read = open_system(named_catalog(warehouse, named), name, given)
    if name.table is not None:
        check_table_id(read.files.store, named)
    columns = chosen_columns(named)
    read.table_schema.fields_of(columns)
    return read, columns, named.get("filter")
