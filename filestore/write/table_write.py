"""The writer of a task: rows of any partition and bucket in, files of each bucket out, within one memory budget.

Files of several buckets are finished in parallel threads, since encoding and the disk take most of the time.
"""

import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from threading import BoundedSemaphore, Event
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filestore.hashing.buckets import bucket_ids, key_hashes
from filestore.index.index_manifest import HASH
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import EntryKind
from filestore.manifest.lists import IndexManifestEntry
from filestore.options.table.common import MIB
from filestore.options.table.groups import POSTPONE_BUCKET
from filestore.predicate.row_rules import check_rules, refuse_broken
from filestore.scan.live_files import NO_SEQUENCE_NUMBER, BucketKey
from filestore.schema.merge_engine import check_retracts, without_old_values
from filestore.schema.validation import check_writable
from filestore.table_store import TableStore
from filestore.table_view import TableView
from filestore.types.binary_row import EMPTY_ROW, encode_row
from filestore.write.bucket_writer import BucketWriter, bucket_writer, sort_small
from filestore.write.row_checks import check_kinds, conform_batch, row_kinds_of_column
from lsm.byte_sizes import pieces_within
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError
from lsm.keys.keys import internal_value
from lsm.row_kind import VALUE_KIND_FIELD, RowKind, repeated_kind, retracts

# ---- Dynamic buckets (``bucket=-1`` of a table with a key): a key stays in the bucket that it was first put in.
#
# Buckets are filled one after the other up to ``dynamic-bucket.target-row-num`` keys. The keys of a bucket are in
# an index file: the hash of every key, 4 bytes each, big-endian. Two keys with one hash share a bucket. A
# bucket's hashes are in memory while they are searched, so memory does not grow with the number of buckets, but
# with the keys that are new in a commit. One writer at a time assigns keys of a partition: the commit of a second
# one is refused.
#
# Source: Paimon HashIndexFile and PartitionIndex.


KeyHashes = NDArray[np.int32]
"""Of keys, ascending and each once."""

_CACHE_BYTES: Final = 64 << 20
_HASH_BYTES: Final = 4
_NONE: Final[KeyHashes] = np.zeros(0, np.int32)


@dataclass(slots=True)
class _Bucket:
    entry: IndexManifestEntry | None = None  # of the hashes of earlier commits
    new: KeyHashes = field(default_factory=lambda: _NONE)  # of this one

    @property
    def key_count(self) -> int:
        return len(self.new) + (self.entry.row_count if self.entry else 0)


