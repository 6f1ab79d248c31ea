"""A truncate of the source on the way of a single table: it is emptied where the truncate was, exactly once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from engine import Catalog, Table, sink
from engine.kafka.dead_letters import OFFSET_HEADER
from engine.runtime.steps import Step, StepEvent
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics
from lsm.errors import InvalidInputError
from tests.support.logs import log_changes

pytestmark = [pytest.mark.broker, pytest.mark.spark]
COLUMNS = "id INT, v INT, _row_kind STRING"
TRUNCATE = {"op": "t", "before": None, "after": None}


def insert(key: int, v: int = 0) -> dict[str, Any]:
    return {"op": "c", "after": {"id": key, "v": v}}


def delete(key: int) -> dict[str, Any]:
    return {"op": "d", "before": {"id": key, "v": None}, "after": None}


class Way:
    """A topic, a table and the query between them."""

    def __init__(self, spark: SparkSession, kafka: KafkaProperties, topic: str, home: Path, **options: str) -> None:
        self.spark, self.kafka, self.topic, self.home, self.writer = spark, kafka, topic, home, "auto"
        catalog = Catalog(str(home / "warehouse"))
        schema = pa.schema([("id", pa.int32()), ("v", pa.int32())])
        self.table: Table = catalog.create_table("db.t", schema, primary_key=["id"], options={"bucket": "2", **options})

    def send(self, *events: dict[str, Any], partition: int = 0) -> None:
        producer = self.kafka.producer(ErrorNotes(), transactional_id=None)
        for each in events:
            producer.produce(self.topic, json.dumps(each).encode(), partition=partition)
        assert producer.flush(30) == 0

    def run(
        self,
        *,
        changed: Callable[[DataFrame], DataFrame] = lambda frame: frame,
        observe: Callable[[StepEvent], None] = lambda _: None,
        **options: str,
    ) -> None:
        """Take what is there. Raises: PySparkException."""
        given = {
            "kafka.bootstrap.servers": self.kafka.by_name["bootstrap.servers"], "subscribe": self.topic,
            "value.format": "debezium-json", "truncates": "emit", **options,
        }  # fmt: skip
        source = self.spark.readStream.format("fluvial-kafka").options(**given).schema(COLUMNS).load()
        write = sink(self.table, {"sink.writer": self.writer}, observe=observe)
        stream = changed(source).writeStream.foreachBatch(write).trigger(availableNow=True)
        query = stream.option("checkpointLocation", str(self.home / "checkpoint")).start()
        try:
            query.awaitTermination(120)
        finally:
            write.close()

    @property
    def rows(self) -> dict[int, int]:
        return {each["id"]: each["v"] for each in self.table.read().to_arrow().to_pylist()}


@pytest.fixture
def way(
    spark: SparkSession, kafka: KafkaProperties, new_topic: Callable[..., str], tmp_path: Path
) -> Callable[..., Way]:
    def made(**options: str) -> Way:
        return Way(spark, kafka, new_topic(), tmp_path, **options)

    return made


@pytest.mark.sampled(1)
@pytest.mark.parametrize("writer", ["driver", "tasks"])
def test_rows_before_a_truncate_are_gone_and_those_behind_it_are_there(way: Callable[..., Way], writer: str) -> None:
    """INSERT 1,2; TRUNCATE; INSERT 3 kept 1 and 2 (finding 11); the next batch goes on as if nothing had been."""
    found = way()
    found.writer = writer
    found.send(insert(1), insert(2))
    found.run()
    found.send(insert(3), TRUNCATE, insert(4), TRUNCATE, insert(5), insert(6), delete(6), insert(2, 7))
    found.run()
    assert found.rows == {5: 0, 2: 7}
    found.send(insert(9))
    found.run()
    assert found.rows == {5: 0, 2: 7, 9: 0}
    found.send(TRUNCATE)
    found.run()
    assert found.rows == {}


def lettered_offsets(kafka: KafkaProperties, topic: str) -> list[int]:
    """The offsets of the records that have a dead letter, in the order of the letters."""
    (end,) = LogTopics(kafka).end_offsets(topic, [0]).values()
    consumer = kafka.consumer(ErrorNotes())
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while end and (not found or found[-1].offset() < end - 1):
        found += [each for each in consumer.consume(100, 1) if each.error() is None]
    consumer.close()
    return [int(dict(each.headers())[OFFSET_HEADER]) for each in found]


class StoppedError(Exception):
    """As a killed driver ends."""


@pytest.mark.long
def test_a_driver_that_dies_behind_the_commit_that_empties_a_table_with_a_log(
    way: Callable[..., Way], new_topic: Callable[..., str], kafka: KafkaProperties
) -> None:
    """The next run empties it once more, and has each row once, in files and log; the log has the deletes as well."""
    servers = kafka.by_name["bootstrap.servers"]
    found = way(
        **{"log.system": "kafka", "log.kafka.bootstrap.servers": servers, "log.overwrite": "changes"},
        **{"log.kafka.topic": new_topic(bucket_count=2)},
    )
    found.send(insert(1), insert(2))
    found.run()
    found.send(insert(3), TRUNCATE, insert(4), insert(5))
    for step, seen in ((Step.BATCH_STARTED, 2), (Step.TASKS_DONE, 1)):  # the first attempt has met the truncate
        steps: list[Step] = []

        def dies(event: StepEvent, at: tuple[Step, int] = (step, seen), steps: list[Step] = steps) -> None:
            steps.append(event.step)
            if steps.count(at[0]) == at[1]:
                raise StoppedError

        with pytest.raises(PySparkException, match="StoppedError"):
            found.run(observe=dies)
        assert found.rows == {}
    found.run()
    assert found.rows == {4: 0, 5: 0}
    logged: dict[int, int] = {}
    for kind, row in log_changes(found.table):
        if kind.is_retract:
            del logged[row["id"]]
        else:
            assert row["id"] not in logged
            logged[row["id"]] = row["v"]
    assert logged == found.rows


def test_a_truncate_among_rows_of_several_partitions_is_refused(
    spark: SparkSession, kafka: KafkaProperties, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """Of topics with several the source does not know the order, and behind a shuffle nobody does."""
    topic = new_topic(bucket_count=2)
    several = Way(spark, kafka, topic, tmp_path / "several")
    several.send(insert(1), TRUNCATE)
    with pytest.raises(PySparkException, match="a truncate event cannot become row changes"):
        several.run()
    assert several.rows == {}
    shuffled = Way(spark, kafka, new_topic(), tmp_path / "shuffled")
    shuffled.send(*(insert(key) for key in range(50)), TRUNCATE)
    with pytest.raises(PySparkException, match="whose order with it is not known"):
        shuffled.run(changed=lambda frame: frame.repartition(4, "id"))
    assert shuffled.rows == {}


def test_other_writers_refuse_a_truncate(way: Callable[..., Way], spark: SparkSession) -> None:
    """A batch, and the sink of Spark, whose tasks write without looking back."""
    found = way()
    rows = spark.createDataFrame([(None, None, "-T")], "id INT, v INT, _row_kind STRING")
    with pytest.raises(Exception, match="foreachBatch"):
        found.table.append(rows)
    with pytest.raises(InvalidInputError, match=r"a truncate of the source is no row: .*foreachBatch"):
        found.table.write(pa.table({"id": pa.array([1], pa.int32()), "_row_kind": ["-T"]}))
    assert found.table.latest_snapshot() is None


@pytest.mark.sampled(2)
@pytest.mark.parametrize("limit", ["of memory", "one trigger"])
@pytest.mark.parametrize("writer", ["driver", "tasks"])
def test_a_bad_record_becomes_one_letter_however_often_its_batch_is_read(
    way: Callable[..., Way], new_topic: Callable[..., str], kafka: KafkaProperties, writer: str, limit: str
) -> None:
    """Each came three times beside a truncate, and again where a batch was too large for the driver."""
    found = way(**({"write-buffer-size": "1 mb"} if limit == "of memory" else {}))
    found.writer = writer
    letters = new_topic()
    bad = {"op": "c", "after": {"id": "no number", "v": 1}}
    much = 40_000 if limit == "of memory" else 2
    found.send(bad, *(insert(each) for each in range(much)), bad)
    given = {"on-bad-record": "dead-letter", "dead-letter.topic": letters}
    found.run(**given)
    assert lettered_offsets(kafka, letters) == [0, much + 1]
    found.send(bad, insert(1), bad, TRUNCATE, bad, insert(2), TRUNCATE, bad, *map(insert, range(much)), bad)
    found.run(**given)
    begin = much + 2
    assert lettered_offsets(kafka, letters) == [0, much + 1, begin, begin + 2, begin + 4, begin + 7, begin + 8 + much]
    assert len(found.rows) == much
