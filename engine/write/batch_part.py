"""One task's share of a batch: rows of some buckets into data files and, in the same order, into the log.

Files are written before a bucket's Kafka transaction ends, and its last record carries the files' commit message. So
that record is the point of no return: before it nothing happened, after it every replay returns the same files and
the same slice of the log, whatever rows it computes. This module knows no Spark; a plain process writes through it too.
"""

import json
import logging
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.log.bucket_log import BucketLog, check_batch_files, read_payload
from engine.log.given_changes import GivenChanges
from engine.log.table_log import TableLog
from engine.runtime.steps import Observer, Step, StepEvent, ignore
from engine.types.rows import bucket_places, change_parts
from engine.write.renumber import rewrite_with_higher_numbers, superseded
from engine.write.ticket_queue import Turn
from engine.write.unavailable.filling import Filling, Refuse
from filestore.changelog.untracked import untracked_rows
from filestore.commit.committable import BATCH_IDENTIFIER, Committable, discard
from filestore.commit.query_run import QueryRun
from filestore.index.deletion_vectors import Positions, read_deletion_vectors
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta, ManifestEntry
from filestore.manifest.lists import IndexManifestEntry, vectors_of
from filestore.predicate.evaluation import filter_mask
from filestore.read.row_lookup import change_recorder
from filestore.read.split_read import BucketFiles, Recording
from filestore.scan.live_files import NO_SEQUENCE_NUMBER, BucketKey, at_latest, reading_snapshot
from filestore.scan.snapshot_files import deletion_indexes, live_files_of_partitions
from filestore.snapshot.change_tracking import ChangeSource
from filestore.snapshot.snapshot import EMPTY_TABLE, Snapshot, SnapshotRef
from filestore.table_store import TableStore
from filestore.table_view import TableView
from filestore.write.batch_names import BatchNames
from filestore.write.table_write import TableWrite
from logstore.log.kept_writers import KeptWriters, writers_of_process
from logstore.log.marker import CommitMarker
from logstore.offsets import LogSlice
from lsm.row_kind import SEQUENCE_NUMBER, VALUE_KIND, RowKind, repeated_kind
from lsm.undo import undoing

# ---- Changes that are complete before they go to the log: ``log.changelog-mode=all`` with
# ``changelog-producer=lookup``.
#
# A task writes its data files first. Then it looks up their keys in the newest snapshot, and sends the change of
# each row to the log: -U and +U, +I, -D with the old row, whatever the merge engine. The state before a batch is
# that snapshot alone: while a bucket is fenced no other writer can write its log, and a writer that finds a batch
# in the log that no snapshot holds is refused (``BucketLog.open``). Writers that do without the log may still
# commit: what they committed before the lookup is looked up as well, and the batch's rows are numbered above
# their rows. What they commit after it makes the changes stale, which the commit notices
# (``Committable.changelog_base_snapshot``): then streams skip these records and get the difference of the two
# snapshots instead.


_Indexes = Mapping[tuple[bytes, int], Sequence[IndexManifestEntry]]


class ExactChanges:
    """The changes that a task's files make to one snapshot. Created after the files are written and buckets fenced."""

    def __init__(self, store: TableStore, messages: Iterable[CommitMessage]) -> None:
        """Look which files the buckets have now."""
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


# ---- The exact changes that the files of a batch make in their bucket, before the files are visible
#
# The files of the batch are merged with the bucket's rows of the same keys, which are looked up; so changes follow
# the table's merge function, for every merge engine. Memory holds a section of the batch and the rows of its keys.
# The changes are stale if another writer changes the bucket before the batch is committed. Source: Paimon
# LookupChangelogMergeFunctionWrapper.


_NEW_LEVEL: Final = 0  # level of a batch's files: lower levels are looked up, never merged


