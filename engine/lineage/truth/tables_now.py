"""The tables that a catalog has now, with their branches: what rows of lineage can be about."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Protocol

from engine.lineage.settings import OpenCatalog
from filestore.catalog.table_names import all_tables
from filestore.layout.branch_names import on_branch_name, split_branch
from filestore.layout.branch_state import creation_id, is_hidden, main_branch, read_origin
from filestore.layout.former_mains import FormerMain, former_mains
from filestore.layout.paths import MAIN_BRANCH
from filestore.refs.live_references import branch_names
from filestore.snapshot.snapshot import FIRST_SNAPSHOT_ID
from filestore.table_store import TableStore
from lsm.errors import FluvialError

logger = logging.getLogger("fluvial.lineage")

DROPPED: Final = "$dropped_"
"""Suffix of the name of a dropped table, if another table has its name."""
_ID_CHARS: Final = 8


class OpenedTable(Protocol):
    """The part of a table that lineage needs."""

    @property
    def store(self) -> TableStore:
        """The files of the table."""


class ListedTables(OpenCatalog, Protocol):
    """A catalog that can list and open its tables."""

    def list_tables(self, database: str) -> list[str]:
        """Names of a database's tables."""

    def table(self, name: str) -> OpenedTable:
        """Open ``database.table``, or ``database.table$branch_b``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableNow:
    """A table, or a branch of one, as it is found."""

    name: str
    store: TableStore
    table_id: str
    first_id: int = FIRST_SNAPSHOT_ID  # of a branch the first that was written to it: those before are main's
    other_ids: frozenset[str] = frozenset()  # under which its writers may know it: of the branch that became main

    @property
    def ids(self) -> frozenset[str]:
        """All of them."""
        return self.other_ids | {self.table_id}


@dataclass(frozen=True, kw_only=True)
class TablesNow:
    """All tables of a catalog."""

    tables: tuple[TableNow, ...]
    unreadable: frozenset[str] = frozenset()
    """Tables that cannot be opened, and databases that cannot be listed: nothing is known of them."""

    @classmethod
    def of(cls, catalog: ListedTables) -> "TablesNow":
        """Open every table and branch; those that cannot be opened are logged."""
        found: list[TableNow] = []
        problems: dict[str, str] = {}
        for database, table in all_tables(catalog, problems):
            name = f"{database}.{table}"
            try:
                found += list(_with_branches(catalog, catalog.table(name).store))
            except (FluvialError, OSError) as error:
                problems[name] = str(error)
        for name, problem in problems.items():
            logger.warning("lineage of a table cannot be checked: table=%s error=%s", name, problem)
        return cls(tables=tuple(found), unreadable=frozenset(problems))

    @cached_property
    def by_name(self) -> dict[str, TableNow]:
        """Each under its name."""
        return {each.name: each for each in self.tables}

    def name_of(self, name: str, given_id: str) -> str:
        """What the table is called now that was called so.

        Args:
            name: when the row was recorded, or as returned before.
            given_id: of the table; "": not known, then it is the one of this name.

        Returns:
            For a dropped table its last name; if another table has that name, ``db.t$dropped_`` and the id.
        """
        here = self.by_name.get(name)
        if not given_id or self.is_unreadable(name) or (here is not None and given_id in here.ids):
            return name
        renamed = self._by_id.get(given_id)
        if renamed is not None:
            return renamed.name
        former = name.partition(DROPPED)[0]
        return former if former not in self.by_name else f"{former}{DROPPED}{given_id.rpartition('/')[2][:_ID_CHARS]}"

    def is_unreadable(self, name: str) -> bool:
        """Whether nothing is known of a table, or of its branches."""
        table, _ = split_branch(name)
        return table in self.unreadable or table.partition(".")[0] in self.unreadable

    @cached_property
    def _by_id(self) -> dict[str, TableNow]:
        return {given: each for each in self.tables for given in each.ids if given}


def _with_branches(catalog: ListedTables, store: TableStore) -> Iterator[TableNow]:
    main = main_branch(store.io, store.paths.root)
    # a branch that has the name of one that became main is looked up first, see ``_by_id``
    former = {*former_mains(store.io, store.paths.root)}
    if main != MAIN_BRANCH:
        former.add(FormerMain(main, creation_id(store.io, store.paths.with_branch(main))))
    other_ids = frozenset(map(store.table_id_of, former))
    yield TableNow(name=store.name, store=store, table_id=store.table_id(), other_ids=other_ids)
    for branch in branch_names(store):
        if branch in (MAIN_BRANCH, main) or is_hidden(store.io, store.paths.with_branch(branch)):
            continue
        name = on_branch_name(store.name, branch)
        try:
            opened = catalog.table(name).store
        except (FluvialError, OSError):  # deleted meanwhile, or left by a process that died
            continue
        origin = read_origin(opened.io, opened.paths)
        before_id = 0 if origin is None else origin.snapshot_id or 0
        yield TableNow(name=name, store=opened, table_id=opened.table_id(), first_id=before_id + 1)
