"""The doctor: each illness is found where it is, named with its cure, and nothing is found in a healthy table."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.cli.app import run_command
from engine.lineage.recording import LineageSize
from engine.monitor.doctor import Examined, diagnose, examine
from engine.monitor.holders import Holder, holders_of
from engine.monitor.symptom import Severity, Symptom
from engine.monitor.table_probe import BucketHealth, TableHealth
from engine.monitor.topic_state import TopicState
from filestore.branch.branches import create_branch
from filestore.iceberg.places import IcebergState
from filestore.layout.branch_state import Operation, Work, begin_work
from filestore.table import FileTable
from filestore.tag.savepoints import create_savepoint
from filestore.tag.tags import create_tag
from tests.engine.monitor.test_table_probe import DAY_MS, commit_facts
from tests.support.faults import ManualClock
from tests.support.tables import KEY_SCHEMA, key_table, rows

MIB = 2**20


def bucket(**values: Any) -> BucketHealth:
    healthy = BucketHealth(
        partition=None,
        bucket=0,
        sorted_runs=2,
        level0_files=1,
        file_count=3,
        small_file_count=1,
        row_count=1100,
        delete_count=10,
        size_bytes=300 * MIB,
        bottom_row_count=1000,
        compaction_debt=0,
    )
    return replace(healthy, **values)


def seen(*buckets: BucketHealth, log_lag: dict[int, int] | None = None, **values: Any) -> Examined:
    now_ms = 100 * DAY_MS
    health = TableHealth(
        table="db.t",
        time_ms=now_ms,
        commits=(commit_facts(7, now_ms - values.pop("age_ms", 1000)),),
        buckets=buckets or (bucket(),),
        levels=(),
        log_lag=log_lag,
        log_problem=values.pop("log_problem", None),
    )
    healthy = Examined(
        health=health,
        has_key=True,
        write_only=False,
        compaction_trigger=5,
        stop_trigger=8,
        snapshot_count=20,
        oldest_snapshot_age_ms=DAY_MS // 2,
        most_snapshots=2**31 - 1,
        fewest_snapshots=10,
        longest_ms=DAY_MS,
        surplus_ms=0,
        holders=(),
        manifest_count=3,
        manifest_merge_count=30,
    )
    return replace(healthy, **values)


def found(examined: Examined) -> dict[str, Symptom]:
    return {each.check: each for each in diagnose(examined) if each.severity > Severity.OK}


def test_a_problem_of_the_log_that_names_its_fix_gets_no_other() -> None:
    symptom = found(seen(log_problem="the last record has no marker fix=copy the table"))["log"]
    assert (symptom.severity, symptom.fix) == (Severity.CRITICAL, None)


def test_nothing_is_found_in_a_healthy_table() -> None:
    assert found(seen(bucket(), bucket(bucket=1), log_lag={0: 0})) == {}


SICK = {
    "runs above the trigger": (seen(bucket(sorted_runs=6)), "read amplification", Severity.WARNING, "fluvial compact"),
    "runs at the trigger": (seen(bucket(sorted_runs=5)), "read amplification", Severity.NOTE, "fluvial compact"),
    "writers wait": (seen(bucket(sorted_runs=8)), "read amplification", Severity.CRITICAL, "more buckets"),
    "nobody compacts": (
        seen(bucket(sorted_runs=5), write_only=True),
        "read amplification",
        Severity.WARNING,
        "write-only=false",
    ),
    "debt": (seen(bucket(compaction_debt=MIB)), "compaction debt", Severity.NOTE, "fluvial compact"),
    "old versions": (seen(bucket(row_count=4000)), "space amplification", Severity.WARNING, "--full"),
    "deletes": (seen(bucket(delete_count=400)), "tombstones", Severity.WARNING, "--full"),
    "small files": (
        seen(*(bucket(bucket=at, file_count=600, small_file_count=590, size_bytes=9 * MIB) for at in range(4))),
        "small files",
        Severity.WARNING,
        "fewer buckets (bucket)",
    ),
    "skew": (
        seen(bucket(size_bytes=3000 * MIB), bucket(bucket=1), bucket(bucket=2)),
        "bucket sizes",
        Severity.WARNING,
        "bucket-key",
    ),
    "huge": (seen(bucket(size_bytes=20_000 * MIB)), "bucket sizes", Severity.WARNING, "more buckets"),
    "fork": (seen(fork_ids=(4,)), "history", Severity.CRITICAL, "repair"),
    "hint": (seen(has_wrong_hint=True), "history", Severity.WARNING, "repair"),
    "lost snapshot": (seen(missing_ids=(4, 5)), "history", Severity.WARNING, "verify"),
    "clock": (seen(ahead_ms=10 * 365 * DAY_MS), "clock", Severity.WARNING, "correct the clock"),
    "log ahead": (seen(log_lag={0: 0, 1: 9}, age_ms=600_000), "log", Severity.WARNING, "log.on-orphan-batch"),
    "topic": (
        seen(topic=TopicState(name="t", problems=("topic is missing",))),
        "topic",
        Severity.CRITICAL,
        "sys.verify",
    ),
    "topic unseen": (seen(topic=TopicState(name="t", unseen="no right")), "topic", Severity.NOTE, "read the topic"),
    "no brokers": (seen(log_problem="brokers do not answer"), "log", Severity.CRITICAL, "bootstrap.servers"),
    "consumer": (
        seen(holders=(Holder(kind="consumer", name="report", snapshot_id=3, age_ms=3 * DAY_MS, has_end=False),)),
        "held snapshots",
        Severity.WARNING,
        "consumer.expiration-time",
    ),
    "savepoint": (
        seen(
            holders=(
                Holder(kind="savepoint", name="4", snapshot_id=2, age_ms=90 * DAY_MS, has_end=False),
                Holder(kind="branch", name="dev", snapshot_id=3, age_ms=9 * DAY_MS, has_end=False),
            )
        ),
        "held snapshots",
        Severity.NOTE,
        "delete the savepoint",
    ),
    "operation": (
        seen(holders=(Holder(kind="operation", name="merge", snapshot_id=None, age_ms=None, has_end=True),)),
        "held snapshots",
        Severity.NOTE,
        "run repair",
    ),
    "tag": (
        seen(holders=(Holder(kind="tag", name="eod", snapshot_id=3, age_ms=9 * DAY_MS, has_end=False),)),
        "held snapshots",
        Severity.NOTE,
        "delete the tag",
    ),
    "too many snapshots": (
        seen(most_snapshots=10, surplus_ms=60_000),
        "retention",
        Severity.WARNING,
        "snapshot.num-retained.max=10",
    ),
    "too old snapshots": (
        seen(oldest_snapshot_age_ms=3 * DAY_MS),
        "retention",
        Severity.WARNING,
        "snapshot.time-retained=1.0 d",
    ),
    "iceberg": (
        seen(iceberg=IcebergState(directory="/t/metadata", shown=3, newest=5)),
        "iceberg",
        Severity.WARNING,
        "next commit catches up",
    ),
    "manifests": (seen(manifest_count=200), "manifests", Severity.NOTE, "manifest.merge-min-count"),
}


@pytest.mark.parametrize(("examined", "check", "severity", "cure"), SICK.values(), ids=SICK.keys())
def test_each_illness_is_found_alone(examined: Examined, check: str, severity: Severity, cure: str) -> None:
    findings = found(examined)
    assert list(findings) == [check]
    assert findings[check].severity is severity
    assert cure in (findings[check].fix or "")


@pytest.mark.parametrize(("every_s", "is_found"), [(1, False), (3, True)])
def test_a_running_stream_has_more_snapshots_until_it_looks_again(every_s: int, is_found: bool) -> None:
    """Soak, finding 8: it looks every ten seconds; nobody has looked when the surplus is older than that."""
    made = key_table(bucket="1", **{"snapshot.num-retained.max": "10"})
    clock = ManualClock()
    table = FileTable.open(made.name, made.store.paths.root, io=made.store.io, clock=clock)
    for number in range(26):  # sixteen too many
        table.write(rows((number, number)))
        clock.sleep(every_s)
    findings = {each.check: each for each in diagnose(examine(Table(table)))}
    assert findings["retention"].values["snapshot_count"] == 26
    assert (findings["retention"].severity is Severity.WARNING) == is_found


def test_few_files_are_not_a_problem_and_say_why() -> None:
    examined = seen(bucket(file_count=5, small_file_count=5))
    assert found(examined) == {}
    (said,) = (each for each in diagnose(examined) if each.check == "small files")
    assert said.fact == "5 files: with fewer than 500, their size costs little"


def test_the_log_may_run_ahead_for_a_moment() -> None:
    assert found(seen(log_lag={0: 5}, age_ms=2000)) == {}


def test_holders_are_named() -> None:
    table = key_table(bucket="1")
    for value in range(3):
        table.write(rows((1, value)))
    table.store.consumers.write("report", 2)
    create_tag(table.store, "eod", snapshot_id=1)
    create_tag(table.store, "day", snapshot_id=2, retained_ms=1)
    create_tag(table.store, "start", snapshot_id=2)
    create_savepoint(table.store)
    create_branch(table.store, "dev", tag="start")
    create_branch(table.store, "fix", snapshot_id=3)
    pending = f"{table.store.paths.tag_dir}/.pending-late.1.tmp"
    table.store.io.write_new(pending, table.store.snapshots.read(2).to_json().encode())
    holders = examine(Table(table)).holders
    assert [(each.kind, each.name, each.snapshot_id, each.has_end) for each in holders] == [
        ("consumer", "report", 2, False),
        ("savepoint", "1", 5, False),
        ("branch", "dev", 2, False),
        ("branch", "fix", 3, False),
        ("tag", "day", 2, True),
        ("tag", "eod", 1, False),
        ("pending tag", ".pending-late.1.tmp", 2, False),
    ]
    assert all(each.age_ms is not None for each in holders)
    branch = table.on_branch("dev")
    begin_work(branch.store.io, branch.store.paths, Work(operation=Operation.FAST_FORWARD))
    assert [(each.kind, each.name) for each in holders_of(branch.store, 0)] == [
        ("tag", "start"),
        ("operation", "fast-forward"),
    ]


def test_a_tag_that_lost_its_files_is_named_because_nothing_can_expire() -> None:
    """versions.md H2: tags of older versions, whose creation died beside an expiry."""
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    create_tag(table.store, "nightly")
    table.store.io.delete(table.store.paths.manifest(table.store.snapshots.tag("nightly").delta_manifest_list))
    symptom = found(seen(holders=tuple(holders_of(table.store, 0))))["held snapshots"]
    assert (symptom.severity, symptom.fix) == (Severity.CRITICAL, "restore its files, or delete the tag")
    assert "tag nightly" in symptom.fact


def test_the_command_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1 only with --strict and a warning; the same findings as JSON."""
    options = {"bucket": "1", "write-only": "true"}
    table = Catalog(str(tmp_path)).create_table("db.t", KEY_SCHEMA, primary_key=["id"], options=options)
    place = ["doctor", "db.t", "--warehouse", str(tmp_path)]
    assert run_command([*place, "--strict"]) == 0
    for value in range(6):
        table.write(rows((1, value)))
    capsys.readouterr()
    assert run_command(place) == 0
    shown = capsys.readouterr().out
    assert "! read amplification: a read merges up to 6 sorted runs" in shown
    assert "→ writers do not compact (write-only=true)" in shown
    assert run_command([*place, "--strict", "--json"]) == 1
    reported = json.loads(capsys.readouterr().out)
    assert reported["severity"] == "warning"
    by_check = {each["check"]: each for each in reported["findings"]}
    assert by_check["read amplification"]["values"]["max_sorted_runs"] == 6
    assert len(by_check) == 19