def batch_changes(
    store: TableStore,
    message: CommitMessage,
    live: Sequence[DataFileMeta],
    *,
    deleted: Mapping[str, Positions] | None = None,
) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    """The changes made by new files.

    Args:
        store: a table with a primary key.
        message: the new files of one bucket; their rows are numbered above those of the live files.
        live: all files of the bucket, of every level.
        deleted: deleted positions of these files, by file name.

    Yields:
        Non-empty batches at the newest schema of these files, in key order, and their (n,) int8 row kinds:
        +I, -U and then +U, or -D of the old row. An update that changes nothing is dropped only with
        ``changelog-producer.row-deduplicate``.
    """
    newest = store.with_columns_of((*message.new_files, *live))
    files_of = partial(BucketFiles, table=newest, partition=message.partition, bucket=message.bucket)
    new = [newest.sorted_file(file) for file in message.new_files]
    below = [
        file
        for file in live
        if any(each.overlaps(keyed.min_key, keyed.max_key) for keyed in [newest.sorted_file(file)] for each in new)
    ]
    emitted: list[pa.Table] = []
    recorder = change_recorder(newest, emit=emitted.append, below=files_of(files=below, deleted=deleted or {}))
    recording = Recording(merge=recorder, known_level=_NEW_LEVEL + 1)
    files = files_of(files=message.new_files)
    for runs in files.sections():
        for _ in files.merged(runs, newest.schema.column_names, drop_deletes=False, instead=recording):
            yield from _rows_and_kinds(emitted)
            emitted.clear()
    yield from _rows_and_kinds(emitted)


def _rows_and_kinds(emitted: Sequence[pa.Table]) -> Iterator[tuple[pa.RecordBatch, pa.Array]]:
    for changes in emitted:
        for batch in changes.combine_chunks().to_batches():
            rows = batch.drop_columns([SEQUENCE_NUMBER, VALUE_KIND])
            yield rows, batch.column(VALUE_KIND)


# ---- One task's share of a batch: rows of some buckets into data files and, in the same order, into the log


logger = logging.getLogger("fluvial.batch")

UPDATES: Final = "updates"
REPLACED: Final = "replaced"
"""Names of facts of a result: the number of rows of kind +U, and of kind -U."""

_REUSES_WORKERS: Final = "SPARK_REUSE_WORKER"
"""Environment of a Python worker that Spark keeps for further tasks (``spark.python.worker.reuse``)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSpec:
    """The specification of a batch, sent to every task. Picklable; its size grows with buckets, not with rows."""

    table: TableView
    log: TableLog | None
    commit_user: str
    batch_id: int
    base: SnapshotRef
    max_sequence_numbers: Mapping[BucketKey, int]  # in that snapshot; missing: no rows
    log_offsets: Mapping[int, int]  # next offset of each bucket's log, as that snapshot has it
    index: Sequence[IndexManifestEntry] = ()  # of that snapshot, see ``TableWrite``
    adopted_buckets: frozenset[int] = frozenset()  # written by an earlier run: rows of these are not written again
    run: QueryRun | None = None  # of the query: one that was taken over must not fence the log's writers
    turn: Turn | None = None  # of the writer among those of the log
    observe: Observer = ignore
    refuse: Refuse | None = None  # gets updates that cannot be completed; None: they fail the batch
    kept: KeptWriters | None = None  # of the log, between batches of one process
    keeps_writers: bool = False  # this process writes further batches: what is kept is used
    task_count: int = 1  # of fixed buckets: each task has those of one remainder

    def of_task(self) -> "BatchSpec":
        """A copy for a Spark task: writers of the log stay open for later tasks, if Spark keeps the process."""
        if _REUSES_WORKERS not in os.environ:
            return self
        return replace(self, kept=writers_of_process(), keeps_writers=True)

    def check_run(self) -> None:
        """Check that no newer run of the query exists. Raises: TakenOverError: one does."""
        if self.run is not None:
            self.run.check(f"batch={self.batch_id}")

    def check_writer(self) -> None:
        """Both checks. Raises: TakenOverError, ConflictError."""
        self.check_run()
        self.check_turn()

    def check_turn(self) -> None:
        """Refuse to log more of a batch job once another writer has its turn, and commits what the log holds of it.

        A query needs no such check: no other writer commits its batches.

        Raises: ConflictError.
        """
        if self.turn is not None and self.run is None:
            self.turn.check(f"batch={self.batch_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketResult:
    """The result of a batch in one bucket."""

    bucket: int
    messages: tuple[CommitMessage, ...]  # one per table partition
    log_slice: LogSlice | None = None
    changelog_base_snapshot: int | None = None  # the snapshot that the slice's changes were looked up in, if they were
    facts: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> str:
        """One line of JSON."""
        piece = self.log_slice
        return json.dumps(
            {
                "bucket": self.bucket,
                "messages": [message.to_json() for message in self.messages],
                "slice": None if piece is None else [piece.start_offset, piece.end_offset, piece.row_count],
                "told_since": self.changelog_base_snapshot,
                "facts": dict(self.facts),
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> "BucketResult":
        """Return what ``to_json`` wrote."""
        body: dict[str, Any] = json.loads(text)
        piece = body["slice"]
        return cls(
            bucket=body["bucket"],
            messages=tuple(CommitMessage.from_json(message) for message in body["messages"]),
            log_slice=None
            if piece is None
            else LogSlice(start_offset=piece[0], end_offset=piece[1], row_count=piece[2]),
            changelog_base_snapshot=body["told_since"],
            facts=body["facts"],
        )

    @classmethod
    def of_marker(cls, store: TableStore, bucket: int, marker: CommitMarker) -> "BucketResult":
        """The result of an earlier attempt, from the marker at the log's end."""
        files = read_payload(store, marker)
        check_batch_files(store, marker, files.messages)
        return cls(
            bucket=bucket,
            messages=files.messages,
            changelog_base_snapshot=files.changelog_base_snapshot,
            log_slice=LogSlice(
                start_offset=marker.start_offset, end_offset=marker.end_offset, row_count=marker.row_count
            ),
            facts={"adopted": 1},
        )


