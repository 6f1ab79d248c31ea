"""One bucket's log during one batch: rows become records, data files become the marker's payload."""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from engine.log.given_changes import upserts
from engine.log.table_log import TableLog
from engine.log.tail_ranges import missing_after_wait
from filestore.format.compression import pack_zstd, unpack_zstd
from filestore.layout.file_names import checked_name
from filestore.manifest.commit_message import CommitMessage
from filestore.table_store import TableStore
from filestore.write.batch_names import is_of_batch
from logstore.kafka.clients import NEW_LOG
from logstore.log.kept_writers import KeptWriters
from logstore.log.marker import (
    INLINE_PAYLOAD_BYTES,
    CommitMarker,
    LogTail,
    NextStep,
    copied_batch,
    next_step,
    refuse_foreign,
)
from logstore.offsets import LogSlice
from lsm.errors import ConflictError, CorruptDataError, OutcomeUnknownError

logger = logging.getLogger("fluvial.log")

_Records = tuple[pa.Array | None, pa.Array]  # keys and values

_SHOWN_AFTER_S: Final = 2.0  # readers see a commit within
_HELD_BYTES: Final = 4 << 20  # of one bucket, until brokers have taken a row
PAYLOAD_DIRECTORY: Final = "log-payload"  # next to snapshot/ and manifest/; other readers of the layout ignore it


