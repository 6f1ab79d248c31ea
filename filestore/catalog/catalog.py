"""A warehouse directory of databases and tables, in the layout of Paimon's file system catalog.

A database is a directory ``<name>.db``; a table is a directory in it that has a schema. Creating the first schema file
is the one atomic step that makes a table: before it the table does not exist. Source: Paimon
FileSystemCatalog.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from filestore.catalog.metastore import open_metastore
from filestore.catalog.table_names import DirectoryNames, SwapsNames, TablePlace, check_name, database_below
from filestore.catalog.table_place import TablePlaces, check_is_noted, without_place
from filestore.catalog.warehouse import open_warehouse
from filestore.io.commit_lock import CatalogLockFactory, check_commit_lock, table_lock
from filestore.io.file_io import (
    Clock,
    ExchangesDirectories,
    FileIO,
    MovesDirectories,
    NameSource,
    RandomNames,
    SystemClock,
)
from filestore.io.object_store import check_renaming, is_object_path, is_remote_path, under_lock
from filestore.layout.branch_names import agreed_branch, split_branch
from filestore.layout.branch_state import MAIN_BRANCH_FILE
from filestore.layout.file_names import check_spelling
from filestore.layout.paths import MAIN_BRANCH, TablePaths
from filestore.options.catalog_options import CatalogOptions, CatalogPlace
from filestore.scan.row_expiry import check_expiry
from filestore.schema.schema_store import SchemaStore, new_schema
from filestore.schema.table_schema import TableSchema
from filestore.table import FileTable
from filestore.types.data_types import DataField
from lsm.errors import (
    ConflictError,
    CorruptDataError,
    DatabaseExistsError,
    InvalidInputError,
    MissingDatabaseError,
    MissingTableError,
    TableExistsError,
)
from lsm.nearest_names import close_names, did_you_mean

if TYPE_CHECKING:
    from filestore.evolution.schema_change import SchemaChange

DEFAULT_DATABASE: Final = "default"
_TABLES_LISTED: Final = 10
_DROPPED: Final = ".dropped-"  # start of the name of a dropped table's directory


class FileCatalog:
    """Databases and tables of one warehouse."""

    def __init__(
        self,
        warehouse: str,
        options: Mapping[str, str] | None = None,
        *,
        io: FileIO | None = None,
        clock: Clock | None = None,
        names: NameSource | None = None,
        lock_factory: CatalogLockFactory | None = None,
    ) -> None:
        """Open a warehouse; nothing is read or created yet.

        Args:
            warehouse: absolute path, ``file://`` URI, or ``s3://bucket/prefix``.
            options: options of the catalog, see ``CatalogOptions``; others are defaults of new tables.
            io: file system; None: the one that the warehouse's address names.
            clock: None is the machine's.
            names: source of names of new files; None is random.
            lock_factory: locks around every commit; needed where ``io`` cannot create a file exclusively.

        Raises:
            InvalidInputError: the address or an option is wrong.
        """
        from filestore.io.read_only_files import ReadOnlyFiles

        self.options = CatalogOptions.parse(options or {})
        place = open_warehouse(warehouse, self.options, environment=os.environ, io=io)
        self.warehouse, self._io = place.root, place.io
        self._defaults = without_place(self.options.table_defaults)
        self._clock, self._names = clock or SystemClock(), names or RandomNames()
        metastore = open_metastore(self.options, place, self._clock)
        self._tables, self._registry = metastore.names, metastore.registry
        if metastore.read_only is not None:
            self._io = ReadOnlyFiles(self._io, metastore.read_only)
        self.places = TablePlaces(names=self._tables, io=self._io, options=self.options, warehouse=self.warehouse)
        self._lock_factory = lock_factory or metastore.lock_factory

    @property
    def file_io(self) -> FileIO:
        """The file system of the warehouse."""
        return self._io

    def create_database(self, name: str, *, if_not_exists: bool = False) -> None:
        """Create a database.

        Args:
            name: of the database.
            if_not_exists: do nothing where there is such a database.

        Raises:
            InvalidInputError: there is such a database, or the name cannot be one.
        """
        check_name("database", name)
        check_spelling("database", name)
        try:
            self._tables.add_database(name)
        except ConflictError as error:
            if not if_not_exists:
                raise DatabaseExistsError(
                    f"database exists already: database={name} path={self._tables.database_path(name)}"
                ) from error

    def list_databases(self) -> list[str]:
        """Names of all databases, sorted."""
        return self._tables.databases()

    def database_exists(self, name: str) -> bool:
        """Whether there is such a database. Raises: InvalidInputError for a name that cannot be one."""
        check_name("database", name)
        return self._tables.has_database(name)

    def drop_database(self, name: str, *, cascade: bool = False, if_exists: bool = False) -> None:
        """Remove a database.

        Args:
            name: of the database.
            cascade: drop its tables too.
            if_exists: do nothing where there is no such database.

        The directory goes with all that is in it where it is the warehouse's own; elsewhere only if it is empty.

        Raises:
            InvalidInputError: there is no such database, or it has tables and ``cascade`` is false.
        """
        if not self._has_database(name, if_exists=if_exists):
            return
        tables = self.list_tables(name)
        if tables and not cascade:
            raise InvalidInputError(
                f"database is not empty: database={name} tables={tables} fix='drop them or cascade'"
            )
        for table in tables:
            self.drop_table(f"{name}.{table}")
        path = self._tables.database_path(name)
        self._tables.remove_database(name)
        if path == database_below(self.warehouse, name):
            self._io.delete_tree(path)
        else:  # a place that a row of the catalog names: nothing is deleted there but the tables that it had
            self._io.delete_empty_directory(path)

    def create_table(
        self,
        name: str,
        schema: pa.Schema | Sequence[DataField],
        *,
        primary_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        options: Mapping[str, str] | None = None,
        comment: str | None = None,
        if_not_exists: bool = False,
    ) -> FileTable:
        """Create a table, atomically.

        Args:
            name: ``db.table``; a missing database is created.
            schema: Arrow schema, or fields when CHAR(n), comments or defaults matter.
            primary_key: columns that together are unique; they become NOT NULL.
            partition_by: columns, in directory order; a primary key must contain them.
            options: options of the table.
            comment: comment of the table.
            if_not_exists: return the existing table, whatever its schema.

        Returns:
            The new table, or with ``if_not_exists`` the existing one.

        Raises:
            InvalidInputError: the table exists, or the schema or an option is wrong; says what to change.
        """
        from filestore.layout.log_key import LOG_KEY_DIRECTORY
        from filestore.predicate.row_rules import refuse_unkept
        from filestore.schema.merge_engine import check_merging

        place = self.places.of_new(name, options)
        root = place.path
        check_spelling("table", name)
        first = new_schema(
            schema,
            primary_key=primary_key,
            partition_by=partition_by,
            options={**self._defaults, **without_place(options)},
            comment=comment,
            time_ms=self._clock.now_ms(),
        )
        first = replace(first, table_uuid=self._names.uuid())
        check_merging(first, first.table_options)  # wrong functions and columns are refused before the first rows
        check_expiry(first, first.table_options)
        refuse_unkept(first)
        given, in_object_store = self._lock_factory, is_object_path(root)
        way = first.table_options.commit_lock
        check_commit_lock(way, given=given, in_object_store=in_object_store, is_remote=is_remote_path(root))
        lock = table_lock("auto", given=given, table=name, root=root, clock=self._clock) if in_object_store else None
        store = SchemaStore(self._io if lock is None else under_lock(self._io), TablePaths(root), lock=lock)
        leftovers = [each for each in self._io.list_names(root) if each not in ("schema", LOG_KEY_DIRECTORY)]
        leftovers += [f"schema-{number}" for number in store.ids()]
        if not self.places.has_table(root):  # looked for last: the above may be of a table made at this moment
            if leftovers:
                raise InvalidInputError(
                    f"directory is not empty: table={name} path={root} found={leftovers[:5]} "
                    "fix='it belongs to another program, or to a table whose drop was interrupted: drop or remove it'"
                )
            for key, branch in first.table_options.read_branches.items():
                raise InvalidInputError(
                    f"a new table has no branches: table={name} {key}={branch} "
                    f"fix=create the branch, then ALTER TABLE ... SET ('{key}' = ...)"
                )
            database, table = name.split(".")
            self._tables.add_table(database, table, first, replace(place, table_uuid=first.table_uuid))
            first = replace(first, table_uuid=self.places.check_noted(name, root).table_uuid or first.table_uuid)
            try:
                store.create(first)
            except ConflictError:
                pass  # another process made it at this moment
            else:
                self.places.check_noted(name, root, made=TablePaths(root).schema(first.id))
                self._tables.note_schema(database, table, first)
                return self.table(name)
        elif not self._tables.has_table(*name.split(".")) or self.table_path(name) != root:
            raise self.places.taken(name, root)
        if not if_not_exists:
            raise TableExistsError(f"table exists already: table={name} path={root}")
        return self.table(name)

    def table(
        self, name: str, *, branch: str | None = None, options: Mapping[str, str] | None = None,
        to_describe: bool = False,
    ) -> FileTable:  # fmt: skip
        """Open a table.

        Args:
            name: ``db.table``, or ``db.table$branch_b`` for one of its branches.
            branch: name of the branch, instead of ``$branch_b``; None: the branch in the name, else main.
            options: options for this object only.
            to_describe: also open a table that cannot be read, see ``FileTable.open``.

        Returns:
            The table, with the newest schema of the branch.

        Raises:
            InvalidInputError: there is no such database, table or branch, or the directory has no table.
        """
        name, branch = agreed_branch(name, branch)
        (database, table), root = name.split("."), (place := self.places.find(name)).path
        self._has_database(database, if_exists=False)
        if not self._tables.has_table(database, table):
            raise self._no_such_table(name, root)
        try:
            opened = FileTable.open(
                name, root, branch=branch or MAIN_BRANCH, options=options, io=self._io, clock=self._clock,
                names=self._names, lock_factory=self._lock_factory, registry=self._registry,
                catalog=CatalogPlace(warehouse=self.warehouse, options=self.options.given), to_describe=to_describe,
            )  # fmt: skip
        except (InvalidInputError, CorruptDataError) as error:  # it may have been dropped or renamed meanwhile
            if self.places.has_table(root) or not isinstance(error, CorruptDataError | MissingTableError):
                raise
            raise self._no_such_table(name, root) from error
        check_is_noted(name, place, opened.store.table_uuid)
        return opened

    def _no_such_table(self, name: str, root: str) -> InvalidInputError:
        database, table = name.split(".")
        close = close_names(table, known := self._tables.tables(database))
        near = f" did_you_mean={database}.{close[0]}" if close else ""
        return MissingTableError(f"no such table: table={name} path={root} tables={known[:_TABLES_LISTED]}{near}")

    def table_exists(self, name: str) -> bool:
        """Whether there is such a table, or such a branch of one."""
        name, branch = split_branch(name)
        root = self.table_path(name)
        if not self._tables.has_table(*name.split(".")):
            return False
        return SchemaStore(self._io, TablePaths(root, branch)).has_table() if branch else self.places.has_table(root)

    def list_tables(self, database: str) -> list[str]:
        """Names of the tables of a database, sorted. Raises: InvalidInputError when there is no such database."""
        self._has_database(database, if_exists=False)
        paths, is_listed = self._tables.table_paths(database), self.places.is_listed
        return [each for each in sorted(paths) if not each.startswith(_DROPPED) and is_listed(database, paths[each])]

    def drop_table(self, name: str, *, if_exists: bool = False) -> None:
        """Remove a table and all its files.

        An interrupted drop leaves files, but no table: in a hidden directory, or, where directories cannot be renamed,
        under the name; then dropping again removes them. A drop goes by the name: a repeated drop, whose first answer
        was lost, also drops a table that others have created under the name since.

        Args:
            name: ``db.table``.
            if_exists: do nothing where there is no such table.

        Raises:
            InvalidInputError: there is no such table, or it is where its opener allows none to be deleted.
        """
        from filestore.layout.leftovers import is_what_a_drop_leaves

        if self.forgot_unfinished(name):
            return
        place, (database, table) = self.places.find(name), name.split(".")
        paths = TablePaths(root := place.path)
        has_schema = self.places.has_table(root)
        # What an interrupted drop left has no schema, and perhaps no name any more.
        if not self._io.is_directory(root) or (has_schema and not self._tables.has_table(database, table)):
            self._tables.remove_table(database, table, root)
            if not if_exists:
                raise MissingTableError(f"no such table: table={name} path={root}")
            return
        if not self._tables.owns_files(database, table):
            self._tables.remove_table(database, table, root)
            return
        if not has_schema and not is_what_a_drop_leaves(self._io.list_names(root)):
            raise InvalidInputError(f"directory is not a table, nothing was removed: table={name} path={root}")
        self.places.check_is_allowed(name, place)
        outside = self.places.outside(name, root)
        is_removed = self._remove(place, paths, database, table)
        self.places.remove_outside(outside)
        if not (is_removed or if_exists):
            raise MissingTableError(f"no such table, it was dropped meanwhile: table={name} path={root}")

    def _remove(self, place: TablePlace, paths: TablePaths, database: str, table: str) -> bool:
        """Remove the directory of a table, and its name; see ``drop_table``.

        Returns: False: another user has moved the directory away since it was found.
        """
        from filestore.layout.leftovers import clear_dropped

        root, is_moved = place.path, True
        if isinstance(self._io, MovesDirectories):
            # in one step, so that a drop that is paused never deletes a table that was made under the name since
            parent, prefix = root.rpartition("/")[0], f"{_DROPPED}{table}-"
            try:
                self._io.move_directory(root, f"{parent}/{prefix}{self._names.uuid()}")
            except FileNotFoundError:
                is_moved = False
            if place.is_own:
                clear_dropped(self._io, parent, prefix)  # while the name is there, what is left is found
            if not self.places.has_table(root):
                self._tables.remove_table(database, table, root)
            clear_dropped(self._io, parent, prefix)
            return is_moved
        self._io.delete_tree(paths.schema_dir)
        while (ids := SchemaStore(self._io, paths).ids()) and 0 not in ids:
            self._io.delete_tree(paths.schema_dir)  # a change of the schema came in between; a new table begins with 0
        self._io.delete(f"{root}/{MAIN_BRANCH_FILE}")
        self._tables.remove_table(database, table, root)
        if not self.places.has_table(root):
            self._io.delete_tree(root)
        return True

    def forgot_unfinished(self, name: str) -> bool:
        """Remove a name whose own path has no such table; another table at that path stays.

        Returns: False: the name has no such path, or is a branch's, and nothing was done.
        """
        from filestore.layout.leftovers import clear_dropped, is_what_a_drop_leaves

        if split_branch(name)[1] is not None:
            return False
        place, (database, table) = self.places.find(name), name.split(".")
        if not place.is_own or self.places.has_noted(place):
            return False
        if self.places.is_of_opener(place):
            if not self.places.has_table(place.path) and is_what_a_drop_leaves(self._io.list_names(place.path)):
                self._io.delete_tree(place.path)
            clear_dropped(self._io, place.path.rpartition("/")[0], f"{_DROPPED}{table}-")
        self._tables.remove_table(database, table, place.path)
        return True

    def alter_table(self, name: str, changes: "Sequence[SchemaChange]", *, branch: str | None = None) -> TableSchema:
        """Publish the next version of a table's schema. Files stay as they are; readers map them.

        Open writers continue with the version that they know; what they write stays readable. Open them again to
        write new columns.

        Args:
            name: ``db.table``, or ``db.table$branch_b``: then the schema of that branch changes, and no other.
            changes: applied in order, all or none.
            branch: name of the branch, instead of ``$branch_b``; None: the branch in the name, else main.

        Returns:
            The newest schema: the old one when nothing changed.

        Raises:
            InvalidInputError: no such table, or a change is refused; nothing has changed.
            ConflictError: others altered the table again and again: try again.
        """
        from filestore.evolution.publication import publish_changes

        return publish_changes(self.table(name, branch=branch).store, lambda _: changes)

    @property
    def can_rename_tables(self) -> bool:
        """Whether the storage renames directories atomically, or the catalog stores the paths of tables."""
        return isinstance(self._io, MovesDirectories) or self._tables.keeps_places

    def rename_table(self, name: str, new_name: str) -> None:
        """Rename a table, atomically. Its directory moves, unless the catalog stores the paths of tables.

        Args:
            name: ``db.table``.
            new_name: ``db.table``; the database must exist.

        Raises:
            InvalidInputError: there is no such table, the new name is taken or cannot be one, or the storage cannot
                move directories.
        """
        from filestore.layout.log_key import move_directory

        place, target = self.places.find(name), self.table_path(new_name)
        source, stays = place.path, place.is_own
        check_spelling("table", new_name)
        if not self.table_exists(name):
            raise MissingTableError(f"no such table: table={name} path={source}")
        self._has_database(new_name.split(".")[0], if_exists=False)
        if self.table_exists(new_name):
            raise TableExistsError(f"table exists already: table={new_name} path={target}")
        can_move = isinstance(self._io, MovesDirectories)
        move = partial(move_directory, self._io, source, target) if can_move and not stays else None
        if stays and can_move:
            pass  # the name alone changes, in its catalog
        elif move is None and self._tables.keeps_places and name.split(".")[0] == new_name.split(".")[0]:
            check_renaming(self._io, source, self._lock_factory)
            if target != source and self.places.has_table(target):
                raise self.places.taken(new_name, target)
        elif move is None:
            raise InvalidInputError(
                f"tables on this storage cannot be renamed: table={name} path={source} "
                "fix='CALL sys.copy to the new name, and DROP TABLE'"
            )
        (database, table), (new_database, new_table) = name.split("."), new_name.split(".")
        try:
            self._tables.rename_table((database, table), (new_database, new_table), move)
        except ConflictError as error:
            fact = "table exists already" if move is None else "directory is not empty"
            raise InvalidInputError(f"{fact}: table={new_name} path={target}") from error
        # where a drop came in between, what moved is what a late writer has left
        if not self.places.has_table(self.table_path(new_name)):
            self.drop_table(new_name, if_exists=True)
            raise MissingTableError(f"no such table: table={name} path={source} cause=it was dropped meanwhile")

    @property
    def swapping(self) -> SwapsNames | None:
        """The store of names, if it can exchange two names: directories stay, and their paths are in a database."""
        found = None if isinstance(self._io, MovesDirectories) else self._tables
        return found if isinstance(found, SwapsNames) else None

    @property
    def exchanges_directories(self) -> bool:
        """Whether names are directories, of which two may change names at once."""
        return isinstance(self._tables, DirectoryNames) and isinstance(self._io, ExchangesDirectories)

    def swap_tables(self, name: str, other: str) -> bool:
        """Exchange the names of two tables of one database, atomically.

        Args:
            name: ``db.table``.
            other: ``db.table`` in the same database.

        Returns:
            False: the catalog cannot exchange names, and nothing was done.

        Raises:
            InvalidInputError: there is no such table, or the storage needs locks that go by the name of the table.
        """
        if (names := self.swapping) is None:
            return self.exchanges_directories and self._exchange_directories(name, other)
        for each in (name, other):
            check_renaming(self._io, self.table(each, to_describe=True).store.paths.root, self._lock_factory)
        names.swap_names(name.split(".")[0], name.split(".")[1], other.split(".")[1])
        return True

    def _exchange_directories(self, name: str, other: str) -> bool:
        """As ``swap_tables``, where names are directories; False: the file system has no such step."""
        from filestore.layout.log_key import note_places

        one, two = (self.places.find(each) for each in (name, other))
        if one.is_own or two.is_own or not isinstance(self._io, ExchangesDirectories):
            return False
        try:
            if not self._io.exchange_directories(one.path, two.path):
                return False
        except FileNotFoundError as error:
            raise MissingTableError(f"no such table: tables={[name, other]}") from error
        note_places(self._io, one.path)
        note_places(self._io, two.path)
        return True

    def table_path(self, name: str) -> str:
        """Directory of a table, whether it exists or not. Raises: as ``TablePlaces.find``."""
        return self.places.find(name).path

    def _has_database(self, name: str, *, if_exists: bool) -> bool:
        if (exists := self.database_exists(name)) or if_exists:
            return exists
        known = self.list_databases()
        near = did_you_mean(name, known)
        if not known and not self._io.is_directory(self.warehouse):
            near = " cause=there is no such directory fix='check the warehouse, or create a table in it'"
        raise MissingDatabaseError(
            f"no such database: database={name} warehouse={self.warehouse} databases={known}{near}"
        )
