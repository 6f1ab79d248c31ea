"""What a batch of a job over many topics costs, with Spark: processor time of the driver, the JVM and its workers."""

import contextlib
import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import NewTopic
from pyspark.sql import SparkSession

from engine import Catalog
from engine.cdc.query import CdcQuery
from engine.cdc.settings import CdcSettings
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from tests.support.change_events import SourceTable, int32, send, text
from tests.support.kills.processes import name_of

TOPICS, ROWS, ROUNDS = 200, 1000, 4
MOST_TURNS = 30  # of which two are for warming up
MOST_WORKERS = 20  # Spark's daemon, what it forks, and the source


def processor_s() -> float:
    """Of this process and of all below it, also of those that have ended."""
    own, found = psutil.Process(), 0.0
    for each in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += sum(each.cpu_times()[:4])  # user and system, of itself and of ended children
    return found


def workers() -> set[int]:
    """Python processes of Spark."""
    found = psutil.Process().children(recursive=True)
    return {each.pid for each in found if name_of(each).startswith("python")}


@pytest.mark.soak
def test_of_200_topics_five_active_ones_cost_at_most_twice_one(
    spark: SparkSession, kafka: KafkaProperties, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    """C: 1,000 rows in 5 tables beside 1,000 rows in one, in turns; a start with 200 new tables takes at most 30 s.

    One set of Python processes has all of them, and it does not grow.
    """
    first = new_topic()
    tables = [SourceTable(f"t{n}", [int32("id"), text("s")], topic_name=f"{first}-{n}") for n in range(TOPICS)]
    admin = kafka.admin(ErrorNotes())
    for each in admin.create_topics([NewTopic(each.topic, 1, 1) for each in tables]).values():
        each.result(60)
    send(kafka, *(each.insert({"id": 0, "s": "first"}) for each in tables))
    catalog = Catalog(str(tmp_path / "warehouse"))
    settings = CdcSettings(
        name="shop", database="shop", pattern=f"{first}-.*", properties=kafka, options={"bucket": "1"}
    )
    made = CdcQuery(catalog, settings, checkpoint=str(tmp_path / "checkpoint"), interval="1 second")
    started = processor_s()
    others = workers()
    query = made.start(spark)
    sent = 1

    def cost(active: Sequence[SourceTable]) -> float | None:
        """None: the source took the transaction in two batches, as its markers became visible one after the other."""
        nonlocal sent
        before = made.newest
        send(kafka, *(active[n % len(active)].insert({"id": sent + n, "s": "x"}) for n in range(ROWS)))
        at = processor_s()
        sent += ROWS
        missing, batches = {each.name for each in active}, 0
        while missing:
            assert query.isActive, query.exception()
            if (found := made.newest) is not None and found is not before:
                assert set(found.tables) <= missing
                missing, batches, before = missing - set(found.tables), batches + 1, found
            time.sleep(0.01)
        return processor_s() - at if batches == 1 else None

    try:
        while made.newest is None:
            assert query.isActive, query.exception()
            time.sleep(0.01)
        assert processor_s() - started <= 30
        own = workers() - others
        turns = ((cost(tables[:1]), cost(tables[1:6])) for _ in range(MOST_TURNS))
        whole = ((one, five) for one, five in turns if one is not None and five is not None)
        found = list(itertools.islice(whole, 2, ROUNDS + 2))
        assert len(found) == ROUNDS
        assert len(workers() - others) <= len(own) < MOST_WORKERS
    finally:
        query.stop()
        made.close()
    assert statistics.median(five / one for one, five in found) <= 2, found