class BucketLog:
    """One attempt to write one batch's rows of one bucket. After an error only ``abort`` may be called.

    With a kept writer it holds the rows until brokers have taken one: a writer that was fenced since its last batch is
    replaced by a new one within the attempt.
    """

    def __init__(
        self,
        log: TableLog,
        store: TableStore,
        bucket: int,
        *,
        query: str,
        batch: int,
        kept: KeptWriters | None = None,
        check: Callable[[], object] = lambda: None,
    ) -> None:
        """Nothing is opened.

        Args:
            log: of the table.
            store: the table.
            bucket: of the log.
            query: that writes.
            batch: of the query.
            kept: writers of the log that stay open.
            check: called before and behind a fence that a kept writer turns out to need; raises if the attempt is
                out of date.
        """
        self._kept, self._check = kept, check
        self._log = log
        self._store = store
        self._bucket = bucket
        self._query = query
        self._batch = batch
        self._writer = log.writer(bucket)
        self._known_end = 0
        self._adopted: CommitMarker | None = None
        self._unproven: list[_Records] | None = None  # rows given to a kept writer while it may be fenced
        self._may_be_visible = False
        self._version = 0  # of the rows' schema, once the batch has begun
        self._header_schema_id: int | None = None

    @property
    def is_kept(self) -> bool:
        """Whether it writes by a kept writer that was not found out to be fenced."""
        return self._unproven is not None

    @property
    def adopted(self) -> CommitMarker | None:
        """After `commit`: the batch's marker, if another attempt wrote the bucket and this one's rows are invisible."""
        return self._adopted

    def open(self, *, known_end: int, only_at_end: bool = False) -> CommitMarker | None:
        """Fence other writers, or continue as the one that has; return the marker if this batch is in the log already.

        None: call ``begin`` next.

        Args:
            known_end: the bucket's next offset in the snapshot that the batch builds on.
            only_at_end: the log must end there, also if what came meanwhile is in a snapshot.

        Raises:
            ConflictError: a later batch is in the log, or another writer's batch that is in no snapshot yet.
            CorruptDataError: the log ends before the table's position.
        """
        self._known_end = known_end
        kept = None if self._kept is None else self._kept.take(self._log.target(self._bucket), known_end)
        if kept is None:
            return self._fence(only_at_end)
        if next_step(kept.tail.marker, query=self._query, batch=self._batch) is not NextStep.WRITE:
            kept.close()  # the log says what it is
            return self._fence(only_at_end)
        self._writer, self._unproven = kept, []
        return None

    def _fence(self, only_at_end: bool) -> CommitMarker | None:
        marker = self._writer.fence()
        match next_step(marker, query=self._query, batch=self._batch):
            case NextStep.ADOPT:
                assert marker is not None
                check_not_repeated(self._log, self._bucket, marker, self._known_end)
                return marker
            case NextStep.STOP:
                assert marker is not None
                raise ConflictError(
                    f"a later batch is in the log: {self._place} query={self._query} batch={self._batch} "
                    f"log_batch={marker.batch}: this attempt is out of date"
                )
            case NextStep.WRITE:
                self._check_known(self._writer.tail, self._known_end, only_at_end)
        return None

    def begin(self, schema_id: int) -> None:
        """Start the batch; its rows have the columns of this schema version."""
        self._log = self._log.for_version(self._store, schema_id)  # registered already, but for one of others' rows
        self._version = schema_id
        self._header_schema_id = schema_id if self._store.options.log_header_schema_id else None
        self._writer.begin(query=self._query, batch=self._batch, schema_id=self._header_schema_id)

    def append(self, rows: pa.RecordBatch, kinds: pa.Array) -> None:
        """Write rows, in order; with ``log.changelog-mode=upsert`` as `upserts`."""
        if not self._log.keeps_update_before:
            rows, kinds = upserts(rows, kinds, self._store)
        if rows.num_rows and self._adopted is None:
            changes = self._log.codec.encode(rows, kinds, version=self._version)
            self._send(changes.keys, changes.values)

    def _send(self, keys: pa.Array | None, values: pa.Array) -> None:
        if self._unproven is None:
            self._writer.append(keys, values)
            return
        self._unproven.append((keys, values))
        is_much = sum(_size_bytes(each) for each in self._unproven) > _HELD_BYTES
        try:
            self._writer.append(keys, values)
            if self._writer.is_accepted(waits=is_much):
                self._unproven = None
        except ConflictError as refusal:
            self._begin_again(refusal)

    def _begin_again(self, refusal: ConflictError | None) -> None:
        """A kept writer is not the newest of the bucket, or cannot prove it: do as an attempt that begins now."""
        rows, self._unproven = self._unproven or [], None
        logger.info("a kept writer of the log is replaced: %s reason=%s", self._place, refusal)
        self._writer.close()
        self._check()
        self._writer = self._log.writer(self._bucket)
        # what was written meanwhile is not in what this attempt has looked up, even if it is in a snapshot by now
        self._adopted = self._fence(only_at_end=True)
        self._check()
        if self._adopted is None:
            self._writer.begin(query=self._query, batch=self._batch, schema_id=self._header_schema_id)
            for keys, values in rows:
                self._writer.append(keys, values)

    def end_chunk(self) -> int | None:
        """Make the rows so far visible, of a batch that has not ended; the next offset. None: there are none.

        Raises:
            OutcomeUnknownError: they may be visible.
        """
        return self._writer.end_chunk()

    def commit(
        self, messages: Sequence[CommitMessage], *, changelog_base_snapshot: int | None = None
    ) -> LogSlice | None:
        """Commit the batch's transaction. None when no row was written to the log, or the batch was `adopted`.

        Args:
            messages: the files.
            changelog_base_snapshot: the snapshot in which changes were looked up, if they were.

        Raises:
            OutcomeUnknownError: the slice may be visible: keep the files and open the bucket again.
        """
        if self._unproven is not None and not self._unproven:
            self._begin_again(None)  # without a row Kafka says nothing
        if self._adopted is not None:
            return None
        texts = [message.to_json() for message in messages]
        body = texts if changelog_base_snapshot is None else {"messages": texts, "told_since": changelog_base_snapshot}
        payload = pack_zstd(json.dumps(body).encode())
        is_pointer = len(payload) >= INLINE_PAYLOAD_BYTES
        if is_pointer:
            name = f"{PAYLOAD_DIRECTORY}/{self._store.names.uuid()}"
            self._store.io.write_new(f"{self._store.paths.root}/{name}", payload)
            payload = name.encode()
        try:
            piece = self._commit(payload, is_pointer)
        except OutcomeUnknownError:
            self._may_be_visible = True
            raise
        if piece is None or piece.row_count == 0:
            return None
        self._may_be_visible = True
        return piece

    def _commit(self, payload: bytes, is_pointer: bool) -> LogSlice | None:
        try:
            return self._writer.commit(payload, is_pointer=is_pointer)
        except ConflictError as refusal:
            if self._unproven is None:
                raise
            self._begin_again(refusal)
        return None if self._adopted is not None else self._writer.commit(payload, is_pointer=is_pointer)

    def close(self) -> None:
        """Close the producer, or keep it for the next batch."""
        if self._kept is None:
            self._writer.close()
        else:
            self._kept.put(self._writer)

    def abort(self) -> bool:
        """Close; True when nothing of this batch is or can become visible in the log."""
        self._writer.close()
        return not self._may_be_visible

    @property
    def _place(self) -> str:
        return f"table={self._store.name} topic={self._log.topic} bucket={self._bucket}"

    def _check_known(self, tail: LogTail, known_end: int, only_at_end: bool) -> None:
        """Check that a snapshot has all earlier batches: streams that start at this batch's would miss others."""
        marker = tail.marker
        is_ahead = tail.end_offset > known_end and (tail.is_foreign or (marker is not None and marker.is_final))
        if not is_ahead:
            check_not_shorter(self._store, self._log, tail, known_end)
            return
        latest = self._store.snapshots.latest()  # the other writer may have committed since this batch was planned
        committed = (self._store.log_offsets_at(latest) or {}).get(self._bucket, 0)
        if tail.end_offset <= committed and not only_at_end:
            return
        check_not_shorter(self._store, self._log, tail, max(known_end, min(committed, tail.end_offset)))
        by = "another engine" if marker is None else f"query={marker.query} batch={marker.batch}"
        raise ConflictError(
            f"another writer's batch is in the log and not yet in the table: {self._place} {by} "
            f"log_end={tail.end_offset} table_end={known_end}: one stream may write a table at a time"
        )


