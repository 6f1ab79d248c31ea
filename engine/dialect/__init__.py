"""SQL of Fluvial: parsed here by sqlglot; what is Spark's is handed to Spark."""

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
        text: statements with ``;`` between them.
        catalog: the catalog or the directory of its warehouse. Default: what ``spark.sql.catalog.fluvial.warehouse``
            of the session names.
        options: settings of this session, as ``SET table-storage.*`` makes them, without that prefix.

    Returns:
        the last statement's result; of a command without one a frame without columns.

    Raises:
        InvalidInputError: a statement is wrong; points at the place. Statements before it are done, and those that
            cannot be parsed are found before the first is run.
    """
    from engine.dialect.entry import run_text  # parsing is only loaded by those who use it

    return run_text(spark, text, catalog, options)
