"""Tables read through Spark's data source."""

from pyspark.sql import DataFrame, SparkSession

from engine import Table


def by_format(spark: SparkSession, table: Table, **options: str) -> DataFrame:
    """The rows of a table by ``spark.read.format("fluvial")``."""
    warehouse = table.store.paths.root.rsplit("/", 2)[0]
    return spark.read.format("fluvial").options(warehouse=warehouse, table=table.name, **options).load()
