"""The source ``fluvial-kafka``: every committed record exactly once, in order, and clear words when that cannot be."""

import json
import pickle
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TopicPartition
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import LongType, StringType, StructType

from engine.kafka.dead_letters import RowLetters
from engine.kafka.offsets import (
    TopicPosition,
    checked_start,
    from_json,
    limited,
    positioned,
    ranges,
    recreated_topics,
    to_json,
    topic_ids_of,
    without_topics,
)
from engine.kafka.options import KafkaSourceOptions, OnBadRecord, ValueFormat
from engine.kafka.readers import KafkaStreamReader
from engine.kafka.rows import decoder
from engine.kafka.source import KafkaSource
from engine.kafka.source_topics import SourceTopics
from engine.runtime.spark_messages import fluvial_error
from engine.types.rows import ROW_KIND_COLUMN
from logstore.kafka.clients import OPERATION_TIMEOUT_S, ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError, UnavailableError
from lsm.row_kind import RowKind
from tests.support.clients import delete_records, quiet_consumer

Record = tuple[bytes | None, bytes | None]
BROKERS = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
POSITIONS = st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), st.integers(0, 1000), min_size=1)

# ---------------------------------------------------------------------------------------------------- offsets


def test_a_source_without_brokers_fails_within_seconds() -> None:
    """Not after the minute that a request to a slow broker may take."""
    given = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}
    topics = SourceTopics(KafkaSourceOptions.parse(given))
    begin_s = time.monotonic()
    for ask in (topics.latest, topics.earliest):
        with pytest.raises(UnavailableError, match="brokers cannot be reached"):
            ask()
    assert time.monotonic() - begin_s < OPERATION_TIMEOUT_S / 2


@pytest.mark.sweep
@given(POSITIONS, st.dictionaries(st.sampled_from("ab"), st.text()))
def test_offsets_and_topic_ids_survive_a_checkpoint(offsets: dict[TopicPosition, int], ids: dict[str, str]) -> None:
    kept = json.loads(json.dumps(to_json(offsets, ids)))
    assert (from_json(kept), topic_ids_of(kept)) == (offsets, ids)


def test_a_checkpoint_without_topic_ids_is_read_and_matches_any_topic() -> None:
    old = {"t": {"0": 12}}
    assert (from_json(old), topic_ids_of(old)) == ({("t", 0): 12}, {})
    assert recreated_topics(topic_ids_of(old), {"t": "new"}) == frozenset()
    assert recreated_topics({"t": "old", "gone": "x"}, {"t": "new", "added": "y"}) == {"t"}


@pytest.mark.sweep
@settings(max_examples=200, deadline=None, derandomize=True)
@given(POSITIONS, st.data())
def test_a_limit_is_used_up_and_never_exceeded(start: dict[TopicPosition, int], data: st.DataObject) -> None:
    waiting = {position: data.draw(st.integers(0, 500)) for position in start}
    latest = {position: start[position] + waiting[position] for position in start}
    max_count = data.draw(st.integers(1, 1000))
    end = limited(start, latest, max_count)
    assert all(start[position] <= end[position] <= latest[position] for position in start)
    assert sum(end[position] - start[position] for position in start) == min(max_count, sum(waiting.values()))


def test_ranges_leave_out_what_is_empty_and_start_new_partitions_at_0() -> None:
    found = ranges({("a", 0): 5, ("a", 1): 7}, {("a", 0): 5, ("a", 1): 9, ("a", 2): 3})
    assert [(each.partition, each.start_offset, each.end_offset) for each in found] == [(1, 7, 9), (2, 0, 3)]


def test_lost_records_are_an_error_that_names_what_is_gone() -> None:
    with pytest.raises(CorruptDataError) as caught:
        checked_start({("orders", 3): 10}, {("orders", 3): 25}, {("orders", 3): 90}, fail_on_data_loss=True)
    for fact in ("topic=orders partition=3", "wanted=10", "earliest=25", "lost=15", "failOnDataLoss=false"):
        assert fact in str(caught.value)


