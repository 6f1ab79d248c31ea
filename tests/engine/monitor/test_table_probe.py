"""Looking again and again: the same as a fresh look, at the price of what is new."""

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

from engine import Catalog, Table
from engine.cli.app import run_command
from engine.cli.commands.top import screen, seen
from engine.monitor.table_probe import CommitFacts, TableHealth, TableProbe
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.system_tables import SYSTEM_TABLES
from lsm.errors import InvalidInputError
from tests.support.faults import MemoryFileIO
from tests.support.tables import KEY_SCHEMA, key_table, memory_catalog, reopened, rows

DAY_MS = 86_400_000


def commit_facts(number: int, time_ms: int, rows: int = 0, kind: CommitKind = CommitKind.APPEND) -> CommitFacts:
    snapshot = Snapshot(
        id=number,
        schema_id=0,
        base_manifest_list="b",
        delta_manifest_list="d",
        commit_user="u",
        commit_identifier=number,
        commit_kind=kind,
        time_ms=time_ms,
        delta_record_count=rows,
    )
    return CommitFacts(snapshot=snapshot, added_bytes=10 * rows)


def health(now_ms: int, *commits: CommitFacts) -> TableHealth:
    return TableHealth(table="t", time_ms=now_ms, commits=commits, buckets=(), levels=(), log_lag=None)


def test_a_later_look_is_what_a_fresh_one_sees() -> None:
    table = key_table(bucket="2")
    probe = TableProbe(Table(table))
    steps: list[Any] = [
        lambda: None,
        lambda: table.write(rows(*((key, 1) for key in range(9)))),
        lambda: [table.write(rows((key, 2), (key + 1, 2))) for key in range(6)],
        lambda: table.compact(),
        lambda: table.write(rows((3, None)), pa.array(["-D"])),
        lambda: table.overwrite(rows((1, 1))),
    ]
    for step in steps:
        step()
        seen, fresh = probe.look(), TableProbe(Table(table)).look()
        assert (seen.commits, seen.buckets, seen.levels) == (fresh.commits, fresh.buckets, fresh.levels)
    assert [each.snapshot.id for each in seen.commits] == sorted(table.store.snapshots.ids(), reverse=True)


def test_a_look_agrees_with_the_system_table() -> None:
    table = key_table(bucket="3")
    for key in range(8):
        table.write(rows((key, 1), (key + 20, 2), (key + 40, 3)))
    seen = {each.bucket: each for each in TableProbe(Table(table)).look().buckets}
    for row in SYSTEM_TABLES["buckets"].read(table.store).to_pylist():
        each = seen[row["bucket"]]
        assert (each.sorted_runs, each.level0_files, each.file_count) == (
            row["sorted_runs"],
            row["l0_files"],
            row["file_count"],
        )
        assert (each.compaction_debt, each.size_bytes) == (row["compaction_debt"], row["file_size_in_bytes"])


def test_a_rolled_back_history_is_read_again() -> None:
    disk = MemoryFileIO()
    table = key_table(disk, bucket="1")
    for value in range(3):
        table.write(rows((1, value)))
    probe = TableProbe(Table(table))
    probe.look()
    disk.delete(table.store.paths.snapshot(3))
    table.store.snapshots.write_latest_hint(2)
    assert [each.snapshot.id for each in probe.look().commits] == [2, 1]


class CountingIO(MemoryFileIO):
    reads = 0

    def read_bytes(self, path: str) -> bytes:
        type(self).reads += 1
        return super().read_bytes(path)


def test_a_look_without_news_reads_next_to_nothing() -> None:
    disk = CountingIO()
    table = key_table(disk, bucket="1")
    for value in range(30):
        table.write(rows((1, value)))
    probe = TableProbe(Table(reopened(table, disk)))

    def reads() -> int:
        before = CountingIO.reads
        probe.look()
        return CountingIO.reads - before

    assert reads() > 60
    assert reads() <= 5
    table.write(rows((2, 2)))
    assert reads() <= 12


@pytest.mark.parametrize(
    ("commits", "rows_per_s", "commits_per_minute"),
    [
        ([], 0.0, 0.0),
        ([(0, 50)], 0.0, 0.0),
        ([(10, 100), (20, 50)], 5.0, 3.0),  # from the first one 20 s ago on: its own rows are not of that time
        ([(10, 100), (200, 50), (400, 9)], 0.5, 0.4),  # the last 300 s
        ([(350, 100), (400, 9)], 0.0, 0.0),
    ],
)
def test_rates_are_those_of_the_last_while(
    commits: list[tuple[int, int]], rows_per_s: float, commits_per_minute: float
) -> None:
    now_ms = DAY_MS
    facts = [commit_facts(99 - at, now_ms - 1000 * age, count) for at, (age, count) in enumerate(commits)]
    rates = health(now_ms, *facts).rates(300)
    assert (rates.rows_per_s, rates.commits_per_minute) == (rows_per_s, commits_per_minute)
    assert rates.bytes_per_s == 10 * rows_per_s


