"""A table: read, write, overwrite and compact it without Spark and without a log."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from filestore.io.commit_lock import CatalogLockFactory
from filestore.io.file_io import Clock, FileIO, LocalFileIO, NameSource, RandomNames, SystemClock
from filestore.layout.branch_log import branch_options
from filestore.layout.branch_names import on_branch_name
from filestore.layout.branch_state import creation_id, is_hidden, main_branch
from filestore.layout.paths import BRANCH_PREFIX, MAIN_BRANCH, TablePaths
from filestore.manifest.lists import IndexManifestEntry
from filestore.opened_as import OpenedAs
from filestore.options.catalog_options import CatalogPlace
from filestore.options.log_login import login_for
from filestore.options.table.groups import POSTPONE_BUCKET
from filestore.options.table_options import TableOptions
from filestore.read.split_read import read_split
from filestore.refs.versions import FoundVersion, Version, find_version, parse_version
from filestore.scan.data_split import DataSplit
from filestore.scan.table_scan import Filter, Plan, TableScan
from filestore.schema.schema_store import SchemaStore
from filestore.schema.validation import check_readable
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableRegistry, TableStore
from filestore.table_view import TableView
from lsm.errors import InvalidInputError, MissingTableError
from lsm.nearest_names import names_text
from lsm.retry import retrying
from lsm.undo import undoing, undoing_unless_visible

if TYPE_CHECKING:
    from filestore.commit.committable import Committable
    from filestore.commit.table_commit import CommitResult, PartitionTest, TableCommit
    from filestore.manifest.commit_message import CommitMessage
    from filestore.write.table_write import MaxSequenceNumbers, TableWrite


class FileTable(TableView):
    """An opened table. It keeps the schema that was current when it was opened."""

    @classmethod
    def open(
        cls,
        name: str,
        root: str,
        *,
        branch: str = MAIN_BRANCH,
        options: Mapping[str, str] | None = None,
        io: FileIO | None = None,
        clock: Clock | None = None,
        names: NameSource | None = None,
        lock_factory: CatalogLockFactory | None = None,
        registry: TableRegistry | None = None,
        catalog: CatalogPlace | None = None,
        to_describe: bool = False,
    ) -> "FileTable":
        """Open the table in a directory.

        Args:
            name: for messages, ``db.table``; on a branch it becomes ``db.table$branch_b``.
            root: directory of the table.
            branch: branch whose schemas, snapshots, tags and log are used, see ``branch_log``; ``main`` is the main
                branch, whatever its name.
            options: options for this object only, on top of the table's own.
            io: file system; None is the local one.
            clock: None is the machine's.
            names: source of names of new files; None is random.
            lock_factory: locks around the publication of a snapshot; None trusts the file system (``commit.lock``).
            registry: notified of commits and schemas; None: none.
            catalog: the catalog that lists the table.
            to_describe: also open a table with an unsupported feature; its rows cannot be read, see ``closed``.

        Returns:
            The table, with the newest schema of the branch.

        Raises:
            InvalidInputError: there is no table, or it has an unsupported feature; the message names the feature. Or a
                link leads out of its directory, see ``LinksOut``.
        """
        from filestore.iceberg.after_commit import publish_after_commit, publish_refs

        io = io or LocalFileIO()
        main = main_branch(io, root)
        paths = TablePaths(root, main if branch == MAIN_BRANCH else branch)
        schema = SchemaStore(io, paths).latest()
        if schema is None or (paths.branch != main and is_hidden(io, paths)):
            raise _no_table(io, name, paths, main)
        created = "" if paths.branch == MAIN_BRANCH else creation_id(io, paths)
        opened = OpenedAs(name=on_branch_name(name, branch), paths=paths, schema=schema, creation_id=created)
        there = replace(schema, options={**branch_options(io, paths, schema.options), **(options or {})})
        store = TableStore(
            name=on_branch_name(name, branch), schema=there, paths=paths, io=io, clock=clock or SystemClock(),
            options=TableOptions.described(there.options, primary_key=there.primary_keys),
            names=names or RandomNames(), lock_factory=lock_factory, registry=registry, catalog=catalog,
            given=dict(options or {}), main_branch=main, opened=opened, closed="the table is opened to be described",
            after_commit=(publish_after_commit, *(() if registry is None else (registry.committed,))),
            after_refs=(publish_refs,),
        )  # fmt: skip
        store.check_links()
        try:
            check_readable(schema)
            options_then = there.table_options
            layout = paths.with_layout(there.partition_fields, options_then)
            return cls(replace(store, options=options_then, paths=layout, closed=None))
        except InvalidInputError as error:
            if not to_describe:
                raise
            return cls(replace(store, closed=str(error)))

    def on_branch(self, branch: str) -> "FileTable":
        """The same table on another branch, with the newest schema of that branch. Raises: as ``open``.

        Of the options that this object was opened with, only the login to the brokers is kept.
        """
        store = self.store
        there = self.open(
            store.name,
            store.paths.root,
            branch=branch,
            io=store.io,
            clock=store.clock,
            names=store.names,
            lock_factory=store.lock_factory,
            registry=store.registry,
            catalog=store.catalog,
        )
        login = login_for(there.store.schema.options, store.given)
        return there.with_options(login) if login else there

    def new_scan(self) -> TableScan:
        """A scan, which plans reads."""
        return TableScan(self.store, cuts_keys=True)

    def new_write(
        self,
        *,
        max_sequence_numbers: "MaxSequenceNumbers",
        budget_bytes: int | None = None,
        index: Iterable[IndexManifestEntry] = (),
    ) -> "TableWrite":
        """A writer of files, which ``new_commit`` makes visible.

        Args:
            max_sequence_numbers: highest sequence number of each bucket, by (partition bytes, bucket), in the snapshot
                that the commit will name as its base; a missing bucket has no rows.
            budget_bytes: memory for the rows of all buckets together; None is ``write-buffer-size``.
            index: index files of that snapshot, for tables with dynamic buckets.

        Returns:
            The writer; for one thread.

        Raises:
            InvalidInputError: the table cannot be written; the message says why.
        """
        from filestore.write.table_write import TableWrite

        return TableWrite(
            self, max_sequence_numbers=max_sequence_numbers, budget_bytes=budget_bytes, index=index, fills_defaults=True
        )

    def new_commit(self, commit_user: str, *, history_start: int = 0) -> "TableCommit":
        """A committer of files that ``new_write`` wrote.

        Args:
            commit_user: stable for one streaming query, whose batch ids ascend; fresh for each batch write.
            history_start: snapshot id up to which no snapshot is of this user; saves a new user the search in the
                whole history.

        Returns:
            The committer, see ``TableCommit``.

        Raises:
            InvalidInputError: the table cannot be written; the message says why.
        """
        from filestore.commit.table_commit import TableCommit

        return TableCommit(self.store, commit_user, history_start=history_start)

    def read(
        self,
        *,
        snapshot_id: int | None = None,
        tag: str | None = None,
        timestamp_ms: int | None = None,
        version: Version | str | None = None,
        row_ids: bool = False,
    ) -> "TableRead":
        """Read the newest snapshot, or travel to an older one; then its own schema is in force.

        Args:
            row_ids: also ``_ROW_ID`` (0 and up) and ``_SEQUENCE_NUMBER`` (the snapshot that wrote the row), both int64,
                never null; of a table with ``row-tracking.enabled``.
            snapshot_id: id of the snapshot to read.
            tag: name of the tag to read.
            timestamp_ms: epoch milliseconds; the last snapshot that was committed then or before, else the closest tag.
            version: a snapshot, tag or time in one value, also of another branch; for texts see
                ``filestore.refs.versions``.

        Returns:
            The snapshot, ready to be read; without rows if nothing was committed yet.

        Raises:
            InvalidInputError: there is no such snapshot or tag, or several are asked for; or its rows have no ids.
        """
        if row_ids:
            return self.with_id_columns().read(
                snapshot_id=snapshot_id, tag=tag, timestamp_ms=timestamp_ms, version=version
            )
        asked = [each for each in (snapshot_id, tag, timestamp_ms, version) if each is not None]
        if len(asked) > 1:
            raise InvalidInputError(
                f"only one of snapshot_id, tag, timestamp_ms and version can be read: "
                f"snapshot_id={snapshot_id} tag={tag} timestamp_ms={timestamp_ms} version={version}"
            )
        if not asked:
            return TableRead(self, self.store.snapshots.latest())
        if version is None:
            version = Version(snapshot_id=snapshot_id, tag=tag, time_ms=timestamp_ms)
        return self.read_found(
            find_version(self.store, parse_version(self.store, version) if isinstance(version, str) else version)
        )

    def read_found(self, found: FoundVersion) -> "TableRead":
        """Read a version that ``find_version`` found; its branch may differ from this table's."""
        from filestore.schema.file_fields import has_id_columns

        there = self if found.branch == self.store.paths.branch else self.on_branch(found.branch)
        if has_id_columns(self.store.schema):
            there = there.with_id_columns()
        return TableRead(there.at_schema(found.snapshot.schema_id), found.snapshot)

    def write(self, rows: pa.Table | pa.RecordBatch, kinds: pa.Array | None = None) -> "CommitResult":
        """Write rows and commit them, as one batch.

        With deletion vectors the written buckets are compacted too, because readers do not see the rows before that.

        Args:
            rows: columns by name.
            kinds: (n,) row kinds, see ``TableWrite.write``; None: all rows are inserts.

        Returns:
            The commit of the rows.

        Raises:
            InvalidInputError: names the column, the value and what to change.
            ConflictError: other writers were faster too often: try again.
        """
        from filestore.compact.awaited import compact_written, waits_for_compaction
        from filestore.scan.live_files import BucketKey

        written: list[CommitMessage] = []

        def publish(commit: "TableCommit", committable: "Committable") -> "CommitResult":
            done = commit.commit(committable)
            written.extend(committable.messages)
            return done

        done = self._write(rows, kinds, publish, keeps_rows=True)
        if waits_for_compaction(self.store):
            keys = {BucketKey(message.partition, message.bucket) for message in written}
            compact_written(self.store, keep=keys.__contains__)
        return done

    def overwrite(
        self, rows: pa.Table | pa.RecordBatch, partition: Mapping[str, object] | None = None
    ) -> "CommitResult":
        """Replace rows.

        Args:
            rows: the new rows; of a static partition they must lie in it.
            partition: values of some partition columns: everything there is replaced. None: of a partitioned table the
                partitions that occur in the rows (all, with ``dynamic-partition-overwrite=false``), else everything.

        Returns:
            The commit, of kind OVERWRITE.

        Raises:
            InvalidInputError: names the column, the value and what to change.
        """
        self.check_partition(partition or {})

        def publish(commit: "TableCommit", committable: "Committable") -> "CommitResult":
            return self.commit_overwrite(commit, committable, partition)

        return self._write(rows, None, publish, keeps_rows=False)

    def commit_overwrite(
        self,
        commit: "TableCommit",
        committable: "Committable",
        partition: Mapping[str, object] | None = None,
        *,
        only_after: int | None = None,
    ) -> "CommitResult":
        """Replace rows by files that are already written, with the rules of ``overwrite``.

        Args:
            commit: the committer.
            committable: the files, with the identifier of the commit.
            partition: as in ``overwrite``.
            only_after: id of the snapshot that must be the newest (0: none); None: any may be.

        Returns:
            The commit, of kind OVERWRITE.

        Raises:
            ConflictError: the newest snapshot is not ``only_after``, if that is given; nothing is visible.
            InvalidInputError: files lie outside the partition to overwrite; nothing is visible.
        """
        from filestore.commit.committable import discard
        from filestore.compact.awaited import is_awaited
        from filestore.compact.upgrade import compact_to_top, upgrade_levels

        spec = self._partition_spec(partition or {})
        present = {message.partition for message in committable.messages}
        outside = [each for each in present if not self._is_in(each, spec)]
        if outside:
            values = dict(zip(self.schema.partition_keys, self.store.partition_values(outside[0]), strict=True))
            raise InvalidInputError(
                f"rows lie outside the partition to overwrite: partition={dict(partition or {})} found={values}"
            )
        replaces = self._replaced(present, spec, is_static=partition is not None)
        messages = upgrade_levels(self.store, committable.messages)
        reads_low = not (self.new_scan().skips_level0 or is_awaited(self.store))
        if reads_low or self.options.bucket == POSTPONE_BUCKET:
            return commit.overwrite(replace(committable, messages=messages), replaces=replaces, only_after=only_after)
        low = [each for each in messages if any(file.level == 0 for file in each.new_files)]
        # else the table would have lost its rows, and not have these, until a compaction, perhaps of another job
        messages = [*(each for each in messages if each not in low), *compact_to_top(self.store, low)]
        with undoing_unless_visible(lambda: discard(self.store, messages)):
            return commit.overwrite(replace(committable, messages=messages), replaces=replaces, only_after=only_after)

    def check_partition(self, partition: Mapping[str, object]) -> None:
        """Check a partition spec. Raises: InvalidInputError naming the column that is none, or the wrong value."""
        self._partition_spec(partition)

    def compact(self, *, full: bool = False) -> "CommitResult | None":
        """Compact buckets that need it, or with ``full`` all; None when there was nothing to do.

        Raises: ConflictError.
        """
        from filestore.compact.compactor import compact_table

        return compact_table(self.store, full=full)

    def _write(
        self,
        rows: pa.Table | pa.RecordBatch,
        kinds: pa.Array | None,
        publish: "Callable[[TableCommit, Committable], CommitResult]",
        *,
        keeps_rows: bool,
    ) -> "CommitResult":
        """Write rows and publish them; after a conflict both again, numbered behind the rows that came first."""
        from filestore.commit.committable import BATCH_IDENTIFIER, Committable, discard
        from filestore.index.index_manifest import bucket_index
        from filestore.scan.bucket_numbers import BucketNumbers

        def attempt() -> "CommitResult":
            live = None
            if keeps_rows and (self.store.has_key or self.options.bucket > 0):
                live = BucketNumbers(self.store, self.store.snapshots.latest())
            base = live.ref if live else self.store.snapshots.latest_ref()
            writer = self.new_write(
                max_sequence_numbers=live or {}, index=bucket_index(self.store, live.snapshot) if live else ()
            )
            with undoing(writer.abort):
                writer.write(rows, kinds)
                messages = writer.prepare_commit()
            with undoing_unless_visible(lambda: discard(self.store, messages)):
                if live:
                    live.check_bucket_counts(messages)
                committable = Committable(identifier=BATCH_IDENTIFIER, messages=messages, base=base)
                return publish(self.new_commit(self.store.new_commit_user(), history_start=base.id), committable)

        return retrying(attempt, attempts=self.options.commit_max_retries + 1, backoff=self.store.commit_backoff)

    def _partition_spec(self, partition: Mapping[str, object]) -> Mapping[str, object]:
        unknown = [name for name in partition if name not in self.schema.partition_keys]
        if unknown:
            raise InvalidInputError(
                f"not a partition column: column={unknown[0]} partition_columns={list(self.schema.partition_keys)}"
            )
        return {name: self._internal(name, value) for name, value in partition.items()}

    def _internal(self, name: str, value: object) -> object:
        from lsm.keys.keys import internal_value

        try:
            return internal_value(pa.scalar(value, self.schema.arrow_field(name).type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(
                f"not a value of the partition column: column={name} value={value!r} "
                f"type={self.schema.field(name).type}"
            ) from error

    def _is_in(self, partition: bytes, spec: Mapping[str, object]) -> bool:
        values = dict(zip(self.schema.partition_keys, self.store.partition_values(partition), strict=True))
        return all(values[name] == value for name, value in spec.items())

    def _replaced(self, present: set[bytes], spec: Mapping[str, object], *, is_static: bool) -> "PartitionTest":
        is_dynamic = self.schema.partition_keys and self.options.dynamic_partition_overwrite
        if is_dynamic and not is_static:
            return present.__contains__
        return lambda partition: self._is_in(partition, spec)


class TableRead:
    """One snapshot of a table, which can be read several times."""

    def __init__(self, table: FileTable, snapshot: Snapshot | None) -> None:
        """``snapshot`` None is the empty table."""
        self.table = table
        self.snapshot = snapshot

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the rows."""
        return self.table.schema.arrow_schema

    def plan(self, filter: Filter = None) -> Plan:
        """The splits to read; files and partitions that cannot match the filter are left out."""
        if self.snapshot is None:
            return Plan(snapshot=None, splits=())
        return self.table.new_scan().plan(snapshot=self.snapshot, filter=filter)

    def to_batches(self, columns: Sequence[str] | None = None, filter: Filter = None) -> Iterator[pa.RecordBatch]:
        """The matching rows, as batches of one split after the other.

        Args:
            columns: names of the columns to return, in this order; None: all.
            filter: SQL text such as ``"amount > 10 and day = DATE '2024-02-29'"``, or a predicate.
        """
        plan = self.plan(filter)
        for split in plan.splits:
            yield from read_split(self.table, split, columns=columns, filter=plan.filter)

    def to_arrow(self, columns: Sequence[str] | None = None, filter: Filter = None) -> pa.Table:
        """The rows that match, in memory; see ``to_batches``."""
        from filestore.read.side_by_side import batches_of_all, sharing_memory

        names = self.table.schema.column_names if columns is None else columns
        schema = self.table.schema.arrow_schema_of(names)
        plan = self.plan(filter)

        def reader(table: TableView) -> Callable[[DataSplit], Iterator[pa.RecordBatch]]:
            return lambda split: read_split(table, split, columns=columns, filter=plan.filter)

        has_spans = any(split.span is not None for split in plan.splits)
        batches = batches_of_all(
            plan.splits,
            reader(self.table),
            is_raw=lambda split: not split.needs_merge,
            sharing=(lambda threads: reader(sharing_memory(self.table, threads))) if has_spans else None,
        )
        return pa.Table.from_batches(batches, schema=schema)


def _no_table(io: FileIO, name: str, paths: TablePaths, main: str) -> InvalidInputError:
    root = paths.root
    if paths.branch != main and SchemaStore(io, paths.with_branch(main)).ids():
        names = (each for each in io.list_names(paths.branch_dir) if each.startswith(BRANCH_PREFIX))
        branches = list(dict.fromkeys([main, *(each.removeprefix(BRANCH_PREFIX) for each in names)]))
        known = names_text("branches", paths.branch, branches)
        return InvalidInputError(f"no such branch: table={name} branch={paths.branch} {known} path={root}")
    if io.is_directory(root):
        return InvalidInputError(
            f"directory is not a table, it has no schema: table={name} path={root} fix='look at the name or the path'"
        )
    return MissingTableError(f"no such table: table={name} path={root}")