@pytest.mark.parametrize(
    ("start", "latest", "fact"),
    [
        ({("t", 0): 10}, {("t", 0): 4}, "deleted and recreated"),
        ({("t", 0): 1, ("t", 1): 1}, {("t", 0): 4}, "no longer exists"),
    ],
)
def test_a_topic_that_is_not_the_one_that_was_read_is_an_error(
    start: Mapping[TopicPosition, int], latest: Mapping[TopicPosition, int], fact: str
) -> None:
    earliest = dict.fromkeys(latest, 0)
    with pytest.raises(CorruptDataError, match=fact):
        checked_start(start, earliest, latest, fail_on_data_loss=True)
    begin, losses = checked_start(start, earliest, latest, fail_on_data_loss=False)
    assert (begin[("t", 0)], len(losses)) == (start[("t", 0)] if start[("t", 0)] <= 4 else 0, 1)


def test_a_topic_made_again_begins_anew_even_where_its_end_is_past_what_was_read() -> None:
    start, latest = {("t", 0): 4, ("u", 0): 4}, {("t", 0): 9, ("u", 0): 9}
    earliest = dict.fromkeys(latest, 0)
    with pytest.raises(CorruptDataError, match="recreated since it was read: topic=t partition=0 wanted=4"):
        checked_start(start, earliest, latest, fail_on_data_loss=True, recreated={"t"})
    begin, losses = checked_start(start, earliest, latest, fail_on_data_loss=False, recreated={"t"})
    assert (begin, len(losses)) == ({("t", 0): 0, ("u", 0): 4}, 1)
    assert without_topics(start, {"t"}) == {("u", 0): 4}


def test_positions_of_a_user_are_checked_against_the_topic() -> None:
    earliest, latest = {("t", 0): 5, ("t", 1): 0}, {("t", 0): 9, ("t", 1): 2}
    assert positioned({("t", 0): -2, ("t", 1): -1}, earliest, latest, option="x") == {("t", 0): 5, ("t", 1): 2}
    for wrong in ({("t", 0): 5}, {("t", 0): 4, ("t", 1): 0}, {("t", 0): 5, ("t", 1): 3}, {**latest, ("u", 0): 0}):
        with pytest.raises(InvalidInputError, match="option=startingOffsets"):
            positioned(wrong, earliest, latest, option="startingOffsets")


# ---------------------------------------------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"subscribe": ""}, ["option=subscribe"]),
        ({"kafka.bootstrap.servers": ""}, ["option=kafka.bootstrap.servers"]),
        ({"startingofsets": "latest"}, ["startingofsets", "did_you_mean=startingOffsets"]),
        ({"startingOffsets": "soon"}, ["option=startingOffsets", '{"topic": {"0": 12']),
        ({"startingOffsets": '{"t": {"0": -3}}'}, ["topic=t partition=0 offset=-3"]),
        ({"maxOffsetsPerTrigger": "0"}, ["option=maxOffsetsPerTrigger value='0'"]),
        ({"failOnDataLoss": "maybe"}, ["option=failOnDataLoss value='maybe'"]),
        ({"value.format": "debezium"}, ["option=value.format value='debezium'", "did_you_mean=debezium-json"]),
        ({"epoch-units": "a"}, ["option=epoch-units", "expected='pairs"]),
        ({"on-bad-record": "dead-letter"}, ["dead-letter.topic=None"]),
        ({"dead-letter.topic": "x"}, ["on-bad-record=fail"]),
        ({"on-bad-record": "dead-letter", "dead-letter.topic": "t"}, ["is a topic of the source"]),
        ({"kafka.group.instance.idd": "x"}, []),
        ({"kafka.auto.offset.reset": "earliest"}, ["option=kafka.auto.offset.reset"]),
        ({"kafka.value.deserializer": "x"}, ["option=kafka.value.deserializer"]),
    ],
)
def test_a_wrong_option_is_told_what_to_change(options: dict[str, str], facts: Sequence[str]) -> None:
    if options == {"kafka.group.instance.idd": "x"}:  # only the client knows all of its own options
        with pytest.raises(InvalidInputError, match=r"group\.instance\.id"):
            KafkaSourceOptions.parse(BROKERS | options).properties.consumer(ErrorNotes())
        return
    with pytest.raises(InvalidInputError) as caught:
        KafkaSourceOptions.parse(BROKERS | options)
    for fact in facts:
        assert fact in str(caught.value)
    assert "log.kafka" not in str(caught.value)


