"""Procedures for whole partitions."""

from typing import Final

import orjson
import pyarrow as pa

from engine.procedures.registry import Progress, procedure, rows_table, silent
from engine.procedures.values import Duration, parse_duration_ms
from engine.table import Table
from engine.write.log_sync import follow_overwrite
from filestore.maintenance.partition_expiry import ExpiryStrategy, PartitionClock, expired_partitions
from filestore.maintenance.partitions import (
    PartitionState,
    drop_partitions,
    list_partitions,
    partition_predicate,
    select_partitions,
)
from filestore.table_store import TableStore
from filestore.types.data_types import parse_columns
from lsm.errors import InvalidInputError

SUCCESS_FILE: Final = "_SUCCESS"

_DROPPED: Final = parse_columns(
    "partition string, files int64, rows_in_files int64, size_bytes int64, snapshot_id int64?"  # null: dry run
)
_DONE: Final = parse_columns("partition string, path string")


@procedure(_DROPPED)
def drop_partition(
    table: Table, partitions: str | None = None, where: str | None = None, dry_run: bool = False
) -> pa.Table:
    """Delete all rows of partitions, in one commit; older snapshots and tags keep them.

    Args:
        table: the table.
        partitions: as "dt=2024-01-31,hour=7;dt=2024-02-01"; omitted columns match every value.
        where: a condition on partition columns instead.
        dry_run: only show what would be deleted.

    Returns:
        One row for each partition with files.

    Raises:
        InvalidInputError: nothing is chosen, or a column is not a partition column.
        ConflictError: the commit lost too many races: run it again.
    """
    _check_partitioned(table.store)
    if partitions is None and where is None:
        raise InvalidInputError(f"no partition is chosen: table={table.name} fix=give partitions or where")
    predicate = partition_predicate(table.store, partitions=partitions, where=where)
    states = list_partitions(table.store, table.latest_snapshot())
    chosen = select_partitions(table.store, [state.partition for state in states], predicate)
    return _dropped(table, [state for state in states if state.partition in chosen], dry_run=dry_run)


@procedure(_DROPPED)
def expire_partitions(
    table: Table,
    expiration_time: Duration | None = None,
    timestamp_formatter: str | None = None,
    timestamp_pattern: str | None = None,
    expire_strategy: ExpiryStrategy | None = None,
    max_expires: int | None = None,
    dry_run: bool = False,
) -> pa.Table:
    """Drop partitions that are too old.

    Args:
        table: the table.
        expiration_time: the age, as "30 d". Default: partition.expiration-time of the table.
        timestamp_formatter: how the time is written, as Java has it: "yyyyMMdd". Default: the table's option, or dates
            and times as in SQL.
        timestamp_pattern: the columns that make the time, as "$year-$month-$day". Default: the table's option, or the
            first partition column.
        expire_strategy: "values-time" reads the age from the values, "update-time" from the newest file. Default: the
            table's option.
        max_expires: maximum number, oldest first. Default: partition.expiration-max-num of the table.
        dry_run: only show what would be deleted.

    Returns:
        One row for each partition, oldest first.

    Raises:
        InvalidInputError: the table is not partitioned, or no age is given.
    """
    store = table.store
    _check_partitioned(store)
    age_ms = store.options.partition_expiration_time_ms
    if expiration_time is not None:
        age_ms = parse_duration_ms("expiration_time", expiration_time)
    if age_ms is None:
        raise InvalidInputError(
            f"no age is given: table={table.name} fix=give expiration_time, or set partition.expiration-time"
        )
    chosen = expired_partitions(
        store,
        list_partitions(store, table.latest_snapshot()),
        age_ms=age_ms,
        strategy=expire_strategy or store.options.partition_expiration_strategy,
        clock=PartitionClock(
            pattern=timestamp_pattern or store.options.partition_timestamp_pattern,
            formatter=timestamp_formatter or store.options.partition_timestamp_formatter,
        ),
        limit=store.options.partition_expiration_max_num if max_expires is None else max_expires,
    )
    return _dropped(table, chosen, dry_run=dry_run)


@procedure(_DONE)
def mark_partition_done(table: Table, partitions: str, progress: Progress = silent) -> pa.Table:
    """Write a _SUCCESS file into partitions, for jobs that wait for it.

    Args:
        table: the table of the partitions.
        partitions: as "dt=2024-01-31,hour=7;dt=2024-02-01"; each must name every partition column.
        progress: called with the progress.

    Returns:
        One row for each partition.

    Raises:
        InvalidInputError: a partition does not exist, or partition.mark-done-action is not success-file.
    """
    store = table.store
    _check_partitioned(store)
    action = store.options.partition_mark_done_action
    if action != "success-file":
        raise InvalidInputError(
            f"partitions can only be marked by a file: table={table.name} partition.mark-done-action={action} "
            "fix=set partition.mark-done-action=success-file"
        )
    states = list_partitions(store, table.latest_snapshot())
    chosen: list[PartitionState] = []
    for text in (each.strip() for each in partitions.split(";") if each.strip()):
        predicate = partition_predicate(store, partitions=text, where=None)
        found = select_partitions(store, [state.partition for state in states], predicate)
        if len(found) != 1:
            raise InvalidInputError(
                f"not one partition: table={table.name} partition={text!r} matches={len(found)} "
                f"fix=name a partition that has rows, by all of {list(store.schema.partition_keys)}"
            )
        chosen += [state for state in states if state.partition in found]
    rows = []
    for done, state in enumerate(chosen):
        progress(done, len(chosen))
        path = f"{store.paths.partition_dir(store.partition_values(state.partition))}/{SUCCESS_FILE}"
        store.io.replace(path, _success(store, path))
        rows.append({"partition": state.path, "path": path})
    return rows_table(_DONE, rows)


def _success(store: TableStore, path: str) -> bytes:
    """Like Paimon's SuccessFile: times of the first and of the last creation."""
    now_ms = store.clock.now_ms()
    try:
        created_ms = int(orjson.loads(store.io.read_bytes(path))["creationTime"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        created_ms = now_ms
    return orjson.dumps({"creationTime": created_ms, "modificationTime": now_ms})


def _dropped(table: Table, states: list[PartitionState], *, dry_run: bool) -> pa.Table:
    snapshot = None
    if states and not dry_run:
        snapshot = drop_partitions(table.store, (state.partition for state in states)).snapshot
        follow_overwrite(table.files)
    return rows_table(
        _DROPPED,
        [
            {
                "partition": state.path,
                "files": state.file_count,
                "rows_in_files": state.row_count,
                "size_bytes": state.size_bytes,
                "snapshot_id": None if snapshot is None else snapshot.id,
            }
            for state in states
        ],
    )


def _check_partitioned(store: TableStore) -> None:
    if not store.schema.partition_keys:
        raise InvalidInputError(f"the table is not partitioned: table={store.name}")
