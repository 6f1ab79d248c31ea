"""The Python on docs/spark-sql.md runs, in order."""

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import engine

PAGE = Path(__file__).resolve().parents[4] / "docs/spark-sql.md"


@pytest.mark.long
@pytest.mark.sweep
def test_the_page_is_true(spark: SparkSession, tmp_path: Path) -> None:
    """Issue 19, 1: what the page says of Spark's own SQL."""
    code = "\n".join(re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL))
    try:
        exec(compile(code, str(PAGE), "exec"), {"warehouse": str(tmp_path / "warehouse")})
    finally:
        spark.sql("USE spark_catalog.default")
        spark.sql("DROP VIEW IF EXISTS open_orders")
        spark.conf.unset("spark.sql.catalog.fluvial.warehouse")
        engine.uninstall(spark)
