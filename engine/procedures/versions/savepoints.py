"""Procedures about savepoints, and about the checkpoints that they keep."""

from typing import Any, Final

import pyarrow as pa

from engine.checkpoint import saved_checkpoints
from engine.checkpoint.saved_checkpoints import chosen_checkpoint
from engine.procedures.maintenance.rewriting import RESTORED, restored
from engine.procedures.registry import procedure, rows_table
from engine.procedures.values import names_of
from engine.runtime.times import sql_time_text
from engine.table import Table
from filestore.refs.savepoint_files import Savepoint, read_savepoint
from filestore.scan.live_files import LiveFiles
from filestore.types.data_types import parse_columns

_ID: Final = {"id": "savepoint"}

_SAVED: Final = parse_columns(
    "savepoint_id int64, saved_snapshot_id int64, save_time string, record_count int64, sorted_runs int64, "
    "checkpoints int64"
)
_DELETED: Final = parse_columns(
    "savepoint_id int64, saved_snapshot_id int64, data_files int64, metadata_files int64, size_bytes int64"
)
_CHECKPOINT: Final = parse_columns("directory string, query_id string, saved_query_id string, batch_id int64")


@procedure(_SAVED)
def create_savepoint(table: Table, compact: bool = True, checkpoints: str | None = None) -> pa.Table:
    """Compact a table, and keep the state of then until the savepoint is deleted.

    Streams see nothing of it. Others may continue writing; what they append while it is compacted is saved too.

    Args:
        table: to save.
        compact: merge each bucket into one run first.
        checkpoints: checkpoint directories of the streaming queries that write the table, with commas between them, as
            DIRECTORY or COMMIT_USER=DIRECTORY; what is needed to continue from here is kept with the savepoint.

    Returns:
        One row; ``sorted_runs`` is the most of any bucket.

    Raises:
        InvalidInputError: nothing was committed yet, the table cannot be compacted, or a checkpoint cannot be kept.
        ConflictError: others kept compacting the same files: there is no savepoint, run it again.
        UnavailableError: Spark has not noted the last batch in a checkpoint yet: run it again.
    """
    names = [] if checkpoints is None else names_of("checkpoints", checkpoints)
    saved = table.savepoints.create(compact=compact, checkpoints=names)
    return rows_table(_SAVED, [_saved_row(table, saved)])


@procedure(_DELETED, aliases=_ID)
def delete_savepoint(table: Table, savepoint: int, dry_run: bool = False) -> pa.Table:
    """Delete a savepoint, its tag, and the files that only it used.

    Args:
        table: the table.
        savepoint: its number.
        dry_run: only show what would go.

    Returns:
        One row.

    Raises:
        InvalidInputError: there is no such savepoint, or a branch was made from its tag.
    """
    gone = table.savepoints.delete(savepoint, dry_run=dry_run)
    row: dict[str, Any] = {
        "savepoint_id": gone.savepoint.id,
        "saved_snapshot_id": gone.savepoint.saved_snapshot_id,
        "data_files": len(gone.data),
        "metadata_files": len(gone.metadata),
        "size_bytes": sum(file.size_bytes for file in gone.data),
    }
    return rows_table(_DELETED, [row])


@procedure(RESTORED, aliases=_ID)
def rollback_to_savepoint(table: Table, savepoint: int) -> pa.Table:
    """Make the rows of a savepoint those of the newest snapshot, by a new commit; nothing of the history is lost.

    Streams get the exact difference. Partitions that differ are written again. Stop the queries that write the table
    first, and let them continue from restored checkpoints (restore_checkpoint).

    Args:
        table: to change.
        savepoint: its number.

    Returns:
        One row for each partition that was replaced; none when nothing differs.

    Raises:
        InvalidInputError: there is no such savepoint, or the table changed so that it cannot go back, see
            rollback_to_as_latest.
        ConflictError: the commit lost too many races: run it again.
    """
    return restored(table, table.savepoints.get(savepoint).snapshot)


@procedure(_CHECKPOINT, aliases=_ID)
def restore_checkpoint(table: Table, savepoint: int, to: str, query: str | None = None) -> pa.Table:
    """Make the checkpoint directory from which a streaming query continues after what a savepoint contains.

    The query has a new id from then on: the table remembers the later batches of the old one.

    Args:
        table: the table.
        savepoint: its number.
        to: the new directory, on this machine.
        query: which query, by its id, commit user or old checkpoint directory. Default: the only one.

    Returns:
        One row.

    Raises:
        InvalidInputError: the savepoint keeps no such checkpoint, or the directory is in use.
    """
    kept = chosen_checkpoint(read_savepoint(table.store, savepoint), query)
    query_id = saved_checkpoints.restore_saved_checkpoint(table.store, kept, to)
    row = {"directory": to, "query_id": query_id, "saved_query_id": kept.query_id, "batch_id": kept.batch_id}
    return rows_table(_CHECKPOINT, [row])


def _saved_row(table: Table, saved: Savepoint) -> dict[str, Any]:
    live = LiveFiles(table.store, saved.snapshot)
    runs = [len(live.levels(key).runs) if table.store.has_key else live.file_count(key) for key in live.buckets()]
    return {
        "savepoint_id": saved.id,
        "saved_snapshot_id": saved.saved_snapshot_id,
        "save_time": sql_time_text(saved.save_time_ms),
        "record_count": saved.record_count,
        "sorted_runs": max(runs, default=0),
        "checkpoints": len(saved.checkpoints),
    }
