"""Rows of a frame between the tasks that have them and the process that writes them into the table.

A task leaves one Arrow file: the table's rows, every record batch of one bucket. The committing process reads, bucket
by bucket, the files in the order of the frame's partitions; so a bucket gets the rows of partition i before those of
partition i + 1, and each partition's rows in their order. The files are ``staging/<commit user>/<batch>/<uuid>.arrow``
in the table's directory, where no reader of the layout looks. They need not survive a crash, for then Spark computes
the rows again: nothing is synced.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from engine.spark.writer.task_attempt import delete_attempts
from engine.types.rows import ROW_KIND_COLUMN, bucket_places, change_rows
from filestore.table_store import TableStore
from filestore.table_view import TableView
from lsm.errors import CorruptDataError, FluvialError
from lsm.row_kind import ROW_KIND_SYMBOLS
from lsm.undo import undoing

STAGING_DIRECTORY: Final = "staging"  # beside snapshot/ and manifest/: names that no reader of the layout looks at
_BUFFER_BYTES: Final = 32 << 20  # of rows that wait for others of their bucket, so that record batches are not tiny
_ABANDONED_MS: Final = 86_400_000
_COMPRESSION: Final = pa.ipc.IpcWriteOptions(compression="lz4")


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """The rows of one task. Picklable; size grows with the number of record batches, not of rows."""

    name: str  # from the table's directory
    buckets: tuple[int, ...]  # of each record batch, in file order
    row_count: int


def stage_rows(
    table: TableView, batches: Iterable[pa.RecordBatch], *, commit_user: str, batch_id: int
) -> StagedFile | None:
    """Write a task's rows to a file of their own; None when there are none. Nothing is left behind when it fails.

    Args:
        table: the table.
        batches: the table's columns by name, nullable ones may be missing, and optionally ``_row_kind``.
        commit_user: of the rows.
        batch_id: of the rows.

    Raises:
        InvalidInputError: a row that the table cannot hold.
    """
    name = f"{batch_directory(commit_user, batch_id)}/{table.store.names.uuid()}.arrow"
    stage = _Stage(table, f"{table.store.paths.root}/{name}")
    with undoing(stage.abort):
        for batch in batches:
            stage.add(batch)
        stage.finish()
    if not stage.buckets:
        return None
    return StagedFile(name=name, buckets=tuple(stage.buckets), row_count=stage.row_count)


def staged_rows(
    table: TableView, files: Sequence[StagedFile], buckets: Set[int] | None = None
) -> Iterator[pa.RecordBatch]:
    """The rows of some buckets, as ``stage_rows`` took them: file after file, each in its order.

    Args:
        table: the table.
        files: in the order of the frame's partitions.
        buckets: which; None is all.

    Yields:
        Rows of one bucket: the table's columns, and ``_row_kind`` where the frame gave kinds.

    Raises:
        CorruptDataError: a file is missing.
    """
    for file in files:
        wanted = [place for place, bucket in enumerate(file.buckets) if buckets is None or bucket in buckets]
        if not wanted:
            continue
        try:
            source = table.store.io.open_input(f"{table.store.paths.root}/{file.name}")
        except FileNotFoundError as error:
            raise CorruptDataError(
                f"staged rows are gone: table={table.name} file={file.name} rows={file.row_count} "
                "fix=start the query or job again"
            ) from error
        with source, pa.ipc.open_file(source) as reader:
            for place in wanted:
                yield _with_symbols(reader.get_batch(place), table)


def batch_directory(commit_user: str, batch_id: int) -> str:
    """Where the tasks of a batch leave what the committing process needs, from the table's directory."""
    return f"{_user_directory(commit_user)}/{batch_id}"


