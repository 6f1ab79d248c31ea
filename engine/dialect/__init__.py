"""Fluvial's SQL: parsed by sqlglot; Spark's statements are passed to Spark."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from engine.catalog import Catalog

__all__ = ["sql"]


def sql(spark: "SparkSession", text: str, catalog: "Catalog | str | None" = None, **options: str) -> "DataFrame":
    """Run statements; Fluvial's own here, all others in Spark.

    ``USE`` and ``SET table-storage.*`` stay in force for later calls with the same session and catalog.

    Args:
        spark: the session.
        text: statements separated by ``;``.
        catalog: the catalog or the directory of its warehouse. Default: the session's
            ``spark.sql.catalog.fluvial.warehouse``.
        options: settings of this session, like ``SET table-storage.*``, without that prefix.

    Returns:
        The last statement's result; for a command without one, a frame without columns.

    Raises:
        InvalidInputError: a statement is wrong; the message points at the position. Earlier statements are done;
            syntax errors are found before the first statement runs.
    """
    from engine.dialect.entry import run_text  # loads the parser only when it is used

    return run_text(spark, text, catalog, options)
