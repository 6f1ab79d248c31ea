"""Source tables that share one table, as shards do, and whose columns change at other times, or in another way."""

import logging
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from engine.cdc.rules.names import NameRule, Naming
from engine.cdc.signals import SnapshotSignal, request_snapshots
from engine.cdc.state import CdcTableState
from engine.cdc.status import latest_offsets
from logstore.format.connect_types import TypeRules
from tests.engine.cdc.test_ways_on import Live, do, reason_of
from tests.engine.cdc.test_ways_on import check_equal as check_rows
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Field, Record, SourceTable, int32, int64, text

SHARDS = Naming(rules=(NameRule(source=r"public\.t_(\d)", to="t", add={"s": "{1}"}, key=("s", "id")),))
ID = int32("id", optional=False)
TOPICS = [None, "shop.public.routed"]
"""Of each source table its own, or one for all of them, as a transform that routes records makes."""


class Shard:
    """One source table under ALTER TABLE, and the changes of its rows."""

    def __init__(self, number: str, topic: str | None = None) -> None:
        self.name = f"t_{number}"
        self.number = number
        self.topic = topic
        self.columns: dict[str, Field] = {}
        self.rows: dict[int, dict[str, Any]] = {}

    def add(self, name: str, kind: str = "int", default: Any = None) -> None:
        made = int32(name) if kind == "int" else text(name)
        self.columns[name] = made if default is None else {**made, "default": default}
        for row in self.rows.values():
            row[name] = default

    def drop(self, name: str) -> None:
        del self.columns[name]
        for row in self.rows.values():
            del row[name]

    def write(self, key: int, value: int) -> Record:
        """An insert, or an update of all columns."""
        is_new = key not in self.rows
        values = {name: value if each["type"] == "int32" else f"text {value}" for name, each in self.columns.items()}
        self.rows[key] = {"id": key, **values}
        table = SourceTable(self.name, [ID, *self.columns.values()], topic_name=self.topic)
        return table.insert(self.rows[key]) if is_new else table.update(self.rows[key])


def check_equal(job: MemoryJob, shards: Sequence[Shard], said: Sequence[tuple[str, str]] = ()) -> None:
    """The rows of each source table, by the columns that have its values now; without columns of which it was said."""
    for shard in shards:
        live = job.live("t", f"public.{shard.name}")
        assert set(live) == {"id", *shard.columns}
        assert len(set(live.values())) == len(live)
        names = [name for name, column in live.items() if (column, shard.name) not in said]
        rows = [row for row in job.rows("t") if row["s"] == shard.number]
        found = {row["id"]: {name: row[live[name]] for name in names} for row in rows}
        assert found == {key: {name: row[name] for name in names} for key, row in shard.rows.items()}


def take_in(job: MemoryJob, batches: Sequence[Sequence[Record]]) -> None:
    for records in batches:
        job.restarted()
        waiting = [each.parked for each in job.batch(*records).tables.values() if each.parked]
        assert waiting == []


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("together", [True, False])
def test_columns_that_only_one_of_them_has(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, topic: str | None, together: bool
) -> None:
    """A column of one was taken for dropped when the other changed, and its later values came into another column."""
    one, two = Shard("1", topic), Shard("2", topic)
    for shard in (one, two):
        shard.add("a")
    two.add("c")
    records = [shard.write(key, key) for key in (1, 2) for shard in (one, two)]
    one.add("b")
    two.add("d")
    records += [shard.write(key, key) for key in (2, 3, 4) for shard in (one, two)]
    with memory_job(tmp_path, naming=SHARDS) as job, caplog.at_level(logging.WARNING, "fluvial.cdc"):
        take_in(job, [records] if together else [[each] for each in records])
        assert set(job.catalog.table("shop.t").schema.column_names) == {"s", "id", "a", "b", "c", "d"}
        assert not [each for each in caplog.messages if "not in the changes any more" in each]
        check_equal(job, [one, two])


@pytest.mark.parametrize("topic", TOPICS)
def test_a_migration_that_reaches_one_after_the_other(tmp_path: Path, topic: str | None) -> None:
    """Rows that the second one gets meanwhile have the default when the column reaches it, and each has one column."""
    one, two = Shard("1", topic), Shard("2", topic)
    with memory_job(tmp_path, naming=SHARDS) as job:
        take_in(job, [[one.write(1, 1), two.write(1, 1)]])
        for name, default in (("c", 7), ("d", None)):
            one.add(name, default=default)
            take_in(job, [[one.write(2, 2)], [two.write(2, 2), two.write(3, 3)]])
            two.add(name, default=default)
            take_in(job, [[two.write(3, 4)]])
        for shard in (one, two):
            shard.drop("c")
            take_in(job, [[shard.write(4, 4)]])
        for shard in (one, two):
            shard.add("c")
            take_in(job, [[shard.write(5, 5)]])
        assert job.catalog.table("shop.t").schema.column_names == ("s", "id", "c", "d", "c_2")
        check_equal(job, [one, two])