@pytest.mark.parametrize(
    ("size", "retained_ms", "severity"),
    [(2**31, None, Severity.NOTE), (2**31, 90 * DAY_MS, Severity.OK), (2**20, None, Severity.OK)],
)
def test_lineage_that_grows_without_limit_is_named(size: int, retained_ms: int | None, severity: Severity) -> None:
    """Soak 7: 13 GB a year at one batch a second, and no line anywhere said so."""
    with_lineage = seen(lineage=LineageSize(size_bytes=size, retained_ms=retained_ms))
    found = next(each for each in diagnose(with_lineage) if each.check == "lineage")
    assert found.severity is severity
    assert found.fix == (None if severity is Severity.OK else "set lineage.data.time-retained of the catalog")


def test_a_table_without_rows_is_well() -> None:
    assert {each.severity for each in diagnose(examine(Table(key_table(bucket="1"))))} == {Severity.OK}
    append = key_table(schema=pa.schema([("id", pa.int64()), ("v", pa.int64())]), primary_key=(), bucket="-1")
    append.write(rows((1, 1)))
    assert {each.severity for each in diagnose(examine(Table(append)))} == {Severity.OK}


def test_options_that_steer_nothing_here_are_named() -> None:
    """A table that somebody else made may have them: what happens instead is said, and it is no illness."""
    table = key_table(bucket="1").with_options({"sort-spill-threshold": "9", "num-levels": "4"})
    [found] = [each for each in diagnose(examine(Table(table))) if each.check == "options"]
    assert (found.severity, found.values) == (Severity.NOTE, {"options": "sort-spill-threshold"})
    assert "nothing is spilled" in found.fact
