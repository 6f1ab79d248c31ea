"""A catalog in Spark's own SQL, for the tests of a module, in the one session of the run."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import engine
from engine import Catalog


@pytest.fixture(scope="module")
def shop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Catalog]:
    """``fluvial.shop`` with the table ``t``: rows 1 to 3, then 2 is changed."""
    catalog = Catalog(str(tmp_path_factory.mktemp("catalog")))
    engine.install(spark, catalog)
    spark.sql("CREATE DATABASE fluvial.shop")
    spark.sql("CREATE TABLE fluvial.shop.t (id BIGINT PRIMARY KEY NOT ENFORCED, v STRING) WITH ('bucket' = '1')")
    spark.sql("INSERT INTO fluvial.shop.t VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    spark.sql("UPDATE fluvial.shop.t SET v = 'z' WHERE id = 2")
    yield catalog
    engine.uninstall(spark)