def test_a_column_that_another_one_has_is_not_dropped(tmp_path: Path) -> None:
    """By the rule to drop columns: only when none of the source tables has it."""
    one, two = Shard("1"), Shard("2")
    for shard in (one, two):
        shard.add("a")
    with memory_job(tmp_path, naming=SHARDS, schema_changes={"drop": "drop"}) as job:
        take_in(job, [[one.write(1, 1), two.write(1, 1)]])
        one.drop("a")
        take_in(job, [[one.write(2, 2)], [two.write(2, 2)]])
        check_equal(job, [one, two])
        two.drop("a")
        take_in(job, [[two.write(3, 3)]])
        assert job.catalog.table("shop.t").schema.column_names == ("s", "id")
        check_equal(job, [one, two])


@pytest.mark.parametrize("refuses", [True, False])
def test_another_default_than_that_of_the_column_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, refuses: bool
) -> None:
    """Rows from before it have the default with which the other source table has brought the column."""
    one, two = Shard("1"), Shard("2")
    connector = {"value.converter.replace.null.with.default": "false"}
    types = TypeRules(lossy="refuse" if refuses else "say")
    with memory_job(tmp_path, naming=SHARDS, types=types, connector=connector) as job:
        take_in(job, [[one.write(1, 1), two.write(1, 1)]])
        one.add("c", default=7)
        take_in(job, [[one.write(2, 2)]])
        two.add("c", default=9)
        with caplog.at_level(logging.WARNING, "fluvial.cdc"):
            parked = job.batch(two.write(2, 2)).tables["t"].parked
        said = str(parked) if refuses else "".join(caplog.messages)
        assert "column=c value='the default 7, from another source table; the default of this record is 9'" in said
        assert (parked is not None) == refuses


def test_a_state_of_the_version_before_continues(tmp_path: Path) -> None:
    """It had one sequence for all source tables."""
    one, two = Shard("1"), Shard("2")
    for shard in (one, two):
        shard.add("a")
    two.add("c")
    with memory_job(tmp_path, naming=SHARDS) as job:
        take_in(job, [[one.write(1, 1), two.write(1, 1)]])
        body = job.state.table("t").to_json()
        (*_, first), (*_, second) = body["parts"]
        body["parts"] = {
            name: {**first[name], **second[name]}
            if isinstance(first[name], dict)
            else list(dict.fromkeys((*first[name], *second[name])))
            for name in first
        }
        body["parts"]["live"] = first["live"]
        job.state.put("t", CdcTableState.from_json(body))
        one.add("b")
        take_in(job, [[one.write(2, 2)]])
        two.add("d")
        take_in(job, [[two.write(2, 2)]])
        assert set(job.catalog.table("shop.t").schema.column_names) == {"s", "id", "a", "b", "c", "d"}
        check_equal(job, [one, two])


def test_a_column_whose_name_a_numbered_one_has(tmp_path: Path) -> None:
    """``a_2`` holds the second ``a``: the source's own ``a_2`` is another column, and both had one."""
    source = Shard("1")
    with memory_job(tmp_path, naming=SHARDS) as job:
        for step in (lambda: source.add("a"), lambda: source.drop("a"), lambda: source.add("a")):
            step()
            take_in(job, [[source.write(len(source.rows), 1)]])
        assert job.live("t", "public.t_1")["a"] == "a_2"
        source.add("a_2")
        take_in(job, [[source.write(9, 9)]])
        check_equal(job, [source])


