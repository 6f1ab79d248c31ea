"""Topics that are deleted and made again: no table goes on in the middle of another topic, whatever its length."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from engine.cdc.source import CdcStreamReader, SourcePlan, next_position, planned_ranges
from engine.cdc.state import RESNAPSHOT, CdcTableState
from engine.cdc.status import latest_offsets
from logstore.kafka.topics import LogTopics
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Record, SourceTable, int32, text

T = SourceTable("t", [int32("id", optional=False), int32("n")])
KEYLESS = replace(T, name="nk", key=())
OTHERS = SourceTable("others", [int32("id", optional=False)])
A = ("shop.a", 0)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    with memory_job(tmp_path) as made:
        made.has_topic_ids = True
        yield made


def order_row(number: int, source: SourceTable = T) -> Record:
    return source.insert({"id": number, "n": number})


def ids_stored(job: MemoryJob, table: str = "t") -> list[int]:
    return sorted(each["id"] for each in job.rows(table))


def made_again(job: MemoryJob, *records: Record, topic: str = T.topic) -> None:
    LogTopics(job.settings.properties).delete_topic(topic)
    job.send(*records)


def settle(job: MemoryJob) -> None:
    """Until what was sent is committed."""
    topics = LogTopics(job.settings.properties)
    while topics.end_offsets(T.topic, [0]) != topics.written_offsets(T.topic, [0]):
        continue


def test_the_source_plans_another_topic_from_its_beginning() -> None:
    """By the id, also where the new one is longer than the position; a position without ids still counts."""
    first = next_position({}, {A: 0}, {A: 2}, [], limit=None, topic_ids={"shop.a": "one"})
    (known,) = planned_ranges({}, first)
    assert (known.topic_id, known.begins_again) == ("one", False)
    assert next_position(first, {}, {A: 2}, [], limit=None, topic_ids={"shop.a": "one"}) == first
    gone = next_position(first, {}, {}, [], limit=None)
    assert gone == first
    again = next_position(first, {A: 1}, {A: 7}, [], limit=None, topic_ids={"shop.a": "two"})
    (found,) = planned_ranges(first, again)
    assert (found.start_offset, found.end_offset, found.topic_id, found.begins_again) == (1, 7, "two", True)
    more = next_position(again, {}, {A: 9}, [], limit=None, topic_ids={"shop.a": "two"})
    assert [(each.start_offset, each.begins_again) for each in planned_ranges(again, more)] == [(7, False)]
    former = next_position({}, {A: 0}, {A: 2}, [], limit=None)
    adopted = next_position(former, {}, {A: 5}, [], limit=None, topic_ids={"shop.a": "one"})
    assert [(each.start_offset, each.topic_id) for each in planned_ranges(former, adopted)] == [(2, "one")]
    limited = next_position(first, {A: 0}, {A: 9}, [], limit=4, topic_ids={"shop.a": "two"})
    assert [(each.start_offset, each.end_offset) for each in planned_ranges(first, limited)] == [(0, 4)]


@pytest.mark.parametrize("count", [1, 2, 3, 9])
@pytest.mark.parametrize("source", [T, KEYLESS])
def test_a_table_waits_and_a_user_has_its_topic_read_from_the_beginning(
    job: MemoryJob, count: int, source: SourceTable
) -> None:
    """Shorter, as long, longer than what was read: its first records are not lost, and none counts twice."""
    name = source.name
    job.batch(order_row(1, source), order_row(2, source))
    made_again(job, *(order_row(10 + number, source) for number in range(count)), topic=source.topic)
    reason = str(job.batch(OTHERS.insert({"id": 1})).tables[name].parked)
    assert f"the topic was deleted and made again since it was read: table={name} topic={source.topic} " in reason
    assert (ids_stored(job, name), ids_stored(job, "others")) == ([1, 2], [1])
    job.batch(order_row(50, source))
    job.restarted()
    job.state.ask("resume", name, at_ms=1)
    assert job.batch().tables[name].parked is None
    expected = [1, 2, *range(10, 10 + count), 50]
    assert ids_stored(job, name) == expected
    job.restarted()
    job.batch(order_row(51, source))
    assert ids_stored(job, name) == [*expected, 51]
    job.position, job.batch_id, job.commit_user = {}, -1, "query-2"  # a lost checkpoint
    job.restarted()
    assert job.batch().tables[name].parked is None
    assert ids_stored(job, name) == [*expected, 51]


def test_a_table_that_waits_for_something_else_does_not_go_on_in_the_new_topic(job: MemoryJob) -> None:
    """Its offsets are those of the topic that is gone: it waits with the new reason, from the beginning."""
    job.batch(order_row(1))
    job.batch(order_row(2), (T.topic, b"k", b"garbage"), order_row(4), (T.topic, b"k", b"garbage"))
    job.state.ask("skip", "t", at_ms=0, until=4)
    job.batch()
    made_again(job, *(order_row(number) for number in range(10, 16)))
    job.batch()
    job.state.ask("resume", "t", at_ms=1)
    assert "was deleted and made again" in str(job.batch().tables["t"].parked)
    job.state.ask("resume", "t", at_ms=2)
    job.batch()
    assert ids_stored(job) == [1, *range(10, 16)]


def test_a_table_that_waits_with_its_first_record_says_so_too(job: MemoryJob) -> None:
    """It has no rows, and so no position: it went on in the new topic, without those of the old one, and no word."""
    job.batch(order_row(1), (T.topic, b"k", b"garbage"))
    made_again(job, order_row(7))
    job.batch()
    job.state.ask("resume", "t", at_ms=1)
    job.restarted()
    assert "was deleted and made again" in str(job.batch().tables["t"].parked)
    job.state.ask("resume", "t", at_ms=2)
    job.batch()
    assert ids_stored(job) == [7]


def test_the_reader_asks_for_ids_and_the_ends_of_the_new_topic(job: MemoryJob) -> None:
    """Also while the list of topics is one that it has asked for before."""
    reader = CdcStreamReader(SourcePlan(settings=job.settings))
    job.send(order_row(1), order_row(2))
    settle(job)
    first = reader.latestOffset({}, ReadAllAvailable())
    assert reader.latestOffset(first, ReadAllAvailable()) == first
    made_again(job, *(order_row(number) for number in range(7)))
    settle(job)
    again = reader.latestOffset(first, ReadAllAvailable())
    (found,) = planned_ranges(first, again)
    assert (found.start_offset, found.begins_again) == (0, True)
    assert found.end_offset >= 7
    (rows,) = reader.read(reader.partitions(first, again)[0])
    assert rows.to_pylist()[0] | {"topic_id": "x"} == {
        "topic": T.topic, "partition": 0, "start_offset": 0, "end_offset": found.end_offset, "topic_id": "x",
        "begins_again": True,
    }  # fmt: skip


def test_a_snapshot_into_the_new_topic_replaces_the_rows(job: MemoryJob) -> None:
    """The other way of the message: asked for before or after the topic was made again."""
    for number in range(2):
        job.batch(order_row(1), order_row(2), order_row(3))
        if number:
            made_again(job, order_row(5))
            assert "resnapshot t" in str(job.batch().tables["t"].parked)
        ends = {
            each: offset
            for each, offset in latest_offsets(job.settings.properties, job.settings.pattern).items()
            if each[0] == T.topic
        }
        job.state.ask(RESNAPSHOT, "t", at_ms=1, offsets=ends)
        job.batch()
        if not number:
            made_again(job)
        job.batch(*(T.read({"id": each, "n": 0}, snapshot="true") for each in (3, 7)))
        assert job.state.table("t").parked is None
        assert ids_stored(job) == [3, 7]


def test_schema_parts_of_the_new_topic_are_met_from_its_beginning(job: MemoryJob) -> None:
    grown = T.with_columns(*T.columns, text("more"))
    job.batch(
        order_row(1), *(order_row(number) for number in range(2, 6)), grown.insert({"id": 6, "n": 6, "more": "x"})
    )
    made_again(
        job, *(grown.insert({"id": number, "n": 0, "more": f"m{number}"}) for number in range(7, 10)), order_row(10)
    )
    job.batch()
    job.state.ask("resume", "t", at_ms=1)
    job.batch()
    assert [each["more"] for each in sorted(job.rows("t"), key=lambda each: each["id"])] == [
        *[None] * 5, "x", "m7", "m8", "m9", None,
    ]  # fmt: skip


def test_a_table_of_the_version_before_has_no_ids(job: MemoryJob) -> None:
    """What its snapshots and states lack is not compared, and known from the next batch on."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("engine.cdc.planning.TableWork.topic_ids", {})
        job.batch(order_row(1))
    assert "@topic-ids" not in job.catalog.table("shop.t").latest_snapshot().properties["fluvial.cdc-offsets"]  # type: ignore[union-attr]
    job.restarted()
    body = job.state.table("t").to_json()
    assert CdcTableState.from_json(body) == job.state.table("t")
    job.batch(order_row(2))
    assert ids_stored(job) == [1, 2]
    made_again(job, *(order_row(number) for number in range(10, 19)))
    assert "made again" in str(job.batch().tables["t"].parked)
