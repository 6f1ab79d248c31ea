"""Fluvial's SQL: parsed by sqlglot; Spark's statements are passed to Spark."""

from typing import TYPE_CHECKING, overload

from engine.runtime.installed_pyspark import saying_that_spark_is_missing

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from engine.catalog import Catalog

__all__ = ["sql"]


@overload
def sql(spark: None, text: str, catalog: "Catalog | str", **options: str) -> "pa.Table": ...


@overload
def sql(spark: "SparkSession", text: str, catalog: "Catalog | str | None" = None, **options: str) -> "DataFrame": ...


def sql(
    spark: "SparkSession | None", text: str, catalog: "Catalog | str | None" = None, **options: str
) -> "DataFrame | pa.Table":
    """Run statements; Fluvial's own here, all others in Spark.

    ``USE`` and ``SET table-storage.*`` stay in force for later calls with the same session and catalog.

    Args:
        spark: the session. None: only statements that need no Spark can run (DDL, SHOW, DESCRIBE, CALL, ...).
        text: statements separated by ``;``.
        catalog: the catalog or the directory of its warehouse. Default: the session's
            ``spark.sql.catalog.fluvial.warehouse``.
        options: settings of this session, like ``SET table-storage.*``, without that prefix.

    Returns:
        The last statement's result; for a command without one, a frame without columns. Without Spark an Arrow table.

    Raises:
        InvalidInputError: a statement is wrong, or needs Spark and there is none; the message points at the position.
            Earlier statements are done; syntax errors are found before the first statement runs.
        ModuleNotFoundError: PySpark is not installed, whose types statements need also without a session.
    """
    with saying_that_spark_is_missing():
        from engine.dialect.entry import run_here, run_text  # loads the parser only when it is used

    if spark is None:
        return run_here(text, catalog, options)
    return run_text(spark, text, catalog, options)