class BucketAssigner:
    """Assigns keys to buckets, and writes index files of the new ones. Not for use by several threads."""

    def __init__(self, store: TableStore, index: Iterable[IndexManifestEntry]) -> None:
        """``index``: the index files of the snapshot that the rows will follow."""
        self._table = store
        self._buckets: dict[bytes, dict[int, _Bucket]] = {}
        self._cache: OrderedDict[str, KeyHashes] = OrderedDict()  # by index file
        self._written: list[IndexManifestEntry] = []  # not handed over to a committer yet
        for entry in index:
            if entry.index_type == HASH:
                self._buckets.setdefault(entry.partition, {})[entry.bucket] = _Bucket(entry)

    def assign(self, partition: bytes, hashes: NDArray[np.int32]) -> NDArray[np.int64]:
        """(n,) the bucket of each key.

        Args:
            partition: of all of them.
            hashes: (n,) of the keys, in any order.
        """
        keys, places = np.unique(hashes, return_inverse=True)
        found = np.full(len(keys), -1, np.int64)
        buckets = self._buckets.setdefault(partition, {})
        for number, bucket in buckets.items():
            unknown = np.flatnonzero(found < 0)
            if not len(unknown):
                break
            for known in (bucket.new, self._hashes(bucket.entry)):
                found[unknown[_are_in(keys[unknown], known)]] = number
        unknown = np.flatnonzero(found < 0)
        if len(unknown):
            counts = {number: bucket.key_count for number, bucket in buckets.items()}
            found[unknown] = self._spread(counts, len(unknown))
            for number in np.unique(found[unknown]).tolist():
                bucket = buckets.setdefault(number, _Bucket())
                bucket.new = np.union1d(bucket.new, keys[unknown[found[unknown] == number]])
        return found[places]

    def with_index(self, message: CommitMessage) -> CommitMessage:
        """The message of a bucket with its new index file, where it got new keys; from now on these are known."""
        bucket = self._buckets.get(message.partition, {}).get(message.bucket)
        if bucket is None or not len(bucket.new):
            return message
        before = bucket.entry
        entry = self._write(BucketKey(message.partition, message.bucket), np.union1d(self._hashes(before), bucket.new))
        self._written.append(entry)
        bucket.entry, bucket.new = entry, _NONE
        return _replaced(message, before, entry)

    def hand_over(self) -> None:
        """From now on the committer deletes the files written so far."""
        self._written.clear()

    def abort(self) -> None:
        """Delete the files that were not handed over."""
        for entry in self._written:
            with suppress(FluvialError, OSError):  # an orphan costs space only
                self._table.io.delete(self._table.paths.index(entry.file_name))
        self._written.clear()

    def _spread(self, counts: Mapping[int, int], key_count: int) -> NDArray[np.int64]:
        options = self._table.options
        return spread(
            counts,
            key_count,
            target=options.dynamic_bucket_target_row_num,
            initial=options.dynamic_bucket_initial_buckets or 1,
            most=options.dynamic_bucket_max_buckets,
        )

    def _hashes(self, entry: IndexManifestEntry | None) -> KeyHashes:
        if entry is None:
            return _NONE
        if entry.file_name in self._cache:
            self._cache.move_to_end(entry.file_name)
            return self._cache[entry.file_name]
        path = self._table.index_path(entry)
        body = self._table.io.read_bytes(path)
        if len(body) != entry.row_count * _HASH_BYTES:
            raise CorruptDataError(
                f"index of a dynamic bucket is broken: path={path} size_bytes={len(body)} keys={entry.row_count}"
            )
        hashes = np.unique(np.frombuffer(body, ">i4").astype(np.int32))
        self._cache[entry.file_name] = hashes
        while len(self._cache) > 1 and sum(each.nbytes for each in self._cache.values()) > _CACHE_BYTES:
            self._cache.popitem(last=False)
        return hashes

    def _write(self, key: BucketKey, hashes: KeyHashes) -> IndexManifestEntry:
        table = self._table
        name = f"index-{table.names.uuid()}-0"
        body = hashes.astype(">i4").tobytes()
        table.io.write_new(table.paths.index(name), body)
        return IndexManifestEntry(
            kind=EntryKind.ADD,
            partition=key.partition,
            bucket=key.bucket,
            index_type=HASH,
            file_name=name,
            size_bytes=len(body),
            row_count=len(hashes),
        )


def spread(counts: Mapping[int, int], key_count: int, *, target: int, initial: int, most: int) -> NDArray[np.int64]:
    """(key_count,) buckets for new keys: those with room first, then further ones.

    Args:
        counts: keys of each bucket.
        key_count: how many need one.
        target: keys at which a bucket is full.
        initial: buckets that an empty partition begins with; they are filled evenly.
        most: buckets there may be, -1: any number; once all are full, keys go to them in turn.
    """
    counts = dict(counts)
    first = initial if most < 0 else min(initial, most)
    parts: list[NDArray[np.int64]] = []
    if not counts and first > 1:
        even = min(key_count, first * target)
        parts.append(np.arange(even, dtype=np.int64) % first)
        counts = dict.fromkeys(range(first), target)
        key_count -= even
    number = 0
    while key_count > 0:
        if 0 <= most <= number:
            parts.append(np.arange(key_count, dtype=np.int64) % most)
            break
        taken = min(max(target - counts.get(number, 0), 0), key_count)
        parts.append(np.full(taken, number, np.int64))
        key_count -= taken
        number += 1
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _are_in(keys: KeyHashes, known: KeyHashes) -> NDArray[np.bool_]:
    """(n,) which of some ascending hashes are among others."""
    if not len(known):
        return np.zeros(len(keys), np.bool_)
    places = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    found: NDArray[np.bool_] = known[places] == keys
    return found


def _replaced(message: CommitMessage, before: IndexManifestEntry | None, after: IndexManifestEntry) -> CommitMessage:
    gone: Sequence[IndexManifestEntry] = () if before is None else (before,)
    return replace(message, index_before=(*message.index_before, *gone), index_after=(*message.index_after, after))


# ---- The writer of a task: rows of any partition and bucket in, files of each bucket out, within one memory budget


_MANY: Final = 16  # buckets; fewer are finished sooner than threads start, and in one order
_MOST_THREADS: Final = 4
_AT_ONCE: Final = 32  # small files that a thread writes; the next ones are made meanwhile
_WAITING: Final = 2  # tasks for each thread, at work or next


class Finishable(Protocol):
    """A writer of one bucket, which shares nothing that changes with the others."""

    def encode(self) -> bool:
        """Make a small file in memory, so that ``finish`` only writes it; False: ``finish`` does it all."""

    def finish(self) -> None:
        """Write what is in memory, and finish the files that are open."""


