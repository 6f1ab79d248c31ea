"""Plain Spark SQL, run unchanged on Fluvial and on Delta, gives the same; what Delta gives is recorded."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import engine
from engine import Catalog
from tests.peers.delta import RECORD, delta_notebook, delta_releases, recorded_notebook
from tests.peers.notebook import NOTEBOOK, run_notebook, statements


def test_the_recording_is_of_this_notebook_and_of_the_releases_in_use() -> None:
    recorded = recorded_notebook()
    again = f"record it again with `{RECORD}`"
    assert {name: recorded[name] for name in ("delta", "spark")} == delta_releases(), again
    written = statements(NOTEBOOK.read_text(encoding="utf-8"))
    assert [each["statement"] for each in recorded["statements"]] == written, again


@pytest.mark.soak
@pytest.mark.sweep
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
    assert len([each for each in found if "rows" in each]) > 10
    assert found == recorded_notebook()["statements"]


@pytest.mark.soak
@pytest.mark.timeout(900)  # a Spark of its own, which fetches Delta at first
def test_delta_still_gives_what_is_recorded(tmp_path: Path) -> None:
    assert delta_notebook(tmp_path) == recorded_notebook(), f"record it again with `{RECORD}`"
