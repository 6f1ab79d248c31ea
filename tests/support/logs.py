"""What a table's log holds, read as any reader of committed records would."""

from typing import Any

from engine.table import Table
from logstore.changelog_json import decode_changes
from logstore.log_reader import read_range
from logstore.offsets import LogRange
from lsm.row_kind import RowKind

Row = dict[str, Any]


def log_changes(table: Table) -> list[tuple[RowKind, Row]]:
    """Every change with its kind: bucket by bucket, in the order of the log."""
    log = table.log
    assert log is not None
    changes: list[tuple[RowKind, Row]] = []
    for bucket, end in log.end_offsets().items():
        whole = LogRange(bucket=bucket, start_offset=0, end_offset=end)
        for records in read_range(log.properties, topic=log.topic, log_range=whole):
            rows, kinds = decode_changes(
                records.column("key"),
                records.column("value"),
                schema=table.schema.arrow_schema,
                key_names=log.key_names,
                log_format=log.log_format,
            )
            changes += zip(map(RowKind, kinds.to_pylist()), rows.to_pylist(), strict=True)
    return changes


def folded(changes: list[tuple[RowKind, Row]], key: str) -> dict[Any, Row]:
    """What a downstream reader that keeps the newest row of each key ends up with."""
    rows: dict[Any, Row] = {}
    for kind, row in changes:
        if kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            rows[row[key]] = row
        else:
            rows.pop(row[key], None)
    return rows
