"""Which directory each table of a database has, where Java Paimon looks for one in the directory of its name.

Where directories cannot be moved, a renamed table stays in the directory of its first name, and that is noted. Java
finds nothing in the directory of the new name, and refuses. A later table of the first name gets a directory beside it.
Java would take the renamed table for that one, so the name is not listed while that is there: to Java there is no such
table, and it makes none where files are. A table in a place of its own has that whole path for the name of a directory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Final

from lsm.errors import ConflictError, InvalidInputError

_NAMES_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedDirectories:
    """Names of tables and of their directories, in one database."""

    listed: frozenset[str]  # the names that Java sees
    noted: Mapping[str, str]  # directory by the name of a table, where these differ

    @property
    def names(self) -> frozenset[str]:
        """All tables. A listed name whose directory is another table's is none: an engine found the files, no name."""
        return frozenset({*self.noted, *(name for name in self.listed if not self._is_lent(name))})

    def directory(self, name: str) -> str:
        """Name of the directory of a table, whether it exists or not: its own, or one beside it when that is lent."""
        if name in self.noted or not self._is_lent(name):
            return self.noted.get(name, name)
        taken = {*self.noted.values(), *self.names}
        return next(each for number in count(2) if (each := f"{name}-{number}") not in taken)

    def with_table(self, name: str, directory: str | None = None) -> "NamedDirectories":
        """With a table of this name, in a directory or, if none is given, its own; one that is there stays as it is."""
        return self if name in self.names else self._named(name, directory or self.directory(name))

    def without(self, directory: str) -> "NamedDirectories":
        """Without the table in a directory, whatever its name is by now; none is fine."""
        gone = {name for name in self.names if self.directory(name) == directory}
        noted = {name: each for name, each in self.noted.items() if name not in gone}
        return NamedDirectories(listed=self.listed - gone, noted=noted)._settled()

    def renamed(self, old: str, new: str, *, stays: bool) -> "NamedDirectories":
        """With another name for a table.

        Args:
            old: its name.
            new: one that no table has.
            stays: its directory does; else it gets the one that the new name has.

        Raises: InvalidInputError: no such table. ConflictError: the name is taken.
        """
        self._check(old)
        if new in self.names:
            raise ConflictError(f"name is taken in the database of the catalog: table={new}")
        directory = self.directory(old if stays else new)
        return self.without(self.directory(old))._named(new, directory)

    def swapped(self, one: str, other: str) -> "NamedDirectories":
        """With each other's names for two tables. Raises: InvalidInputError: no such table."""
        for name in (one, other):
            self._check(name)
        first, second = self.directory(one), self.directory(other)
        return self.without(first).without(second)._named(one, second)._named(other, first)

    def _check(self, name: str) -> None:
        if name not in self.names:
            raise InvalidInputError(f"no such table: table={name} tables={sorted(self.names)[:_NAMES_SHOWN]}")

    def _named(self, name: str, directory: str) -> "NamedDirectories":
        noted = {**self.noted} if directory == name else {**self.noted, name: directory}
        return NamedDirectories(listed=self.listed | {name}, noted=noted)._settled()

    def _settled(self) -> "NamedDirectories":
        listed = frozenset(name for name in self.names if not self._is_lent(name))
        return NamedDirectories(listed=listed, noted=self.noted)

    def _is_lent(self, name: str) -> bool:
        """Whether another table is in the directory of a name."""
        return name in self.noted.values()
