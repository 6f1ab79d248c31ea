"""A table that a snapshot of the connector replaces, while the others go on; requests that come between two batches."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from engine.cdc import signals
from engine.cdc.rules.names import SourceTable as Source
from engine.cdc.signals import Silent, check_there, prefixes_of, request_snapshots, signals_for
from engine.cdc.state import RESNAPSHOT
from engine.cdc.status import job_status
from lsm.errors import InvalidInputError
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Record, SourceTable, int32, text

DOCS = SourceTable("docs", [int32("id"), text("body")])
OTHERS = SourceTable("others", [int32("id")])
LEFT_OUT = "__debezium_unavailable_value"
POSITION = ("shop.public.docs", 0)


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    with memory_job(tmp_path) as made:
        yield made


def snapshot_of(table: SourceTable, *ids: int) -> list[Record]:
    return [table.read({"id": id_, "body": f"new {id_}"}, snapshot="true") for id_ in ids]


def bodies(job: MemoryJob) -> list[tuple[int, str]]:
    return [(row["id"], row["body"]) for row in job.rows("docs")]


def end_of(job: MemoryJob) -> int:
    return int(job.position[POSITION[0]]["0"])


def test_a_request_between_planning_and_writing_waits_for_the_next_batch(job: MemoryJob) -> None:
    """The batch that runs does not know where the records of the parked table end: they were left out for good."""
    job.batch(DOCS.insert({"id": 1, "body": "a"}), OTHERS.insert({"id": 1}))
    assert job.batch(DOCS.insert({"id": {}, "body": "b"}), DOCS.insert({"id": 3, "body": "c"})).tables["docs"].parked
    job.send(OTHERS.insert({"id": 2}))
    job.planned = (job.position, job._next())
    job.batch_id += 1
    job.state.ask("skip", "docs", at_ms=1, until=3)
    assert "docs" not in job.again().tables
    job.position = job.planned[1]
    assert job.batch().tables["docs"].parked is None
    assert bodies(job) == [(1, "a"), (3, "c")]
    assert job.state.request_names() == []


@pytest.mark.sweep
def test_a_snapshot_replaces_the_rows_when_it_comes(job: MemoryJob) -> None:
    """What was published before it is older; a change without its large value would find no row that has it."""
    job.batch(*(DOCS.insert({"id": id_, "body": f"old {id_}"}) for id_ in (1, 2)), OTHERS.insert({"id": 1}))
    job.state.ask(RESNAPSHOT, "docs", at_ms=1, offsets={POSITION: end_of(job)})
    before = DOCS.update({"id": 9, "body": LEFT_OUT})
    report = job.batch(before, OTHERS.insert({"id": 2}))
    assert "waits for a snapshot" in str(report.tables["docs"].parked)
    assert (bodies(job), len(job.rows("others"))) == ([(1, "old 1"), (2, "old 2")], 2)
    job.restarted()
    later = DOCS.update({"id": 3, "body": LEFT_OUT})
    report = job.batch(before, *snapshot_of(DOCS, 2, 3, 9), later, DOCS.delete({"id": 9, "body": None}))
    assert report.tables["docs"].parked is None
    assert bodies(job) == [(2, "new 2"), (3, "new 3")]
    count = job.snapshots("docs")
    job.restarted()
    job.again()  # a driver that died before it could remember
    assert (bodies(job), job.snapshots("docs")) == ([(2, "new 2"), (3, "new 3")], count)
    job.batch(DOCS.insert({"id": 4, "body": "next"}))
    assert bodies(job)[-1] == (4, "next")


def test_a_table_whose_key_has_changed_is_made_again(job: MemoryJob) -> None:
    other = replace(DOCS, columns=[int32("id"), text("body"), int32("n")], key=("n",))
    job.batch(DOCS.insert({"id": 1, "body": "a"}))
    assert "the key of the source table has changed" in str(
        job.batch(other.insert({"id": 2, "body": "b", "n": 2})).tables["docs"].parked
    )
    job.state.ask(RESNAPSHOT, "docs", at_ms=1, offsets={POSITION: end_of(job)}, drops=True)
    snapshot = [other.read({"id": id_, "body": f"new {id_}", "n": 5}, snapshot="true") for id_ in (1, 2)]
    assert job.batch(DOCS.insert({"id": 7, "body": "of the old key"}), *snapshot).tables["docs"].parked is None
    assert job.catalog.table("shop.docs").schema.primary_keys == ("n",)
    assert bodies(job) == [(2, "new 2")]


def test_a_snapshot_that_cannot_be_written_waits_for_resume(job: MemoryJob) -> None:
    """The rest of the snapshot in the next batch is not taken for its beginning."""
    job.batch(DOCS.insert({"id": 1, "body": "a"}))
    job.state.ask(RESNAPSHOT, "docs", at_ms=1, offsets={POSITION: end_of(job)})
    bad = DOCS.read({"id": {}, "body": "b"}, snapshot="true")
    assert job.batch(bad, *snapshot_of(DOCS, 2)).tables["docs"].parked
    job.restarted()
    assert job.batch(*snapshot_of(DOCS, 3)).tables["docs"].parked
    assert bodies(job) == []  # the rows of before are gone, those of the snapshot wait
    job.state.ask("skip", "docs", at_ms=2, until=3)
    assert job.batch().tables["docs"].parked is None
    assert bodies(job) == [(2, "new 2"), (3, "new 3")]


def test_signals_name_the_connector_and_the_source_tables() -> None:
    """One signal for each connector: with two at once Debezium's stream stands still."""
    orders, users, new = Source("public", "orders"), Source("sales", "orders"), Source("public", "new")
    places = [("one.public.orders", 0), ("two.sales.orders", 0), ("routed", 0)]
    found = signals_for([orders, users, orders], prefixes_of([orders, users, new], places))
    assert [(each.prefix, orjson.loads(each.text)["data"]) for each in found] == [
        ("one", {"data-collections": ["public.orders"], "type": "BLOCKING"}),
        ("two", {"data-collections": ["sales.orders"], "type": "BLOCKING"}),
    ]
    (one,) = signals_for([orders, new], {orders: "one"})
    assert (one.prefix, one.tables) == ("one", (orders, new))
    for prefixes in ({}, {orders: "one", users: "two"}):
        with pytest.raises(InvalidInputError, match=r"not known: source=public\.new"):
            signals_for([new], prefixes)


