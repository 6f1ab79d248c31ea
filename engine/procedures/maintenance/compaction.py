"""Procedures that merge sorted runs."""

import re
from collections.abc import Callable, MutableMapping
from typing import Final, Literal

import pyarrow as pa

from engine.catalog import Catalog
from engine.procedures.registry import Progress, procedure, rows_table, silent
from engine.procedures.values import Duration, parse_duration_ms, pattern
from engine.table import Table
from filestore.catalog.table_names import all_tables
from filestore.compact.compactor import CompactionLimits, compact_buckets
from filestore.compact.row_order import RowOrder
from filestore.maintenance.partitions import list_partitions, partition_predicate, path_of, select_partitions
from filestore.scan.live_files import BucketKey
from filestore.table_store import TableStore
from filestore.types.data_types import parse_columns
from lsm.errors import FluvialError, InvalidInputError

Strategy = Literal["minor", "full"]

_BUCKETS: Final = parse_columns(
    "partition string, bucket int32, files_before int64, files_after int64, size_before_bytes int64, "
    "size_after_bytes int64, snapshot_id int64"
)
_TABLES: Final = parse_columns("table string, buckets int64, files_before int64, files_after int64, error string?")


@procedure(_BUCKETS, aliases={"strategy": "order_strategy"})
def compact(
    table: Table,
    partitions: str | None = None,
    where: str | None = None,
    compact_strategy: Strategy = "minor",
    partition_idle_time: Duration | None = None,
    buckets: str | None = None,
    most_buckets: int | None = None,
    time_limit: Duration | None = None,
    order_strategy: Literal["none", "order", "zorder", "hilbert"] = "none",
    order_by: str | None = None,
    progress: Progress = silent,
) -> pa.Table:
    """Merge the sorted runs of a table's buckets, where it pays or everywhere; the most expensive to read first.

    Args:
        table: the table.
        partitions: only these, as "dt=2024-01-31,hour=7;dt=2024-02-01".
        where: only partitions that match this condition on partition columns.
        compact_strategy: "minor" merges where it pays, "full" merges each bucket into one run.
        partition_idle_time: only partitions without new files for this long, as "1 h".
        buckets: only these, as "0-99,150".
        most_buckets: maximum number of buckets.
        time_limit: start no further bucket after this long, as "10 min"; finished buckets are committed.
        order_strategy: the order that all rows of an append table get, as by cluster; "zorder" if not given.
        order_by: the columns of that order, as "a,b".
        progress: called with the progress.

    Returns:
        One row for each changed bucket; sizes are those of the removed and added files.

    Raises:
        ConflictError: other writers kept changing the same files: run it again.
    """
    store = table.store
    keep = chosen_buckets(
        store, partitions=partitions, where=where, partition_idle_time=partition_idle_time, buckets=buckets
    )
    if most_buckets is not None and most_buckets < 1:
        raise InvalidInputError(f"nothing would be compacted: most_buckets={most_buckets} fix='1 or more'")
    limits = CompactionLimits(
        buckets=most_buckets, time_ms=None if time_limit is None else parse_duration_ms("time_limit", time_limit)
    )
    order = _order(store, order_strategy, order_by)
    is_full = compact_strategy == "full" or order is not None
    outcome = compact_buckets(store, full=is_full, keep=keep, limits=limits, order=order, progress=progress)
    snapshot = outcome.committed.snapshot if outcome.committed is not None else None
    return rows_table(
        _BUCKETS,
        [
            {
                "partition": path_of(store, message.partition),
                "bucket": message.bucket,
                "files_before": len(message.compact_before),
                "files_after": len(message.files_after),
                "size_before_bytes": sum(file.size_bytes for file in message.compact_before),
                "size_after_bytes": sum(file.size_bytes for file in message.files_after),
                "snapshot_id": snapshot.id if snapshot is not None else None,
            }
            for message in outcome.messages
        ],
    )


