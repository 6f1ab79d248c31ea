"""Plain Spark SQL, run unchanged on Fluvial, gives what Delta gave."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import engine
from engine import Catalog
from tests.peers.notebook import NOTEBOOK, run_notebook

DELTA = NOTEBOOK.with_name("notebook-delta.json")


@pytest.mark.sweep
def test_a_notebook_gives_the_results_of_delta(spark: SparkSession, tmp_path: Path) -> None:
    """Issue 19, "what it must show": columns, types and rows of every query; Delta's are a golden file."""
    engine.install(spark, Catalog(str(tmp_path)), name="lake")
    try:
        spark.sql("CREATE DATABASE lake.shop")
        spark.sql("USE lake.shop")
        found = run_notebook(spark)
    finally:
        spark.sql("USE spark_catalog.default")
        spark.catalog.dropTempView("news")
        engine.uninstall(spark, "lake")
    expected = json.loads(DELTA.read_text(encoding="utf-8"))
    assert [each["query"] for each in found] == [each["query"] for each in expected], "renew the golden file"
    assert found == expected
