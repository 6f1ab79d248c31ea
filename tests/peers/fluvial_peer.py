"""Fluvial's own file store behind the interface of the peers, so that a test can treat all writers alike."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from filestore.catalog.catalog import FileCatalog
from filestore.table import FileTable
from filestore.types.data_types import DataField, parse_data_type
from tests.peers import Condition, PeerRefusedError, Row, TableDefinition, normalise


class FluvialPeer:
    """See `tests.peers.Peer`; beyond that: compact. Every call opens the table again, as another process would."""

    name = "fluvial"

    def create(self, warehouse: Path, table: str, definition: TableDefinition) -> None:
        """Create the table, and its database when missing."""
        fields = [
            DataField(id=number, name=name, type=parse_data_type(kind))
            for number, (name, kind) in enumerate(definition.columns)
        ]
        catalog = FileCatalog(str(warehouse))
        catalog.create_database(table.split(".")[0], if_not_exists=True)
        catalog.create_table(
            table,
            fields,
            primary_key=definition.primary_key,
            partition_by=definition.partition_by,
            options=definition.options,
        )

    def read(
        self,
        warehouse: Path,
        table: str,
        *,
        snapshot_id: int | None = None,
        columns: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        options: Mapping[str, str] | None = None,
    ) -> list[Row]:
        """Rows, see `Peer.read`; of `options` only `scan.tag-name` and `scan.snapshot-id`."""
        given = dict(options or {})
        tag, snapshot_text = given.pop("scan.tag-name", None), given.pop("scan.snapshot-id", None)
        if given:
            raise PeerRefusedError(f"not known here: options={given}")
        if snapshot_text is not None:
            snapshot_id = int(snapshot_text)
        read = self.table(warehouse, table).read(snapshot_id=snapshot_id, tag=tag)
        return normalise(read.to_arrow(columns, " AND ".join(map(sql_condition, where)) or None))

    def write(self, warehouse: Path, table: str, rows: pa.Table, *, kinds: Sequence[int] | None = None) -> None:
        """Write and commit rows, see `Peer.write`."""
        self.table(warehouse, table).write(rows, None if kinds is None else pa.array(kinds, pa.int8()))

    def compact(self, warehouse: Path, table: str) -> None:
        """Compact every bucket fully and commit."""
        self.table(warehouse, table).compact(full=True)

    def table(self, warehouse: Path, table: str) -> FileTable:
        """The table itself."""
        return FileCatalog(str(warehouse)).table(table)


def sql_condition(condition: Condition) -> str:
    """A condition as Fluvial's filters are written."""
    column, operator, value = condition
    match operator:
        case "is_null":
            return f"{column} IS NULL"
        case "is_not_null":
            return f"{column} IS NOT NULL"
        case "in":
            return f"{column} IN ({', '.join(map(sql_literal, value))})"
        case "starts_with":
            return f"{column} LIKE {sql_literal(value + '%')}"
        case _:
            return f"{column} {operator} {sql_literal(value)}"


def sql_literal(value: object) -> str:
    """A literal: numbers as they are, dates and timestamps by their Python type, text in quotes."""
    kind = type(value).__name__
    if isinstance(value, bool):
        return str(value).upper()
    if kind in ("date", "datetime"):
        return f"{'DATE' if kind == 'date' else 'TIMESTAMP'} '{value}'"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value)
