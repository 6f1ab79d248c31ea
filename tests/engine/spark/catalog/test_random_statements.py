"""Random statements and conditions of all types mean what they mean on plain Parquet: see ``tests.statements``."""

import pytest
from pyspark.sql import SparkSession

from engine import Catalog
from tests.statements.play import KINDS, play


@pytest.mark.sampled(2)
@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_a_history_of_statements_gives_the_oracles_rows(spark: SparkSession, shop: Catalog, kind: str) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    session.sql("CREATE DATABASE IF NOT EXISTS fluvial.st")
    assert play(session, shop, kind, seed=1, steps=4) > 4