class _Turns:
    """Threads that finish writers, a few ahead of which this one encodes."""

    def __init__(self, pool: ThreadPoolExecutor, threads: int) -> None:
        self.failed: Final = Event()
        self.futures: Final[list[Future[None]]] = []
        self._pool = pool
        self._free = BoundedSemaphore(threads * _WAITING)

    def give(self, writers: Sequence[Finishable]) -> None:
        """Have writers finished, one after the other; waits while enough others are."""
        self._free.acquire()
        self.futures.append(self._pool.submit(self._finish, writers))

    def _finish(self, writers: Sequence[Finishable]) -> None:
        try:
            for writer in writers:
                if self.failed.is_set():
                    return
                writer.finish()
        except BaseException:
            self.failed.set()
            raise
        finally:
            self._free.release()


def finish_all(writers: Sequence[Finishable]) -> None:
    """Finish all writers; when one fails no further one begins, and those at work end before its error is raised.

    Small files are made by this thread and written by others: encoding them is short and holds the interpreter's lock,
    writing them waits for the disk.
    """
    if len(writers) < _MANY:
        for writer in writers:
            writer.finish()
        return
    threads = min(_MOST_THREADS, 2 * (os.cpu_count() or 1))
    with ThreadPoolExecutor(threads, thread_name_prefix="fluvial-finish") as pool:
        turns = _Turns(pool, threads)
        try:
            _give_all(writers, turns)
        except BaseException:
            turns.failed.set()
            raise
    for future in turns.futures:
        future.result()


def _give_all(writers: Sequence[Finishable], turns: _Turns) -> None:
    small: list[Finishable] = []
    for writer in writers:
        if turns.failed.is_set():
            return
        if not writer.encode():
            turns.give([writer])
            continue
        small.append(writer)
        if len(small) == _AT_ONCE:
            turns.give(small)
            small = []
    if small:
        turns.give(small)


# More is taken piece by piece, so that the budget holds within one call.
_ROWS_AT_ONCE: Final = 1 << 20
_BYTES_AT_ONCE: Final = 32 * MIB

MaxSequenceNumbers = Mapping[BucketKey, int] | Callable[[bytes, int], int]