def committable(
    identifier: int,
    results: Sequence[BucketResult],
    *,
    base: SnapshotRef | None,
    known_offsets: Mapping[int, int] | None,
    changes: ChangeSource,
    properties: Mapping[str, str],
) -> Committable:
    """The committable of a batch, from the results of its buckets; without a watermark.

    Args:
        identifier: of the commit.
        results: of every bucket.
        base: see ``Committable``.
        known_offsets: next log offset of each bucket before the batch; None: there is no log.
        changes: how streams get the rows.
        properties: of the snapshot, unless an empty batch of a batch job makes none.
    """
    messages = [message for result in results for message in result.messages]
    slices = {each.bucket: each.log_slice for each in results if each.log_slice is not None}
    offsets = {bucket: each.end_offset for bucket, each in slices.items()}
    ends = {bucket: each.end_offset for bucket, each in slices.items() if each.end_offset > each.start_offset}
    are_all_logged = all(each.bucket in ends for each in results if each.messages)
    return Committable(
        identifier=identifier,
        messages=messages,
        log_offsets={} if known_offsets is None else {**known_offsets, **offsets},
        log_ends=ends if are_all_logged else {},
        base=base,
        changes=changes,
        properties=properties if messages or identifier != BATCH_IDENTIFIER else {},
        changelog_base_snapshot={
            (message.partition, message.bucket): result.changelog_base_snapshot
            for result in results
            for message in result.messages
            if result.changelog_base_snapshot is not None
        },
    )


def warn_of_kept_updates(store: TableStore, batch_id: int, results: Sequence[BucketResult]) -> None:
    """Warn when counted rows stay that updates replaced. One pair of -U and +U may be split between two batches."""
    updates, replaced = (sum(each.facts.get(name, 0) for each in results) for name in (UPDATES, REPLACED))
    if updates > 1 and not replaced:
        logger.warning(
            "updates came without the rows that they replace, which stay in a table that counts rows: table=%s "
            "batch=%d updates=%d fix='send -U, too (update-before=true of fluvial-kafka), or give the table a key'",
            store.name, batch_id, updates,
        )  # fmt: skip


def _taken(rows: pa.RecordBatch, kinds: pa.Array, places: pa.Array | None) -> tuple[pa.RecordBatch, pa.Array]:
    return (rows, kinds) if places is None else (rows.take(places), kinds.take(places))