@procedure(_TABLES)
def compact_database(
    catalog: Catalog,
    including_databases: str = ".*",
    including_tables: str = ".*",
    excluding_tables: str | None = None,
    compact_strategy: Strategy = "minor",
    progress: Progress = silent,
) -> pa.Table:
    """Merge the sorted runs of many tables, one after another; a failing table does not stop the others.

    Args:
        catalog: the catalog of the tables.
        including_databases: regular expression of whole names of databases.
        including_tables: regular expression of whole names, "database.table".
        excluding_tables: regular expression of whole names, "database.table", to exclude.
        compact_strategy: "minor" merges where it pays, "full" merges each bucket into one run.
        progress: called with the progress.

    Returns:
        One row for each table; ``error`` is the reason why it was not compacted. So is each database that cannot be
        listed.
    """
    problems: dict[str, str] = {}
    names = matching_tables(
        catalog,
        problems,
        including_databases=including_databases,
        including_tables=including_tables,
        excluding_tables=excluding_tables,
    )
    rows = []
    for done, name in enumerate(names):
        progress(done, len(names))
        error, found = None, None
        try:
            found = compact(catalog.table(name), compact_strategy=compact_strategy)
        except (FluvialError, OSError) as failure:
            error = f"{type(failure).__name__}: {failure}"
        rows.append(
            {
                "table": name,
                "buckets": 0 if found is None else found.num_rows,
                "files_before": 0 if found is None else sum(found.column("files_before").to_pylist()),
                "files_after": 0 if found is None else sum(found.column("files_after").to_pylist()),
                "error": error,
            }
        )
    progress(len(names), len(names))
    for name, problem in problems.items():
        rows.append({"table": name, "buckets": 0, "files_before": 0, "files_after": 0, "error": problem})
    return rows_table(_TABLES, rows)


def matching_tables(
    catalog: Catalog,
    problems: MutableMapping[str, str],
    *,
    including_databases: str = ".*",
    including_tables: str = ".*",
    excluding_tables: str | None = None,
) -> list[str]:
    """Full names of the tables that match the expressions of ``compact_database``; sorted.

    ``problems``: see ``all_tables``.
    """
    wanted = pattern("including_databases", including_databases)
    tables = pattern("including_tables", including_tables)
    unwanted = None if excluding_tables is None else pattern("excluding_tables", excluding_tables)
    databases = [each for each in catalog.list_databases() if wanted.fullmatch(each)]
    names = (f"{database}.{table}" for database, table in all_tables(catalog, problems, databases))
    return [
        name for name in names if tables.fullmatch(name) and not (unwanted is not None and unwanted.fullmatch(name))
    ]


def chosen_buckets(
    store: TableStore,
    *,
    partitions: str | None = None,
    where: str | None = None,
    partition_idle_time: Duration | None = None,
    buckets: str | None = None,
) -> Callable[[BucketKey], bool]:
    """Whether a bucket matches the arguments of ``compact``, for the table's current state."""
    predicate = partition_predicate(store, partitions=partitions, where=where)
    spans = None if buckets is None else _spans(buckets)
    chosen = None
    if predicate is not None or partition_idle_time is not None:
        states = list_partitions(store, store.snapshots.latest())
        if partition_idle_time is not None:
            before_ms = store.clock.local_ms() - parse_duration_ms("partition_idle_time", partition_idle_time)
            states = [state for state in states if state.last_update_ms < before_ms]
        chosen = select_partitions(store, [state.partition for state in states], predicate)

    def keep(key: BucketKey) -> bool:
        is_here = chosen is None or key.partition in chosen
        return is_here and (spans is None or any(low <= key.bucket <= high for low, high in spans))

    return keep


def columns_of_text(order_by: str) -> list[str]:
    """The columns of an order that is written as "a,b"."""
    return [name.strip() for name in order_by.split(",") if name.strip()]


def _order(store: TableStore, order_strategy: str, order_by: str | None) -> RowOrder | None:
    if order_by is None:
        if order_strategy != "none":
            raise InvalidInputError(f"no columns to order by: order_strategy={order_strategy} fix='give order_by too'")
        return None
    strategy = "zorder" if order_strategy == "none" else order_strategy
    return RowOrder.of(store.schema, columns_of_text(order_by), strategy)


def _spans(text: str) -> list[tuple[int, int]]:
    spans = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if match is None:
            raise InvalidInputError(f"buckets are written 0-99,150: buckets={text!r} found={part.strip()!r}")
        spans.append((int(match[1]), int(match[2] or match[1])))
    return spans