@pytest.mark.sweep
@pytest.mark.sampled(4)
@pytest.mark.parametrize("seed", range(40))
def test_any_changes_in_any_batches(tmp_path: Path, caplog: pytest.LogCaptureFixture, seed: int) -> None:
    random = Random(seed)
    topic, rule = TOPICS[seed % 2], ("keep", "drop")[seed // 2 % 2]
    shards = [Shard(str(number), topic) for number in range(1, 2 + random.randint(1, 2))]
    batches: list[list[Record]] = [[]]
    for step in range(random.randint(5, 40)):
        shard = random.choice(shards)
        names = list(shard.columns)
        if names and random.random() < 0.35:
            shard.drop(random.choice(names))
        elif random.random() < 0.6 and (free := [each for each in ("a", "b", "a_2", "b_2") if each not in names]):
            name = random.choice(free)
            default = 7 if name.startswith("b") and random.random() < 0.8 else None
            shard.add(name, random.choice(["int", "text"]) if default is None else "int", default)
        batches[-1] += [shard.write(random.randrange(5), step) for _ in range(random.randint(1, 2))]
        if random.random() < 0.3:
            batches.append([])
    with (
        memory_job(tmp_path, naming=SHARDS, schema_changes={"drop": rule}) as job,
        caplog.at_level(logging.WARNING, "fluvial.cdc"),
    ):
        take_in(job, batches)
        found = (re.search(r"column=(\S+) value='.*from another source table.* source=public\.(\S+)", each)
                 for each in caplog.messages)  # fmt: skip
        check_equal(job, [each for each in shards if each.rows], [(each[1], each[2]) for each in found if each])


ONE = Naming(rules=(NameRule(source=r"public\.t_1", to="t", add={"s": "1"}, key=("s", "id")),))
OWN: list[tuple[str, dict[str, Any]]] = [
    ("s", {}),
    ("m", {"added": {"m": "op"}}),
    ("_deleted", {"deletes": "soft"}),
    ("g", {"computed": {"g": "a + 1"}}),
]


@pytest.mark.parametrize(("name", "settings"), OWN)
def test_a_column_with_the_name_of_one_that_the_job_adds(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    """The source's values were replaced by the job's, where the column came later."""
    source = Shard("1")
    source.add("a")
    with memory_job(tmp_path, naming=ONE, **settings) as job:
        take_in(job, [[source.write(1, 1)]])
        source.add(name)
        take_in(job, [[source.write(2, 2)]])
        assert job.live("t", "public.t_1")[name] == f"{name}_2"
        check_equal(job, [source])


@pytest.mark.parametrize(("name", "settings"), OWN[:3])
def test_a_table_that_has_such_a_column_at_first_waits(tmp_path: Path, name: str, settings: dict[str, Any]) -> None:
    source = Shard("1")
    source.add(name)
    with memory_job(tmp_path, naming=ONE, **settings) as job:
        reason = str(job.batch(source.write(1, 1)).tables["t"].parked)
        rule = re.search(r"columns: \{rename: \{(\w+): (\w+)\}\}", reason)
        assert rule is not None, reason
        assert "fluvial cdc resume t" in reason
        job.settings = replace(job.settings, renamed={rule[1]: rule[2]})
        job.state.ask("resume", "t", at_ms=1)
        take_in(job, [[]])
        check_equal(job, [source])


def test_a_computed_column_is_none_of_a_table_that_has_its_own(tmp_path: Path) -> None:
    """The rule is for tables that have what it is computed from; the column of the source stays what it is."""
    source = Shard("1")
    source.add("g")
    with memory_job(tmp_path, naming=ONE, computed={"g": "a + 1"}) as job:
        take_in(job, [[source.write(1, 1)]])
        source.add("a")
        take_in(job, [[source.write(2, 2)]])
        check_equal(job, [source])


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("in_one_batch", [True, False])
def test_a_wider_key_that_reaches_one_of_them_first(tmp_path: Path, first: int, in_one_batch: bool) -> None:
    """The table was created again with the key of the source table that came first, and waited again."""
    narrow = [SourceTable(f"t_{number}", [ID, int32("v")]) for number in (1, 2)]
    tables = list(narrow)
    tables[first] = narrow[first].with_columns(int64("id", optional=False), int32("v"))
    rows: list[list[dict[str, Any]]] = [[{"id": 1, "v": 1}], [{"id": 1, "v": 2}]]
    rows[first].append({"id": 1 << 40, "v": 3})
    with memory_job(tmp_path, naming=SHARDS) as job:
        job.batch(*(table.insert({"id": 1, "v": number}) for number, table in enumerate(narrow)))
        job.batch(tables[first].insert({"id": 1 << 40, "v": 3}))
        snapshots = [Live(table, own) for table, own in zip(tables, rows, strict=True)]
        if in_one_batch:
            do(job, reason_of(job), "resnapshot", *snapshots)
        else:
            do(job, reason_of(job), "resnapshot", snapshots[0])
            job.batch(*(tables[1].read(row, snapshot="true") for row in rows[1]))
        check_rows(job, [{"s": str(at + 1), **row} for at, own in enumerate(rows) for row in own])
        assert {each.name: str(each.type) for each in job.catalog.table("shop.t").schema.fields}[
            "id"
        ] == "BIGINT NOT NULL"


def test_a_second_snapshot_is_asked_of_all_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one dropped the table and could not be written: the second was asked of no source table, or of one."""
    asked: list[Sequence[SnapshotSignal]] = []
    monkeypatch.setattr("engine.cdc.signals.send_signals", lambda _, __, signals: asked.append(signals))
    tables = [SourceTable(f"t_{number}", [ID, int32("v")]) for number in (1, 2)]
    with memory_job(tmp_path, naming=SHARDS) as job:
        job.batch(*(table.insert({"id": 1, "v": 1}) for table in tables))

        def resnapshot() -> None:
            latest = latest_offsets(job.settings.properties, job.settings.pattern)
            request_snapshots(job.state, job.settings, ["t"], latest, topic="signals", at_ms=len(asked), drops=True)
            job.batch()

        resnapshot()
        job.batch(*(table.read({"id": 1, "v": {"no": "number"}}, snapshot="true") for table in tables[:1]))
        assert job.state.table("t").parked is not None
        resnapshot()
        assert asked[0] == asked[1]
        assert [str(each) for each in asked[1][0].tables] == ["public.t_1", "public.t_2"]
        job.batch(*(table.read({"id": 1, "v": 2}, snapshot="true") for table in tables))
        check_rows(job, [{"s": number, "id": 1, "v": 2} for number in "12"])
