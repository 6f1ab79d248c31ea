"""Values that connectors write otherwise than the source: what it meant, where it cannot mean something else."""

import json
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.format.connect_types import TypeRules, columns_of_part
from logstore.format.source.ranges import of_julian_calendar
from tests.stores import change_samples
from tests.support.cdc_job import memory_job
from tests.support.change_events import Record, SourceTable, int32, text

ZONED = {"type": "string", "optional": True, "name": "io.debezium.time.ZonedTimestamp", "version": 1, "field": "ts"}
ENUM = {"type": "string", "optional": True, "name": "io.debezium.data.Enum", "version": 1, "field": "en"}
BINLOG = SourceTable("t", [int32("id", optional=False), ZONED, ENUM], schema="shop")
TYPED = "__debezium.source.column.type"


def of_mariadb(record: Record) -> Record:
    """The cluster in memory has no MariaDB: what Debezium 3.4 published of one, by the connector's name."""
    topic, key, value, *_ = record
    return topic, key, (value or b"").replace(b'"connector":"postgresql"', b'"connector":"mariadb"')


@pytest.mark.parametrize("rule", ["timestamp_ltz(6)", "string"])
def test_zero_timestamps_and_commas_of_enums_of_mariadb(tmp_path: Path, rule: str) -> None:
    """A snapshot has null and a,b of the same row whose change has 1970 and a backslash."""
    with memory_job(tmp_path, types=TypeRules(timestamptz=rule)) as job:
        zeros = ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00.000000Z")
        for number, zero in enumerate(zeros):
            job.batch(of_mariadb(BINLOG.insert({"id": number, "ts": zero, "en": "c\\,d"})))
        job.batch(of_mariadb(BINLOG.update({"id": 0, "ts": zeros[1], "en": "c\\,d"})))
        job.batch(of_mariadb(BINLOG.read({"id": 2, "ts": None, "en": "c,d"})))
        job.batch(of_mariadb(BINLOG.insert({"id": 3, "ts": "1970-01-01T00:00:01Z", "en": "x"})))
        found = job.rows("t")
        assert [(each["ts"], each["en"]) for each in found[:3]] == [(None, "c,d")] * 3
        assert str(found[3]["ts"])[:19].replace("T", " ") == "1970-01-01 00:00:01"


def test_the_same_texts_of_postgresql_are_data(tmp_path: Path) -> None:
    with memory_job(tmp_path) as job:
        job.batch(BINLOG.insert({"id": 0, "ts": "1970-01-01T00:00:00Z", "en": "c\\,d"}))
        (found,) = job.rows("t")
        assert (found["ts"].timestamp(), found["en"]) == (0, "c\\,d")


def numeric(kind: str, source: str) -> dict[str, Any]:
    return {"type": kind, "optional": True, "parameters": {TYPED: source}, "field": "n"}


def test_words_of_numbers_without_a_value_are_those_of_the_database(tmp_path: Path) -> None:
    words = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity", "1.50": "1.50"}
    for source, wanted in (("NUMERIC", list(words.values())), ("TEXT", list(words))):
        table = SourceTable("t", [int32("id", optional=False), numeric("string", source)])
        with memory_job(tmp_path / source) as job:
            job.batch(*(table.insert({"id": number, "n": word}) for number, word in enumerate(words)))
            assert [each["n"] for each in job.rows("t")] == wanted


@pytest.mark.parametrize(
    ("kind", "source", "said"),
    [
        ("string", "MONEY", "decimal.handling.mode=precise"),
        ("double", "NUMERIC", "rounded"),
        ("int64", "BIGINT UNSIGNED", "bigint.unsigned.handling.mode=precise"),
        ("int64", "BIGINT", ""),
        ("string", "NAME", "null"),
    ],
)
def test_what_the_connector_loses_is_said(kind: str, source: str, said: str) -> None:
    (column,) = columns_of_part({"fields": [numeric(kind, source)]})
    assert said in column.note
    assert bool(column.note) == bool(said)


def test_by_rule_a_table_with_a_column_that_loses_something_waits(tmp_path: Path) -> None:
    """Also where the column comes later; excluded, as the message says, the table has the rest."""
    plain = SourceTable("t", [int32("id", optional=False)])
    lossy = plain.with_columns(*plain.columns, numeric("double", "NUMERIC"))
    for before in ([], [plain.insert({"id": 1})]):
        with memory_job(tmp_path / str(len(before)), types=TypeRules(lossy="refuse")) as job:
            job.batch(*before)
            reason = str(job.batch(lossy.insert({"id": 2, "n": 0.5})).tables["t"].parked)
            assert "column=n" in reason
            assert "rounded" in reason
            pattern = re.search(r"columns: \{exclude: \['(.*?)'\]\}", reason)
            assert pattern is not None
            object.__setattr__(job.settings, "excluded", (pattern[1],))
            job.state.ask("resume", "t", at_ms=1)
            job.restarted()
            assert job.batch().tables["t"].parked is None
            assert job.rows("t")[-1] == {"id": 2}


