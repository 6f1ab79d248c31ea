"""System tables as Spark frames."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from engine.read.frames import table_frame
from engine.spark_internals.session import arrow_frame
from engine.system_tables.catalog_tables import Tables
from engine.system_tables.names import CATALOG_DATABASES, CHANGE_TABLES, ROW_TABLES
from engine.system_tables.read import SystemRead, open_system
from engine.system_tables.row_tables import ROW_KIND, open_row_table
from engine.types.quoting import quoted
from engine.types.rows import ROW_KIND_COLUMN
from engine.types.spark_arrow import to_spark_batch
from engine.types.spark_types import spark_schema
from filestore.predicate.predicate import Predicate


def system_frame(
    spark: SparkSession,
    catalog: Any,
    table_name: str,
    system_name: str,
    options: Mapping[str, str] | None = None,
    filter: Predicate | None = None,
) -> DataFrame:
    """A system table as a frame.

    Args:
        spark: the session.
        catalog: an ``engine.Catalog``, or an object with one as ``catalog`` (the context of SQL statements).
        table_name: ``db.t`` or ``db.t$branch_b``; ``sys`` or ``paimon`` for the tables of the catalog.
        system_name: ``files``.
        options: see ``open_system``.
        filter: the statement's own filter; tables of lineage apply it.

    Raises:
        InvalidInputError: no such table, branch, system table or option; no such snapshot.
    """
    tables: Tables = getattr(catalog, "catalog", catalog)
    mark = "." if table_name in CATALOG_DATABASES else "$"
    return system_table_frame(spark, open_system(tables, f"{table_name}{mark}{system_name}", options), filter)


def system_table_frame(spark: SparkSession, read: SystemRead, filter: Predicate | None = None) -> DataFrame:
    """The frame of an opened system table: the table's own rows are read by tasks, all others immediately."""
    if read.name.table is None or read.name.system not in ROW_TABLES:
        rows = read.to_arrow(filter=filter if read.name.is_lineage else None)
        batches = [to_spark_batch(batch) for batch in rows.to_batches()]
        schema = spark_schema(read.table_schema.fields)
        if not batches:
            return spark.createDataFrame([], schema)
        return arrow_frame(spark, pa.Table.from_batches(batches), schema)
    opened = open_row_table(read.files, read.name.system, read.given, None)
    has_kinds = read.name.system in CHANGE_TABLES
    constants = {ROW_KIND_COLUMN: pa.scalar("+I")} if has_kinds else {}
    frame = table_frame(spark, opened.plan, constants=constants)
    if not has_kinds:
        return frame
    columns = [F.col(quoted(each)) for each in frame.columns if each != ROW_KIND_COLUMN]
    names = [each for each in frame.columns if each != ROW_KIND_COLUMN]
    if opened.is_packed:
        columns = [F.array(column).alias(name) for column, name in zip(columns, names, strict=True)]
    return frame.select(F.col(ROW_KIND_COLUMN).alias(ROW_KIND), *columns)
