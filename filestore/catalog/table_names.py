"""Stores of the names of a catalog's databases and tables. Schemas and snapshots are always in a table's files.

Three places: the directories of the warehouse, where whatever has a schema is a table at once, by whichever engine it
was made; or a SQL database (``filestore.catalog.sql_names``) or a Hive metastore (``filestore.catalog.hive_names``),
where a table is there when its name is and its schema too.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final, Protocol, runtime_checkable

from filestore.catalog.warehouse import warehouse_path
from filestore.io.file_io import FileIO, MovesDirectories
from filestore.schema.table_schema import TableSchema
from lsm.errors import ConflictError, CorruptDataError, FluvialError, InvalidInputError, MissingDatabaseError

DATABASE_SUFFIX: Final = ".db"
PLACES_DIRECTORY: Final = ".places"
"""Directory in that of a database, with notes of the tables that lie elsewhere: ``.places/<table>/place``."""
PLACE_NOTE: Final = "place"
_VERSION: Final = 1
_FORBIDDEN: Final = frozenset("/\\$#:*?\"<>|'`\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """The directory of a table."""

    path: str
    is_own: bool = False  # outside the directory of its database
    table_uuid: str | None = None  # of the only table that is meant; None: whichever is there

    def to_json(self) -> bytes:
        """The note of a catalog of directories."""
        noted = {"version": _VERSION, "path": self.path, "table-uuid": self.table_uuid}
        return json.dumps(noted, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, body: bytes, *, source: str) -> "TablePlace":
        """Read ``to_json``. Raises: CorruptDataError naming ``source``."""
        try:
            noted = json.loads(body)
            version, path, table_uuid = noted["version"], noted["path"], noted["table-uuid"]
            is_readable = version == _VERSION and isinstance(path, str) and isinstance(table_uuid, str)
            return cls(path=warehouse_path(path if is_readable else ""), is_own=True, table_uuid=table_uuid)
        except (ValueError, KeyError, TypeError, InvalidInputError, RecursionError) as error:
            raise CorruptDataError(f"the note of a table's place cannot be read: file={source} {error}") from error


class ListsTables(Protocol):
    """A catalog, as far as it lists names."""

    def list_databases(self) -> list[str]:
        """Names of the databases, sorted."""

    def list_tables(self, database: str) -> list[str]:
        """Names of a database's tables, sorted."""


def all_tables(
    catalog: ListsTables, problems: MutableMapping[str, str], databases: Iterable[str] | None = None
) -> Iterator[tuple[str, str]]:
    """The database and the name of every table, sorted. A database that cannot be listed does not end the listing.

    Args:
        catalog: of the tables.
        problems: gets the name of each database that cannot be listed, and why. A database that is dropped meanwhile,
            or a file with the name of one, is left out.
        databases: to list; None: all.
    """
    for database in catalog.list_databases() if databases is None else databases:
        try:
            names = catalog.list_tables(database)
        except MissingDatabaseError:
            continue
        except (FluvialError, OSError) as error:
            problems[database] = str(error)
            continue
        yield from ((database, name) for name in names)


class TableNames(Protocol):
    """Names of databases and tables. It can be pickled."""

    def databases(self) -> list[str]:
        """All databases, sorted."""

    def has_database(self, database: str) -> bool:
        """Whether there is such a database."""

    def database_path(self, database: str) -> str:
        """Directory of a database, whether it exists or not."""

    def database_properties(self, database: str) -> Mapping[str, str]:
        """Stored properties of a database; empty where none can be stored."""

    def add_database(self, database: str) -> None:
        """Make one. Raises: ConflictError when it is there."""

    def remove_database(self, database: str) -> None:
        """Forget a database and the tables in it; a missing one is fine."""

    def tables(self, database: str) -> list[str]:
        """Names that may be tables, sorted: those that have a schema are."""

    def has_table(self, database: str, table: str) -> bool:
        """Whether a directory of this name with a schema would be a table."""

    def table_paths(self, database: str) -> Mapping[str, str]:
        """Directories by the names of ``tables``."""

    def place(self, database: str, table: str) -> TablePlace:
        """Directory of a table, whether it exists or not."""

    @property
    def is_trusted(self) -> bool:
        """Whether places count that its opener does not allow: other engines make tables there, too."""

    def owns_files(self, database: str, table: str) -> bool:
        """Whether dropping the table removes its files."""

    def add_table(self, database: str, table: str, schema: TableSchema, place: TablePlace) -> None:
        """Take the name for a place, and the database's when it is missing; an existing name stays with its own.

        Whether the name got the place is seen by ``place``.
        """

    def note_schema(self, database: str, table: str, schema: TableSchema) -> None:
        """Note what the first schema became, where columns are kept beside names."""

    def remove_table(self, database: str, table: str, path: str) -> None:
        """Forget the name of a table; a missing one is fine.

        Args:
            database: its name.
            table: its name.
            path: its directory; where places are noted, a name stays that is another table's by now.
        """

    @property
    def keeps_places(self) -> bool:
        """Whether a table's directory is noted beside its name, so that another name can have it."""

    def rename_table(self, source: tuple[str, str], target: tuple[str, str], move: Callable[[], None] | None) -> None:
        """Give a table, as (database, name), another name, and move its directory; both or none.

        Args:
            source: its name.
            target: the new one.
            move: None, where places are kept: the directory stays.

        Raises: ConflictError when that name is taken; what ``move`` raises.
        """


