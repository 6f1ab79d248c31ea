"""The inputs of Spark's own tests of SQL give on our tables what they give on Parquet's: see ``spark_inputs``."""

import pytest
from pyspark.sql import SparkSession

from engine import Catalog
from tests.peers.spark_inputs import played, texts

LANES = 60
EACH_RUN = ("subquery/in-subquery/in-basic.sql",)


def check_inputs(spark: SparkSession, names: list[str] | tuple[str, ...]) -> None:
    inputs = texts()
    for name in names:
        for each in played(spark, name, inputs):
            assert each.how is None or each.reason is not None, f"{name}: {each}"


@pytest.mark.long
def test_some_inputs_give_what_they_give_on_tables_of_parquet(spark: SparkSession, shop: Catalog) -> None:
    check_inputs(spark, EACH_RUN)


@pytest.mark.soak
@pytest.mark.parametrize("lane", range(LANES))
def test_each_statement_gives_what_it_gives_on_tables_of_parquet(spark: SparkSession, shop: Catalog, lane: int) -> None:
    check_inputs(spark, list(texts())[lane::LANES])