class TableWrite:
    """Writes rows into files that a commit makes visible. Not for use by several threads.

    No other writer may write the same buckets meanwhile: both would use the same sequence numbers, and the later commit
    would be refused.
    """

    def __init__(
        self,
        table: TableView,
        *,
        max_sequence_numbers: MaxSequenceNumbers,
        budget_bytes: int | None = None,
        index: Iterable[IndexManifestEntry] = (),
        takes_stored_rows: bool = False,
        takes_old_rows: bool = False,
        fills_defaults: bool = False,
    ) -> None:
        """Prepare to write.

        Args:
            table: to write to.
            max_sequence_numbers: highest sequence number of a bucket by (partition bytes, bucket), from the snapshot
                that the commit will name as its base; a bucket that is missing has no rows.
                ``LiveFiles.max_sequence_numbers()`` gives it.
            budget_bytes: memory for rows of all buckets together; None is ``write-buffer-size``.
            index: index files of that snapshot, which say where the keys of dynamic buckets are; none: there are no
                keys, or they are all replaced.
            takes_stored_rows: rows come as they are stored: of a counted table with their hashes and counts; the
                column of ``rowkind.field`` is a value like others.
            takes_old_rows: rows were written before, as those of a log: they are not held to the constraints again.
            fills_defaults: rows come from a user: a null becomes the default of its column.

        Raises:
            InvalidInputError: the table cannot be written; says why.
        """
        self._table = store = table.store
        self._given = store.schema if takes_stored_rows else table.schema
        self._left_out: Mapping[str, pa.Array] | None = {} if fills_defaults else None
        self._counts = None if takes_stored_rows else table.row_counts
        self._kind_field = None if takes_stored_rows else store.options.rowkind_field
        self._rules = () if takes_old_rows else check_rules(table.schema)
        check_writable(store.schema)
        store.check_branch()
        self._max_sequence_numbers = max_sequence_numbers
        self._budget_bytes = store.options.write_buffer_bytes if budget_bytes is None else budget_bytes
        self._writers: dict[BucketKey, BucketWriter] = {}
        self._assigner = BucketAssigner(store, index) if store.has_dynamic_buckets else None

    @property
    def size_bytes(self) -> int:
        """Bytes of the rows that are in memory."""
        return sum(writer.size_bytes for writer in self._writers.values())

    def write(
        self, rows: pa.Table | pa.RecordBatch, kinds: pa.Array | None = None, *, are_conformed: bool = False
    ) -> None:
        """Add rows in the order in which they arrived; of two rows with one key the later one is newer.

        Args:
            rows: columns by name; missing nullable ones are null.
            kinds: (n,) row kinds as int8 or ``+I -U +U -D``; None: from the column of ``rowkind.field``, else all are
                inserts.
            are_conformed: the rows are a batch of ``conform_batch``, for the table and with its options.

        Raises:
            InvalidInputError: names the column, the value and what to change; no row was taken.
        """
        given = None if kinds is None else check_kinds(kinds, rows.num_rows)
        batches, first = [], 0
        for piece in _pieces(rows, max(_BYTES_AT_ONCE, self._budget_bytes // 2)):
            kinds_here = None if given is None else given.slice(first, piece.num_rows)
            batches.append(self._prepared(piece, kinds_here, first, are_conformed=are_conformed))
            first += piece.num_rows
        for batch in batches:
            if batch.num_rows:
                for key, part in self._routed(batch):
                    self._writer(key).write(part)
                self._keep_budget()

    def flush(self) -> None:
        """Write everything in memory to files."""
        for writer in self._writers.values():
            writer.flush()

    def prepare_commit(self) -> list[CommitMessage]:
        """Flush, and hand over the files written since the last call; writing may continue.

        Buckets without files are left out.
        """
        # all of them before the first hands over: when one fails, ``abort`` still knows every file
        sort_small(self._writers.values())
        finish_all([*self._writers.values()])
        messages = [writer.prepare_commit() for writer in self._writers.values()]
        if self._assigner is not None:
            messages = [self._assigner.with_index(message) for message in messages]
            self._assigner.hand_over()
        return [message for message in messages if not message.is_empty]

    def abort(self) -> None:
        """Delete the files that were not handed over; afterwards the writer cannot be used."""
        for writer in self._writers.values():
            writer.abort()
        self._writers.clear()
        if self._assigner is not None:
            self._assigner.abort()

    def _prepared(
        self, rows: pa.Table | pa.RecordBatch, given_kinds: pa.Array | None, first_row: int, *, are_conformed: bool
    ) -> pa.RecordBatch:
        """The rows as they go to a bucket writer, checked."""
        table = self._table
        try:
            rounds = table.options.write_round_values
            if are_conformed:
                assert isinstance(rows, pa.RecordBatch)
                batch = rows
            else:
                batch = conform_batch(rows, self._given, rounds=rounds, left_out=self._left_out)
            kinds = self._kinds(batch) if given_kinds is None else given_kinds
            batch, kinds = self.without_ignored(batch, kinds)
            refuse_broken(self._rules, batch, kinds, table=table.name, keys=self._given.primary_keys)
            if self._counts is not None:
                batch, kinds = self._counts.to_stored(batch, kinds), repeated_kind(RowKind.INSERT, batch.num_rows)
            self._check_kinds(kinds)
        except InvalidInputError as error:
            if not first_row:
                raise
            raise InvalidInputError(f"{error} first_row={first_row}") from error
        return (
            _with_kinds(without_old_values(batch, kinds, table.schema, table.options), kinds)
            if table.has_key
            else batch
        )

    def _kinds(self, batch: pa.RecordBatch) -> pa.Array:
        if self._kind_field is not None:
            return row_kinds_of_column(batch.column(self._kind_field), self._kind_field)
        return repeated_kind(RowKind.INSERT, batch.num_rows)

    def without_ignored(self, batch: pa.RecordBatch, kinds: pa.Array) -> tuple[pa.RecordBatch, pa.Array]:
        """Leave out what the table ignores: other readers would take ignored retracts for real ones."""
        options = self._table.options
        if options.ignore_delete:
            kept = pc.invert(retracts(kinds))
        elif options.ignore_update_before:
            kept = pc.not_equal(kinds, int(RowKind.UPDATE_BEFORE))
        else:
            return batch, kinds
        return batch.filter(kept), kinds.filter(kept)

    def _check_kinds(self, kinds: pa.Array) -> None:
        table, options = self._table, self._table.options
        counts = np.bincount(kinds.to_numpy(zero_copy_only=False), minlength=len(RowKind))
        has_retracts = bool(counts[RowKind.UPDATE_BEFORE] or counts[RowKind.DELETE])
        has_updates = counts[RowKind.UPDATE_AFTER] and not (options.ignore_delete or options.ignore_update_before)
        if not table.has_key and (has_retracts or has_updates):
            raise InvalidInputError(
                f"a table without a primary key takes inserts only: table={table.name} "
                f"updates={counts[RowKind.UPDATE_AFTER]} updates_before={counts[RowKind.UPDATE_BEFORE]} "
                f"deletes={counts[RowKind.DELETE]} fix='declare a primary key, make the table with row-counts=true, "
                "or set ignore-delete=true: then new rows of updates are added beside the old ones'"
            )
        if has_retracts:
            check_retracts(table.schema, options, deletes_only=not counts[RowKind.UPDATE_BEFORE])

    def _routed(self, batch: pa.RecordBatch) -> Iterator[tuple[BucketKey, pa.RecordBatch]]:
        """The rows of each bucket, in the order in which they were given."""
        partitions, codes = partition_codes(batch, self._table)
        postponed = self._table.options.bucket == POSTPONE_BUCKET
        buckets = self._buckets(batch, partitions, codes)
        bucket_count = int(buckets.max()) + 1 if self._assigner else max(self._table.options.bucket, 1)
        if len(partitions) * bucket_count == 1:
            yield BucketKey(partitions[0], POSTPONE_BUCKET if postponed else 0), batch
            return
        places = codes * bucket_count + buckets
        if len(partitions) * bucket_count <= np.iinfo(np.uint16).max:
            places = places.astype(np.uint16)  # numpy sorts these by radix
        order = np.argsort(places, kind="stable")
        ordered = places[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        for start, stop in zip(starts, [*starts[1:], len(ordered)], strict=True):
            partition, bucket = divmod(int(ordered[start]), bucket_count)
            # Taken one by one, so that flushing a bucket really frees its rows.
            key = BucketKey(partitions[partition], POSTPONE_BUCKET if postponed else bucket)
            yield key, batch.take(pa.array(order[start:stop]))

    def _buckets(
        self, batch: pa.RecordBatch, partitions: Sequence[bytes], codes: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """(n,) the bucket of each row."""
        buckets = np.zeros(batch.num_rows, np.int64)
        bucket_count = self._table.options.bucket
        schema = self._table.schema
        columns = [batch.column(name) for name in schema.bucket_keys]
        types = [schema.field(name).type for name in schema.bucket_keys]
        if self._assigner is not None:
            hashes = key_hashes(columns, types)
            for code, partition in enumerate(partitions):
                here = codes == code
                buckets[here] = self._assigner.assign(partition, hashes[here])
        elif bucket_count > 1:
            function = self._table.options.bucket_function
            buckets[:] = bucket_ids(columns, types, bucket_count, function=function)
        return buckets

    def _writer(self, key: BucketKey) -> BucketWriter:
        if key not in self._writers:
            known = self._max_sequence_numbers
            highest = known(*key) if callable(known) else known.get(key, NO_SEQUENCE_NUMBER)
            self._writers[key] = bucket_writer(
                self._table, key.partition, key.bucket, max_sequence_number=highest, budget_bytes=self._budget_bytes
            )
        return self._writers[key]

    def _keep_budget(self) -> None:
        """Flush the largest writers first: that makes the fewest and largest files."""
        size_bytes = self.size_bytes
        if size_bytes <= self._budget_bytes:
            return
        for writer in sorted(self._writers.values(), key=lambda each: each.size_bytes, reverse=True):
            if size_bytes <= self._budget_bytes:
                return
            size_bytes -= writer.size_bytes
            writer.flush()


def _pieces(rows: pa.Table | pa.RecordBatch, most_bytes: int) -> Iterator[pa.Table | pa.RecordBatch]:
    for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
        yield from pieces_within(rows.slice(start, _ROWS_AT_ONCE), most_bytes)


def _with_kinds(batch: pa.RecordBatch, kinds: pa.Array) -> pa.RecordBatch:
    schema = batch.schema.append(VALUE_KIND_FIELD)
    return pa.RecordBatch.from_arrays([*batch.columns, kinds], schema=schema)


def partition_codes(batch: pa.RecordBatch, store: TableStore) -> tuple[Sequence[bytes], NDArray[np.int64]]:
    """The partitions that occur (BinaryRow bytes), and the index of each row's partition."""
    codes = np.zeros(batch.num_rows, np.int64)
    dictionaries = []
    for name in store.schema.partition_keys:
        encoded = batch.column(name).dictionary_encode(null_encoding="encode")
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
        dictionaries.append(encoded.dictionary)
    if not dictionaries:
        return [EMPTY_ROW], codes
    present, codes = np.unique(codes, return_inverse=True)
    partitions = []
    for code in present.tolist():
        values: list[object] = []
        for dictionary in reversed(dictionaries):
            code, index = divmod(code, len(dictionary))
            values.insert(0, internal_value(dictionary[index]))
        partitions.append(encode_row(values, store.partition_types))
    return partitions, codes
