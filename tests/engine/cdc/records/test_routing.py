"""What one table's schema part is stops that table at most: the others of the database go on."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine.cdc.records import routing
from engine.cdc.records.routing import route
from engine.cdc.samples import TopicSample
from engine.cdc.survey import survey
from logstore.format.schema_parts import split_payloads
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Field, Record, SourceTable, int32, text

GOOD = SourceTable("good", [int32("id", optional=False), text("s")])


def double(default: Any) -> Field:
    return {"type": "double", "optional": False, "default": default, "field": "d"}


def prices(*columns: Field) -> SourceTable:
    return SourceTable("prices", [int32("id", optional=False), *columns])


def spaced(record: Record) -> Record:
    """As another converter writes it: with spaces."""
    topic, key, value, *_ = record
    assert key is not None
    assert value is not None
    return topic, json.dumps(json.loads(key)).encode(), json.dumps(json.loads(value)).encode()


def indented(record: Record) -> Record:
    """The payload first, over several lines."""
    topic, key, value, *_ = record
    assert value is not None
    return topic, key, json.dumps(dict(reversed(json.loads(value).items())), indent=1).encode()


def as_it_is(record: Record) -> Record:
    return record


FORMATS = [as_it_is, spaced, indented]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    with memory_job(tmp_path) as made:
        yield made


@pytest.mark.parametrize("given", FORMATS)
@pytest.mark.parametrize(
    "column",
    [
        double(0.0),
        double(-1.5e-300),
        double(1e300),
        double(7),
        {**double(None), "type": "float", "default": 0.1},
        {**double(None), "type": "int32", "default": 3},
        {"type": "struct", "field": "d", "optional": True, "default": {"x": 0.5},
         "fields": [{"type": "double", "field": "x", "optional": True, "default": 0.5}]},
        {"type": "array", "field": "d", "optional": True, "items": {"type": "double", "default": 0.5, "optional": True},
         "default": [0.5]},
    ],
)  # fmt: skip
def test_a_column_with_any_default_is_written(job: MemoryJob, given: Callable[[Record], Record], column: Field) -> None:
    """A fraction as the default of a part that is not formatted as Connect does it was no JSON to the digest."""
    value = {"struct": {"x": 2.0}, "array": [2.0]}.get(column["type"], 2)
    job.batch(given(prices(column).insert({"id": 1, "d": value})), GOOD.insert({"id": 1, "s": "x"}))
    assert job.rows("prices") == [{"id": 1, "d": value}]
    assert job.rows("good") == [{"id": 1, "s": "x"}]


@pytest.mark.parametrize("given", FORMATS)
@pytest.mark.parametrize(("default", "old"), [(0.25, 0.25), (-0.5, -0.5), (1e21, 1e21), (3, 3.0)])
def test_old_rows_have_the_fraction_that_an_added_column_has_as_its_default(
    job: MemoryJob, given: Callable[[Record], Record], default: float, old: float
) -> None:
    job.batch(given(prices().insert({"id": 1})))
    job.batch(given(prices(double(default)).insert({"id": 2, "d": 9.5})))
    assert job.rows("prices") == [{"id": 1, "d": old}, {"id": 2, "d": 9.5}]


def test_equal_schema_parts_are_one_part_whatever_their_formatting() -> None:
    """Else a table would pass through a change of its columns at each record of the other format."""
    records = [each(prices(double(1.5)).insert({"id": 1, "d": 2.0})) for each in FORMATS]
    routed = route(pa.array([each[1] for each in records]), pa.array([each[2] for each in records]))
    assert len({each.part.digest for each in routed.pieces if each.part is not None}) == 1
    assert sum(len(each.indices) for each in routed.pieces) == len(FORMATS)


BROKEN: dict[str, Callable[[dict[str, Any]], Any]] = {
    "a list": lambda part: [part],
    "a number": lambda part: 7,
    "fields are no list": lambda part: part | {"fields": 7},
    "a field is null": lambda part: part | {"fields": [None, *part["fields"]]},
    "a field has no name": lambda part: part | {"fields": [{"type": "int32"}, *part["fields"]]},
    "a name is a list": lambda part: part | {"fields": [{"type": "int32", "field": ["a"]}, *part["fields"]]},
    "a type is an object": lambda part: part | {"type": {"type": "struct"}},
    "the name is a number": lambda part: part | {"name": 7},
    "items are a text": lambda part: (
        part | {"fields": [*part["fields"], {"field": "l", "type": "array", "items": "x"}]}
    ),
    "parameters are a list": lambda part: part | {"fields": [*part["fields"], int32("p") | {"parameters": [1]}]},
}


def broken(record: Record, how: Callable[[dict[str, Any]], Any], *, of_key: bool) -> Record:
    texts = [json.loads(each) for each in record[1:3] if each is not None]
    at = 0 if of_key else 1
    texts[at]["schema"] = how(texts[at]["schema"])
    key, value = (json.dumps(each, separators=(",", ":")).encode() for each in texts)
    return record[0], key, value


@pytest.mark.parametrize("of_key", [False, True])
@pytest.mark.parametrize("given", FORMATS)
@pytest.mark.parametrize("how", BROKEN.values(), ids=BROKEN)
def test_a_table_waits_whose_schema_part_is_none_and_the_others_go_on(
    job: MemoryJob, how: Callable[[dict[str, Any]], Any], given: Callable[[Record], Record], of_key: bool
) -> None:
    record = given(broken(prices(text("t")).insert({"id": 1, "t": "a"}), how, of_key=of_key))
    report = job.batch(record, GOOD.insert({"id": 1, "s": "x"}))
    assert job.rows("good") == [{"id": 1, "s": "x"}]
    assert "its schema is not one of Kafka Connect" in str(report.tables["prices"].parked)
    assert not job.catalog.table_exists("shop.prices")


def test_a_table_waits_whose_part_is_a_bug_and_none_of_its_neighbours_in_the_topic_does(
    job: MemoryJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routed topics hold several tables: only the one whose part is unexpected waits, and it loses nothing."""
    bad, good = (
        SourceTable(name, [int32("id", optional=False), text(name)], topic_name="shop.all") for name in ("bad", "good")
    )
    digest = routing.part_digest

    def fails(row: Any, key: Any) -> str:
        if any(each["field"] == "bad" for each in row["fields"]):
            raise TypeError("not foreseen")
        return digest(row, key)

    monkeypatch.setattr(routing, "part_digest", fails)
    report = job.batch(bad.insert({"id": 1, "bad": "a"}), good.insert({"id": 1, "good": "b"}))
    assert job.rows("good") == [{"id": 1, "good": "b"}]
    assert "unexpected: TypeError: not foreseen" in str(report.tables["bad"].parked)
    assert report.tables["good"].parked is None
    monkeypatch.undo()
    job.batch(good.insert({"id": 2, "good": "c"}))
    job.state.ask("resume", "bad", at_ms=1)
    job.batch(good.insert({"id": 3, "good": "d"}))
    assert job.rows("bad") == [{"id": 1, "bad": "a"}]
    assert [each["id"] for each in job.rows("good")] == [1, 2, 3]


@pytest.mark.parametrize("given", FORMATS)
def test_a_survey_shows_a_fraction_as_the_default(job: MemoryJob, given: Callable[[Record], Record]) -> None:
    """``fluvial plan --from-topics``; a part that is none is a problem of its topic."""
    samples = []
    for topic, record in (
        ("shop.prices", given(prices(double(0.5)).insert({"id": 1, "d": 2.0}))),
        ("shop.odd", given(broken(prices().insert({"id": 1}), BROKEN["a field is null"], of_key=False))),
    ):
        batch = pa.RecordBatch.from_pydict({"offset": [0], "key": [record[1]], "value": [record[2]]})
        samples.append(TopicSample(topic=topic, partition=0, size=1, records=(batch,), is_whole=True))
    found = survey(samples, job.settings, split_payloads)
    (table,) = found.tables
    assert [(each.name, each.type, each.source.default) for each in table.columns][1:] == [("d", "DOUBLE", "0.5")]
    assert found.problems == {"shop.odd": "its schema is not one of Kafka Connect"}
