"""Rules of a job on the rows of a table: what becomes of those that break one, counted, and the same when repeated."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.cdc.settings import TableSettings
from engine.kafka.dead_letters import OFFSET_HEADER, REASON_HEADER, DeadLetters
from engine.runtime.expected_rows import Expectation
from engine.runtime.metrics import BROKEN_ROWS
from logstore.format.source.unavailable import UNAVAILABLE_VALUE
from tests.support.cdc_job import memory_job
from tests.support.change_events import Record, SourceTable, int32, text

T = SourceTable("t", [int32("id", optional=False), int32("n")])
DOCS = SourceTable("docs", [int32("id", optional=False), int32("n"), text("body")])
ROWS = {0: 5, 1: -1, 2: None, 3: -7, 4: 9}
GOOD = [0, 2, 4]


def inserted(rows: dict[int, int | None]) -> list[Record]:
    return [T.insert({"id": number, "n": value}) for number, value in rows.items()]


def expecting(**rule: Any) -> dict[str, TableSettings]:
    return {"t": TableSettings(expect=(Expectation(name="positive", condition="n >= 0", **rule),))}


def counted(on_fail: str) -> float:
    return float(BROKEN_ROWS.labels("shop.t", "positive", on_fail)._value.get())


@pytest.fixture
def sent_letters(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str]]:
    """Offset and reason of each dead letter; the cluster in memory has transactional producers only."""
    sent: list[tuple[int, str]] = []

    def produce(_: DeadLetters, key: Any, value: Any, headers: Sequence[tuple[str, bytes]]) -> None:
        named = dict(headers)
        sent.append((int(named[OFFSET_HEADER]), named[REASON_HEADER].decode()))

    monkeypatch.setattr(DeadLetters, "produce", produce)
    return sent


@pytest.mark.parametrize("is_repeated", [False, True])
@pytest.mark.parametrize("on_fail", ["drop", "dead-letter", "warn"])
def test_rows_that_break_a_rule_are_left_out_sent_or_kept_also_after_a_restart(
    tmp_path: Path, sent_letters: list[tuple[int, str]], on_fail: str, is_repeated: bool
) -> None:
    before = counted(on_fail)
    with memory_job(tmp_path, tables=expecting(on_fail=on_fail), dead_letters="letters") as job:
        report = job.batch(*inserted(ROWS))
        if is_repeated:
            job.restarted()
            job.again()
        assert [each["id"] for each in job.rows("t")] == (sorted(ROWS) if on_fail == "warn" else GOOD)
        assert [offset for offset, _ in sent_letters] == ([1, 3] if on_fail == "dead-letter" else [])
        assert all("rule=positive condition='n >= 0'" in reason for _, reason in sent_letters)
        assert report.tables["t"].broken == {"positive": 2}
        assert report.tables["t"].bad == 0
        assert counted(on_fail) == before + 2
        job.batch(*inserted({5: -2, 6: 6}))
        assert job.state.progress()["tables"][0]["broken"] == {"positive": 3}  # type: ignore[index]


@pytest.mark.parametrize(
    ("rule", "limit"), [({}, ""), ({"on_fail": "drop", "max_count": 1}, "max-count=1"),
                        ({"on_fail": "dead-letter", "max_share": 0.2}, "max-share=0.2")],
)  # fmt: skip
def test_more_than_a_rule_allows_parks_the_table_and_nothing_is_written_or_sent(
    tmp_path: Path, sent_letters: list[tuple[int, str]], rule: dict[str, Any], limit: str
) -> None:
    with memory_job(tmp_path, tables=expecting(**rule), dead_letters="letters") as job:
        parked = str(job.batch(*inserted(ROWS)).tables["t"].parked)
        assert "rule=positive condition='n >= 0' rows=2 of=5" in parked
        assert limit in parked
        assert "examples=[{'id': 1, 'n': -1}, {'id': 3, 'n': -7}]" in parked
        assert job.rows("t") == []
        assert sent_letters == []


def test_a_change_whose_new_row_breaks_a_rule_is_left_out_whole_and_a_delete_is_not_looked_at(tmp_path: Path) -> None:
    with memory_job(tmp_path, tables=expecting(on_fail="drop")) as job:
        job.batch(*inserted({0: 5, 1: 1}))
        job.batch(T.update({"id": 0, "n": -5}), T.delete({"id": 1, "n": -1}))
        assert job.rows("t") == [{"id": 0, "n": 5}]


@pytest.mark.parametrize("key", [("id",), ()])
def test_a_change_that_is_left_out_leaves_the_old_row_where_it_is(tmp_path: Path, key: tuple[str, ...]) -> None:
    """Without a key the old row was taken back, and the new one dropped: the row was lost."""
    source = SourceTable("t", [int32("id", optional=False), int32("n")], key=key)
    old = {"id": 0, "n": 5}
    with memory_job(tmp_path, tables=expecting(on_fail="drop")) as job:
        job.batch(source.insert(old), source.insert({"id": 1, "n": 1}))
        job.batch(source.update({"id": 0, "n": -5}, before=old), source.delete({"id": 1, "n": 1}))
        assert [(each["id"], each["n"]) for each in job.rows("t")] == [(0, 5)]


def test_a_change_that_left_a_value_out_meets_the_rules_on_that_column_and_no_others(tmp_path: Path) -> None:
    """The value is not null, it is that of the row before: the change was dropped."""
    rules = (
        Expectation(name="named", condition="body IS NOT NULL", on_fail="drop"),
        Expectation(name="positive", condition="n >= 0", on_fail="drop"),
    )
    with memory_job(tmp_path, tables={"docs": TableSettings(expect=rules)}) as job:
        job.batch(DOCS.insert({"id": 1, "n": 1, "body": "a"}), DOCS.insert({"id": 2, "n": 2, "body": "b"}))
        left_out = [{"id": 1, "n": 7, "body": UNAVAILABLE_VALUE}, {"id": 2, "n": -7, "body": UNAVAILABLE_VALUE}]
        report = job.batch(*map(DOCS.update, left_out), DOCS.update({"id": 2, "n": 8, "body": None}))
        assert job.rows("docs") == [{"id": 1, "n": 7, "body": "a"}, {"id": 2, "n": 2, "body": "b"}]
        assert report.tables["docs"].broken == {"named": 1, "positive": 1}


def test_a_row_that_was_deleted_and_stays_breaks_no_rule_on_columns_that_a_delete_lacks(tmp_path: Path) -> None:
    rule = Expectation(name="known", condition="n IS NOT NULL", on_fail="drop")
    with memory_job(tmp_path, tables={"t": TableSettings(expect=(rule,))}, deletes="soft") as job:
        job.batch(*inserted({0: 5}))
        report = job.batch(T.delete({"id": 0, "n": None}))
        assert [(each["n"], each["_deleted"]) for each in job.rows("t")] == [(5, True)]
        assert report.tables["t"].broken == {}


def test_a_rule_that_the_columns_do_not_fit_parks_the_table_by_name(tmp_path: Path) -> None:
    settings = {"t": TableSettings(expect=(Expectation(name="odd", condition="m >= 0"),))}
    with memory_job(tmp_path, tables=settings) as job:
        assert "rule=odd" in str(job.batch(*inserted({0: 5})).tables["t"].parked)