def test_compactions_are_no_writes() -> None:
    facts = [commit_facts(3, DAY_MS - 1000, -50, CommitKind.COMPACT), commit_facts(2, DAY_MS - 10_000, 5)]
    assert health(DAY_MS, *facts).rates().rows_per_s == 0.0
    assert facts[0].added_rows == 0


def test_the_screen_shows_tables_buckets_and_commits() -> None:
    table = Table(key_table(bucket="2"))
    for value in range(6):
        table.files.write(rows((1, value)))
    console = Console(width=140, record=True, file=None, force_terminal=False)
    with console.capture() as captured:
        console.print(screen([(TableProbe(table).look(), table)], {}))
    shown = captured.get()
    assert "db.t" in shown
    assert "   6 ██████████████████░░░░░░" in shown
    assert "newest snapshots" in shown


def test_the_command_looks_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    catalog = Catalog(str(tmp_path))
    for name in ("a", "b"):
        made = catalog.create_table(f"db.{name}", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
        made.write(rows((1, 1)))
    assert run_command(["top", "--warehouse", str(tmp_path), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert [(each["table"], each["snapshot"], each["file_count"]) for each in reported] == [
        ("db.a", 1, 1),
        ("db.b", 1, 1),
    ]
    assert run_command(["top", "db.a", "--warehouse", str(tmp_path), "--once"]) == 0
    assert "1 of 1 buckets" in capsys.readouterr().out


def test_a_table_that_is_dropped_leaves_the_screen_of_all_and_ends_one_of_its_own() -> None:
    catalog = memory_catalog()
    made = [Table(catalog.create_table(f"db.{name}", KEY_SCHEMA, primary_key=["id"])) for name in ("a", "b")]
    watched = [(table, TableProbe(table)) for table in made]
    assert [table for _, table in seen(watched, {})] == made
    catalog.drop_table("db.a")
    assert [table for _, table in seen(watched, {})] == made[1:]
    with pytest.raises(InvalidInputError, match="table is gone"):
        list(seen(watched, None))


def test_tables_without_writes_are_one_line_and_trouble_is_coloured() -> None:
    """A stream, a job and a bucket with too many runs are seen at once; an idle table takes no line of its own."""
    catalog = memory_catalog()
    tables = []
    for name in ("busy", "idle", "late"):
        made = Table(catalog.create_table(f"db.{name}", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"}))
        tables.append(made)
    for value in range(6):
        tables[0].files.write(rows((1, value)))
    tables[2].files.write(rows((1, 1)))
    tables[2].store.consumers.write("reader", 1)
    console = Console(width=200, force_terminal=True)
    with console.capture() as captured:
        console.print(screen([(TableProbe(each).look(), each) for each in tables], {}))
    shown = captured.get()
    assert "1 table without writes in five minutes: db.idle" in re.sub(r"\x1b\[[\d;]*m", "", shown)
    [busy] = [line for line in shown.splitlines() if "db.busy" in line]
    assert re.search(r"\x1b\[33m *6\x1b\[0m", busy)  # yellow: compacted at 5 runs
    [late] = [line for line in shown.splitlines() if "db.late" in line]
    assert re.search(r"\x1b\[33m *1\x1b\[0m", late)  # the consumer is one snapshot behind


def test_a_table_that_cannot_be_opened_does_not_hide_the_others(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """One table of a stranger, whose files lie elsewhere, was the end of the look at a warehouse."""
    catalog = Catalog(str(tmp_path / "w"))
    for name in ("good", "strange"):
        catalog.create_table(f"db.{name}", pa.schema([("id", pa.int64())])).write(pa.table({"id": [1]}))
    path = tmp_path / "w" / "db.db" / "strange" / "schema" / "schema-0"
    body = json.loads(path.read_text())
    body["options"]["data-file.path-directory"] = "../../victim"
    path.write_text(json.dumps(body))
    assert run_command(["top", "--once", "--warehouse", str(tmp_path / "w")]) == 0
    shown = capfd.readouterr().out
    assert "db.good" in shown
    assert "db.strange: the data of a table is outside of its directory" in " ".join(shown.split())
    assert run_command(["lineage", "--warehouse", str(tmp_path / "w")]) == 0
    assert "db.good" in capfd.readouterr().out
