"""``USE``, ``SET table-storage.*`` and ``RESET``."""

from collections.abc import Iterable

import pyarrow as pa

from engine.dialect.grammar.statements import ResetSetting, SetSetting, Use
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.results import DONE, texts_table
from engine.lineage.origins import JOB_KEY
from engine.system_tables.names import has_database
from filestore.catalog.catalog import DEFAULT_DATABASE
from filestore.options.secrets import without_secrets
from filestore.options.table_options import SESSION_PREFIX, TableOptions, canonical_options, check_option
from filestore.options.tag_schedule import check_periods
from lsm.errors import InvalidInputError
from lsm.nearest_names import names_text

_UNSET = "<undefined>"
_SPARKS = "spark."
_RUNTIME_MODE, _BATCH = "execution.runtime-mode", "batch"  # Flink's


def use(context: SqlContext, statement: Use) -> pa.Table:
    """Change the current database."""
    if statement.is_catalog or statement.name == (context.catalog_name,):
        name = ".".join(statement.name)
        if name != context.catalog_name:
            raise InvalidInputError(
                f"there is one catalog here: catalog={name} fix=use {context.catalog_name}, "
                "or name tables of other catalogs in full"
            )
        if context.is_sparks_own:
            context.spark.catalog.setCurrentCatalog(name)
        return DONE
    database = context.database_name(statement.name)
    if database != DEFAULT_DATABASE and not has_database(context.catalog, database):
        known = names_text("databases", database, context.catalog.list_databases())
        raise InvalidInputError(f"no such database: database={database} {known} fix=create it first")
    context.database = database
    return DONE


def set_setting(context: SqlContext, statement: SetSetting) -> pa.Table:
    """Set a default for tables created later, or one of Spark's, or show settings."""
    if statement.key is None:
        return _shown(context, context.settings)
    if statement.is_sparks:
        return _set_sparks(context, statement.key, statement.value)
    ((key, value),) = canonical_options({statement.key: statement.value or ""}).items()
    if statement.value is not None:
        check_option(key, value)
        check_periods(TableOptions({key: value}), [key])
        context.settings[key] = value
    return _shown(context, [key])


def reset_setting(context: SqlContext, statement: ResetSetting) -> pa.Table:
    """Remove a setting, or all; Spark's own are left to Spark."""
    if statement.is_sparks and statement.key is not None:
        context.spark.conf.unset(_sparks(statement.key))
        return DONE
    if statement.key is not None:
        context.settings.pop(_canonical(statement.key), None)
        return DONE
    context.settings.clear()
    if context.running_spark is not None:
        context.running_spark.sql("RESET")
    return DONE


def _set_sparks(context: SqlContext, key: str, value: str | None) -> pa.Table:
    """Set or show a setting of Spark, whose key was written in quotes."""
    if key == _RUNTIME_MODE and value is not None:
        if value.lower() == _BATCH:
            return texts_table(("key", "value"), [(key, value)])
        raise InvalidInputError(
            f"a statement reads and writes a state, it does not follow a table: option={key} value={value} "
            "fix='leave it out, and start a stream by readStream, Table.stream or a job file'"
        )
    conf = context.spark.conf
    if value is not None:
        conf.set(_sparks(key), value)
    return texts_table(("key", "value"), [(key, str(conf.get(_sparks(key), _UNSET)))])


def _sparks(key: str) -> str:
    if key.startswith(_SPARKS) or key == JOB_KEY:
        return key
    raise InvalidInputError(
        f"no setting of a session: option={key} known='{SESSION_PREFIX}* (of new tables), {_SPARKS}*, {JOB_KEY}' "
        "fix='options of one table are set with WITH (...), ALTER TABLE ... SET (...) or a hint'"
    )


def _canonical(key: str) -> str:
    return next(iter(canonical_options({key: ""})))


def _shown(context: SqlContext, keys: Iterable[str]) -> pa.Table:
    shown = without_secrets({key: context.settings.get(key, _UNSET) for key in keys})
    return texts_table(("key", "value"), [(SESSION_PREFIX + key, text) for key, text in shown.items()])
