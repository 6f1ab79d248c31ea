"""Names of system tables: ``db.t$files``, ``db.t$branch_b$files``, ``sys.tables``, ``paimon.source_job_lineage``."""

from dataclasses import dataclass
from typing import Final, Protocol

from engine.lineage import tables as lineage
from filestore.catalog.catalog import DEFAULT_DATABASE
from filestore.layout.branch_names import BRANCH_NAME_PREFIX, SEPARATOR, on_branch_name
from filestore.layout.paths import MAIN_BRANCH
from lsm.errors import InvalidInputError
from lsm.nearest_names import did_you_mean

AUDIT_LOG: Final = "audit_log"
BINLOG: Final = "binlog"
READ_OPTIMIZED: Final = "ro"
ROW_TRACKING: Final = "row_tracking"
ROW_TABLES: Final = (AUDIT_LOG, BINLOG, READ_OPTIMIZED, ROW_TRACKING)
"""System tables with the table's own rows."""
CHANGE_TABLES: Final = (AUDIT_LOG, BINLOG)
"""Those with the kind of each row, which can be streamed."""
SYSTEM_DATABASE: Final = "sys"
"""Its tables cover all tables of a catalog."""
CATALOG_TABLES: Final = ("tables", "partitions", "all_table_options", "catalog_options")
LINEAGE_TABLES: Final = tuple(lineage.LINEAGE_SCHEMAS)
"""Tables of database ``paimon``; tables of ``sys`` take precedence where names are the same."""
CATALOG_DATABASES: Final = {
    SYSTEM_DATABASE: tuple(dict.fromkeys((*CATALOG_TABLES, *LINEAGE_TABLES))),
    lineage.DATABASE: LINEAGE_TABLES,
}
"""Databases of every catalog, and their tables. A user's table takes precedence over one of ``paimon``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemName:
    """The parts of a system table's name."""

    table: str | None  # "db.t"; None: the catalog itself
    branch: str = MAIN_BRANCH
    system: str  # "files"
    database: str = SYSTEM_DATABASE  # of a table of the catalog

    @property
    def is_lineage(self) -> bool:
        """Whether it is a table of lineage."""
        of_paimon = self.database == lineage.DATABASE or self.system not in CATALOG_TABLES
        return self.table is None and of_paimon

    def __str__(self) -> str:
        if self.table is None:
            return f"{self.database}.{self.system}"
        return f"{on_branch_name(self.table, self.branch)}{SEPARATOR}{self.system}"


class HasDatabases(Protocol):
    """The part of a catalog that names of databases need."""

    def list_databases(self) -> list[str]:
        """Names of the users' databases."""


def has_database(catalog: HasDatabases, name: str) -> bool:
    """Whether there is a database of this name, a user's or one that every catalog has."""
    return name in CATALOG_DATABASES or name in catalog.list_databases()


def has_namespace(catalog: HasDatabases, name: str) -> bool:
    """Whether Spark finds a database of this name: one that there is, or the one that a session begins in."""
    return name == DEFAULT_DATABASE or has_database(catalog, name)


def is_system_name(name: str) -> bool:
    """Whether a name has the form of a system table, valid or not; ``db.t$branch_b`` does not."""
    database, _, table = name.partition(".")
    if table in CATALOG_DATABASES.get(database, ()):
        return True
    marked = name.split(SEPARATOR)[1:]
    return bool(marked) and not (len(marked) == 1 and marked[0].startswith(BRANCH_NAME_PREFIX))


class HasTables(Protocol):
    """The part of a catalog that names need."""

    def table_exists(self, name: str) -> bool:
        """Whether the table ``database.table`` exists."""


def is_system_table(catalog: HasTables, name: str) -> bool:
    """Whether a name is a system table in this catalog: an older catalog may have a user's database ``paimon``."""
    is_users = name.startswith(f"{lineage.DATABASE}.") and SEPARATOR not in name
    return is_system_name(name) and not (is_users and catalog.table_exists(name))


def parse_system_name(name: str) -> SystemName:
    """Parse the name of a system table.

    Raises:
        InvalidInputError: the system table is unknown; names the nearest and all known ones.
    """
    database, _, table = name.partition(".")
    if database in CATALOG_DATABASES and SEPARATOR not in name:
        return SystemName(table=None, system=_known(table, CATALOG_DATABASES[database], name), database=database)
    base, *marked = name.split(SEPARATOR)
    branch = MAIN_BRANCH
    if len(marked) > 1 and marked[0].startswith(BRANCH_NAME_PREFIX):
        branch = marked.pop(0).removeprefix(BRANCH_NAME_PREFIX)
    if len(marked) != 1:
        raise InvalidInputError(
            f"not the name of a system table: name={name} fix='write db.table$name or db.table$branch_b$name'"
        )
    from filestore.system_tables import SYSTEM_TABLES

    return SystemName(table=base, branch=branch, system=_known(marked[0], (*SYSTEM_TABLES, *ROW_TABLES), name))


def _known(system: str, names: tuple[str, ...], given: str) -> str:
    if system in names:
        return system
    hint = did_you_mean(system, names)
    raise InvalidInputError(
        f"no such system table: name={given} system={system}{hint} known={', '.join(sorted(names))}"
    )
