"""Columns that the source computes, which its changes do not have: never a silently wrong value in a table."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.cdc.records.scan import split_of
from engine.cdc.rules.names import NameRule, Naming
from engine.cdc.samples import samples
from engine.cdc.settings import GENERATED as GENERATED_COLUMN
from engine.cdc.state import CdcTableState
from engine.cdc.survey import survey
from engine.cdc.verify.comparison import paired
from engine.cdc.verify.database import LiveTable
from logstore.format.connect_types import TypeRules
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Record, SourceTable, int32

WITHOUT = SourceTable("t", [int32("id", optional=False), int32("a")])
WITH = WITHOUT.with_columns(*WITHOUT.columns, int32("g"))
GENERATED = frozenset({"public.t.g"})


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    with memory_job(tmp_path) as made:
        yield made


def resumed(job: MemoryJob) -> str | None:
    job.state.ask("resume", "t", at_ms=1)
    job.restarted()
    return job.batch().tables["t"].parked


@pytest.mark.parametrize("is_one_batch", [True, False])
def test_a_column_that_only_rows_of_a_snapshot_have_is_asked_about(job: MemoryJob, is_one_batch: bool) -> None:
    """It was null in each row that changed, with a warning; a row's old value would be wrong when its inputs change."""
    read, change = WITH.read({"id": 1, "a": 1, "g": 2}), WITHOUT.update({"id": 1, "a": 5})
    if is_one_batch:
        reason = str(job.batch(read, change).tables["t"].parked)
    else:
        job.batch(read)
        reason = str(job.batch(change).tables["t"].parked)
    assert "column=g" in reason
    pattern = re.search(r"columns: \{exclude: \['(.*?)'\]\}", reason)
    assert pattern is not None
    assert "fluvial cdc resume t" in reason
    assert job.state.table("t").parked is not None
    object.__setattr__(job.settings, "excluded", (pattern[1],))
    assert resumed(job) is None
    assert job.rows("t") == [{"id": 1, "a": 5}]
    job.batch(WITH.read({"id": 1, "a": 5, "g": 6}), WITHOUT.update({"id": 1, "a": 6}))
    assert job.rows("t") == [{"id": 1, "a": 6}]


def test_a_column_that_changes_had_was_dropped(job: MemoryJob) -> None:
    """Its values stay, by the rule; also where a snapshot comes between."""
    job.batch(WITH.read({"id": 1, "a": 1, "g": 2}), WITH.insert({"id": 2, "a": 1, "g": 2}))
    assert job.batch(WITHOUT.insert({"id": 3, "a": 3})).tables["t"].parked is None
    assert [row["g"] for row in job.rows("t")] == [2, 2, None]


def test_by_rule_a_column_that_is_gone_is_dropped_without_asking(tmp_path: Path) -> None:
    with memory_job(tmp_path, schema_changes={"drop": "drop"}) as job:
        job.batch(WITH.read({"id": 1, "a": 1, "g": 2}))
        assert job.batch(WITHOUT.update({"id": 1, "a": 5})).tables["t"].parked is None
        assert job.rows("t") == [{"id": 1, "a": 5}]


def test_columns_that_the_catalog_of_the_source_names_are_left_out(tmp_path: Path) -> None:
    """With what they are computed from they can be computed here."""
    with memory_job(tmp_path, generated=GENERATED, computed={"g": "a + 1"}) as job:
        job.batch(WITH.read({"id": 1, "a": 1, "g": 2}), WITHOUT.update({"id": 1, "a": 5}))
        job.batch(WITHOUT.insert({"id": 2, "a": 7}))
        assert [(row["a"], row["g"]) for row in job.rows("t")] == [(5, 6), (7, 8)]


@pytest.mark.parametrize("records", [[WITH.read({"id": 1, "a": 1, "g": 2})], [WITHOUT.insert({"id": 1, "a": 1})]])
def test_a_column_that_the_table_lacks_is_named_or_refused(
    tmp_path: Path, records: list[Record], caplog: pytest.LogCaptureFixture
) -> None:
    """Also where no record has it, as where there was no snapshot: by the log, by plan, and by types.lossy."""
    with memory_job(tmp_path, generated=GENERATED) as job:
        assert job.batch(*records).tables["t"].parked is None
        assert "column=g source=public.t loses='a generated column" in caplog.text
        (table,) = survey(samples(job.settings, count=50), job.settings, split_of(job.settings)).tables
        assert [each.note for each in table.columns if each.name == "g"] == [GENERATED_COLUMN]
        assert table.problems == ()
        object.__setattr__(job.settings, "types", TypeRules(lossy="refuse"))
        job.restarted()
        reason = str(job.batch(WITHOUT.insert({"id": 2, "a": 5})).tables["t"].parked)
        assert "loses='a generated column" in reason
        (table,) = survey(samples(job.settings, count=50), job.settings, split_of(job.settings)).tables
        assert table.problems == (f"g: types.lossy=refuse: {GENERATED_COLUMN}",)
        pattern = re.search(r"columns: \{exclude: \['(.*?)'\]\}", reason)
        assert pattern is not None
        object.__setattr__(job.settings, "excluded", (pattern[1],))
        assert resumed(job) is None
        assert job.rows("t") == [{"id": 1, "a": 1}, {"id": 2, "a": 5}]


