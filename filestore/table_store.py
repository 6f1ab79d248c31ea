"""The parts of one opened table: stored schema and options, files, and environment."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from hashlib import blake2b
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from filestore.io.commit_lock import CatalogLockFactory, TableLock, check_commit_lock, table_lock
from filestore.io.file_io import Clock, FileIO, NameSource
from filestore.io.object_store import is_object_path, is_remote_path, under_lock
from filestore.io.places import is_below, is_inside, local_path
from filestore.layout.branch_names import on_branch_name, split_branch
from filestore.layout.branch_state import creation_id
from filestore.layout.file_names import EXTERNAL_OPTIONS, check_inner, external_roots
from filestore.layout.former_mains import FormerMain, table_id_on_branch
from filestore.layout.links import LinksOut
from filestore.layout.own_files import delete_own
from filestore.layout.paths import MAIN_BRANCH, TablePaths
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.lists import IndexManifestEntry
from filestore.manifest.manifest_store import ManifestStore
from filestore.manifest.new_file_paths import NewFilePaths, directory_of_name, is_in_directory_of, own_directories
from filestore.opened_as import OpenedAs, OpenedSnapshots
from filestore.options.catalog_options import CatalogOptions, CatalogPlace
from filestore.options.log_login import with_given
from filestore.options.table.common import INT_MAX
from filestore.options.table.groups import DYNAMIC_BUCKET
from filestore.options.table.places import ExternalPlaces, external_places
from filestore.options.table_options import TableOptions
from filestore.schema.column_options import options_at
from filestore.schema.file_fields import has_id_columns, with_id_columns
from filestore.schema.schema_store import SchemaStore
from filestore.schema.table_schema import FIRST_SCHEMA_ID, TableSchema, uuid_of
from filestore.snapshot.consumers import ConsumerStore
from filestore.snapshot.snapshot import Snapshot, carried_offsets
from filestore.snapshot.snapshot_store import SnapshotStore
from filestore.types.binary_columns import comparables, decode_columns, ordered_codes
from filestore.types.binary_row import decode_row
from filestore.types.data_types import DataType
from lsm.errors import InvalidInputError
from lsm.keys.keys import KeyTuple, comparable
from lsm.levels import SortedFile
from lsm.retry import Backoff


class TableRegistry(Protocol):
    """A copy of what tables are, kept for other programs. It can be pickled. Neither method raises."""

    def schema_changed(self, store: "TableStore", before: TableSchema, after: TableSchema) -> None:
        """A version of the schema of this branch was published."""

    def committed(self, store: "TableStore", snapshot: Snapshot) -> None:
        """A snapshot of this branch was published."""


@dataclass(frozen=True, kw_only=True)
class TableStore:
    """An opened table as its files hold it, for everything that plans, merges, commits and compacts; it can be pickled.

    Users may see another schema than the stored one: see ``TableView``.
    """

    name: str  # "db.table" or "db.table$branch_b", for messages
    paths: TablePaths
    schema: TableSchema
    options: TableOptions
    io: FileIO
    clock: Clock
    names: NameSource
    lock_factory: CatalogLockFactory | None = None  # the catalog's lock: where files cannot be created exclusively
    registry: TableRegistry | None = field(default=None, compare=False)
    catalog: CatalogPlace | None = field(default=None, compare=False)  # None: opened without one, by its path
    given: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)  # by the opener; holds secrets
    main_branch: str = MAIN_BRANCH  # when the table was opened; ``paths.branch`` is the opened one
    opened: OpenedAs | None = field(default=None, compare=False)  # None: by no user, as on another branch
    is_watched: bool = field(default=True, compare=False)  # looks at snapshots say that what was opened is gone
    closed: str | None = None  # why the rows cannot be reached, of a table that was opened to be described
    after_commit: "tuple[Callable[[TableStore, Snapshot], None], ...]" = field(default=(), compare=False)  # never raise
    after_refs: "tuple[Callable[[TableStore], None], ...]" = field(default=(), compare=False)  # never raise
    _schemas: dict[int, TableSchema] = field(default_factory=dict, repr=False, compare=False)
    _own_outside: dict[str, bool] = field(default_factory=dict, repr=False, compare=False)  # by directory

    def __post_init__(self) -> None:
        """Raises: InvalidInputError for data in a place that the opener does not allow."""
        if self.closed is None and (inner := self.options.data_file_directory) is not None:
            check_inner(inner, self.paths.root, self.allowed_outside)

    @property
    def allowed_outside(self) -> str | None:
        """Directories outside of the table's directory in which its opener allows files."""
        return None if self.catalog is None else self.catalog.options.get(CatalogOptions.external_paths_allowed.key)

    @cached_property
    def _links(self) -> LinksOut:
        return LinksOut(self.io, self.paths.root, self.allowed_outside)

    def check_links(self) -> None:
        """Refuse a table whose directories are links that lead out, see ``LinksOut``. Raises: InvalidInputError."""
        for directory in self.paths.directories:
            self._links.check(directory)

    def __getstate__(self) -> Mapping[str, Any]:
        """Fields only: what is cached is cheap to make again."""
        return {name: self.__dict__[name] for name in self.__dataclass_fields__}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        """Restore the fields."""
        self.__dict__.update(state)

    @cached_property
    def schemas(self) -> SchemaStore:
        """The schema versions."""
        lock = self._lock if is_object_path(self.paths.root) else None
        return SchemaStore(self.io if lock is None else under_lock(self.io), self.paths, lock=lock)

    @cached_property
    def snapshots(self) -> SnapshotStore:
        """The snapshots."""
        lock = self._lock
        io = self.io if lock is None else under_lock(self.io)
        files = SnapshotStore(
            io, self.paths, lock=lock, table_uuid=lambda: uuid_of(self.schemas.find(FIRST_SCHEMA_ID)),
            extends=lambda snapshot, before: self.manifests.extends(snapshot, before),
        )  # fmt: skip
        return OpenedSnapshots(files, self.check_is_there) if self.opened is not None and self.is_watched else files

    @cached_property
    def as_found(self) -> Self:
        """The same, where what is in the directory counts: for what decides and cleans up behind an act."""
        return replace(self, is_watched=False) if self.is_watched else self

    @property
    def commit_backoff(self) -> Backoff:
        """The pauses of writers that lost a race: ``commit.min-retry-wait`` and ``commit.max-retry-wait``."""
        return Backoff(
            sleep=self.clock.sleep, first_ms=self.options.commit_min_retry_wait_ms,
            longest_ms=self.options.commit_max_retry_wait_ms,
        )  # fmt: skip

    def check_commits(self) -> None:
        """Refuse commits that another one could overwrite, or of rows that are on another branch.

        Raises: InvalidInputError naming ``commit.lock`` or the branch.
        """
        self.check_branch()
        check_commit_lock(
            self.options.commit_lock, given=self.lock_factory, in_object_store=is_object_path(self.paths.root),
            is_remote=is_remote_path(self.paths.root),
        )  # fmt: skip

    def check_branch(self) -> None:
        """Refuse a table whose own option says that its rows are on another branch. Raises: InvalidInputError."""
        if not self.options.gives(TableOptions.branch):
            return
        here = {self.paths.branch, *([MAIN_BRANCH] if self.paths.branch == self.main_branch else [])}
        if self.options.branch not in here:
            raise InvalidInputError(
                f"the rows of this table are on another branch, as its own option says: table={self.name} "
                f"option=branch value={self.options.branch} "
                f"fix='use {on_branch_name(self.name, self.options.branch)}, or ALTER TABLE ... RESET (branch)'"
            )

    @property
    def _lock(self) -> TableLock | None:
        return table_lock(
            self.options.commit_lock, given=self.lock_factory, root=self.paths.root, clock=self.clock,
            table=split_branch(self.name)[0],  # one lock for all branches: main may become another one
        )  # fmt: skip

    @cached_property
    def consumers(self) -> ConsumerStore:
        """The named readers and their positions."""
        return ConsumerStore(self.io, self.paths, self.clock)

    @cached_property
    def manifests(self) -> ManifestStore:
        """The manifests and their lists. Raises: InvalidInputError: the table was opened to be described."""
        if self.closed is not None:
            raise InvalidInputError(self.closed)
        return ManifestStore(
            self.io,
            self.paths,
            self.names,
            partition_types=self.partition_types,
            compression=self.options.manifest_compression,
            format=self.options.manifest_format,
            external_roots=external_roots(self.allowed_outside),
        )

    def with_options(self, options: Mapping[str, str]) -> Self:
        """The same table with other options in force, given by who opens it; nothing is stored."""
        return replace(self.with_found_options(options), given=with_given(self.given, options))

    def with_found_options(self, options: Mapping[str, str]) -> Self:
        """The same table with the options of another of its files in force, which no opener gives."""
        return self._with(replace(self.schema, options={**self.schema.options, **options}))

    def with_schema(self, schema: TableSchema) -> Self:
        """The same table with another version of its schema; today's options stay in force, under the names of then."""
        options = options_at(self.schema.options, self.schema.fields, schema.fields)
        there = replace(with_id_columns(schema) if has_id_columns(self.schema) else schema, options=options)
        return replace(self, schema=there) if options is self.schema.options else self._with(there)

    def with_id_columns(self) -> Self:
        """The same table for reads that return ``_ROW_ID`` and ``_SEQUENCE_NUMBER`` behind the columns.

        Raises: InvalidInputError: its rows have no ids.
        """
        if not self.options.row_tracking_enabled:
            raise InvalidInputError(
                f"rows of this table have no ids: table={self.name} row-tracking.enabled=false "
                "fix='make the table with row-tracking.enabled=true'"
            )
        return replace(self, schema=with_id_columns(self.schema))

    def at_schema(self, schema_id: int) -> Self:
        """The same table with a version of its schema, by id; today's options stay in force."""
        return self if schema_id == self.schema.id else self.with_schema(self.schema_of(schema_id))

    def options_of(self, schema: TableSchema) -> TableOptions:
        """The options in force for this object at a version of the schema."""
        if self.closed is not None:
            return TableOptions.described(schema.options, primary_key=schema.primary_keys)
        return schema.table_options

    def _with(self, schema: TableSchema) -> Self:
        options = self.options_of(schema)
        paths = self.paths if self.closed else self.paths.with_layout(schema.partition_fields, options)
        return replace(self, schema=schema, options=options, paths=paths)

    @property
    def as_opened(self) -> OpenedAs:
        """The identity of the opened table, whatever the directory has become."""
        return self.opened or OpenedAs(name=self.name, paths=self.paths, schema=self.schema, creation_id=None)

    def is_as_opened(self) -> bool:
        """Whether the directory still is the table that was opened: not dropped, renamed or created again."""
        return self.as_opened.is_there(self.io)

    def check_is_there(self, found: Snapshot | None = None) -> None:
        """See ``OpenedAs.check``; not where what is found counts. Raises: InvalidInputError."""
        if self.opened is not None and self.is_watched:
            self.opened.check(self.io, found)

    def refs_changed(self) -> None:
        """Tell those who follow the table that tags or branches are others, or that snapshots were taken back."""
        for observe in self.after_refs:
            observe(self)

    def delete_own(self, path: str, body: bytes) -> bool:
        """Delete a file of the branch if it has these contents; see ``own_files``. Raises: UnavailableError."""
        return delete_own(self.io, self.paths.branch_root, path, self.names, is_own=lambda found: found == body)

    def delete_file(self, path: str) -> None:
        """Delete a file of the table, see ``is_own``; others stay, as the table's metadata may be a stranger's."""
        if self.is_own(path):
            self.io.delete(path)

    def is_own(self, path: str) -> bool:
        """Whether a path is in the table's directory, or in one of its name where the opener allows files outside.

        A directory of the name that is itself a table, of another warehouse, is not it; nor is one that a link in the
        table's directory leads to.
        """
        if is_below(path, [self.paths.root]):
            return self._links.directory(path.rpartition("/")[0]) is None
        table = split_branch(self.name)[0]
        if self.catalog is None or not is_in_directory_of(table, path, external_roots(self.allowed_outside)):
            return False
        directory = directory_of_name(table, path)
        if directory not in self._own_outside:
            self._own_outside[directory] = not self.io.exists(TablePaths(directory).schema_dir)
        return self._own_outside[directory]

    def places_of(self, options: TableOptions) -> tuple[str, ...]:
        """The table's own directories at external places that some options name; none: they name none.

        Raises: InvalidInputError: its opener does not allow one, or it is in another store than the table; the table
            has no id; see ``external_places``.
        """
        places = external_places(options)
        if places is None:
            return ()
        allowed = external_roots(self.allowed_outside)
        for root in places.roots:
            if not is_inside(root, allowed):
                raise InvalidInputError(
                    f"new files of the table would lie where who opens it allows none: table={self.name} "
                    f"option={EXTERNAL_OPTIONS[0]} value={root} external-paths.allowed={','.join(allowed) or None} "
                    f"fix='set the catalog option external-paths.allowed={root} if you trust the table'"
                )
            if urlsplit(local_path(root)).scheme != urlsplit(local_path(self.paths.root)).scheme:
                raise InvalidInputError(
                    f"new files of the table would lie in another store than the table: table={self.name} "
                    f"option={EXTERNAL_OPTIONS[0]} value={root} path={self.paths.root} "
                    "fix='name places in the store of the warehouse'"
                )
        made = uuid_of(self.schema)
        if made is None or not made.strip("."):
            raise InvalidInputError(
                f"the table has no id that could be the name of its directory at an external place: table={self.name} "
                f"option={EXTERNAL_OPTIONS[0]} fix='write it with the engine that made it'"
            )
        return own_directories(places, table=split_branch(self.name)[0], table_id=made)

    @cached_property
    def _new_files(self) -> tuple[ExternalPlaces, tuple[str, ...]] | None:
        """The external places of new data files, and the table's own directories there; None: there are none."""
        places = external_places(self.options)
        return None if places is None else (places, self.places_of(self.options))

    def new_files(self, partition: bytes, bucket: int) -> NewFilePaths:
        """Where new data files of a bucket go. Raises: InvalidInputError, see ``places_of`` and ``LinksOut``."""
        bucket_dir = self.bucket_dir(partition, bucket)
        self._links.check(bucket_dir)
        if self._new_files is None:
            return NewFilePaths(bucket_dir)
        places, directories = self._new_files
        inner = bucket_dir.removeprefix(f"{self.paths.root}/")
        return NewFilePaths(
            bucket_dir, outside=[f"{each}/{inner}" for each in directories], weights=places.weights,
            is_hashed=places.is_hashed,
        )  # fmt: skip

    def delete_as_opened(self, path: str) -> None:
        """Delete a file of the branch, and none of another table that has the name by now. Raises: UnavailableError."""
        delete_own(self.io, self.paths.branch_root, path, self.names, is_own=lambda found: self.is_as_opened())

    def delete_snapshot(self, snapshot: Snapshot) -> bool:
        """Delete the file of a snapshot, and no other one of that id, if it is there; see ``own_files``.

        Raises: UnavailableError.
        """
        path = self.paths.snapshot(snapshot.id)
        return delete_own(
            self.io, self.paths.branch_root, path, self.names,
            is_own=lambda found: Snapshot.from_json(found, source=path).ref == snapshot.ref,
        )  # fmt: skip

    @property
    def table_uuid(self) -> str | None:
        """Id of the opened table, whatever its name or branch, and whatever is there now; see ``uuid_of``."""
        return uuid_of(self.schema)

    def life(self) -> str:
        """Incarnation: an id that changes when the branch, or main's table, is deleted and created again; "": none."""
        is_main_directory = self.paths.branch == MAIN_BRANCH
        return ("" if is_main_directory else creation_id(self.io, self.paths)) or self.table_uuid or ""

    def table_id(self) -> str:
        """What identifies a table, or a branch of one, whatever its name: see ``table_id_of``."""
        branch = split_branch(self.name)[1]
        return self.table_id_of(None if branch is None else FormerMain(branch, self._creation_id))

    @cached_property
    def _creation_id(self) -> str:
        """Of the branch that the name names."""
        return creation_id(self.io, self.paths.with_branch(split_branch(self.name)[1] or MAIN_BRANCH))

    def table_id_of(self, branch: FormerMain | None) -> str:
        """What identifies a branch.

        Args:
            branch: its name and creation; None: main.

        Returns:
            The table's UUID, or a digest of what its first schema has otherwise, then for a branch a digest of its
            creation, or of its name if that is not known; "" when that schema is not there.
        """
        made = self.schema.table_uuid
        if made is None:
            try:
                first = self.schema_of(FIRST_SCHEMA_ID)
            except FileNotFoundError:
                return ""
            made = blake2b(repr(first.identity).encode(), digest_size=16).hexdigest()
        return made if branch is None else table_id_on_branch(made, branch)

    def new_commit_user(self) -> str:
        """A commit user that no one has used before, with ``commit.user-prefix`` before it."""
        prefix = self.options.commit_user_prefix
        return f"{prefix}_{self.names.uuid()}" if prefix else self.names.uuid()

    @cached_property
    def counts_rows(self) -> bool:
        """Whether each distinct row is kept once with a count, by a key that users do not see; see ``TableView``."""
        return self.schema.table_options.row_counts

    @property
    def has_key(self) -> bool:
        """Whether files are sorted by a key and merged; users need not see that key."""
        return bool(self.schema.primary_keys)

    @property
    def has_dynamic_buckets(self) -> bool:
        """Whether a key is assigned its bucket when it first occurs."""
        return self.has_key and self.options.bucket == DYNAMIC_BUCKET

    @property
    def has_log(self) -> bool:
        """Whether the table's changes also go to a log."""
        return self.options.log_system != "none"

    def log_offsets_at(self, snapshot: Snapshot | None) -> Mapping[int, int] | None:
        """Next offsets of the table's log at a snapshot, its own or those of the newest before it that has some.

        Returns:
            Offsets by bucket; {} when nothing is in this log yet, None when what may have had some has expired.
        """
        return carried_offsets(self.snapshots.back_from(snapshot), self.options.log_generation)

    @cached_property
    def partition_types(self) -> tuple[DataType, ...]:
        """Types of the partition columns, in partition order."""
        return tuple(each.type for each in self.schema.partition_fields)

    @cached_property
    def key_types(self) -> tuple[DataType, ...]:
        """Types of the trimmed primary key."""
        return tuple(each.type for each in self.schema.key_fields)

    @property
    def level_count(self) -> int:
        """Levels of each bucket's tree. Source: Paimon, ``num-levels`` defaults to the compaction trigger + 1."""
        levels = self.options.level_count or self.options.run_count_trigger + 1
        return min(levels, INT_MAX)  # a level is an int in manifests

    def schema_of(self, schema_id: int) -> TableSchema:
        """The stored schema that a data file was written with."""
        if schema_id == self.schema.id:
            return self.schema
        if schema_id not in self._schemas:
            self._schemas[schema_id] = self.schemas.read(schema_id)
        return self._schemas[schema_id]

    def columns_in(self, file: DataFileMeta) -> TableSchema:
        """The stored schema that a data file was written with, without the columns that the file does not have."""
        then = self.schema_of(file.schema_id)
        if file.write_cols is None:
            return then
        known = {field.name: field for field in then.fields}
        return replace(then, fields=tuple(known[name] for name in file.write_cols if name in known))

    def with_columns_of(self, files: Iterable[DataFileMeta]) -> Self:
        """The table at the newest schema of some files: rows merged at an older one would lose new columns."""
        newest = max((file.schema_id for file in files), default=self.schema.id)
        return self if newest <= self.schema.id else self.at_version(newest)

    def schema_versions(self) -> list[TableSchema]:
        """All versions of the schema, ascending, newer ones than the opened one too; looked up at every call."""
        return [self.schema_of(schema_id) for schema_id in self.schemas.ids()] or [self.schema]

    def at_version(self, schema_id: int) -> Self:
        """The same table opened at another version of its schema, with the options of this object."""
        return self.at_new_version(self.schema_of(schema_id))

    def at_new_version(self, schema: TableSchema) -> Self:
        """The same table opened at a version of its schema that need not be published yet; see ``at_version``."""
        opened = self.schema
        stored = self.schemas.read(opened.id).options
        dynamic = {key: text for key, text in opened.options.items() if stored.get(key) != text}
        return self._with(replace(schema, options={**schema.options, **dynamic}))

    def partition_values(self, partition: bytes) -> tuple[Any, ...]:
        """Internal values of the partition columns."""
        return tuple(decode_row(partition, self.partition_types))

    def key_of(self, key: bytes) -> KeyTuple:
        """A file's first or last key as something that Python compares in key order."""
        return tuple(map(comparable, self.values_of_key(key)))

    def values_of_key(self, key: bytes) -> tuple[object, ...]:
        """Internal values of a file's first or last key."""
        return decode_row(key, self.key_types)

    def keys_of(self, keys: Sequence[bytes]) -> list[KeyTuple]:
        """``key_of`` of many."""
        if not keys or not self.key_types:
            return [()] * len(keys)
        columns = map(comparables, decode_columns(keys, self.key_types))
        return list(zip(*columns, strict=True))

    def key_ranks(self, keys: pa.LargeBinaryArray) -> NDArray[np.int64]:
        """(n,) numbers in the order of keys, equal for equal ones: what ``keys_of`` gives, as columns."""
        ranks = np.zeros(len(keys), np.int64)
        for column in decode_columns(keys, self.key_types) if len(keys) and self.key_types else ():
            codes = ordered_codes(column)
            _, ranks = np.unique(ranks * (int(codes.max()) + 1) + codes, return_inverse=True)
        return ranks

    def bucket_dir(self, partition: bytes, bucket: int) -> str:
        """Directory of a bucket's data files."""
        return self.paths.bucket_dir(self.partition_values(partition), bucket)

    def file_path(self, partition: bytes, bucket: int, file: DataFileMeta) -> str:
        """Path of a data file. Raises: InvalidInputError: a link leads out of the table, see ``LinksOut``."""
        if file.external_path:
            return file.path("")
        path = file.path(self.bucket_dir(partition, bucket))
        self._links.check(path)
        return path

    def file_paths(self, partition: bytes, bucket: int, file: DataFileMeta) -> list[str]:
        """Paths of a data file and of its extra files."""
        return file.paths("" if file.external_path else self.bucket_dir(partition, bucket))

    def index_path(self, entry: IndexManifestEntry) -> str:
        """Path of an index file."""
        if entry.external_path is not None:
            return local_path(entry.external_path)
        beside = self.options.index_file_in_data_file_dir
        directory = self.bucket_dir(entry.partition, entry.bucket) if beside else self.paths.index_dir
        self._links.check(path := f"{directory}/{entry.file_name}")
        return path

    def sorted_file(self, file: DataFileMeta) -> SortedFile:
        """The file as the LSM tree sees it."""
        return SortedFile(
            file_name=file.file_name,
            level=file.level,
            size_bytes=file.size_bytes,
            row_count=file.row_count,
            delete_count=file.delete_row_count or 0,
            min_key=self.key_of(file.min_key),
            max_key=self.key_of(file.max_key),
            min_sequence_number=file.min_sequence_number,
            max_sequence_number=file.max_sequence_number,
            creation_time_ms=file.creation_time_ms or 0,
        )