def test_options_may_be_written_in_any_case() -> None:
    parsed = KafkaSourceOptions.parse(
        {"KAFKA.bootstrap.servers": "b:1", "SUBSCRIBE": "a, b,a", "maxoffsetspertrigger": "7", "value.FORMAT": "JSON"}
    )
    assert (parsed.topics, parsed.max_offsets_per_trigger) == (("a", "b"), 7)
    assert (parsed.value_format, parsed.on_bad_record) == (ValueFormat.JSON, OnBadRecord.FAIL)


# ---------------------------------------------------------------------------------------------------- decoding


def test_json_rows_and_tombstones_keep_their_order_and_the_rest_is_bad() -> None:
    schema = pa.schema({"id": pa.int64(), "name": pa.string()})
    options = KafkaSourceOptions.parse(BROKERS | {"value.format": "json", "key.columns": "id"})
    records: list[Record] = [
        (b'{"id":1}', b'{"id":1,"name":"a"}'),
        (b'{"id":2}', None),
        (None, b"not json"),
        (b'{"id":3}', b'{"id":3,"name":null,"more":[1]}'),
        (None, None),
        (b'{"id":1}', None),
        (None, b"null"),
    ]
    keys = pa.array([key for key, _ in records], pa.binary())
    values = pa.array([value for _, value in records], pa.binary())
    found = decoder(options, schema)(keys, values)
    assert list(zip(found.rows["id"].to_pylist(), found.rows["name"].to_pylist(), strict=True)) == [
        (1, "a"),
        (2, None),
        (3, None),
        (1, None),
    ]
    assert found.kinds.to_pylist() == [RowKind.INSERT, RowKind.DELETE, RowKind.INSERT, RowKind.DELETE]
    assert [each.index for each in found.bad] == [2, 4, 6]
    strict = KafkaSourceOptions.parse(
        BROKERS | {"value.format": "json", "key.columns": "id", "partial-deletes": "fail"}
    )
    found = decoder(strict, schema)(keys, values)
    assert found.rows["id"].to_pylist() == [1, 3]
    assert [each.index for each in found.bad] == [1, 2, 4, 5, 6]


def test_deletes_of_debezium_with_only_their_key_are_bad_where_values_are_needed() -> None:
    """Else they have what the connector wrote, as their table may refuse nulls."""
    schema = pa.schema({"id": pa.int64(), "n": pa.int64()})
    gaps = schema.append(pa.field("_unavailable", pa.list_(pa.string())))
    keys = pa.array([b'{"id": 1}', b'{"id": 2}'], pa.binary())
    values = pa.array([b'{"before": {"id": 1, "n": 0}, "op": "d"}', b'{"before": {"id": 2, "n": 5}, "op": "d"}'])
    given = BROKERS | {"value.format": "debezium-json"}
    for columns, more, numbers, bad in (
        (schema, {}, [0, 5], []),
        (gaps, {}, [0, 5], []),
        (gaps, {"partial-deletes": "fail"}, [5], [0]),
        (schema, {"partial-deletes": "fail"}, [5], [0]),
    ):
        found = decoder(KafkaSourceOptions.parse(given | more), columns)(keys, values, None)
        assert (found.rows["n"].to_pylist(), [each.index for each in found.bad]) == (numbers, bad)


# ---------------------------------------------------------------------------------------------------- a real broker


