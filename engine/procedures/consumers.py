"""Procedures for consumers: named readers, and the snapshots that they protect from expiry."""

from typing import Final

import pyarrow as pa

from engine.procedures.registry import procedure, rows_table
from engine.procedures.values import pattern
from engine.stream.position.place import BASE_SUFFIX
from engine.table import Table
from filestore.types.data_types import parse_columns
from lsm.errors import InvalidInputError
from lsm.nearest_names import names_text

_CONSUMERS: Final = parse_columns(
    "consumer_id string, previous_snapshot_id int64?, "  # null: it did not exist
    "next_snapshot_id int64?"  # null: deleted
)


@procedure(_CONSUMERS)
def reset_consumer(table: Table, consumer_id: str, next_snapshot_id: int | None = None) -> pa.Table:
    """Move a named reader to another snapshot, or delete it. The reader must not be running.

    Args:
        table: the table of the reader.
        consumer_id: name of the reader.
        next_snapshot_id: the snapshot with the changes to deliver next. Default: delete the reader, which then starts
            over.

    Returns:
        One row for the reader, and one for the base of its differences if it had one.

    Raises:
        InvalidInputError: the reader to delete does not exist, or the snapshot is out of range.
    """
    table.store.check_is_there()
    consumers = table.store.consumers
    known = consumers.next_snapshots()
    rows = [(consumer_id, known.get(consumer_id), next_snapshot_id)]
    if next_snapshot_id is None and not {consumer_id, consumer_id + BASE_SUFFIX} & {*known}:
        raise InvalidInputError(
            f"no such consumer: table={table.name} consumer_id={consumer_id} "
            f"{names_text('consumers', consumer_id, sorted(known))}"
        )
    base = None
    if next_snapshot_id is not None:
        base = _base_of(table, next_snapshot_id)
        consumers.write(consumer_id, next_snapshot_id, may_go_back=True)
    else:
        consumers.delete(consumer_id)
    if consumer_id + BASE_SUFFIX in known:
        rows.append((consumer_id + BASE_SUFFIX, known[consumer_id + BASE_SUFFIX], base))
        if base is None:
            consumers.delete(consumer_id + BASE_SUFFIX)
        else:
            consumers.write(consumer_id + BASE_SUFFIX, base, may_go_back=True)
    return _shown(rows)


@procedure(_CONSUMERS)
def clear_consumers(table: Table, including_consumers: str = ".*", excluding_consumers: str | None = None) -> pa.Table:
    """Delete named readers, so that they protect no snapshots.

    Args:
        table: the table of the readers.
        including_consumers: regular expression of whole names.
        excluding_consumers: regular expression of whole names to keep.

    Returns:
        One row for each deleted reader.
    """
    table.store.check_is_there()
    wanted = pattern("including_consumers", including_consumers)
    unwanted = None if excluding_consumers is None else pattern("excluding_consumers", excluding_consumers)
    rows: list[tuple[str, int | None, int | None]] = []
    for name, place in table.store.consumers.next_snapshots().items():
        reader = name.removesuffix(BASE_SUFFIX)
        if wanted.fullmatch(reader) and not (unwanted is not None and unwanted.fullmatch(reader)):
            table.store.consumers.delete(name)
            rows.append((name, place, None))
    return _shown(rows)


def _base_of(table: Table, next_snapshot_id: int) -> int | None:
    """The snapshot before the next one, if it exists. Raises: InvalidInputError."""
    snapshots = table.store.snapshots
    earliest, latest = snapshots.earliest_id(), snapshots.latest_id()
    if earliest is None or latest is None or not earliest <= next_snapshot_id <= latest + 1:
        raise InvalidInputError(
            f"no such place: table={table.name} next_snapshot_id={next_snapshot_id} earliest={earliest} "
            f"latest={latest} fix=choose a snapshot from earliest to latest + 1"
        )
    return next_snapshot_id - 1 if next_snapshot_id > earliest else None


def _shown(rows: list[tuple[str, int | None, int | None]]) -> pa.Table:
    names = _CONSUMERS.names
    return rows_table(_CONSUMERS, [dict(zip(names, row, strict=True)) for row in rows])
