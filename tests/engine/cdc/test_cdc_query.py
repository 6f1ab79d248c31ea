"""A job as a streaming query: a real broker, Spark, literal Debezium records."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from engine import Catalog
from engine.cdc.query import CdcQuery
from engine.cdc.settings import CdcSettings
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from tests.support.change_events import SourceTable, int32, send, text


def values_of(table: pa.Table, *names: str) -> list[tuple[object, ...]]:
    return sorted(zip(*(table[name].to_pylist() for name in names), strict=True))


def test_topics_join_and_tables_change_while_one_query_runs(
    spark: SparkSession, kafka: KafkaProperties, topics: LogTopics, tmp_path: Path, new_topic: Callable[..., str]
) -> None:
    """A topic that appears later joins without a restart; a query that starts again continues exactly once."""
    first = new_topic()
    orders = SourceTable("orders", [int32("id"), text("state")], topic_name=first)
    catalog = Catalog(str(tmp_path / "warehouse"))
    settings = CdcSettings(
        name="shop", database="shop", pattern=f"{first}(-.*)?", properties=kafka, options={"bucket": "1"}
    )

    def run() -> CdcQuery:
        made = CdcQuery(catalog, settings, checkpoint=str(tmp_path / "checkpoint"))
        query = made.start(spark)
        query.awaitTermination(120)
        made.close()
        assert query.exception() is None
        return made

    send(kafka, orders.insert({"id": 1, "state": "new"}), orders.insert({"id": 2, "state": "new"}))
    run()
    assert values_of(catalog.table("shop.orders").read().to_arrow(), "id", "state") == [(1, "new"), (2, "new")]

    later = f"{first}-users"
    users = SourceTable("users", [int32("id"), text("name")], topic_name=later)
    topics.create_topic(later, bucket_count=1)
    grown = orders.with_columns(int32("id"), text("state"), int32("n"))
    send(kafka, grown.update({"id": 1, "state": "paid", "n": 3}), users.insert({"id": 1, "name": "Ann"}))
    done = run()
    assert values_of(catalog.table("shop.orders").read().to_arrow(), "id", "state", "n")[0] == (1, "paid", 3)
    assert values_of(catalog.table("shop.users").read().to_arrow(), "id", "name") == [(1, "Ann")]
    assert done.newest is not None
    assert set(done.newest.tables) == {"orders", "users"}
    assert run().newest is None  # nothing new: no batch
