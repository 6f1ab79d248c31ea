"""Procedures about one cut of many tables."""

from typing import Any, Final

import pyarrow as pa

from engine.catalog import Catalog
from engine.checkpoint.checkpoint_files import files_as_of, query_id_of
from engine.checkpoint.saved_checkpoints import rewind_saved_checkpoint as rewind
from engine.cuts.choice import check_tied, choose_cut
from engine.cuts.history import NamedCheckpoint, TableBatches, links_of
from engine.cuts.tags import CutRecord, cut_tables, find_incomplete_cut, plan_cut_rollback, tag_cut
from engine.procedures.registry import Progress, procedure, rows_table, silent
from engine.procedures.values import Duration, MomentText, moment_ms, names_of, parse_duration_ms
from engine.runtime.times import sql_time_text
from engine.table import Table
from filestore.maintenance.rewriting import restore
from filestore.table_store import TableStore
from filestore.types.data_types import parse_columns
from lsm.errors import InvalidInputError

_CUT: Final = parse_columns(
    "table string, tag_name string, tagged_snapshot_id int64, commit_time string, commit_user string?, batch_id int64?"
)
_ROLLED_BACK: Final = parse_columns(
    "table string, previous_snapshot_id int64, restored_snapshot_id int64, current_snapshot_id int64, partitions int64"
)
_REWOUND: Final = parse_columns("directory string, query_id string, old_query_id string, batch_id int64")


@procedure(_CUT)
def create_consistent_tag(
    catalog: Catalog,
    tables: str,
    tag: str,
    timestamp: MomentText | None = None,
    checkpoints: str | None = None,
    time_retained: Duration | None = None,
    dry_run: bool = False,
) -> pa.Table:
    """Create the same tag in several tables, at snapshots that belong to the same micro-batch.

    Tables that one query writes are tagged after the same micro-batch. Where a query reads one table and writes another
    (its checkpoint must be named), the table that it reads is tagged at the query's position in that batch. All tags
    are created, or none; after a crash, running the procedure again completes it.

    Args:
        catalog: of the tables.
        tables: names, with commas between them.
        tag: the name; no tag of these tables has it.
        timestamp: no table is tagged later than that, as "2024-01-31 12:30:00" in UTC; then tables that no query ties
            to the others are tagged at their newest snapshot of that time.
        checkpoints: checkpoint directories of queries between the tables, with commas between them, as DIRECTORY or
            TABLE+TABLE=DIRECTORY, which names the tables that the query reads in its order.
        time_retained: how long the tags live, as "30 d". Default: as of create_tag.
        dry_run: only show which snapshots would be tagged.

    Returns:
        One row for each table; the query and batch of a table are those of its newest batch in the tag.

    Raises:
        InvalidInputError: the name is taken, the tables are not tied together, or the snapshots of a common batch have
            expired.
        ConflictError: a snapshot expired at this moment: run it again.
    """
    stores = _stores(catalog, names_of("tables", tables))
    histories = {name: TableBatches(store) for name, store in stores.items()}
    record = find_incomplete_cut(stores, tag)
    if record is None:
        time_ms = None if timestamp is None else moment_ms("timestamp", timestamp)
        newest = {name: _newest(store, time_ms) for name, store in stores.items()}
        named = [] if checkpoints is None else names_of("checkpoints", checkpoints)
        links = links_of(stores, newest, histories, [NamedCheckpoint.parse(each) for each in named])
        if time_ms is None:
            check_tied(list(stores), links)
        cut = choose_cut(newest, histories, links)
        some_store = next(iter(stores.values()))
        record = CutRecord(id=some_store.names.uuid(), tables=cut.snapshots, batches=cut.batches)
    if not dry_run:
        retained_ms = None if time_retained is None else parse_duration_ms("time_retained", time_retained)
        tag_cut(stores, tag, record, retained_ms=retained_ms)
    return rows_table(_CUT, [_cut_row(name, tag, record, stores[name], histories[name]) for name in stores])


