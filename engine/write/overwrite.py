"""INSERT OVERWRITE: rows of partitions replaced in one commit, beside streams that go on.

The log does not get these rows: streams read the exact difference from the files, at the overwrite's place in the
history. FL-29, FL-30, FL-33, FL-34, FL-88 to FL-91.
"""

from collections.abc import Mapping

from engine.lineage.after_commit import AfterCommit
from engine.lineage.origins import CommitOrigin
from engine.write.batch_part import BatchSpec
from engine.write.batch_writer import RunParts
from engine.write.housekeeping import tag_batch
from filestore.commit.committable import BATCH_IDENTIFIER, Committable, discard
from filestore.commit.table_commit import CommitResult
from filestore.snapshot.change_tracking import ChangeSource
from filestore.table import Table
from lsm.errors import FluvialError, OutcomeUnknownError


def overwrite(
    store: Table,
    run_parts: RunParts,
    *,
    partition: Mapping[str, object] | None,
    tracks_changes: bool,
    commit_user: str,
    origin: CommitOrigin | None = None,
) -> CommitResult:
    """Replace rows by those that ``run_parts`` writes.

    What others commit while the rows are written is replaced as well, if it lies in the same partitions.

    Args:
        store: the files of the table.
        run_parts: writes the new rows in one or many processes.
        partition: see ``filestore.table.Table.overwrite``.
        tracks_changes: False: streams do not get the difference.
        commit_user: a fresh one.
        origin: where the rows come from, for the catalog's lineage. None: nothing is told.

    Raises:
        InvalidInputError: a row that the table cannot hold, or one outside the partition; nothing is visible.
        ConflictError: the commit lost too many races; nothing is visible: try again.
        OutcomeUnknownError: it may be visible; look at the newest snapshot before trying again.
    """
    store.check_partition(partition or {})
    base_id = store.snapshots.latest_id() or 0
    after = AfterCommit(store)
    spec = BatchSpec(
        store=store,
        log=None,
        commit_user=commit_user,
        batch_id=BATCH_IDENTIFIER,
        base_snapshot_id=base_id,
        max_sequence_numbers={},  # nothing stays in these partitions that the rows would have to follow
        log_offsets={},
    )
    messages = [message for result in run_parts(spec) for message in result.messages]
    committable = Committable(
        identifier=BATCH_IDENTIFIER,
        messages=messages,
        base_snapshot_id=base_id,
        changes=ChangeSource.FILES if tracks_changes else ChangeSource.NONE,
        properties=after.properties(origin) if messages else {},
    )
    try:
        done = store.commit_overwrite(store.new_commit(commit_user, history_start=base_id), committable, partition)
    except OutcomeUnknownError:
        raise
    except FluvialError:
        discard(store, messages)
        raise
    tag_batch(store, done)
    after.notify(done.snapshot, origin, commit_user=commit_user, identifier=BATCH_IDENTIFIER)
    return done
