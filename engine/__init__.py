"""Fluvial's public names: tables, SQL, the streaming sink, and a Spark session that suits them.

Each is loaded when it is asked for, so that whoever needs no Spark does not wait for it.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine.catalog import Catalog
    from engine.session import session
    from engine.sink import sink
    from engine.sql import sql
    from engine.table import Table

__all__ = ["Catalog", "Table", "session", "sink", "sql"]


def _later(module: str, name: str) -> property:
    def found(_package: ModuleType) -> Any:
        return getattr(import_module(module), name)

    def kept(_package: ModuleType, _submodule: ModuleType) -> None:
        """Importing ``engine.sql`` does not put the module in the place of the function."""

    return property(found, kept)


class _Package(ModuleType):
    Catalog = _later("engine.catalog", "Catalog")
    Table = _later("engine.table", "Table")
    session = _later("engine.session", "session")
    sink = _later("engine.sink", "sink")
    sql = _later("engine.sql", "sql")


sys.modules[__name__].__class__ = _Package
