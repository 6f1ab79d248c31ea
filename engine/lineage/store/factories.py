"""The lineage store of the option ``lineage-meta``."""

from functools import cache
from importlib.metadata import entry_points
from typing import Final

from engine.lineage.store.store import JDBC, LineageMetaFactory
from lsm.errors import InvalidInputError

FACTORY_ENTRY_POINTS: Final = "fluvial.lineage"


@cache
def find_factory(identifier: str) -> LineageMetaFactory:
    """The factory of a kind of store: Fluvial's, or an entry point ``fluvial.lineage`` of an installed package.

    Raises:
        InvalidInputError: the identifier is unknown.
    """
    if identifier == JDBC:
        from engine.lineage.store.jdbc import JdbcLineageMetaFactory  # SQLAlchemy is slow to import

        return JdbcLineageMetaFactory()
    others = {each.name: each for each in entry_points(group=FACTORY_ENTRY_POINTS)}
    if identifier not in others:
        raise InvalidInputError(
            f"no such store of lineage: lineage-meta={identifier} known={sorted({JDBC, *others})} "
            f"fix='install a package with this entry point in {FACTORY_ENTRY_POINTS}'"
        )
    factory: LineageMetaFactory = others[identifier].load()()
    return factory
