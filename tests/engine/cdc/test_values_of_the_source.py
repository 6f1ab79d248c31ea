"""Values that connectors write otherwise than the source: what it meant, where it cannot mean something else."""

import re
from pathlib import Path
from typing import Any

import pytest

from logstore.format.connect_types import TypeRules, columns_of_part
from tests.support.cdc_job import memory_job
from tests.support.change_events import Record, SourceTable, int32

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
