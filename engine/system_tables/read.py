"""Reading a system table of any kind: one object for Arrow, Spark and the command line."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

import pyarrow as pa

from engine.lineage import tables as lineage
from engine.read.tools.arrow_rows import ArrowRows
from engine.read.tools.scanned_rows import names_of
from engine.request.option_check import unknown_option
from engine.request.read_keys import OFFSETS, PLACES
from engine.system_tables.binlog import arrays_of_one
from engine.system_tables.catalog_tables import Tables, catalog_rows, catalog_schema
from engine.system_tables.names import AUDIT_LOG, BINLOG, CHANGE_TABLES, ROW_TABLES, SystemName, parse_system_name
from engine.system_tables.row_tables import ROW_KIND, open_row_table, row_schema, snapshot_of_read
from filestore.layout.branch_names import on_branch_name
from filestore.options.table_options import canonical_options
from filestore.predicate.given_filter import given_filter
from filestore.predicate.predicate import Predicate, columns_of
from filestore.schema.schema_store import new_schema
from filestore.schema.table_schema import TableSchema
from filestore.system_tables import SYSTEM_TABLES
from filestore.system_tables.system_table import matching
from filestore.table import FileTable
from filestore.types.data_types import arrow_schema
from lsm.errors import InvalidInputError

SNAPSHOT_KEYS: Final = ("scan.mode", *PLACES[:6])
"""Options that choose the snapshot whose files are shown."""
AUDIT_KEYS: Final = (
    *SNAPSHOT_KEYS,
    "scan.log.union",
    OFFSETS,
    "scan.max-staleness",
    "scan.at-least",
    "scan.at-least.timeout",
    "log.on-offset-lost",
)
"""Options that choose the state whose rows are shown."""


@dataclass(frozen=True, kw_only=True)
class SystemRead(ArrowRows):
    """A system table, ready to be read; every read sees the state of that moment."""

    name: SystemName
    catalog: Tables
    given: Mapping[str, str] = field(repr=False)  # of this read

    @cached_property
    def files(self) -> FileTable:
        """The table that the rows are about, on the branch that is named."""
        assert self.name.table is not None, "tables of the catalog are about all tables"
        files: FileTable = self.catalog.described(on_branch_name(self.name.table, self.name.branch)).files
        return files

    @cached_property
    def table_schema(self) -> TableSchema:
        """Columns as those of any table."""
        if self.name.is_lineage:
            return new_schema(lineage.LINEAGE_SCHEMAS[self.name.system], time_ms=0)
        if self.name.table is None:
            return new_schema(catalog_schema(self.name.system), time_ms=0)
        if self.name.system in ROW_TABLES:
            return row_schema(snapshot_of_read(self.files, self._places)[0].schema, self.name.system)
        return new_schema(SYSTEM_TABLES[self.name.system].schema, time_ms=0)

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return arrow_schema(self.table_schema.fields)

    def to_arrow(self, columns: Sequence[str] | None = None, filter: Any = None, limit: int | None = None) -> pa.Table:
        """The rows that match, in memory.

        Args:
            columns: to return, in this order; None is all.
            filter: on the columns of the system table, as SQL text, an expression of PyArrow, or parsed.
            limit: rows at most; None is all.

        Raises:
            InvalidInputError: an unknown column, a filter that cannot be read, no such snapshot.
        """
        fields = self.table_schema.fields if columns is None else self.table_schema.fields_of(columns)
        return pa.Table.from_batches(self.to_batches(columns, filter, limit), schema=arrow_schema(fields))

    def to_batches(
        self, columns: Sequence[str] | None = None, filter: Any = None, limit: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The rows that match; see ``to_arrow``."""
        given = given_filter(filter, self._tested_schema, self.schema)
        names = [field.name for field in self.table_schema.fields] if columns is None else names_of(columns)
        read = [*names, *(each for each in given.columns if each not in names)]
        text, left = filter if isinstance(filter, str) else None, limit
        found = self._batches(read, given.predicate, text, limit if given.rest is None else None)
        for rows in (kept for batch in found for kept in given.of(batch, names)):
            if left is None:
                yield rows
            elif left > 0:
                yield rows.slice(0, left)
                left -= rows.num_rows
            else:
                return

    def _batches(
        self, names: list[str], predicate: Predicate | None, text: str | None, limit: int | None
    ) -> Iterator[pa.RecordBatch]:
        target = arrow_schema(self.table_schema.fields_of(names))
        if self.name.system in ROW_TABLES and self.name.table is not None:
            for rows in self._rows(names, predicate, text):
                yield rows.cast(target)
            return
        if self.name.is_lineage and self.name.system not in lineage.SMALL_TABLES:
            for rows in lineage.read_lineage_table(self.catalog, self.name.system, predicate, limit):
                yield rows.select(names).cast(target)
            return
        if self.name.is_lineage:
            found = pa.Table.from_batches(
                lineage.read_lineage_table(self.catalog, self.name.system),
                schema=lineage.LINEAGE_SCHEMAS[self.name.system],
            )
        elif self.name.table is None:
            found = catalog_rows(self.catalog, self.name.system)
        else:
            _, snapshot = snapshot_of_read(self.files, self._places)
            found = SYSTEM_TABLES[self.name.system].read(self.files.store, snapshot=snapshot)
        kept = found if predicate is None else matching(found, predicate)
        yield from kept.select(names).cast(target).to_batches()

    def _rows(self, names: list[str], predicate: Predicate | None, text: str | None) -> Iterator[pa.RecordBatch]:
        """Rows of the table itself; a filter on their kind is applied here, any other one prunes files."""
        is_about_kind = predicate is not None and ROW_KIND in columns_of(predicate)
        on_kind = predicate is not None and (text is None or (is_about_kind and self.name.system in CHANGE_TABLES))
        opened = open_row_table(self.files, self.name.system, self.given, None if on_kind else text)
        wanted, is_packed = opened.schema.names if on_kind else names, opened.is_packed
        opened = replace(opened, is_packed=is_packed and not on_kind)
        for piece in opened.plan.pieces:
            for rows in opened.batches(piece, wanted):
                if on_kind and predicate is not None:
                    kept = matching(pa.Table.from_batches([rows]), predicate).select(names)
                    yield from (arrays_of_one(each, ROW_KIND) if is_packed else each for each in kept.to_batches())
                else:
                    yield rows

    @property
    def _tested_schema(self) -> TableSchema:
        """The columns that a filter is about: of the binlog the values, not the arrays."""
        if self.name.table is None or self.name.system != BINLOG:
            return self.table_schema
        return row_schema(snapshot_of_read(self.files, self._places)[0].schema, AUDIT_LOG)

    @property
    def _places(self) -> Mapping[str, str]:
        return {key: value for key, value in self.given.items() if key in SNAPSHOT_KEYS}


