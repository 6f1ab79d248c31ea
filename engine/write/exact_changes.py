"""Changes that are complete before they go to the log: ``log.changelog-mode=all`` with ``changelog-producer=lookup``.

A task writes its data files first. Then it looks up their keys in the newest snapshot, and sends the change of each row
to the log: -U and +U, +I, -D with the old row, whatever the merge engine. The state before a batch is that snapshot
alone: while a bucket is fenced no other writer can write its log, and a writer that finds a batch in the log that no
snapshot holds is refused (``BucketLog.open``). Writers that do without the log may still commit: what they committed
before the lookup is looked up as well, and the batch's rows are numbered above their rows. What they commit after it
makes the changes stale, which the commit notices (``Committable.changelog_base_snapshot``): then streams skip these
records and get the difference of the two snapshots instead.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from engine.write.renumber import rewrite_with_higher_numbers, superseded
from filestore.changelog.batch_changes import batch_changes
from filestore.commit.committable import discard
from filestore.index.deletion_vectors import read_deletion_vectors
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta, ManifestEntry
from filestore.manifest.lists import IndexManifestEntry, vectors_of
from filestore.scan.live_files import NO_SEQUENCE_NUMBER, BucketKey, at_latest, reading_snapshot
from filestore.scan.snapshot_files import deletion_indexes, live_files_of_partitions
from filestore.snapshot.snapshot import EMPTY_TABLE, Snapshot
from filestore.table_store import TableStore

_Indexes = Mapping[tuple[bytes, int], Sequence[IndexManifestEntry]]


class ExactChanges:
    """The changes that a task's files make to one snapshot. Created after the files are written and buckets fenced."""

    def __init__(self, store: TableStore, messages: Iterable[CommitMessage]) -> None:
        """Look which files the buckets have now.

        Args:
            store: the table.
            messages: the new files.
        """
        keys = {BucketKey(message.partition, message.bucket) for message in messages}
        partitions, buckets = {key.partition for key in keys}, {key.bucket for key in keys}

        def look(latest: Snapshot | None) -> tuple[Snapshot | None, list[ManifestEntry], _Indexes]:
            entries = live_files_of_partitions(store, latest, partitions, buckets=buckets)
            return latest, entries, deletion_indexes(store, latest)

        latest, entries, self._indexes = at_latest(store, look)
        self._store = store
        self._live: defaultdict[BucketKey, list[DataFileMeta]] = defaultdict(list)
        for entry in entries:
            self._live[BucketKey(entry.partition, entry.bucket)].append(entry.file)
        self._ref = EMPTY_TABLE if latest is None else latest.ref
        # of the changes: files that are newer than the opened table have columns that the rows must keep
        self.schema_id = store.with_columns_of(entry.file for entry in entries).schema.id

    @property
    def snapshot_id(self) -> int:
        """Id of the snapshot; 0: the table was empty."""
        return self._ref.id

    def numbered(self, message: CommitMessage) -> CommitMessage:
        """The message with its rows numbered above those of the bucket; files that are rewritten are deleted."""
        live = self._live[BucketKey(message.partition, message.bucket)]
        highest = max((file.max_sequence_number for file in live), default=NO_SEQUENCE_NUMBER)
        moved = rewrite_with_higher_numbers(self._store, message, above=highest)
        discard(self._store, superseded([message], [moved]))
        return moved

    def of(self, message: CommitMessage) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
        """Rows and int8 kinds; see ``batch_changes``. The message is ``numbered``.

        Raises: ConflictError: the snapshot was removed meanwhile: abort the transactions and write the batch again.
        """
        key = BucketKey(message.partition, message.bucket)
        vectors = vectors_of(self._live[key], self._indexes.get(key, ()))
        table = self._store if self.schema_id == self._store.schema.id else self._store.at_version(self.schema_id)
        with reading_snapshot(self._store, self._ref):
            deleted = read_deletion_vectors(self._store, vectors)
            yield from batch_changes(table, message, self._live[key], deleted=deleted)
