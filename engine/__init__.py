"""Fluvial's public names: tables, SQL, the streaming sink, Spark sessions, lineage, metrics, listeners, errors.

Each is loaded at first use, so a program that does not use Spark does not import it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from engine.runtime.installed_pyspark import missing_spark

if TYPE_CHECKING:
    from engine.catalog import Catalog
    from engine.deploy.lineage_listener import LineageListener
    from engine.dialect import sql
    from engine.dialect.spark_sql.install import install, uninstall
    from engine.dialect.spark_sql.install import session_with_catalogs as session
    from engine.lineage.lineage import lineage_of
    from engine.monitor.metrics_listener import MetricsListener
    from engine.monitor.table_metrics import watch_tables
    from engine.procedures.validation import validate
    from engine.runtime.metrics import REGISTRY as metrics_registry
    from engine.runtime.metrics import metrics_file, metrics_text, serve_metrics
    from engine.table import Table
    from engine.table_versions import Branches, Savepoints, Tags
    from engine.versions.expectations import ExpectationError
    from engine.write.sink import sink
    from lsm.errors import (
        CommittedError,
        ConflictError,
        CorruptDataError,
        FluvialError,
        InvalidInputError,
        MissingTopicError,
        OpenTransactionError,
        OutcomeUnknownError,
        OverloadedError,
        TakenOverError,
        UnavailableError,
    )

__all__ = [
    "Branches",
    "Catalog",
    "CommittedError",
    "ConflictError",
    "CorruptDataError",
    "ExpectationError",
    "FluvialError",
    "InvalidInputError",
    "LineageListener",
    "MetricsListener",
    "MissingTopicError",
    "OpenTransactionError",
    "OutcomeUnknownError",
    "OverloadedError",
    "Savepoints",
    "Table",
    "Tags",
    "TakenOverError",
    "UnavailableError",
    "install",
    "lineage_of",
    "metrics_file",
    "metrics_registry",
    "metrics_text",
    "serve_metrics",
    "session",
    "sink",
    "sql",
    "uninstall",
    "validate",
    "watch_tables",
]

_HOME: Final = {
    "Catalog": "engine.catalog",
    "LineageListener": "engine.deploy.lineage_listener",
    "MetricsListener": "engine.monitor.metrics_listener",
    "Table": "engine.table",
    "Branches": "engine.table_versions",
    "Savepoints": "engine.table_versions",
    "Tags": "engine.table_versions",
    "CommittedError": "lsm.errors",
    "ConflictError": "lsm.errors",
    "CorruptDataError": "lsm.errors",
    "FluvialError": "lsm.errors",
    "InvalidInputError": "lsm.errors",
    "MissingTopicError": "lsm.errors",
    "OpenTransactionError": "lsm.errors",
    "OutcomeUnknownError": "lsm.errors",
    "OverloadedError": "lsm.errors",
    "TakenOverError": "lsm.errors",
    "UnavailableError": "lsm.errors",
    "ExpectationError": "engine.versions.expectations",
    "lineage_of": "engine.lineage.lineage",
    "metrics_file": "engine.runtime.metrics",
    "metrics_registry": "engine.runtime.metrics",
    "metrics_text": "engine.runtime.metrics",
    "serve_metrics": "engine.runtime.metrics",
    "install": "engine.dialect.spark_sql.install",
    "session": "engine.dialect.spark_sql.install",
    "uninstall": "engine.dialect.spark_sql.install",
    "sink": "engine.write.sink",
    "sql": "engine.dialect",
    "validate": "engine.procedures.validation",
    "watch_tables": "engine.monitor.table_metrics",
}
_NAME_AT_HOME: Final = {"metrics_registry": "REGISTRY", "session": "session_with_catalogs"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(_HOME[name])
    except ModuleNotFoundError as error:
        if message := missing_spark(error):
            raise ModuleNotFoundError(message, name=error.name) from error
        raise
    return getattr(module, _NAME_AT_HOME.get(name, name))
