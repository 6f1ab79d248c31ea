"""Fluvial's public names: tables, SQL, the streaming sink, Spark sessions, changes of a schema, metrics, errors.

Each is loaded at first use, so a program that does not use Spark does not import it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from engine.runtime.installed_pyspark import saying_that_spark_is_missing

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
    from filestore.evolution.schema_change import (
        AddColumn,
        ChangeComment,
        ChangeDefault,
        ChangeNullability,
        ChangeType,
        DropColumn,
        MoveColumn,
        RemoveOption,
        RenameColumn,
        SetComment,
        SetOption,
    )
    from filestore.types.data_types import DataType
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
    "AddColumn",
    "Branches",
    "Catalog",
    "ChangeComment",
    "ChangeDefault",
    "ChangeNullability",
    "ChangeType",
    "CommittedError",
    "ConflictError",
    "CorruptDataError",
    "DataType",
    "DropColumn",
    "ExpectationError",
    "FluvialError",
    "InvalidInputError",
    "LineageListener",
    "MetricsListener",
    "MissingTopicError",
    "MoveColumn",
    "OpenTransactionError",
    "OutcomeUnknownError",
    "OverloadedError",
    "RemoveOption",
    "RenameColumn",
    "Savepoints",
    "SetComment",
    "SetOption",
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

_NAMES: Final = {
    "engine.catalog": ("Catalog",),
    "engine.deploy.lineage_listener": ("LineageListener",),
    "engine.dialect": ("sql",),
    "engine.dialect.spark_sql.install": ("install", "session", "uninstall"),
    "engine.lineage.lineage": ("lineage_of",),
    "engine.monitor.metrics_listener": ("MetricsListener",),
    "engine.monitor.table_metrics": ("watch_tables",),
    "engine.procedures.validation": ("validate",),
    "engine.runtime.metrics": ("metrics_file", "metrics_registry", "metrics_text", "serve_metrics"),
    "engine.table": ("Table",),
    "engine.table_versions": ("Branches", "Savepoints", "Tags"),
    "engine.versions.expectations": ("ExpectationError",),
    "engine.write.sink": ("sink",),
    "filestore.evolution.schema_change": (
        "AddColumn",
        "ChangeComment",
        "ChangeDefault",
        "ChangeNullability",
        "ChangeType",
        "DropColumn",
        "MoveColumn",
        "RemoveOption",
        "RenameColumn",
        "SetComment",
        "SetOption",
    ),
    "filestore.types.data_types": ("DataType",),
    "lsm.errors": (
        "CommittedError",
        "ConflictError",
        "CorruptDataError",
        "FluvialError",
        "InvalidInputError",
        "MissingTopicError",
        "OpenTransactionError",
        "OutcomeUnknownError",
        "OverloadedError",
        "TakenOverError",
        "UnavailableError",
    ),
}
_HOME: Final = {name: home for home, names in _NAMES.items() for name in names}
_NAME_AT_HOME: Final = {"metrics_registry": "REGISTRY", "session": "session_with_catalogs"}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with saying_that_spark_is_missing():
        module = import_module(_HOME[name])
    return getattr(module, _NAME_AT_HOME.get(name, name))
