"""Which store of lineage ``lineage-meta`` names. Source: LN-47, LN-53, LN-65."""

from functools import cache
from importlib.metadata import entry_points
from typing import Final

from engine.lineage.store.store import JDBC, LineageMetaFactory
from lsm.errors import InvalidInputError

FACTORY_ENTRY_POINTS: Final = "fluvial.lineage"


@cache
def find_factory(identifier: str) -> LineageMetaFactory:
    """The factory of a kind of store: ours, or one that an installed package names in ``fluvial.lineage``.

    Raises:
        InvalidInputError: there is none of this name.
    """
    if identifier == JDBC:
        from engine.lineage.store.jdbc import JdbcLineageMetaFactory  # SQLAlchemy takes its time to import

        return JdbcLineageMetaFactory()
    others = {each.name: each for each in entry_points(group=FACTORY_ENTRY_POINTS)}
    if identifier not in others:
        raise InvalidInputError(
            f"no such store of lineage: lineage-meta={identifier} known={sorted({JDBC, *others})} "
            f"fix='install the package that has it: it names it in the entry points {FACTORY_ENTRY_POINTS}'"
        )
    factory: LineageMetaFactory = others[identifier].load()()
    return factory