@procedure(_ROLLED_BACK)
def rollback_to_cut(
    catalog: Catalog, table: str, tag: str, dry_run: bool = False, progress: Progress = silent
) -> pa.Table:
    """Make the rows of all tables of a cut what they were then, each by a new commit; nothing of the history is lost.

    Whether every table can go back is looked at before the first one does. When it dies, run it again: tables that went
    back are left as they are. Stop the queries that write the tables first, and let them continue from rewound
    checkpoints (rewind_checkpoint).

    Args:
        catalog: of the tables.
        table: one of them; its tag knows the others.
        tag: of create_consistent_tag.
        dry_run: only show what would change.
        progress: notified of how many tables are done.

    Returns:
        One row for each table; ``partitions`` is how many were replaced.

    Raises:
        InvalidInputError: a tag is missing or of another cut, or a table changed so that it cannot go back, see
            rollback_to_as_latest.
        ConflictError: a commit lost too many races: run it again.
    """
    names = list(cut_tables(catalog.table(table).store, tag).tables)
    opened = {name: catalog.table(name) for name in names}
    plans = plan_cut_rollback({name: each.store for name, each in opened.items()}, tag)
    rows = []
    for done, plan in enumerate(plans):
        progress(done, len(plans))
        current = plan.previous_id
        if plan.partitions and not dry_run:
            committed = restore(opened[plan.name].store, plan.wanted)[0].snapshot
            assert committed is not None
            current = committed.id
        rows.append(
            {
                "table": plan.name,
                "previous_snapshot_id": plan.previous_id,
                "restored_snapshot_id": plan.wanted.id,
                "current_snapshot_id": current,
                "partitions": len(plan.partitions),
            }
        )
    progress(len(plans), len(plans))
    return rows_table(_ROLLED_BACK, rows)


@procedure(_REWOUND)
def rewind_checkpoint(table: Table, tag: str, checkpoint: str, to: str) -> pa.Table:
    """Make the checkpoint directory from which a streaming query continues after what a tag of its table contains.

    It is made from the query's own checkpoint, which Spark keeps for the last 100 micro-batches. The query has a new id
    from then on: the table remembers the later batches of the old one.

    Args:
        table: that the query writes.
        tag: where the table went back to.
        checkpoint: the query's directory, on this machine.
        to: the new directory, on this machine.

    Returns:
        One row.

    Raises:
        InvalidInputError: the tag contains no batch of the query, or the directory is in use.
        CorruptDataError: the checkpoint does not go back so far.
    """
    store, old_id = table.store, query_id_of(checkpoint)
    batch_id = _batch_in_tag(store, tag, old_id)
    found = files_as_of(checkpoint, batch_id, sleep=store.clock.sleep)
    row = {"directory": to, "query_id": rewind(store, found, to), "old_query_id": old_id, "batch_id": batch_id}
    return rows_table(_REWOUND, [row])


def _stores(catalog: Catalog, names: list[str]) -> dict[str, TableStore]:
    if len(set(names)) != len(names):
        raise InvalidInputError(f"a table is named twice: tables={','.join(names)}")
    return {name: catalog.table(name).store for name in names}


def _newest(store: TableStore, time_ms: int | None) -> int:
    snapshots, now_ms = store.snapshots, store.clock.now_ms()
    found = snapshots.latest() if time_ms is None else snapshots.as_of(time_ms, now_ms=now_ms)
    if found is None:
        when = "" if time_ms is None else f"timestamp={sql_time_text(time_ms)} "
        raise InvalidInputError(
            f"the table has no such snapshot: table={store.name} {when}earliest={store.snapshots.earliest_id()}"
        )
    return found.id


def _batch_in_tag(store: TableStore, tag: str, user: str) -> int:
    snapshot = store.snapshots.tag(tag)
    if snapshot.commit_user == user:
        return snapshot.commit_identifier
    batch_id = TableBatches(store).newest_batch(user, snapshot.id)
    if batch_id is None:
        batches = cut_tables(store, tag).batches
        batch_id = batches.get(user)
    if batch_id is None:
        raise InvalidInputError(
            f"the tag contains no batch of the query: table={store.name} tag={tag} commit_user={user} "
            "fix=look at the checkpoint's path"
        )
    return batch_id


def _cut_row(name: str, tag: str, record: CutRecord, store: TableStore, history: TableBatches) -> dict[str, Any]:
    snapshot_id = record.tables[name]
    snapshot = store.snapshots.find(snapshot_id) or store.snapshots.tag(tag)
    user = history.newest_user(snapshot_id)
    return {
        "table": name,
        "tag_name": tag,
        "tagged_snapshot_id": snapshot_id,
        "commit_time": sql_time_text(snapshot.time_ms),
        "commit_user": user,
        "batch_id": None if user is None else history.newest_batch(user, snapshot_id),
    }
