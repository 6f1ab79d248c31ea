"""``USE``, ``SET table-storage.*`` and ``RESET``."""

from collections.abc import Iterable

import pyarrow as pa

from engine.dialect.grammar.statements import ResetSetting, SetSetting, Use
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.results import DONE, texts_table
from engine.lineage.tables import DATABASE as LINEAGE_DATABASE
from filestore.catalog.catalog import DEFAULT_DATABASE
from filestore.layout.nearest_names import names_text
from filestore.options.secrets import without_secrets
from filestore.options.table_options import SESSION_PREFIX, canonical_options, check_option
from lsm.errors import InvalidInputError

_UNSET = "<undefined>"


def use(context: SqlContext, statement: Use) -> pa.Table:
    """Change the current database."""
    if statement.is_catalog or statement.name == (context.catalog_name,):
        name = ".".join(statement.name)
        if name != context.catalog_name:
            raise InvalidInputError(
                f"there is one catalog here: catalog={name} fix=use {context.catalog_name}, "
                "or name tables of other catalogs in full"
            )
        return DONE
    database = context.database_name(statement.name)
    databases = context.catalog.list_databases()
    if database not in (DEFAULT_DATABASE, LINEAGE_DATABASE, *databases):
        known = names_text("databases", database, databases)
        raise InvalidInputError(f"no such database: database={database} {known} fix=create it first")
    context.database = database
    return DONE


def set_setting(context: SqlContext, statement: SetSetting) -> pa.Table:
    """Set a default for tables created later, or show settings."""
    if statement.key is None:
        return _shown(context, context.settings)
    key = _canonical(statement.key)
    if statement.value is not None:
        check_option(key, statement.value)
        context.settings[key] = statement.value
    return _shown(context, [key])


def reset_setting(context: SqlContext, statement: ResetSetting) -> pa.Table:
    """Remove a setting, or all; Spark's own are left to Spark."""
    if statement.key is not None:
        context.settings.pop(_canonical(statement.key), None)
        return DONE
    context.settings.clear()
    if context.running_spark is not None:
        context.running_spark.sql("RESET")
    return DONE


def _canonical(key: str) -> str:
    return next(iter(canonical_options({key: ""})))


def _shown(context: SqlContext, keys: Iterable[str]) -> pa.Table:
    shown = without_secrets({key: context.settings.get(key, _UNSET) for key in keys})
    return texts_table(("key", "value"), [(SESSION_PREFIX + key, text) for key, text in shown.items()])