def write_part(spec: BatchSpec, batches: Iterable[pa.RecordBatch]) -> list[BucketResult]:
    """Write rows of one task and return what each bucket got.

    Args:
        spec: the batch.
        batches: rows in arrival order, the table's columns and optionally ``_row_kind`` and ``_unavailable``; all rows
            of the buckets that occur.

    Raises:
        InvalidInputError: a row that the table cannot hold.
        ConflictError: a newer attempt has fenced this one, or another writer is ahead in the log.
        TakenOverError: a newer run of the query has these batches now.
    """
    part = _Part(spec)
    with undoing(part.abort):
        spec.observe(StepEvent(step=Step.PART_STARTED, batch_id=spec.batch_id))
        for batch in batches:
            part.add(batch)
        return part.finish()


class _Part:
    def __init__(self, spec: BatchSpec) -> None:
        self._spec = spec
        if spec.log is not None:  # its marker names the files
            store = spec.table.store
            names = BatchNames(names=store.names, query=spec.commit_user, batch=spec.batch_id)
            self._spec = spec = replace(spec, table=replace(spec.table, store=replace(store, names=names)))
        self._write = TableWrite(spec.table, max_sequence_numbers=spec.max_sequence_numbers, index=spec.index)
        self._logs: dict[int, BucketLog] = {}
        self._results: dict[int, BucketResult] = {}
        self._messages: dict[int, list[CommitMessage]] = {}  # by bucket, once the files are written
        self._row_count = 0
        self._kind_counts = np.zeros(len(RowKind), np.int64)
        self._untracked = None if spec.log is None else untracked_rows(spec.table.store)
        self._given = GivenChanges.of(spec.table.store, spec.log)
        self._filling: Filling | None = None  # once a batch has masks

    def add(self, batch: pa.RecordBatch) -> None:
        rows, kinds, marks = change_parts(batch, self._spec.table)
        if rows.num_rows == 0:
            return
        if self._given is not None:
            self._given.check(rows, kinds)
        if kinds is None:
            kinds = repeated_kind(RowKind.INSERT, rows.num_rows)
        is_filled = self._filling is not None or marks is not None  # with values of other rows, not yet checked
        if self._spec.log is None:
            self._write.write(*self._filled(rows, kinds, marks), are_conformed=not is_filled)
        else:
            found = list(bucket_places(rows, self._spec.table))
            for bucket, _ in found:
                self._log_of(bucket)  # from here on no other writer adds to the bucket's log
            if is_filled:  # a row may have values of another bucket's
                rows, kinds = self._filled(rows, kinds, marks)
                found = list(bucket_places(rows, self._spec.table)) if rows.num_rows else []
            for bucket, places in found:
                log = self._log_of(bucket)
                if log is not None:
                    bucket_rows, bucket_kinds = _taken(rows, kinds, places)
                    self._write.write(bucket_rows, bucket_kinds, are_conformed=not is_filled)
                    if not self._spec.log.is_exact:
                        log.append(*self._tracked(bucket_rows, bucket_kinds))
        self._row_count += rows.num_rows
        if self._spec.table.row_counts is not None:
            self._kind_counts += np.bincount(kinds, minlength=len(RowKind))
        self._tell(Step.ROWS_WRITTEN, None, {"rows": self._row_count})

    def finish(self) -> list[BucketResult]:
        for message in self._write.prepare_commit():
            self._messages.setdefault(message.bucket, []).append(message)
        self._tell(Step.FILES_FLUSHED, None, {})
        exact = self._exact_changes()
        for bucket, messages in self._messages.items():
            log = self._logs.get(bucket)
            if log is not None and exact is not None:
                self._emit_changes(log, bucket, exact)
            changelog_base_snapshot = None if exact is None else exact.snapshot_id
            piece = None if log is None else log.commit(messages, changelog_base_snapshot=changelog_base_snapshot)
            if log is not None and log.adopted is not None:
                discard(self._spec.table.store, messages)
                self._results[bucket] = BucketResult.of_marker(self._spec.table.store, bucket, log.adopted)
                continue
            if log is not None:
                self._tell(Step.LOG_COMMITTED, bucket, {})
            self._results[bucket] = BucketResult(
                bucket=bucket,
                messages=tuple(messages),
                log_slice=piece,
                changelog_base_snapshot=changelog_base_snapshot,
                facts=self._take_counts(),
            )
        for log in self._logs.values():
            log.close()
        self._tell(Step.PART_DONE, None, {})
        return list(self._results.values())

    def _take_counts(self) -> Mapping[str, int]:
        """Rows of kind +U and -U, reported with one of the buckets; only of tables that count rows."""
        counts, self._kind_counts = self._kind_counts, np.zeros_like(self._kind_counts)
        facts = {UPDATES: counts[RowKind.UPDATE_AFTER], REPLACED: counts[RowKind.UPDATE_BEFORE]}
        return {name: int(count) for name, count in facts.items() if count}

    def abort(self) -> None:
        """Abort the transactions; files stay when one of them may have ended, because the log names them."""
        settled = all([log.abort() for log in self._logs.values()])
        if settled:
            self._write.abort()
            discard(self._spec.table.store, [*chain.from_iterable(self._messages.values())])

    def _exact_changes(self) -> ExactChanges | None:
        """The looked-up changes for the log; None when it gets the rows as they were given."""
        if self._spec.log is None or not self._spec.log.is_exact:
            return None
        return ExactChanges(self._spec.table.store, chain.from_iterable(self._messages.values()))

    def _emit_changes(self, log: BucketLog, bucket: int, exact: ExactChanges) -> None:
        """Send the changes of a bucket; its messages may get other files."""
        count = 0
        messages = self._messages[bucket]
        log.begin(exact.schema_id)
        for index, message in enumerate(messages):
            messages[index] = exact.numbered(message)
            for rows, kinds in exact.of(messages[index]):
                log.append(*self._tracked(rows, kinds))
                count += rows.num_rows
        self._tell(Step.CHANGES_EMITTED, bucket, {"changes": count})

    def _log_of(self, bucket: int) -> BucketLog | None:
        """The bucket's open transaction; None when an earlier attempt wrote the bucket."""
        if bucket in self._logs:
            return self._logs[bucket]
        if bucket in self._results or bucket in self._spec.adopted_buckets:
            return None
        assert self._spec.log is not None
        log = BucketLog(
            self._spec.log,
            self._spec.table.store,
            bucket,
            query=self._spec.commit_user,
            batch=self._spec.batch_id,
            kept=self._spec.kept if self._spec.keeps_writers else None,
            check=self._spec.check_writer,
        )
        self._spec.check_run()  # a newer run keeps its producers
        done = log.open(known_end=self._spec.log_offsets.get(bucket, 0))
        with undoing(log.close):
            self._spec.check_writer()  # it has not fenced this bucket yet, or this task has just fenced its writer
        self._tell(Step.BUCKET_FENCED, bucket, {"kept": int(log.is_kept)})
        if done is not None:
            log.close()
            self._results[bucket] = BucketResult.of_marker(self._spec.table.store, bucket, done)
            return None
        if not self._spec.log.is_exact:
            log.begin(self._spec.table.schema.id)
        self._logs[bucket] = log
        return log

    def _tracked(self, rows: pa.RecordBatch, kinds: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        """Rows that go to the log: all but those of partitions without change tracking.

        Without a key also those that the table ignores: a reader of the log would take them for deletes of its rows.
        """
        if not self._spec.table.store.has_key:
            rows, kinds = self._write.without_ignored(rows, kinds)
        if self._untracked is None:
            return rows, kinds
        kept = pc.invert(filter_mask(self._untracked, rows))
        return rows.filter(kept), kinds.filter(kept)

    def _filled(self, rows: pa.RecordBatch, kinds: pa.Array, marks: pa.Array | None) -> tuple[pa.RecordBatch, pa.Array]:
        """The rows with the values that their source left out."""
        if self._filling is None and marks is None:
            return rows, kinds
        if self._filling is None:
            self._filling = Filling(self._spec.table, self._spec.refuse, task_count=self._spec.task_count)
        return self._filling.filled(rows, kinds, marks)

    def _tell(self, step: Step, bucket: int | None, facts: Mapping[str, int]) -> None:
        self._spec.observe(StepEvent(step=step, batch_id=self._spec.batch_id, bucket=bucket, facts=facts))