MOMENTS = {
    "0001-01-01": ("0000-12-30", -2), "0004-02-28": ("0004-02-26", -2), "0500-03-01": ("0500-03-03", 2),
    "1000-03-01": ("1000-03-07", 6), "1500-02-28": ("1500-03-09", 9), "1500-03-01": ("1500-03-11", 10),
    "1582-10-04": ("1582-10-14", 10), "1582-10-15": ("1582-10-15", 0), "1700-01-01": ("1700-01-01", 0),
}  # fmt: skip
"""Days of the database: what Debezium 3.4 publishes in rows of a snapshot, and by how many days that is too late."""
MICROS = {"type": "int64", "optional": True, "name": "io.debezium.time.MicroTimestamp", "version": 1}
MILLIS = {"type": "int64", "optional": True, "name": "io.debezium.time.Timestamp", "version": 1, "field": "m"}
ARRAY = {"type": "array", "optional": True, "items": MICROS}
ZONED_ARRAY = {"type": "array", "optional": True, "items": {**ZONED, "field": None}}
OLD = SourceTable(
    "t",
    [
        text("id", optional=False), {**MICROS, "field": "u"}, MILLIS, ZONED, {**ARRAY, "field": "a"},
        {**ZONED_ARRAY, "field": "za"},
    ],
)  # fmt: skip
DAY_US = 86_400_000_000


@pytest.mark.parametrize("rule", ["fail", "clamp", "null"])
def test_moments_before_1582_are_those_of_the_database(tmp_path: Path, rule: Any) -> None:
    """The driver takes their days for those of the Julian calendar in rows that it selects, and in arrays always."""
    with memory_job(tmp_path, types=TypeRules(out_of_range=rule)) as job:
        records = []
        for day, (shown, late) in MOMENTS.items():
            moment = datetime.fromisoformat(f"{day}T12:34:56.123456+00:00")
            micros = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
            for event, days in ((OLD.read, late), (OLD.insert, 0)):
                row = {
                    "id": f"{event.__name__} {day}", "u": micros + days * DAY_US,
                    "m": micros // 1000 + days * 86_400_000, "ts": f"{shown if days else day}T12:34:56.123456Z",
                    "a": [micros + late * DAY_US, None],
                    "za": [f"{day}T12:34:56.123456Z"],
                }  # fmt: skip
                records.append(event(row))
        job.batch(*records)
        assert len(job.rows("t")) == 2 * len(MOMENTS)
        for row in job.rows("t"):
            wanted = datetime.fromisoformat(f"{row['id'].split()[1]}T12:34:56.123456")
            assert row["u"] == wanted, row
            assert row["m"] == wanted.replace(microsecond=123000), row
            assert row["a"] == [wanted, None], row
            assert [each.replace(tzinfo=None) for each in (row["ts"], row["za"][0])] == [wanted, wanted], row


def test_moments_of_other_connectors_stay(tmp_path: Path) -> None:
    """MariaDB's are right in snapshots."""
    with memory_job(tmp_path) as job:
        source = SourceTable("t", [text("id", optional=False), {**MICROS, "field": "u"}])
        moment = datetime(1500, 3, 1, tzinfo=UTC)
        micros = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        job.batch(of_mariadb(source.read({"id": "a", "u": micros})), source.read({"id": "b", "u": micros}))
        assert [each["u"] for each in job.rows("t")] == [datetime(1500, 3, 1), datetime(1500, 2, 20)]


def julian_day(year: int, month: int, day: int) -> int:
    """Days since 1970 of a date of the Julian calendar: Meeus, "Astronomical Algorithms", chapter 7."""
    year, month = (year - 1, month + 12) if month <= 2 else (year, month)
    return int(365.25 * (year + 4716)) + int(30.6001 * (month + 1)) + day - 1524 - 2_440_588


@given(days=st.lists(st.dates(date(1, 1, 1), date(1582, 10, 4)), min_size=1), unit=st.sampled_from(["s", "ms", "us"]))
def test_each_day_of_the_julian_calendar(days: list[date], unit: str) -> None:
    per_day = {"s": 86_400, "ms": 86_400_000, "us": DAY_US}[unit]
    moved = pa.array([julian_day(each.year, each.month, each.day) * per_day + 7 for each in days] + [None], pa.int64())
    wanted = [(each - date(1970, 1, 1)).days * per_day + 7 for each in days]
    found = of_julian_calendar(moved.cast(pa.timestamp(unit)))
    assert found.cast(pa.int64()).to_pylist() == [*wanted, None]


@pytest.mark.parametrize(("mode", "lost"), [("json", {"ha", "ca", "b"}), ("map", {"ha", "ca"})])
def test_values_of_contrib_that_are_stored_apart_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: str, lost: set[str]
) -> None:
    """Records of a real connector, in two modes of ``hstore`` and of bytes: what it leaves out is kept, or said."""

    def pairs(value: Any) -> Any:
        return value if value is None else json.loads(value) if mode == "json" else dict(value)

    connector = {"binary.handling.mode": {"json": "base64", "map": "hex"}[mode]}
    with memory_job(tmp_path, connector=connector) as job:
        changes = [each for each in change_samples.read(f"hstores-{mode}") if each.topic.endswith(".hstores")]
        job.batch(*(("shop.public.hstores", each.key, each.value) for each in changes))
        one, two, three, four = job.rows("hstores")
    assert [row["v"] for row in (one, two, three, four)] == [2] * 4
    assert pairs(two["h"]) == {f"k{number}": f"value {number}" for number in range(1, 131)}
    assert [pairs(row["h"]) for row in (one, three, four)] == [None, {"a": "1"}, None]
    assert ([pairs(each) for each in one["ha"]], one["ca"]) == ([{"a": "1"}], ["Ab"])
    assert two["c"] == "C" * 2100
    assert {name for name, value in two.items() if value is None} == lost
    said = re.findall(r"column=(\w+) .*publishes null", caplog.text)
    assert set(said) == lost