def _size_bytes(records: _Records) -> int:
    keys, values = records
    size: int = values.nbytes + (0 if keys is None else keys.nbytes)
    return size


def check_not_shorter(store: TableStore, log: TableLog, tail: LogTail, known_end: int) -> None:
    """Refuse a log that ends before the position that the table knows, or behind it with a record of another engine.

    Raises:
        CorruptDataError: records that a snapshot refers to were removed; or the last record is in no snapshot.
        ConflictError: another writer has fenced this one, and has written since.
    """
    check_not_ahead(log, tail, known_end)
    if tail.end_offset < known_end:
        wanted = {tail.bucket: known_end}
        if missing_after_wait(log.reached_topics(), log, wanted, patience_s=_SHOWN_AFTER_S) is None:
            raise ConflictError(
                f"another writer took over a bucket of the log: table={store.name} topic={log.topic} "
                f"bucket={tail.bucket} log_end={tail.end_offset} table_end={known_end} fix='run it again'"
            )
        raise CorruptDataError(
            f"the log ends before the table's position: table={store.name} topic={log.topic} bucket={tail.bucket} "
            f"log_end={tail.end_offset} table_end={known_end} cause=the topic was emptied or recreated "
            f"fix={NEW_LOG}"
        )


def check_not_ahead(log: TableLog, tail: LogTail, known_end: int) -> None:
    """Refuse a log that ends with a record of another engine that no snapshot has, or that is not exact.

    Raises: CorruptDataError.
    """
    place = f"topic={log.topic} bucket={tail.bucket} offset={tail.end_offset - 1}"
    if tail.is_foreign and tail.end_offset > known_end:
        raise refuse_foreign(place, is_unsigned=tail.is_unsigned)
    if tail.is_foreign and log.is_exact and not tail.is_unsigned:  # those are an earlier Fluvial's
        raise CorruptDataError(
            f"another engine has written into an exact log, without the rows that its changes replace: {place} "
            f"cause=a job with log.system=kafka in its hint fix=let Flink write beside the log, and {NEW_LOG}"
        )


