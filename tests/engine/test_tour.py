"""The README's tour of streams runs as it is shown, at another place and with another broker."""

import re
from collections.abc import Iterable
from pathlib import Path

import orjson
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from engine.broker.broker import Broker
from logstore.kafka.topics import LogTopics
from tests.support.clients import quiet_producer

ROOT = Path(__file__).resolve().parents[2]
NEW = {"id": 1, "amount": "9.99", "state": "new"}
CHANGES = (
    {"op": "c", "before": None, "after": NEW},
    {"op": "u", "before": NEW, "after": NEW | {"state": "paid"}},
    {"op": "c", "before": None, "after": {"id": 2, "amount": "20.00", "state": "paid"}},
)


def _wait(queries: Iterable[StreamingQuery]) -> None:
    for query in queries:
        query.processAllAvailable()


def _folded(spark: SparkSession) -> dict[int, str]:
    return {row["id"]: row["state"] for row in spark.table("copy").collect() if row["_row_kind"] in {"+I", "+U"}}


def test_the_tour_of_streams_runs(
    tmp_path: Path, spark: SparkSession, broker: Broker, topics: LogTopics, capsys: pytest.CaptureFixture[str]
) -> None:
    """FL-01, FL-74."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    code = re.findall(r"<!-- run by tests/engine/test_tour.py -->\n```python\n(.*?)```", page, re.DOTALL)
    places = {"/data/": f"{tmp_path}/", "localhost:9092": broker.bootstrap_servers, "shop.changes": "tour.changes"}
    producer = quiet_producer(broker.bootstrap_servers)
    for shown, real in places.items():
        code = [block.replace(shown, real) for block in code]
    topics.create_topic("tour.changes", bucket_count=1)
    before = {query.id for query in spark.streams.active}
    names: dict[str, object] = {}
    queries = []
    try:
        exec(code[0], names)
        queries = [query for query in spark.streams.active if query.id not in before]
        _wait(queries)  # the query begins where the topic ends: changes come later
        for change in CHANGES:
            producer.produce("tour.changes", orjson.dumps(change))
            producer.flush()
            _wait(queries)  # until the sink has it
        _wait(queries)  # until the copy has all
        exec(code[1], names)
    finally:
        for query in queries:
            query.stop()
    assert "| paid|      29.99|" in capsys.readouterr().out
    assert _folded(spark) == {1: "paid", 2: "paid"}
