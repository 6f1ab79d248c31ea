"""Recoveries of tables with a log, on a real broker: afterwards table, union read, topic and stream say the same."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine.broker.broker import Broker
from engine.deploy.recovery.execution import Execution, Stage, write_overlays
from engine.procedures.recovery_steps import StepKind
from logstore.kafka.topics import LogTopics
from tests.engine.deploy.recovery.recovered_shop import (
    RIGHT,
    TABLES,
    WRONG,
    agreed_rows,
    dying_at_every_step,
    incremental_recovery,
    load_rows,
    make_shop,
    run_in_turn,
)

pytestmark = [pytest.mark.spark, pytest.mark.broker, pytest.mark.timeout(600)]


@pytest.mark.long
def test_an_incremental_recovery_of_tables_with_logs_dies_at_every_step(
    spark: SparkSession, broker: Broker, topics: LogTopics, tmp_path: Path
) -> None:
    """LN-38 to LN-41."""
    catalog, path = make_shop(tmp_path, servers=broker.bootstrap_servers)
    run_in_turn(spark, path)
    assert agreed_rows(catalog, [{}, {}, {}]) == WRONG
    old = {table.name: table.log.topic for name in TABLES if (table := catalog.table(name)).log is not None}
    assert len(old) == 3
    repeated = (StepKind.RUN, StepKind.REVIEW, StepKind.CHECK)
    file = dying_at_every_step(
        incremental_recovery(path), repeated, lambda file: Execution(file, lambda _: spark).run(Stage.PUBLISH)
    )
    begun = [{1: 1, 2: 2}, {1: 10, 2: 20}, {1: 11, 2: 21}]
    assert agreed_rows(catalog, begun) == RIGHT
    assert [topics.find_topic(each) for each in old.values()] == [None] * 3

    load_rows(catalog.table("shop.raw"), {4: -4})
    run_in_turn(spark, path, write_overlays(file)[str(path)])
    wrong = [{**rows, 4: value} for rows, value in zip(RIGHT, (-4, -40, -39), strict=True)]
    assert agreed_rows(catalog, begun) == wrong
