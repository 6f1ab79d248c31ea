"""Fluvial's public names: tables, SQL, the streaming sink, and a Spark session that suits them.

Each is loaded at first use, so a program that needs no Spark does not import it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from engine.catalog import Catalog
    from engine.dialect import sql
    from engine.spark.session import session
    from engine.table import Table
    from engine.write.sink import sink

__all__ = ["Catalog", "Table", "session", "sink", "sql"]

_HOME: Final = {
    "Catalog": "engine.catalog",
    "Table": "engine.table",
    "session": "engine.spark.session",
    "sink": "engine.write.sink",
    "sql": "engine.dialect",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
