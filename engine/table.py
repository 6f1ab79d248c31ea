"""A table as users hold it: its files, its log, and both written as one."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Unpack

import pyarrow as pa

from engine.read.batch_read import BatchRead, log_served, open_read
from filestore.layout.branch_names import split_branch
from filestore.layout.branch_state import main_branch
from filestore.layout.paths import MAIN_BRANCH
from filestore.options.table_options import TableOptions
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from engine.follow.choices import StartPlace, StreamChoices
    from engine.follow.live import LiveChoices, LiveCopy
    from engine.follow.stream import TableStream
    from engine.follow.writer import TableWriter, WriterChoices
    from engine.log.table_log import TableLog
    from engine.read.difference import Difference
    from engine.request.commit_handle import CommitHandle
    from engine.request.writer_options import WriterOptions
    from engine.table_versions import Branches, Savepoints, Tags
    from engine.versions.audit import AuditBranch
    from engine.write.batch_target import BatchTarget
    from filestore.commit.table_commit import CommitResult

# what needs Spark is imported where it is needed: most of a table's life goes without


class Table:
    """An opened table. Made by ``Catalog.table``; open it again to see a changed schema."""

    def __init__(self, files: FileTable) -> None:
        """Wrap the files of a table."""
        self.files = files  # what reads and writes are made of; can be pickled

    @property
    def store(self) -> TableStore:
        """The stored table: snapshots, tags, manifests; with the stored schema, see ``TableView``."""
        return self.files.store

    def _repr_html_(self) -> str:
        """Name and columns, for notebooks; reads no rows."""
        from engine.read.tools.arrow_rows import columns_html

        return columns_html(repr(self), self.schema.arrow_schema)

    def __repr__(self) -> str:
        return f"Table({self.name!r}, key={list(self.schema.primary_keys)}, log={self.options.log_system})"

    @property
    def name(self) -> str:
        """``database.table``, or ``database.table$branch_b`` on a branch."""
        return self.files.name

    @property
    def branch(self) -> str:
        """Name of the branch that the table was opened on."""
        return split_branch(self.name)[1] or MAIN_BRANCH

    @property
    def main_branch(self) -> str:
        """Name of the present main branch; not ``main`` after ``replace_main_branch``."""
        return main_branch(self.store.io, self.store.paths.root)

    @property
    def tags(self) -> "Tags":
        """The table's tags: ``create``, ``get``, ``list``, ``delete``, ``rollback``, ``diff``; see docs/versions.md."""
        from engine.table_versions import Tags

        return Tags(self)

    @property
    def branches(self) -> "Branches[Table]":
        """The branches: ``create``, ``open``, ``merge``, ``replace_main``, ``delete``; see docs/branches.md."""
        from engine.table_versions import Branches

        return Branches(self, Table)

    @property
    def savepoints(self) -> "Savepoints":
        """The savepoints: ``create``, ``get``, ``list``, ``delete``, ``rollback``; see docs/savepoints.md."""
        from engine.table_versions import Savepoints

        return Savepoints(self)

    def history(self, limit: int | None = None) -> Sequence[Snapshot]:
        """The snapshots of the table's branch, newest first, at most ``limit`` of them; None: all.

        Raises: InvalidInputError: the limit is negative.
        """
        from engine.table_versions import snapshot_history

        return snapshot_history(self.store, limit)

    @property
    def schema(self) -> TableSchema:
        """Columns, keys, and options as text."""
        return self.files.schema

    @property
    def options(self) -> TableOptions:
        """The options in force."""
        return self.files.options

    @property
    def closed(self) -> str | None:
        """Why a table that ``Catalog.described`` opened cannot be read or written; None: it can."""
        return self.store.closed

    @cached_property
    def log(self) -> "TableLog | None":
        """The log, None when the table has none."""
        from engine.log.table_log import TableLog

        return TableLog.of(self.files)

    def latest_snapshot(self) -> Snapshot | None:
        """The newest snapshot; None before the first commit."""
        return self.store.snapshots.latest()

    def log_end_offsets(self) -> Mapping[int, int]:
        """Per bucket, the offset up to which the log can be read now; empty without a log.

        Raises: InvalidInputError: the table was dropped or renamed, or main was replaced; UnavailableError.
        """
        self.store.check_is_there()
        return {} if self.log is None else self.log.end_offsets()

    def read(
        self,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        version: str | None = None,
        timestamp: str | int | None = None,
        at_least: "CommitHandle | str | None" = None,
        options: Mapping[str, str] | None = None,
    ) -> BatchRead:
        """The table at one state, by default its newest snapshot, for reading into Arrow.

        Args:
            snapshot_id: id of the snapshot to read.
            tag: name of the tag to read.
            version: a snapshot, tag, savepoint or time as one word, also of another branch: ``eod``, ``dev.eod``,
                ``snapshot.5``, ``savepoint.3``.
            timestamp: ISO text (in UTC when it names no zone) or epoch milliseconds; reads the last snapshot that was
                committed then or before.
            at_least: a commit that the read waits for, up to ``scan.at-least.timeout``.
            options: ``scan.*`` and ``read.*`` of this read, see docs/reading.md.

        Returns:
            One state, which can be read several times and does not change; callers cannot rely on the order of rows.

        Raises:
            InvalidInputError: no such snapshot or tag, or options that contradict each other.
            UnavailableError: the commit was not visible in time, or the brokers do not answer.
            CorruptDataError: records of the log that are needed are lost.
        """
        asked = {
            "scan.snapshot-id": snapshot_id,
            "scan.tag-name": tag,
            "scan.version": version,
            "scan.timestamp": timestamp,
            "scan.at-least": at_least,
        }
        given = {key: str(value) for key, value in asked.items() if value is not None}
        return open_read(self.files, {**(options or {}), **given})

    def dataframe(
        self,
        spark: "SparkSession",
        *,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        snapshot_id: int | None = None,
        tag: str | None = None,
        version: str | None = None,
        timestamp: str | int | None = None,
        at_least: "CommitHandle | str | None" = None,
        options: Mapping[str, str] | None = None,
    ) -> "DataFrame":
        """A state as a Spark frame; files that need no merging are scanned by Spark itself.

        Args:
            spark: the session.
            columns: names, in the wanted order; None is all.
            filter: SQL text; leaves out partitions, buckets and files before Spark sees them.
            snapshot_id: default the newest.
            tag: instead of a snapshot id.
            version: see ``read``.
            timestamp: see ``read``.
            at_least: see ``read``.
            options: see ``read``.

        Returns:
            A frame of one state, whatever is written later; rows in no order.

        Raises:
            InvalidInputError: unknown column, snapshot or tag; a filter that cannot be parsed.
        """
        from engine.read.frames import table_frame

        places: dict[str, Any] = {"snapshot_id": snapshot_id, "tag": tag, "version": version, "timestamp": timestamp}
        read = self.read(**places, at_least=at_least, options=options)
        log_served(read)
        return table_frame(
            spark, read.plan(filter=filter), columns=columns, filter_text=filter, constants=read.constants
        )

    def stream(self, start: "StartPlace" = None, **choices: "Unpack[StreamChoices]") -> "TableStream":
        """The table's changes, each once: a snapshot, then the log or files; see docs/follow.md.

        ``for changes in orders.stream(start=position): apply(changes.rows, changes.position)``, or ``async for``.

        Args:
            start: ``full`` (None: the newest snapshot, then its changes), ``latest``, a snapshot id, ``snapshot.5``,
                ``timestamp.2026-01-31``, a tag, a commit handle, a position, or the path of a Spark checkpoint.
            choices: see ``StreamChoices``.

        Returns:
            An iterator of batches of changes, each with the position after it; of one key they are in commit order.

        Raises:
            InvalidInputError: there is no such start or column, or choices contradict each other.
        """
        from engine.follow.choices import FollowRequest
        from engine.follow.stream import TableStream

        return TableStream(FollowRequest.parse(self.files, start, choices))

    def live(self, **choices: "Unpack[LiveChoices]") -> "LiveCopy":
        """A copy in memory that follows the table, of one with a key; see docs/follow.md.

        ``with orders.live(columns=["state"]) as live: live.get(17)``. Returns when it is filled.

        Args:
            choices: see ``LiveChoices``.

        Raises:
            InvalidInputError: the table has no key, or a choice is wrong.
            UnavailableError: it was not filled in time.
        """
        from engine.follow.live import LiveCopy

        return LiveCopy(self.files, choices)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The newest rows for whatever takes Arrow's stream: ``polars.DataFrame(table)``, ``other.write(table)``."""
        return self.read().__arrow_c_stream__(requested_schema)

    def diff(self, before: str | int, after: str | int = "latest") -> "Difference":
        """What differs between two states, by key: of snapshots, tags, savepoints, times, also of other branches.

        Args:
            before: the first state as one word, see ``version`` of ``read``; ``0`` is the empty table.
            after: the second state, in the same form; it may be older than ``before``.

        Returns:
            The changes that turn the first state into the second, compared when they are read.

        Raises:
            InvalidInputError: there is no such state, or the keys of both differ.
        """
        from engine.read.difference import Difference
        from filestore.diff.table_diff import open_diff

        return Difference(open_diff(self.files, str(before), str(after)))

    def handle_of(self, result: "CommitResult") -> "CommitHandle":
        """A handle with which readers wait for a commit of this table; its text is a value of ``scan.at-least``."""
        from engine.request.commit_handle import CommitHandle

        return CommitHandle.of(result, self.store)

    def wait_for(self, handle: "CommitHandle | str", timeout_s: float = 60.0) -> None:
        """Return once a commit is visible to readers.

        Args:
            handle: of the commit, as ``handle_of`` returns it, or its text.
            timeout_s: most seconds to wait.

        Raises:
            InvalidInputError: the history of the table does not contain the commit, or a text is no handle.
            UnavailableError: the commit was not visible in time; the message names the newest visible snapshot.
        """
        from engine.request.commit_handle import CommitHandle, wait_until_visible

        wanted = CommitHandle.parse(handle) if isinstance(handle, str) else handle
        wait_until_visible(self.store, wanted, timeout_s=timeout_s)

    def write(
        self, rows: Any, *, kinds: pa.Array | None = None, options: "Mapping[str, str] | WriterOptions | None" = None
    ) -> "CommitResult":
        """Write rows from this process and make them visible, in files and log.

        Args:
            rows: PyArrow tables, batches, readers and datasets; what has ``__arrow_c_stream__`` or
                ``__arrow_c_array__`` (Polars, pandas, DuckDB, ...); a dict of columns, a list of dicts, an iterator of
                batches. Columns by name; nullable ones may be missing. A column ``_row_kind`` gives each row's kind.
                A stream is read once, in bounded memory; the index of a pandas frame that has no name is left out.
            kinds: (n,) ``+I -U +U -D`` texts instead of that column, for rows that are in memory.
            options: ``change-tracking=false`` does not write to the log; ``branch`` names the branch to write to;
                ``write.merge-schema``; ``pipeline.name`` is the job in the catalog's lineage.

        Returns:
            The commit; ``handle_of`` turns it into something that readers can wait for.

        Raises:
            InvalidInputError: a row that the table cannot hold; nothing is visible.
            ConflictError: other writers of the log took longer than ``log.turn-timeout``, or another one was first and
                the rows are a stream, which cannot be read again; nothing is visible.
        """
        from engine.types.given_rows import given_rows, is_frame
        from engine.types.rows import ROW_KIND_COLUMN

        if kinds is None:
            return self._target(options, rows).append()
        if is_frame(rows):
            raise InvalidInputError(f"kinds of a Spark frame are a column: given=kinds fix='add {ROW_KIND_COLUMN}'")
        return self._target(options, given_rows(rows, self.schema).with_kinds(kinds)).append()

    def writer(self, name: str, **choices: "Unpack[WriterChoices]") -> "TableWriter":
        """Many small writes as few commits, each exactly once by name and number; see docs/follow.md.

        ``with orders.writer("gateway-3") as writer: writer.write(rows, number=17).result()``

        Args:
            name: stays the same over restarts; a second writer of this name takes over from the first.
            choices: see ``WriterChoices``.

        Returns:
            A writer with a thread of its own until it is closed.

        Raises:
            InvalidInputError: a choice is wrong.
        """
        from engine.follow.writer import TableWriter

        return TableWriter(self.files, name, choices)

    def append(
        self,
        frame: Any,
        options: "Mapping[str, str] | WriterOptions | None" = None,
        *,
        read_snapshot_id: int | None = None,
        are_constants: bool = False,
    ) -> "CommitResult":
        """Write a Spark frame, or rows as in ``write``, as one batch and make it visible, in files and log.

        A batch job that dies half-way and is run again writes its rows again: streams that must not, go through
        ``sink``.

        Args:
            frame: the table's columns by name; a column ``_row_kind`` gives each row's kind.
            options: see ``write``.
            read_snapshot_id: the snapshot (0: none) that the rows were computed from, if it must still be the newest
                when they are written, except for compactions. A table without a log also refuses them when another
                writer meanwhile wrote the same buckets; in one with a log the later row of a key wins.
            are_constants: whether no table was read for the rows of a frame, so that its plan is not asked.

        Returns:
            The commit.

        Raises:
            InvalidInputError: a column or row that does not fit; nothing is visible.
            ConflictError: the snapshot is no longer the newest, or see ``write``; nothing is visible.
        """
        target = self._target(options, frame, are_constants=are_constants)
        return target.append(read_snapshot_id=read_snapshot_id)

    def overwrite(
        self,
        rows: Any,
        partition: Mapping[str, object] | None = None,
        options: "Mapping[str, str] | WriterOptions | None" = None,
        *,
        read_snapshot_id: int | None = None,
    ) -> "CommitResult":
        """Replace rows in one commit. The log does not get it: streams read the difference from the files.

        Args:
            rows: the new rows, as in ``write``, or a Spark frame; of a static partition they must lie in it.
            partition: values of some partition columns: everything there is replaced. None: of a partitioned table the
                partitions that occur in the rows (all, with ``dynamic-partition-overwrite=false``), else everything.
            options: ``change-tracking=false``: streams do not get the difference; ``write.merge-schema``.
            read_snapshot_id: the snapshot (0: none) that the rows were computed from, if it must still be the newest.

        Returns:
            The commit, of kind OVERWRITE.

        Raises:
            InvalidInputError: a column or row that does not fit, or lies outside the partition; nothing is visible.
            ConflictError: other writers were faster too often, or the snapshot is not the newest: try again.
        """
        return self._target(options, rows).overwrite(partition, read_snapshot_id=read_snapshot_id)

    def compact(self, *, full: bool = False) -> "CommitResult | None":
        """Compact every bucket that needs it, in this process; with ``full`` each bucket into one sorted run.

        Returns: the commit; None: there was nothing to compact.
        """
        return self.files.compact(full=full)

    def audit_branch(
        self,
        name: str | None = None,
        *,
        tag: str | None = None,
        snapshot_id: int | None = None,
        log: bool = False,
        replace: bool = False,
        keep: bool | None = None,
    ) -> "AuditBranch[Table]":
        """A branch to write to, check and publish, for the length of a ``with`` block.

        ``with orders.audit_branch("fix") as fix: fix.append(frame); fix.publish(expect=["amount >= 0"])``. The branch
        has all methods of a table. Rows that are not published by the end of the block are deleted with the branch.

        Args:
            name: name of the branch; None: a generated one.
            tag: tag that the branch begins at.
            snapshot_id: snapshot that the branch begins at. Neither tag nor snapshot: the newest snapshot.
            log: whether the branch has a log of its own, see ``versions.branches``.
            replace: first delete a branch of this name, as an earlier run may have left it.
            keep: whether the branch stays after the block. None: only if its publication failed, so that its rows can
                be inspected.

        Returns:
            A context manager, which creates the branch on entry.

        Raises:
            InvalidInputError: on entry: the name is taken, or there is no such tag or snapshot.
        """
        from engine.versions.audit import AuditBranch

        return AuditBranch(
            self.files, Table, name=name, tag=tag, snapshot_id=snapshot_id, log=log, replace=replace, keep=keep
        )

    def _target(
        self, options: "Mapping[str, str] | WriterOptions | None", rows: Any, *, are_constants: bool = False
    ) -> "BatchTarget":
        """The destination of a batch, with a schema that has its columns; this table takes that schema too."""
        from engine.request.writer_options import TABLE_WRITE_KEYS, WriterOptions
        from engine.write.batch_target import BatchTarget

        parsed = WriterOptions.parse(options, TABLE_WRITE_KEYS)
        target = BatchTarget.of(self.files, parsed, rows, are_constants=are_constants)
        if target.table.store.paths.branch == self.store.paths.branch:
            self.files = target.table
        return target