@runtime_checkable
class SwapsNames(Protocol):
    """Names of which two can change at once."""

    def swap_names(self, database: str, one: str, other: str) -> None:
        """Give two tables of a database each other's names, both or none; their directories stay.

        Raises: InvalidInputError: one of the tables was dropped.
        """


def database_below(root: str, database: str) -> str:
    """Directory of a database that has no location of its own."""
    return f"{root}/{database}{DATABASE_SUFFIX}"


def check_name(kind: str, name: str) -> None:
    """Raises: InvalidInputError for a name that a database or table, as the kind says, cannot have."""
    bad = sorted({char for char in name if char in _FORBIDDEN or not char.isprintable()})
    if not name.strip() or name != name.strip() or name.startswith(".") or bad:
        raise InvalidInputError(
            f"name cannot be that of a {kind}: name={name!r} forbidden={bad} fix='use letters, digits, _ and -'"
        )


class DirectoryNames:
    """Names are directories: ``<database>.db/<table>``; of a table in a place of its own there is a note."""

    def __init__(self, root: str, io: FileIO) -> None:
        """``root`` is the warehouse."""
        self._root = root
        self._io = io

    def databases(self) -> list[str]:
        """All databases, sorted."""
        names = self._io.list_names(self._root)
        return [name.removesuffix(DATABASE_SUFFIX) for name in names if name.endswith(DATABASE_SUFFIX)]

    def has_database(self, database: str) -> bool:
        """Whether there is such a directory."""
        return self._io.is_directory(self.database_path(database))

    def database_path(self, database: str) -> str:
        """Directory of a database."""
        return database_below(self._root, database)

    def database_properties(self, database: str) -> Mapping[str, str]:
        """Nothing: a directory has no properties."""
        return {}

    def add_database(self, database: str) -> None:
        """Make its directory. Raises: ConflictError when it is there."""
        if self.has_database(database):
            raise ConflictError(f"database exists already: database={database} path={self.database_path(database)}")
        self._io.make_directory(self.database_path(database))

    def remove_database(self, database: str) -> None:
        """Nothing: the name goes with its directory."""

    def tables(self, database: str) -> list[str]:
        """Names of its directories and files, and those that have places, sorted."""
        return sorted(self.table_paths(database))

    def has_table(self, database: str, table: str) -> bool:
        """Always: the schema alone decides."""
        return True

    def table_paths(self, database: str) -> Mapping[str, str]:
        """Directories by names."""
        parent = self.database_path(database)
        paths = {name: f"{parent}/{name}" for name in self._io.list_names(parent) if name != PLACES_DIRECTORY}
        for name in self._io.list_names(f"{parent}/{PLACES_DIRECTORY}"):
            if (noted := self._noted(database, name)) is not None:
                paths[name] = noted.path
        return paths

    def place(self, database: str, table: str) -> TablePlace:
        """Directory of a table: that of its name, if no other one is noted. Raises: CorruptDataError."""
        return self._noted(database, table) or TablePlace(path=f"{self.database_path(database)}/{table}")

    @property
    def is_trusted(self) -> bool:
        """No: a note is a file, which may have come with the warehouse."""
        return False

    def owns_files(self, database: str, table: str) -> bool:
        """Always."""
        return True

    def add_table(self, database: str, table: str, schema: TableSchema, place: TablePlace) -> None:
        """Note a place of its own; directories come with their first file."""
        if place.is_own:
            self._io.create_exclusive(self._note(database, table), place.to_json())

    def note_schema(self, database: str, table: str, schema: TableSchema) -> None:
        """Nothing: columns are in the schema files only."""

    @property
    def keeps_places(self) -> bool:
        """No: a name is a directory, where no place is noted."""
        return False

    def remove_table(self, database: str, table: str, path: str) -> None:
        """Forget the place; a name without one goes with its directory."""
        if (noted := self._noted(database, table)) is not None and noted.path == path:
            note = self._note(database, table)
            self._io.delete(note)
            self._io.delete_empty_directory(note.rpartition("/")[0])

    def rename_table(self, source: tuple[str, str], target: tuple[str, str], move: Callable[[], None] | None) -> None:
        """Move its directory, which is its name; or, where a place is noted, that of the note."""
        if move is not None:
            move()
            return
        assert isinstance(self._io, MovesDirectories), "elsewhere there is no renaming"
        old, new = (self._note(*each).rpartition("/")[0] for each in (source, target))
        self._io.move_directory(old, new)

    def _note(self, database: str, table: str) -> str:
        return f"{self.database_path(database)}/{PLACES_DIRECTORY}/{table}/{PLACE_NOTE}"

    def _noted(self, database: str, table: str) -> TablePlace | None:
        path = self._note(database, table)
        try:
            return TablePlace.from_json(self._io.read_bytes(path), source=path)
        except FileNotFoundError:
            return None