def check_not_repeated(log: TableLog, bucket: int, marker: CommitMarker, known_end: int) -> None:
    """Refuse to adopt a batch from before ``known_end``, which the table has: a copy of its marker.

    Raises: CorruptDataError.
    """
    if marker.after is not None and marker.after < known_end:
        raise copied_batch(
            f"topic={log.topic} bucket={bucket} query={marker.query} batch={marker.batch} "
            f"end_offset={marker.end_offset} written_after={marker.after} table_end={known_end}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedFiles:
    """The files of a marker's slice."""

    messages: tuple[CommitMessage, ...]
    changelog_base_snapshot: int | None  # see ``BucketLog.commit``


def check_batch_files(store: TableStore, marker: CommitMarker, messages: Sequence[CommitMessage]) -> None:
    """Look at the files of a batch that is to be adopted from the log.

    Raises:
        CorruptDataError: one is missing, or was not written for this batch; the batch must not be published.
    """
    for message in messages:
        data = (*message.new_files, *message.compact_after, *message.changelog_files)
        names = (*(file.file_name for file in data), *(index.file_name for index in message.index_after))
        for name in names:
            if not is_of_batch(name, query=marker.query, batch=marker.batch):
                raise CorruptDataError(
                    f"a batch in the log names a file of another one, nothing of it was adopted: table={store.name} "
                    f"bucket={message.bucket} query={marker.query} batch={marker.batch} "
                    f"end_offset={marker.end_offset} file={name!r} cause=who wrote it has the table's key and not its "
                    "directory; or an earlier Fluvial fix=let that version complete its batch; or let only writers of "
                    f"the table read log-key/ and write to the topic, {NEW_LOG}, and write the batch again"
                )
        for file in data:
            path = store.file_path(message.partition, message.bucket, file)
            if not store.io.exists(path):
                raise CorruptDataError(
                    f"a batch in the log has lost a file, nothing of it was adopted: table={store.name} "
                    f"bucket={message.bucket} query={marker.query} batch={marker.batch} "
                    f"end_offset={marker.end_offset} missing={path} cause=a copy of the table's directory writes to "
                    f"the same topic, or the file was deleted fix=restore the file; or {NEW_LOG}"
                )


def payload_path(store: TableStore, marker: CommitMarker) -> str:
    """Path of the payload that a marker refers to. Raises: ValueError: the path is not of a file of the table."""
    directory, _, name = marker.payload.decode().partition("/")
    if directory != PAYLOAD_DIRECTORY:
        raise ValueError(f"not a payload of the table: {marker.payload[:200]!r}")
    return f"{store.paths.root}/{PAYLOAD_DIRECTORY}/{checked_name(name)}"


def _check_own(store: TableStore, messages: Iterable[CommitMessage]) -> None:
    """Batches of the log consist of the table's own files. Raises: ValueError for other ones."""
    for message in messages:
        files = (*message.files_after, *message.compact_before, *message.changelog_files)
        indexes = (*message.index_before, *message.index_after)
        for path in (*(each.external_path for each in files), *(each.external_path for each in indexes)):
            if path is not None and not store.is_own(path):
                raise ValueError(f"a batch in the log names a file outside of the table: {path!r}")


def read_payload(store: TableStore, marker: CommitMarker) -> LoggedFiles:
    """The files that a marker contains or points to.

    Raises:
        CorruptDataError: they cannot be read.
    """
    payload = marker.payload
    try:
        if marker.is_pointer:
            payload = store.io.read_bytes(payload_path(store, marker))
        body = json.loads(unpack_zstd(payload))
        texts, changelog_base_snapshot = (
            (body["messages"], body["told_since"]) if isinstance(body, dict) else (body, None)
        )
        messages = tuple(map(CommitMessage.from_json, texts))
        _check_own(store, messages)
        return LoggedFiles(messages=messages, changelog_base_snapshot=changelog_base_snapshot)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, CorruptDataError) as error:
        raise CorruptDataError(
            f"files of a batch in the log cannot be read: table={store.name} query={marker.query} batch={marker.batch} "
            f"end_offset={marker.end_offset} reason={error}"
        ) from error
