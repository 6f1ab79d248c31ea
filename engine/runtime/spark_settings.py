"""Settings of a Spark session for a while, given back as they were found."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def spark_setting(spark: "SparkSession", key: str, value: str) -> Iterator[None]:
    """Set a setting inside a block. Unsetting alone would leave Spark's default where the session had its own value."""
    before = spark.conf.get(key, None)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(key)
        else:
            spark.conf.set(key, before)
