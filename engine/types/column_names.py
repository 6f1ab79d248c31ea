"""Names of columns, tables and databases in statements: whether their case counts is what the session says."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from filestore.options.parsing import boolean
from filestore.types.data_types import DataField, walk
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASE_KEY: Final = "spark.sql.caseSensitive"


class SpelledNames(Protocol):
    """The names in a catalog."""

    def list_databases(self) -> list[str]:
        """Names of the databases."""
        ...

    def list_tables(self, database: str) -> list[str]:
        """Names of a database's tables."""
        ...

    def table_exists(self, name: str) -> bool:
        """Whether there is a table ``database.table``. Raises: InvalidInputError: no table has such a name."""
        ...


@dataclass(frozen=True, slots=True)
class CaseRule:
    """When two names are one."""

    is_case_sensitive: bool = False

    @classmethod
    def of(cls, spark: "SparkSession | None") -> "CaseRule":
        """What a session says now; without one as Spark does by itself: case does not count."""
        return cls(spark is not None and boolean(str(spark.conf.get(CASE_KEY, "false"))))

    def folded(self, name: str) -> str:
        """What is equal for names that are one."""
        return name if self.is_case_sensitive else name.lower()

    def finder(self, names: Iterable[str]) -> Callable[[str], str | None]:
        """For each name the one of ``names`` that is meant, as ``found``; for many of them."""
        alike: dict[str, list[str]] = {}
        for each in names:
            alike.setdefault(self.folded(each), []).append(each)

        def found(name: str) -> str | None:
            near = alike.get(self.folded(name), [])
            return name if name in near else near[0] if len(near) == 1 else None

        return found

    def found(self, name: str, names: Iterable[str]) -> str | None:
        """The one of ``names`` that is meant: the same one, else the only one that differs in case; None: none."""
        return self.finder(names)(name)

    def meant(self, name: str, names: Iterable[str]) -> str:
        """As ``found``; the name itself if it is none of them."""
        return self.found(name, names) or name

    def table(self, name: str, catalog: SpelledNames) -> str:
        """``database.table``, maybe with ``$system`` behind it, as the catalog spells it; as given if it is none."""
        database, _, table = name.partition(".")
        base, mark, rest = table.partition("$")
        if self.is_case_sensitive or _is_there(f"{database}.{base}", catalog):
            return name
        database = self.database(database, catalog)
        if database in catalog.list_databases():
            base = self.meant(base, catalog.list_tables(database))
        return f"{database}.{base}{mark}{rest}"

    def database(self, name: str, catalog: SpelledNames) -> str:
        """A database as the catalog spells it; as given if there is none."""
        return name if self.is_case_sensitive else self.meant(name, catalog.list_databases())

    def as_spelled(self, given: Sequence[str], own: Sequence[str]) -> list[str]:
        """Names of columns that are written as the table spells them; others stay.

        Args:
            given: columns of the rows.
            own: what the table has, and what may stand beside its columns.

        Raises:
            InvalidInputError: two of them are one column.
        """
        found = self.finder(own)
        spelled = [found(name) or name for name in given]
        counts = Counter(spelled)
        doubled = next((name for name in spelled if counts[name] > 1), None) if spelled != [*given] else None
        if doubled is not None:
            both = [name for name, meant in zip(given, spelled, strict=True) if meant == doubled]
            raise InvalidInputError(
                f"two columns of the rows are one of the table: columns={both} column={doubled} fix='drop one of them'"
            )
        known = frozenset(own)
        self.check_distinct([name for name in spelled if name not in known], "the rows")
        return spelled

    def check_distinct(self, names: Sequence[str], what: str) -> None:
        """Refuse two names that are one.

        Args:
            names: columns, in order.
            what: for the message, such as "the columns to fill".

        Raises:
            InvalidInputError: names both.
        """
        first: dict[str, str] = {}
        for name in names:
            before = first.setdefault(self.folded(name), name)
            if name != before:
                raise InvalidInputError(
                    f"a column is named twice in {what}, because case does not count: columns={[before, name]} "
                    f"fix='rename one of them, or let case count: {CASE_KEY}=true, in Python case_sensitive=True'"
                )
        if len(first) < len(names):
            doubled = next(name for index, name in enumerate(names) if name in names[:index])
            raise InvalidInputError(f"a column is named twice in {what}: column={doubled}")

    def check_fields(self, fields: Sequence[DataField], others: Sequence[str] = ()) -> None:
        """Refuse columns, or fields inside one, whose names are one; ``others``: more names beside the columns.

        Raises:
            InvalidInputError: names both.
        """
        self.check_distinct([*(field.name for field in fields), *others], "the columns of the table")
        for field in fields:
            for part in walk(field.type):
                self.check_distinct([inner.name for inner in part.fields], f"the fields of {field.name}")


def _is_there(name: str, catalog: SpelledNames) -> bool:
    try:
        return catalog.table_exists(name)
    except InvalidInputError:  # not a name that a table can have
        return False