def open_system(catalog: Tables, name: str | SystemName, options: Mapping[str, str] | None = None) -> SystemRead:
    """A system table by its name.

    Args:
        catalog: that has the table.
        name: ``db.t$files``, ``db.t$branch_b$files``, ``sys.tables`` or ``paimon.source_job_lineage``.
        options: ``scan.snapshot-id``, ``scan.tag-name``, ``scan.timestamp``; for ``audit_log`` those of a batch read.

    Raises:
        InvalidInputError: no such table, branch, system table or option.
    """
    parsed = parse_system_name(name) if isinstance(name, str) else name
    given = canonical_options(options or {})
    known = _known_options(parsed)
    for key, value in given.items():
        if not known and key in SNAPSHOT_KEYS:
            raise InvalidInputError(
                f"a system table without versions, it shows all or what is there now: table={parsed} {key}={value} "
                "fix='leave it out, and filter by WHERE'"
            )
        if key not in known:
            raise unknown_option(key, known, f"option of {parsed}")
    read = SystemRead(name=parsed, catalog=catalog, given=given)
    if parsed.table is not None:
        _ = read.files
    return read


def _known_options(name: SystemName) -> tuple[str, ...]:
    """What chooses its rows; () of a table that has no versions."""
    if name.table is None:
        return ()
    if name.system in CHANGE_TABLES:
        return AUDIT_KEYS
    found = SYSTEM_TABLES.get(name.system)
    return SNAPSHOT_KEYS if found is None or found.is_of_snapshot else ()


def no_rows_error(name: str) -> InvalidInputError:
    """The error for callers that open a system table as if it were a table."""
    return InvalidInputError(
        f"a system table is only read: name={name} fix='use Catalog.system_table, SELECT or format(\"fluvial\")'"
    )