def look_ahead_bytes(table: TableView) -> int:
    """Bytes of rows that a task holds in memory before it writes any."""
    return min(_BUFFER_BYTES, table.options.write_buffer_bytes // 2)


def delete_staged(store: TableStore, files: Iterable[StagedFile]) -> None:
    """Delete files; what cannot be deleted stays, and costs space only."""
    for file in files:
        with suppress(FluvialError, OSError):
            store.io.delete(f"{store.paths.root}/{file.name}")


def clear_staged(store: TableStore, commit_user: str, *, up_to_batch: int | None = None) -> None:
    """Delete what attempts of a commit user staged or wrote, dead ones too; files that were published stay.

    Args:
        store: the table.
        commit_user: only its files are deleted.
        up_to_batch: the newest batch that is committed, later ones stay; None: all, the user never comes back.
    """
    directory = f"{store.paths.root}/{_user_directory(commit_user)}"
    with suppress(FluvialError, OSError):
        for name in store.io.list_names(directory):
            if name.isdigit() and (up_to_batch is None or int(name) <= up_to_batch):
                delete_attempts(store, f"{directory}/{name}")
                store.io.delete_tree(f"{directory}/{name}")
        if up_to_batch is None:
            store.io.delete_tree(directory)


def clear_abandoned(store: TableStore, commit_user: str) -> None:
    """Delete what dead jobs and queries staged: those whose files have not changed for a day.

    A job that is alive after all loses nothing: its commit fails because staged rows are missing, and a restarted query
    stages its batch again. Data files that tasks wrote are left to the cleaning of orphans.

    Args:
        store: the table.
        commit_user: of the caller; its files stay.
    """
    root = f"{store.paths.root}/{STAGING_DIRECTORY}"
    own = _user_directory(commit_user)
    with suppress(FluvialError, OSError):
        for user in store.io.list_names(root):
            if f"{STAGING_DIRECTORY}/{user}" != own and _is_abandoned(store, f"{root}/{user}"):
                store.io.delete_tree(f"{root}/{user}")


class _Stage:
    def __init__(self, table: TableView, path: str) -> None:
        self.buckets: list[int] = []
        self.row_count = 0
        self._table, self._store = table, table.store
        self._path = path
        self._opened = ExitStack()
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._waiting: dict[int, list[pa.RecordBatch]] = {}
        self._waiting_bytes = 0
        self._most_bytes = look_ahead_bytes(table)

    def add(self, batch: pa.RecordBatch) -> None:
        rows, kinds = change_rows(batch, self._table)
        if rows.num_rows == 0:
            return
        self.row_count += rows.num_rows
        if kinds is not None and ROW_KIND_COLUMN not in rows.schema.names:
            rows = rows.append_column(ROW_KIND_COLUMN, kinds)
        for bucket, places in bucket_places(rows, self._table):
            piece = rows if places is None else rows.take(places)
            self._waiting.setdefault(bucket, []).append(piece)
            self._waiting_bytes += piece.nbytes
        if self._waiting_bytes > self._most_bytes:
            self._write_out()

    def finish(self) -> None:
        self._write_out()
        self._opened.close()

    def abort(self) -> None:
        with suppress(FluvialError, OSError, pa.ArrowException):
            self._opened.close()
        with suppress(FluvialError, OSError):
            self._store.io.delete(self._path)

    def _write_out(self) -> None:
        for bucket in sorted(self._waiting):
            rows = pa.concat_batches(self._waiting.pop(bucket))
            if self._writer is None:
                sink = self._opened.enter_context(self._store.io.open_output(self._path))
                new_file = pa.ipc.new_file(sink, rows.schema, options=_COMPRESSION)
                self._writer = self._opened.enter_context(new_file)
            self._writer.write_batch(rows)
            self.buckets.append(bucket)
        self._waiting_bytes = 0


def _is_abandoned(store: TableStore, directory: str) -> bool:
    """Whether nothing in a user's directory, itself included, changed within a day. Raises: FileNotFoundError."""
    batches = [f"{directory}/{name}" for name in store.io.list_names(directory)]
    files = [f"{batch}/{name}" for batch in batches for name in store.io.list_names(batch)]
    oldest_ms = store.clock.now_ms() - _ABANDONED_MS
    return all(store.io.modified_ms(path) < oldest_ms for path in (directory, *batches, *files))


def _user_directory(commit_user: str) -> str:
    return f"{STAGING_DIRECTORY}/{quote(commit_user, safe='')}"


def _with_symbols(rows: pa.RecordBatch, table: TableView) -> pa.RecordBatch:
    """Kinds are staged as numbers, and returned as the texts that users give."""
    index = rows.schema.get_field_index(ROW_KIND_COLUMN)
    if index < 0 or ROW_KIND_COLUMN in table.schema.column_names:
        return rows
    kinds = pa.DictionaryArray.from_arrays(rows.column(index), ROW_KIND_SYMBOLS)
    return rows.set_column(index, ROW_KIND_COLUMN, kinds)