class Topic:
    """A topic of one test."""

    def __init__(self, name: str, kafka: KafkaProperties) -> None:
        self.name = name
        self.kafka = kafka
        self.options = {"kafka.bootstrap.servers": kafka.by_name["bootstrap.servers"], "subscribe": name}

    def send(self, records: Sequence[Record], partition: int = 0, *, commit: bool | None = None) -> None:
        """Send records, in a transaction that is committed or aborted if ``commit`` is given."""
        identity = None if commit is None else f"test-{self.name}"
        producer = self.kafka.producer(ErrorNotes(), transactional_id=identity)
        if commit is not None:
            producer.init_transactions(30)
            producer.begin_transaction()
        for key, value in records:
            producer.produce(self.name, value, key, partition=partition)
        assert producer.flush(30) == 0
        if commit is not None:
            (producer.commit_transaction if commit else producer.abort_transaction)(30)
        producer.close()

    def forget(self, partition: int, before_offset: int) -> None:
        """Delete the oldest records, as retention does."""
        delete_records(self.options["kafka.bootstrap.servers"], self.name, {partition: before_offset})

    def records(self) -> list[Any]:
        """What is in partition 0, with headers."""
        consumer = quiet_consumer(self.options["kafka.bootstrap.servers"])
        consumer.assign([TopicPartition(self.name, 0, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition(self.name, 0), timeout=30)
        found = consumer.consume(end, 30)
        consumer.close()
        return list(found)


@pytest.fixture
def topic(new_topic: Callable[..., str], kafka: KafkaProperties) -> Topic:
    """One partition."""
    return Topic(new_topic(), kafka)


@pytest.fixture
def wide_topic(new_topic: Callable[..., str], kafka: KafkaProperties) -> Topic:
    """Three partitions."""
    return Topic(new_topic(bucket_count=3), kafka)


def numbered_records(count: int, first: int = 0) -> list[Record]:
    return [(None, str(number).encode()) for number in range(first, first + count)]


def envelope(op: str, **row: object) -> bytes:
    is_delete = op == "d"
    return json.dumps({"before": row if is_delete else None, "after": None if is_delete else row, "op": op}).encode()


class Stream:
    """A streaming query that takes what is available, and what its batches held."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str], home: Path, schema: str | None = None) -> None:
        self.spark = spark
        self.options = dict(options)
        self.checkpoint = home / "checkpoint"
        self.schema = schema
        self.batches: dict[int, pa.Table] = {}

    def run(self, **options: str) -> list[pa.Table]:
        """Run until nothing is left; the batches of this run that had rows."""
        reader = self.spark.readStream.format("fluvial-kafka").options(**self.options, **options)
        frame = (reader.schema(self.schema) if self.schema else reader).load()
        before = set(self.batches)

        def take(batch: DataFrame, batch_id: int) -> None:
            self.batches[batch_id] = batch.toArrow()

        writer = frame.writeStream.foreachBatch(take).option("checkpointLocation", str(self.checkpoint))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        return [rows for key, rows in sorted(self.batches.items()) if key not in before and rows.num_rows]

    def committed_offsets(self) -> dict[str, Any]:
        """The newest position in the checkpoint."""
        names = [path for path in (self.checkpoint / "offsets").iterdir() if path.name.isdecimal()]
        newest = max(names, key=lambda path: int(path.name))
        return dict(json.loads(newest.read_text().splitlines()[-1]))


@pytest.mark.broker
@pytest.mark.spark
def test_raw_records_have_the_columns_of_sparks_own_connector(spark: SparkSession, topic: Topic) -> None:
    topic.send([(b"k", b"v"), (None, b""), (b"k", None)])
    rows = spark.read.format("fluvial-kafka").options(**topic.options).load().orderBy("offset").toArrow()
    assert rows.column_names == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert rows.drop(["timestamp"]).to_pylist() == [
        {"key": b"k", "value": b"v", "topic": topic.name, "partition": 0, "offset": 0, "timestampType": 0},
        {"key": None, "value": b"", "topic": topic.name, "partition": 0, "offset": 1, "timestampType": 0},
        {"key": b"k", "value": None, "topic": topic.name, "partition": 0, "offset": 2, "timestampType": 0},
    ]
    assert rows["timestamp"].null_count == 0


@pytest.mark.broker
@pytest.mark.spark
def test_envelopes_become_columns_and_row_kinds(spark: SparkSession, topic: Topic) -> None:
    """Input row kinds come from Debezium envelopes: FL-05."""
    plain = envelope("u", id=1, price=12.50, day="2024-02-29")
    with_schema = json.dumps({"schema": {"type": "struct", "fields": []}, "payload": json.loads(plain)}).encode()
    topic.send(
        [
            (None, envelope("c", id=1, price="1.25", day="2024-02-28")),
            (None, envelope("r", id=2, price=None, day=None)),
            (None, with_schema),
            (None, envelope("d", id=2)),
            (None, None),
        ]
    )
    reader = spark.read.format("fluvial-kafka").options(**topic.options).option("value.format", "debezium-json")
    rows = reader.schema("id BIGINT, price DECIMAL(10, 2), day DATE, _row_kind STRING").load().toArrow()
    assert rows["_row_kind"].to_pylist() == ["+I", "+I", "+U", "-D"]
    assert rows["id"].to_pylist() == [1, 2, 1, 2]
    assert [None if price is None else str(price) for price in rows["price"].to_pylist()] == [
        "1.25",
        None,
        "12.50",
        None,
    ]
    assert [None if day is None else str(day) for day in rows["day"].to_pylist()] == [
        "2024-02-28",
        None,
        "2024-02-29",
        None,
    ]


@pytest.mark.broker
@pytest.mark.spark
def test_a_stream_takes_each_record_once_in_limited_batches_through_restarts(
    spark: SparkSession, wide_topic: Topic, tmp_path: Path
) -> None:
    """Offsets are exact: aborted records and transaction markers are neither delivered nor stumbled over."""
    for partition in range(3):
        wide_topic.send(numbered_records(40, 1000 * partition), partition)
    wide_topic.send(numbered_records(5, 9000), 1, commit=False)
    wide_topic.send(numbered_records(7, 3000), 1, commit=True)
    stream = Stream(spark, wide_topic.options, tmp_path)
    first = stream.run(maxOffsetsPerTrigger="50")
    assert len(first) == 3  # 120 + 5 aborted + 7 + 2 markers = 134 offsets
    assert all(rows.num_rows <= 50 for rows in first)
    assert stream.committed_offsets()[wide_topic.name] == {"0": 40, "1": 54, "2": 40}

    wide_topic.send(numbered_records(3, 5000), 2)
    second = stream.run(maxOffsetsPerTrigger="50")
    assert [rows.num_rows for rows in second] == [3]
    taken = [int(value) for rows in [*first, *second] for value in rows["value"].to_pylist()]
    expected = [*range(40), *range(1000, 1040), *range(2000, 2040), *range(3000, 3007), *range(5000, 5003)]
    assert sorted(taken) == expected
    for partition in range(3):
        offsets = [
            row["offset"] for rows in [*first, *second] for row in rows.to_pylist() if row["partition"] == partition
        ]
        assert offsets == sorted(offsets)


@pytest.mark.broker
@pytest.mark.spark
def test_a_query_starts_where_it_is_told_and_goes_on_where_it_was(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.send(numbered_records(10))
    stream = Stream(spark, topic.options, tmp_path)
    [rows] = stream.run(startingOffsets=json.dumps({topic.name: {"0": 7}}))
    assert rows["offset"].to_pylist() == [7, 8, 9]
    topic.send(numbered_records(1))
    [rows] = stream.run(startingOffsets="earliest")
    assert rows["offset"].to_pylist() == [10]


@pytest.mark.broker
@pytest.mark.spark
def test_records_that_are_gone_stop_a_stream_unless_told_otherwise(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.send(numbered_records(4))
    stream = Stream(spark, topic.options, tmp_path)
    stream.run()
    topic.send(numbered_records(6))
    topic.forget(0, 7)
    with pytest.raises(Exception, match="wanted=4 earliest=7 lost=3") as caught:
        stream.run()
    error = fluvial_error(caught.value, "query failed")
    assert isinstance(error, CorruptDataError)
    assert f"topic={topic.name} partition=0" in str(error)
    [rows] = stream.run(failOnDataLoss="false")
    assert rows["offset"].to_pylist() == [7, 8, 9]


@pytest.mark.sampled(1)
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize("was_planned", [False, True], ids=["between two batches", "inside a batch"])
def test_a_topic_made_again_between_two_runs_is_noticed_though_its_end_is_past_the_position(
    spark: SparkSession, topic: Topic, topics: LogTopics, tmp_path: Path, was_planned: bool
) -> None:
    """Else its first records would be skipped, or others delivered under the offsets of a planned batch."""
    topic.send(numbered_records(4))
    stream = Stream(spark, topic.options, tmp_path)
    [rows] = stream.run()
    assert rows.num_rows == 4
    if was_planned:  # as a run that died before it had committed its last batch
        newest = max((path for path in (stream.checkpoint / "commits").iterdir() if path.name.isdecimal()), key=str)
        newest.unlink()
        (newest.parent / f".{newest.name}.crc").unlink(missing_ok=True)
        stream.batches.clear()
    topics.delete_topic(topic.name)
    topics.create_topic(topic.name, bucket_count=1)
    topic.send(numbered_records(9, 100))
    with pytest.raises(Exception, match="deleted and recreated since") as caught:
        stream.run()
    assert isinstance(fluvial_error(caught.value, "query failed"), CorruptDataError)
    assert not was_planned or stream.batches == {}
    if not was_planned:
        [rows] = stream.run(failOnDataLoss="false")
        assert rows["value"].to_pylist() == [str(number).encode() for number in range(100, 109)]
        topic.send(numbered_records(1, 200))
        [rows] = stream.run()
        assert rows["value"].to_pylist() == [b"200"]


@pytest.mark.broker
@pytest.mark.spark
def test_a_checkpoint_of_an_earlier_version_goes_on_and_learns_the_topic_ids(
    spark: SparkSession, topic: Topic, tmp_path: Path
) -> None:
    topic.send(numbered_records(4))
    stream = Stream(spark, topic.options, tmp_path)
    stream.run()
    for path in (stream.checkpoint / "offsets").iterdir():
        if path.name.isdecimal():
            *head, offsets = path.read_text().splitlines()
            path.write_text("\n".join([*head, json.dumps({topic.name: json.loads(offsets)[topic.name]})]))
        else:
            path.unlink()
    assert stream.committed_offsets() == {topic.name: {"0": 4}}
    topic.send(numbered_records(2, 4))
    [rows] = stream.run()
    assert rows["offset"].to_pylist() == [4, 5]
    assert set(stream.committed_offsets()) == {topic.name, "@topic-ids"}


@pytest.mark.broker
@pytest.mark.spark
def test_a_bad_record_stops_the_query_and_is_named_or_goes_to_the_dead_letter_topic(
    spark: SparkSession, topic: Topic, new_topic: Callable[..., str], kafka: KafkaProperties
) -> None:
    dead = Topic(new_topic(), kafka)
    topic.send(
        [(None, envelope("c", id=1)), (b"k", b'{"op": "c", "after": {"id": "one"}}'), (None, envelope("c", id=3))]
    )
    reader = spark.read.format("fluvial-kafka").options(**topic.options).option("value.format", "debezium-json")
    reader = reader.schema("id INT, _row_kind STRING")
    with pytest.raises(Exception, match="record cannot be decoded") as caught:
        reader.load().collect()
    error = fluvial_error(caught.value, "query failed")
    assert isinstance(error, CorruptDataError)
    assert f"topic={topic.name} partition=0 offset=1" in str(error)

    reader = reader.option("on-bad-record", "dead-letter").option("dead-letter.topic", dead.name)
    assert [row.id for row in reader.load().collect()] == [1, 3]
    [letter] = dead.records()
    assert (letter.key(), letter.value()) == (b"k", b'{"op": "c", "after": {"id": "one"}}')
    headers = dict(letter.headers())
    assert (headers["fluvial.topic"], headers["fluvial.offset"]) == (topic.name.encode(), b"1")
    assert headers["fluvial.reason"]


@pytest.mark.broker
def test_an_update_that_cannot_be_completed_is_a_letter_with_its_row(
    new_topic: Callable[..., str], kafka: KafkaProperties
) -> None:
    """Key unknown, and a value was left out (finding 2)."""
    dead = Topic(new_topic(), kafka)
    send = RowLetters(properties=kafka, topic=dead.name, table="db.t", key_names=("id",))
    assert pickle.loads(pickle.dumps(send)) == send  # it goes to tasks
    send(pa.record_batch({"id": [9], "v": ["ü"], "t": pa.nulls(1, pa.string())}), ["no row of the key is known"])
    [letter] = dead.records()
    assert (json.loads(letter.key()), json.loads(letter.value())) == ({"id": 9}, {"id": 9, "v": "ü", "t": None})
    assert dict(letter.headers()) == {"fluvial.table": b"db.t", "fluvial.reason": b"no row of the key is known"}


@pytest.mark.broker
def test_letters_of_a_batch_come_once_however_often_it_is_repeated(
    new_topic: Callable[..., str], kafka: KafkaProperties
) -> None:
    """Also after one that ended in the middle, of which nothing is seen."""
    dead = Topic(new_topic(), kafka)
    send = RowLetters(properties=kafka, topic=dead.name, table="db.t", key_names=("id",))

    def breaks_down() -> Iterator[tuple[dict[str, int], str]]:
        yield {"id": 1}, "half"
        raise OSError("the process ends")

    with pytest.raises(OSError, match="the process ends"):
        send.send_once(breaks_down(), query="q", batch_id=0)
    for batch_id in (0, 0, 1, 1, 0):
        send.send_once([({"id": batch_id}, "rule")], query="q", batch_id=batch_id)
    send.send_once([({"id": 7}, "rule")], query="other", batch_id=0)
    assert [json.loads(each.value())["id"] for each in dead.records()] == [0, 1, 7]


@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "schema", "fact"),
    [
        ({"subscribe": "nowhere"}, None, "topic does not exist: option=subscribe topic=nowhere"),
        ({"value.format": "json"}, None, "columns to decode are missing"),
        ({"value.format": "json"}, "id INT", "add '_row_kind STRING' to the schema"),
        ({"value.format": "json", "key.columns": "no"}, "id INT, _row_kind STRING", "option=key.columns column=no"),
        ({}, "id INT", "raw records have no such column: column=id"),
        ({"maxofsetspertrigger": "1"}, None, "did_you_mean=maxOffsetsPerTrigger"),
    ],
)
def test_a_request_that_cannot_be_met_fails_at_once_and_says_why(
    spark: SparkSession, topic: Topic, options: dict[str, str], schema: str | None, fact: str
) -> None:
    reader = spark.read.format("fluvial-kafka").options(**topic.options | options)
    with pytest.raises(Exception, match=r".") as caught:
        (reader.schema(schema) if schema else reader).load().collect()
    error: FluvialError = fluvial_error(caught.value, "query failed")
    assert isinstance(error, InvalidInputError)
    assert fact in str(error)


# ---- Spark's part played here, which is enough for what is planned


def stream_reader(topic: Topic, **options: str) -> KafkaStreamReader:
    """What a new process finds: its connection is new, too."""
    source = KafkaSource({**topic.options, **options})
    return source.streamReader(source.schema())


def planned(reader: KafkaStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    found = [part.value[0] for part in reader.partitions(start, end)]
    return [(each.start_offset, each.end_offset) for each in found]


@pytest.mark.broker
def test_a_query_that_died_before_its_first_batch_was_done_keeps_its_start(topic: Topic) -> None:
    """``latest`` is where the topic ended when the query began, not when it began again."""
    topic.send(numbered_records(3))
    reader = stream_reader(topic, startingOffsets="latest")
    start = reader.initialOffset()
    end = json.loads(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    assert end != start  # so Spark notes it, though the batch is empty
    topic.send(numbered_records(4, 3))
    again = stream_reader(topic, startingOffsets="latest")
    assert again.initialOffset() == start
    assert planned(again, again.initialOffset(), end) == []
    following = again.latestOffset(end, ReadAllAvailable())
    assert planned(again, end, following) == [(3, 7)]
    assert "@begin" not in following
    assert again.latestOffset(following, ReadAllAvailable()) == following


@pytest.mark.broker
@pytest.mark.parametrize("marker", [False, True])
def test_a_tombstone_is_no_second_delete_wherever_a_range_begins(topic: Topic, marker: bool) -> None:
    """FL-136: each cut of a topic into two ranges gives what one range gives; lone tombstones are deletes."""
    one, two = b'{"id":1}', b'{"id":2}'
    head: list[Record] = [(one, envelope("c", id=1, v="a")), (one, envelope("d", id=1, v="a"))]
    rest: list[Record] = [
        (one, None),
        (two, envelope("d", id=2, v="b")),
        (two, None),
        (two, None),
        (two, envelope("c", id=2, v="c")),
        (two, None),
    ]
    topic.send(head, commit=True if marker else None)  # a transaction's marker is a gap between the two
    topic.send(rest, commit=True if marker else None)
    options = topic.options | {"value.format": "debezium-json", "key.columns": "id"}
    schema = StructType().add("id", LongType()).add("v", StringType()).add(ROW_KIND_COLUMN, StringType())
    reader = KafkaStreamReader(KafkaSourceOptions.parse(options), schema)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())[topic.name]["0"]

    def rows(first: int, last: int) -> list[dict[str, Any]]:
        plans = reader.partitions({topic.name: {"0": first}}, {topic.name: {"0": last}})
        return [row for plan in plans for batch in reader.read(plan) for row in batch.to_pylist()]

    whole = rows(0, end)
    assert [(each["_row_kind"], each["id"], each["v"]) for each in whole] == [
        ("+I", 1, "a"),
        ("-D", 1, "a"),
        ("-D", 2, "b"),
        ("+I", 2, "c"),
        ("-D", 2, None),
    ]
    for cut in range(1, end):
        assert rows(0, cut) + rows(cut, end) == whole, cut
    begin = len(head) + marker
    topic.forget(0, begin)  # the delete is gone: the tombstone is what is known
    assert [(each["_row_kind"], each["id"], each["v"]) for each in rows(begin, begin + 1)] == [("-D", 1, None)]


@pytest.mark.broker
@pytest.mark.parametrize(("start", "plans"), [("earliest", False), ("latest", True), ('{"T": {"0": -1}}', True)])
def test_a_query_that_finds_nothing_notes_its_start_only_where_time_would_change_it(
    topic: Topic, start: str, plans: bool
) -> None:
    """No empty batch otherwise: each is a commit of the table that it is written to."""
    reader = stream_reader(topic, startingOffsets=start.replace("T", topic.name))
    begin = reader.initialOffset()
    end = reader.latestOffset(begin, ReadAllAvailable())
    assert (end != begin) is plans
    assert reader.latestOffset(end, ReadAllAvailable()) == end  # and no second one
    topic.send(numbered_records(2))
    following = reader.latestOffset(end, ReadAllAvailable())
    assert planned(reader, end, following) == [(0, 2)]
    assert reader.latestOffset(following, ReadAllAvailable()) == following


@pytest.mark.broker
def test_a_first_batch_is_the_same_when_it_is_run_again(topic: Topic) -> None:
    """Retention may have moved the start meanwhile; the rest of the batch is what it was."""
    topic.send(numbered_records(9))
    reader = stream_reader(topic, startingOffsets="earliest", maxOffsetsPerTrigger="4")
    end = reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert planned(reader, reader.initialOffset(), end) == [(0, 4)]
    topic.forget(0, 2)
    again = stream_reader(topic, startingOffsets="earliest")
    assert planned(again, again.initialOffset(), end) == [(0, 4)]


@pytest.mark.broker
def test_a_first_batch_that_an_earlier_version_planned_begins_where_the_options_say(topic: Topic) -> None:
    """Its checkpoint has no begin; later batches never needed one."""
    topic.send(numbered_records(5))
    reader = stream_reader(topic, startingOffsets=json.dumps({topic.name: {"0": 2}}))
    old = {topic.name: {"0": 4}}
    assert planned(reader, reader.initialOffset(), old) == [(2, 4)]
    assert planned(reader, old, reader.latestOffset(old, ReadAllAvailable())) == [(4, 5)]
