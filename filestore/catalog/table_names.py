"""Where a catalog keeps the names of its databases and tables. What a table is, is always in its files.

Three places: the directories of the warehouse, where whatever has a schema is a table at once, by whichever engine it
was made; or a SQL database (``filestore.catalog.sql_names``) or a Hive metastore (``filestore.catalog.hive_names``),
where a table is there when its name is and its schema too.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol, runtime_checkable

from filestore.io.file_io import FileIO
from filestore.schema.table_schema import TableSchema
from lsm.errors import ConflictError, InvalidInputError

DATABASE_SUFFIX: Final = ".db"
_FORBIDDEN: Final = frozenset("/\\$#:*?\"<>|'`\0")


class TableNames(Protocol):
    """Names of databases and tables. It can be pickled."""

    def databases(self) -> list[str]:
        """All databases, sorted."""

    def has_database(self, database: str) -> bool:
        """Whether there is such a database."""

    def database_path(self, database: str) -> str:
        """Directory of a database, whether it exists or not."""

    def database_properties(self, database: str) -> Mapping[str, str]:
        """What is noted of a database; empty where nothing can be."""

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

    def table_path(self, database: str, table: str) -> str:
        """Directory of a table, whether it exists or not."""

    def owns_files(self, database: str, table: str) -> bool:
        """Whether dropping the table removes its files."""

    def add_table(self, database: str, table: str, schema: TableSchema) -> None:
        """Take the name, and the database's when it is missing; an existing name is fine."""

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

        Raises: InvalidInputError when one is gone.
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
    """Names are directories: ``<database>.db/<table>``."""

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
        """Names of its directories and files, sorted."""
        return self._io.list_names(self.database_path(database))

    def has_table(self, database: str, table: str) -> bool:
        """Always: the schema alone decides."""
        return True

    def table_paths(self, database: str) -> Mapping[str, str]:
        """Directories by names."""
        return {name: self.table_path(database, name) for name in self.tables(database)}

    def table_path(self, database: str, table: str) -> str:
        """Directory of a table."""
        return f"{self.database_path(database)}/{table}"

    def owns_files(self, database: str, table: str) -> bool:
        """Always."""
        return True

    def add_table(self, database: str, table: str, schema: TableSchema) -> None:
        """Nothing: directories come with their first file."""

    def note_schema(self, database: str, table: str, schema: TableSchema) -> None:
        """Nothing: columns are in the schema files only."""

    @property
    def keeps_places(self) -> bool:
        """No: a name is a directory."""
        return False

    def remove_table(self, database: str, table: str, path: str) -> None:
        """Nothing: the name goes with its directory."""

    def rename_table(self, source: tuple[str, str], target: tuple[str, str], move: Callable[[], None] | None) -> None:
        """Move its directory: that is its name."""
        assert move is not None
        move()