def requested(job: MemoryJob, *names: str, topic: str | None) -> list[tuple[str, bool]]:
    request_snapshots(job.state, job.settings, names, latest(job), topic=topic, at_ms=1, drops=True)
    return [(each.table, each.drops) for each in job.state.requests()]


def latest(job: MemoryJob) -> dict[tuple[str, int], int]:
    ends = {topic: ends for topic, ends in job.position.items() if not topic.startswith("@")}
    return {(topic, int(each)): end for topic, own in ends.items() for each, end in own.items() if each.isdigit()}


def test_a_second_snapshot_waits_for_the_first(job: MemoryJob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several are asked for together; a source table that is not known yet joins by the signal alone."""
    sent: list[str] = []
    monkeypatch.setattr(signals, "send_signals", lambda *given: sent.extend(each.text for each in given[2]))
    job.batch(DOCS.insert({"id": 1, "body": "a"}), OTHERS.insert({"id": 1}))
    assert requested(job, "docs", topic="signals") == [("docs", True)]
    job.batch()
    refused = re.escape("waiting=docs fix='wait until") + r".* ask for all: fluvial cdc resnapshot docs,others'"
    with pytest.raises(InvalidInputError, match=refused):
        requested(job, "others", topic="signals")
    assert requested(job, "others", topic=None) == [("others", True)]
    job.batch()
    assert requested(job, "docs", "public.others", "public.new", topic="signals") == [("docs", True), ("others", True)]
    assert orjson.loads(sent[-1])["data"]["data-collections"] == ["public.docs", "public.others", "public.new"]
    assert len(sent) == 2
    with pytest.raises(InvalidInputError, match=r"no such table: .* table=new known=docs,others fix='.*SCHEMA.NAME"):
        requested(job, "new", topic="signals")


def test_a_table_whose_source_was_dropped_waits_for_no_snapshot(job: MemoryJob) -> None:
    """The connector publishes nothing of it: refused by name, with the ways on; shards need one that is there."""
    job.batch(DOCS.insert({"id": 1, "body": "a"}), OTHERS.insert({"id": 1}))
    docs, new = Source("public", "docs"), Source("public", "new")
    for name, gone in (("docs", docs), ("public.docs", docs), ("public.new", new)):
        known = name.removeprefix("public.") if gone is docs else name
        with pytest.raises(InvalidInputError, match=f"not there, .* table={known} source={gone} fix='if it was ren"):
            request_snapshots(
                job.state, job.settings, ["others", name], latest(job), topic="signals", at_ms=1,
                silent=lambda _: Silent(missing=frozenset({docs, new})),
            )  # fmt: skip
    assert job.state.requests() == []
    check_there({"both": [docs, new]}, lambda _: Silent(missing=frozenset({new})))


def test_a_table_whose_source_has_no_rows_waits_for_no_snapshot(job: MemoryJob) -> None:
    """It would keep rows that its source has not, and wait for the first row without end."""
    job.batch(DOCS.insert({"id": 1, "body": "a"}), OTHERS.insert({"id": 1}))
    docs, others = Source("public", "docs"), Source("public", "others")
    with pytest.raises(InvalidInputError, match=r"no rows, .* table=docs source=public.docs fix='delete the rows"):
        request_snapshots(
            job.state, job.settings, ["others", "docs"], latest(job), topic="signals", at_ms=1,
            silent=lambda _: Silent(empty=frozenset({docs})),
        )  # fmt: skip
    assert job.state.requests() == []
    check_there({"both": [docs, others]}, lambda _: Silent(empty=frozenset({docs})))
    with pytest.raises(InvalidInputError, match="has no rows"):
        check_there({"both": [docs, others]}, lambda _: Silent(frozenset({others}), frozenset({docs})))


def test_status_says_how_a_snapshot_that_does_not_come_is_asked_for_again(job: MemoryJob) -> None:
    job.batch(DOCS.insert({"id": 1, "body": "a"}))
    requested(job, "docs", topic=None)
    job.batch()
    (found,) = job_status(job.state, latest=None, now_ms=1)
    assert "again: fluvial cdc resnapshot docs --drop;" in str(found.fix)
