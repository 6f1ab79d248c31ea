"""The content of one commit: the messages of its tasks, under one identifier."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from filestore.manifest.commit_message import CommitMessage
from filestore.snapshot.change_tracking import ChangeSource
from filestore.snapshot.snapshot import SnapshotRef
from filestore.table_store import TableStore
from lsm.errors import FluvialError

BATCH_IDENTIFIER: Final = 2**63 - 1
"""Commit identifier of a batch write. Source: Paimon ``BatchWriteBuilder.COMMIT_IDENTIFIER``."""


class StatisticsFile(NamedTuple):
    """A file with the statistics of ANALYZE."""

    name: str
    schema_id: int  # that it was found with


@dataclass(frozen=True, slots=True, kw_only=True)
class Committable:
    """Everything of one commit: (commit user, identifier) is its idempotence key."""

    identifier: int  # rises with every commit of one user; BATCH_IDENTIFIER for a batch write
    messages: Sequence[CommitMessage] = ()
    log_offsets: Mapping[int, int] = field(default_factory=dict)  # bucket -> next offset of the log
    log_ends: Mapping[int, int] = field(default_factory=dict)
    """By bucket the offset behind these rows in the log. Offsets of a table rise only with the rows before them: a
    snapshot whose offset is not below this one has the rows of the bucket, whichever writer has published them."""
    watermark: int | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    base: SnapshotRef | None = None
    """Snapshot whose highest sequence numbers the rows continue; None: look at every live file."""
    changelog_base_snapshot: Mapping[tuple[bytes, int], int] = field(default_factory=dict)
    """By (partition, bucket) the snapshot in which the changes in the log were looked up, 0: the empty table. A writer
    that changes rows of the bucket after it makes them stale: a conflict."""
    log_synced: int | None = None
    """A snapshot: with this commit the log has every change up to it. Only of a commit without rows."""
    statistics: StatisticsFile | None = None  # of ANALYZE; None: those of the snapshot before stay in force
    changes: ChangeSource | None = None
    """How streams get these changes; None: from files, or not at all when the table does not track changes."""


def discard(store: TableStore, messages: Sequence[CommitMessage]) -> None:
    """Delete the files that these messages made. Only for messages that are not visible and never will be.

    Files that a compaction moved to another level keep their name: they are inputs, and stay.
    """
    for message in messages:
        known = {entry.file_name for entry in message.index_before}
        for entry in message.index_after:
            if entry.file_name not in known:
                with suppress(FluvialError, OSError):
                    store.delete_file(store.index_path(entry))
        inputs = {name for file in message.compact_before for name in (file.file_name, *file.extra_files)}
        for file in (*message.new_files, *message.compact_after, *message.changelog_files):
            for path in store.file_paths(message.partition, message.bucket, file):
                if path.rpartition("/")[2] not in inputs:
                    with suppress(FluvialError, OSError):  # an orphan costs space only
                        store.delete_file(path)
    clear_old_name(store, directories=[store.bucket_dir(each.partition, each.bucket) for each in messages])


def clear_old_name(store: TableStore, files: Iterable[str] = (), directories: Iterable[str] = ()) -> None:
    """Delete what a writer left under the old name of a table that was dropped or renamed; it keeps the name taken.

    Args:
        store: the table as it was opened; nothing is deleted when it is still there.
        files: paths that this writer made.
        directories: of its data files.
    """
    paths, io = store.paths, store.io
    with suppress(FluvialError, OSError):
        if io.exists(paths.schema_dir):
            return
        for path in (*files, paths.latest_hint, paths.earliest_hint):
            io.delete(path)
        for directory in directories:
            while directory.startswith(f"{paths.root}/") and io.delete_empty_directory(directory):
                directory = directory.rpartition("/")[0]
        for directory in (paths.snapshot_dir, paths.manifest_dir, paths.index_dir, paths.branch_root, paths.root):
            io.delete_empty_directory(directory)
