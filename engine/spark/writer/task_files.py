"""One task of ``format("fluvial")``: it leaves its rows to the committing process, or writes their data files itself.

A task numbers its rows above every row of the table, and apart from other tasks': their numbers rise with the number
of the partition, with gaps between them. Whether that still holds when the batch is committed, the committing process
looks; see ``staged_commit``.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

import pyarrow as pa

from engine.runtime.steps import Observer, ignore
from engine.spark.writer.staged_rows import StagedFile, batch_directory, look_ahead_bytes, stage_rows
from engine.spark.writer.task_attempt import TaskAttempt
from engine.spark.writer.writing_way import FilesBy, FilesChoice, TaskShare, WrittenTable, chosen
from engine.types.rows import bucket_places, change_rows
from engine.write.batch_part import BatchSpec, BucketResult, write_part
from filestore.scan.live_files import NO_SEQUENCE_NUMBER, BucketKey, LiveFiles
from filestore.scan.snapshot_files import changes_since
from filestore.snapshot.snapshot import EMPTY_TABLE, SnapshotRef
from filestore.table_store import TableStore
from filestore.table_view import TableView
from filestore.write.table_write import partition_codes
from lsm.undo import undoing

_NUMBERS_OF_A_TASK: Final = 1 << 26  # more rows of one bucket cost a rewriting: the next task's are among its numbers
_MOST_TABLES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesOfTask:
    """Data files of one task. Picklable."""

    attempt: TaskAttempt
    results: tuple[BucketResult, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """How the tasks of a batch write. Picklable."""

    table: TableView
    has_log: bool
    wanted: FilesBy | None = None  # None: what suits the rows
    replaces: bool = False  # what is in the table: no row stays that these would have to follow
    observe: Observer = ignore

    def write(
        self, batches: Iterable[pa.RecordBatch], *, commit_user: str, batch_id: int, partition: int
    ) -> tuple[StagedFile | FilesOfTask | None, FilesChoice]:
        """Stage a task's rows or write their files. Nothing is left behind when it fails.

        Args:
            batches: the table's columns by name, nullable ones may be missing, and optionally ``_row_kind``.
            commit_user: of the rows.
            batch_id: of the rows.
            partition: number of the task among those of the frame.

        Returns:
            What the committing process needs, None when there are no rows; and why it is that.

        Raises:
            InvalidInputError: a row that the table cannot hold.
        """
        table, rest = self.table, iter(batches)
        traits = WrittenTable.of(table, has_log=self.has_log)
        share = TaskShare(partition=partition, size_bytes=0, bucket_count=0, is_whole=False)
        ahead: list[pa.RecordBatch] = []
        if traits.obstacle is None and self.wanted is not FilesBy.COMMIT:
            share, ahead = _look_ahead(table, rest, partition)
        choice, rows = chosen(self.wanted, traits, share), chain(ahead, rest)
        if choice.by is FilesBy.COMMIT or (share.is_whole and not share.bucket_count):
            return stage_rows(table, rows, commit_user=commit_user, batch_id=batch_id), choice
        return self._write_files(rows, commit_user, batch_id, partition), choice

    def _write_files(
        self, rows: Iterable[pa.RecordBatch], commit_user: str, batch_id: int, partition: int
    ) -> FilesOfTask:
        store = self.table.store
        base, highest = EMPTY_TABLE, NO_SEQUENCE_NUMBER
        if store.has_key and not self.replaces:  # else numbers are in no file, or may begin anywhere
            base, highest = _highest_number(store)
        attempt = TaskAttempt.begin(store, batch_directory(commit_user, batch_id))
        spec = BatchSpec(
            table=replace(self.table, store=attempt.named(store)),
            log=None,
            commit_user=commit_user,
            batch_id=batch_id,
            base=base,
            max_sequence_numbers=_InEveryBucket(highest + partition * _NUMBERS_OF_A_TASK),
            log_offsets={},
            observe=self.observe,
        )
        with undoing(lambda: attempt.delete(store)):
            results = tuple(write_part(spec, rows))
            attempt.note(store, [message for result in results for message in result.messages])
        return FilesOfTask(attempt=attempt, results=results)


class _InEveryBucket(Mapping[BucketKey, int]):
    """One number for every bucket that is asked for."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __getitem__(self, key: BucketKey) -> int:
        return self._number

    def __iter__(self) -> Iterator[BucketKey]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _look_ahead(
    table: TableView, batches: Iterator[pa.RecordBatch], partition: int
) -> tuple[TaskShare, list[pa.RecordBatch]]:
    """The first rows of a task, and what they say of its share."""
    most_bytes = look_ahead_bytes(table)
    ahead: list[pa.RecordBatch] = []
    buckets: set[tuple[bytes, int]] = set()
    size_bytes, is_whole = 0, True
    for batch in batches:
        ahead.append(batch)
        rows, _ = change_rows(batch, table)
        if rows.num_rows:
            size_bytes += rows.nbytes
            buckets |= _places(table, rows)
        if size_bytes > most_bytes:
            is_whole = False
            break
    share = TaskShare(partition=partition, size_bytes=size_bytes, bucket_count=len(buckets), is_whole=is_whole)
    return share, ahead


def _places(table: TableView, rows: pa.RecordBatch) -> set[tuple[bytes, int]]:
    found = set()
    for bucket, places in bucket_places(rows, table):
        here = rows if places is None else rows.select(table.schema.partition_keys).take(places)
        found |= {(partition, bucket) for partition in partition_codes(here, table.store)[0]}
    return found


_seen: OrderedDict[tuple[object, ...], tuple[SnapshotRef, int]] = OrderedDict()  # by table, in this process


def _highest_number(store: TableStore) -> tuple[SnapshotRef, int]:
    """The newest snapshot, and a number that no row of it is above.

    Workers live from batch to batch: after the first time only what was committed since is read.
    """
    key = (store.paths.branch_root, store.schema.identity)
    known, latest = _seen.pop(key, None), store.snapshots.latest()
    changes = None if known is None or latest is None else changes_since(store, known[0], latest)
    if known is None or latest is None or changes is None:
        live = LiveFiles.latest(store)
        found = live.ref, max(live.max_sequence_numbers().values(), default=NO_SEQUENCE_NUMBER)
    else:
        newer = (entry.file.max_sequence_number for entries in changes.values() for entry in entries)
        found = latest.ref, max(chain([known[1]], newer))
    _seen[key] = found
    while len(_seen) > _MOST_TABLES:
        _seen.popitem(last=False)
    return found
