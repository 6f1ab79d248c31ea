"""Plain Spark SQL, run unchanged on Fluvial and on Delta, gives the same."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import engine
from engine import Catalog
from tests.peers.delta import delta_notebook
from tests.peers.notebook import run_notebook


@pytest.mark.sweep
@pytest.mark.timeout(900)  # two Sparks, one after the other
def test_a_notebook_gives_the_results_of_delta(spark: SparkSession, tmp_path: Path) -> None:
    """Issue 19, "what it must show": columns, types and rows of every query. Issue 24, 1: CHANGES too."""
    engine.install(spark, Catalog(str(tmp_path / "warehouse")), name="lake")
    try:
        spark.sql("CREATE DATABASE lake.shop")
        spark.sql("USE lake.shop")
        found = run_notebook(spark)
    finally:
        spark.sql("USE spark_catalog.default")
        spark.catalog.dropTempView("news")
        engine.uninstall(spark, "lake")
    assert len(found) > 10
    assert found == delta_notebook(tmp_path)
