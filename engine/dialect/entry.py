"""The function ``engine.sql``: one ``SqlSession`` for each Spark session and catalog."""

from collections.abc import Mapping
from typing import Final, NoReturn
from weakref import WeakKeyDictionary

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from engine.catalog import Catalog
from engine.dialect.scope.context import CATALOG_NAME, SqlContext
from engine.dialect.scope.results import DONE
from engine.dialect.session import SqlResult, SqlSession
from engine.spark_internals.session import small_frame
from filestore.options.table_options import canonical_options, check_option
from lsm.errors import InvalidInputError

_PREFIX: Final = "spark.sql.catalog."
CATALOG_PREFIX: Final = f"{_PREFIX}{CATALOG_NAME}."
WAREHOUSE_CONF: Final = f"{CATALOG_PREFIX}warehouse"

_SHOWN_LENGTH: Final = 80  # characters of a statement in a message

_without_spark: Final[dict[Catalog | str, SqlSession]] = {}
_sessions: Final[WeakKeyDictionary[SparkSession, dict[object, SqlSession]]] = WeakKeyDictionary()


def run_text(spark: SparkSession, text: str, catalog: Catalog | str | None, options: Mapping[str, str]) -> DataFrame:
    """See ``engine.sql``."""
    return frame_of(spark, _last(sql_session(spark, catalog), text, options))


def run_here(text: str, catalog: Catalog | str | None, options: Mapping[str, str]) -> pa.Table:
    """See ``engine.sql`` without Spark."""
    if catalog is None:
        raise InvalidInputError("no catalog: fix=give catalog=Catalog(...), or a Spark session that names one")
    if catalog not in _without_spark:
        opened = catalog if isinstance(catalog, Catalog) else Catalog(catalog)
        context = SqlContext(catalog=opened, open_spark=lambda: _no_spark(context))
        _without_spark[catalog] = SqlSession(context)
    table = _last(_without_spark[catalog], text, options).table
    return DONE if table is None else table


def _last(session: SqlSession, text: str, options: Mapping[str, str]) -> SqlResult:
    """The result of the last statement, after settings were made."""
    for key, value in canonical_options(options).items():
        check_option(key, value)
        session.context.settings[key] = value
    results = session.execute(text)
    return results[-1] if results else SqlResult()


def _no_spark(context: SqlContext) -> NoReturn:
    words = " ".join(context.statement.split())
    shown = words if len(words) <= _SHOWN_LENGTH else f"{words[:_SHOWN_LENGTH]}..."
    raise InvalidInputError(
        f"this statement needs Spark: statement={shown!r} fix='give a session: fluvial.sql(fluvial.session(), ...)'"
    )


def sql_session(spark: SparkSession, catalog: Catalog | str | None = None) -> SqlSession:
    """The cached session of a Spark session and a catalog.

    Raises:
        InvalidInputError: no catalog is given, and the Spark session has none.
    """
    place: object = catalog
    if catalog is None:
        place = _configured(spark)
    sessions = _sessions.setdefault(spark, {})
    if place not in sessions:
        opened = _opened(spark, catalog)
        context = SqlContext(catalog=opened, open_spark=lambda: spark)
        assert context.spark is spark  # it runs already
        sessions[place] = SqlSession(context)
    return sessions[place]


def frame_of(spark: SparkSession, result: SqlResult) -> DataFrame:
    """A result as a frame."""
    if result.frame is not None:
        return result.frame
    if result.table is None or not result.table.num_columns:
        return spark.createDataFrame([], StructType([]))
    return small_frame(spark, result.table)


def configured_catalog(spark: SparkSession, name: str = CATALOG_NAME) -> Catalog:
    """The catalog that the settings of a session describe. Raises: InvalidInputError: they name no warehouse."""
    warehouse, options = _configured(spark, name)
    return Catalog(warehouse, options=dict(options))


def _opened(spark: SparkSession, catalog: Catalog | str | None) -> Catalog:
    if isinstance(catalog, Catalog):
        return catalog
    if isinstance(catalog, str):
        return Catalog(catalog)
    return configured_catalog(spark)


def _configured(spark: SparkSession, name: str = CATALOG_NAME) -> tuple[str, tuple[tuple[str, str], ...]]:
    prefix = f"{_PREFIX}{name}."
    settings = {key.removeprefix(prefix): value for key, value in spark.conf.getAll.items() if key.startswith(prefix)}
    warehouse = settings.pop("warehouse", None)
    if warehouse is None:
        raise InvalidInputError(
            f"no catalog: fix=give catalog=Catalog(...), or set {prefix}warehouse in the Spark session"
        )
    return warehouse, tuple(sorted(settings.items()))
