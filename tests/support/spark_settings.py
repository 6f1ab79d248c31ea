"""Settings of the one Spark session, given back as they were found."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession


@contextmanager
def spark_setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    """For a while. Unsetting alone would leave Spark's default where the session had a value of its own."""
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)