def test_plan_names_a_column_that_changes_have_as_null(job: MemoryJob) -> None:
    """So a connector publishes generated ones after a snapshot by a signal; without the source's catalog it may be."""
    job.send(WITH.read({"id": 1, "a": 1, "g": 2}), WITH.insert({"id": 2, "a": 5, "g": None}))
    assert "null in all changes" in noted(job)["g"]
    assert [name for name, note in noted(job).items() if note] == ["g"]
    job.send(WITH.insert({"id": 3, "a": 1, "g": 2}))
    assert noted(job)["g"] == ""


def noted(job: MemoryJob) -> dict[str, str]:
    (table,) = survey(samples(job.settings, count=50), job.settings, split_of(job.settings)).tables
    return {each.name: each.note for each in table.columns}


def test_a_column_that_is_computed_here_is_not_lost(tmp_path: Path) -> None:
    with memory_job(tmp_path, generated=GENERATED, computed={"g": "a + 1"}, types=TypeRules(lossy="refuse")) as job:
        assert job.batch(WITHOUT.insert({"id": 1, "a": 1})).tables["t"].parked is None


def test_a_table_that_has_such_a_column_loses_it(job: MemoryJob) -> None:
    """Made by an earlier version, or before the column was generated: old rows would have values of the past."""
    job.batch(WITH.insert({"id": 1, "a": 1, "g": 2}))
    job.restarted()
    object.__setattr__(job.settings, "generated", GENERATED)
    assert job.batch(WITHOUT.insert({"id": 2, "a": 2})).tables["t"].parked is None
    assert job.rows("t") == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]
    job.batch(WITH.read({"id": 1, "a": 1, "g": 2}))
    assert job.rows("t") == [{"id": 1, "a": 1}, {"id": 2, "a": 2}]


def test_a_table_without_a_key_says_what_to_do(tmp_path: Path) -> None:
    nokey, with_g = (SourceTable("t", each.columns, key=()) for each in (WITHOUT, WITH))
    with memory_job(tmp_path) as job:
        job.batch(with_g.read({"id": 1, "a": 1, "g": 2}))
        reason = str(job.batch(nokey.insert({"id": 2, "a": 2})).tables["t"].parked)
        assert "columns: {exclude: ['public\\.t\\.g']}" in reason
        assert "fluvial cdc resnapshot t --drop --writers-stopped" in reason


def test_one_of_several_sources_may_have_a_plain_column_of_the_name(tmp_path: Path) -> None:
    naming = Naming(rules=(NameRule(source=r"public\.t_(\d)", to="t", add={"s": "{1}"}, key=("s", "id")),))
    one, two = (SourceTable(f"t_{number}", WITH.columns) for number in (1, 2))
    with memory_job(tmp_path, naming=naming, generated=frozenset({"public.t_1.g"})) as job:
        job.batch(one.read({"id": 1, "a": 1, "g": 2}), two.insert({"id": 1, "a": 1, "g": 2}))
        job.batch(one.with_columns(*WITHOUT.columns).insert({"id": 2, "a": 1}))
        assert [(row["s"], row["g"]) for row in job.rows("t")] == [("1", None), ("1", None), ("2", 2)]


def test_a_state_of_an_earlier_version_asks_nothing(job: MemoryJob) -> None:
    """It does not know which columns changes had."""
    job.batch(WITH.read({"id": 1, "a": 1, "g": 2}))
    body = job.state.table("t").to_json()
    ((_, _, parts),) = body["parts"]
    body["parts"] = {name: value for name, value in parts.items() if name != "changed"}
    job.state.put("t", CdcTableState.from_json(body))
    job.restarted()
    assert job.batch(WITHOUT.insert({"id": 2, "a": 2})).tables["t"].parked is None


def test_a_comparison_lists_what_is_left_out(job: MemoryJob) -> None:
    job.batch(WITHOUT.insert({"id": 2, "a": 2}))
    schema = job.catalog.table("shop.t").read().schema
    columns = (("id", "int4"), ("a", "int4"), ("g", "int4"))
    live = LiveTable(schema="public", name="t", columns=columns, key=("id",), generated=frozenset({"g"}))
    assert "generated" in paired("postgresql", live, "t", schema).left_out["g"]
