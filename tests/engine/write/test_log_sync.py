"""What a topic gets of commits that bypass it, case by case, over a log in memory."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from engine.log.table_log import TableLog
from engine.monitor.doctor import diagnose, examine
from engine.monitor.symptom import Severity, Symptom
from engine.procedures import (
    create_tag,
    drop_partition,
    expire_partitions,
    reset_log,
    rollback,
    rollback_to_as_latest,
    sync_log,
    verify,
)
from engine.procedures.versions.branches import create_branch, merge_branch
from engine.table import Table
from filestore.changelog.log_gap import log_gap
from filestore.evolution.schema_change import AddColumn, ChangeType, DropColumn, RenameColumn, SetOption
from filestore.schema.column_paths import ColumnPosition
from filestore.snapshot.change_tracking import ChangeSource, changes_of
from filestore.types.data_types import parse_data_type
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.rows import arrow_rows
from tests.support.streams import Query, as_foreign, expire, fold
from tests.support.tails import changes, write_log_only

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
CHANGES = {"log.overwrite": "changes"}
Given = list[tuple[str, int, str | None]]


@pytest.fixture
def cluster() -> MemoryCluster:
    return MemoryCluster()


@pytest.fixture
def catalog(tmp_path: Any, cluster: MemoryCluster) -> Iterator[Catalog]:
    with serving("memory:9092", MemoryEnvironment(cluster)):
        yield Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": "memory:9092"})


def logged_table(catalog: Catalog, *, key: str | None = "id", **options: str) -> Table:
    given = {"bucket": "1", "write-only": "true", **{name.replace("_", "."): text for name, text in options.items()}}
    if key is None:
        given["bucket-key"] = "id"
    return catalog.create_table("d.t", SCHEMA, primary_key=[key] if key else [], options=given)


def letters(**values: str) -> pa.Table:
    """Of keys a1, b2 and so on: letters are only for reading."""
    return pa.table({"id": [int(name[1:]) for name in values], "v": list(values.values())}, schema=SCHEMA)


def records(cluster: MemoryCluster, table: Table, bucket: int = 0) -> list[str]:
    """The committed records as text: ``+1 a``, ``-1 a``, or ``left 3``; a claim is nothing."""
    cluster.settle()
    assert table.log is not None
    found = []
    for each in cluster.topic(table.log.topic).partitions[bucket].committed(0):
        header = json.loads(dict(each.given.headers)["fluvial"].partition(b"\n")[0]) if each.given.headers else {}
        if not each.given.value and each.given.key is None:
            assert header["kind"] == "genesis"
            found += [f"left {header['left']['snapshot']} {header['left']['operation']}"] if "left" in header else []
            continue
        body = json.loads(each.given.value)
        row, sign = (body["after"], "+") if body["op"] == "c" else (body["before"], "-")
        found.append(f"{sign}{row['id']} {row['v']}")
    return found


def topic_check(table: Table) -> Symptom:
    (found,) = [each for each in diagnose(examine(table)) if each.check == "topic"]
    return found


def test_an_overwrite_is_in_the_topic_before_the_next_batch(catalog: Catalog, cluster: MemoryCluster) -> None:
    table = logged_table(catalog, **CHANGES)
    table.write(letters(a1="x", b2="y"))
    table.overwrite(letters(b2="z", c3="n"))
    assert records(cluster, table) == ["+1 x", "+2 y", "-1 x", "+2 z", "+3 n"]
    newest = table.latest_snapshot()
    assert newest is not None
    assert newest.properties["fluvial.skipped-log"] == "0=3"
    assert newest.properties["fluvial.log-synced"] == str(newest.id)
    assert newest.log_offsets == {0: 6}
    table.write(letters(d4="after"))
    assert records(cluster, table)[5:] == ["+4 after"]
    assert table.files.read().to_arrow().num_rows == 3
    assert topic_check(table).severity is Severity.OK


def test_every_operation_that_bypasses_the_log_comes_to_be_in_it(catalog: Catalog, cluster: MemoryCluster) -> None:
    schema = SCHEMA.append(pa.field("p", pa.string(), nullable=False))
    table = catalog.create_table(
        "d.p", schema, primary_key=["id", "p"], partition_by=["p"], options={"bucket": "1", **CHANGES}
    )

    def new(number: int, place: str) -> pa.Table:
        return pa.table({"id": [number], "v": ["v"], "p": [place]}, schema=schema)

    table.write(new(1, "a"))
    table.write(new(2, "b"))
    drop_partition(table, partitions="p=a")
    assert records(cluster, table)[2:] == ["-1 v"]
    rollback_to_as_latest(table, snapshot=2)
    assert records(cluster, table)[3:] == ["+1 v"]
    create_branch(table, "dev", snapshot=table.store.snapshots.latest_id())
    there = catalog.table("d.p", branch="dev")
    there.write(new(3, "a"))
    merge_branch(table, "dev")
    assert records(cluster, table)[4:] == ["+3 v"]
    table.overwrite(new(4, "b"))
    assert records(cluster, table)[5:] == ["-2 v", "+4 v"]
    table.overwrite(new(9, "b").slice(0, 0), partition={})
    assert sorted(records(cluster, table)[7:]) == ["-1 v", "-3 v", "-4 v"]


def test_expired_partitions_and_a_published_branch_are_logged(catalog: Catalog, cluster: MemoryCluster) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("day", pa.string(), nullable=False)])
    options = {"bucket": "1", "partition.expiration-time": "1 d", "partition.timestamp-formatter": "yyyy-MM-dd"}
    table = catalog.create_table(
        "d.p", schema, primary_key=["id", "day"], partition_by=["day"], options={**options, **CHANGES}
    )
    table.write(pa.table({"id": [1, 2], "day": ["2020-01-01", "2999-01-01"]}, schema=schema))
    assert expire_partitions(table).num_rows == 1
    logged = cluster_bodies(cluster, table)
    assert logged[2:] == [("d", 1)]
    with table.audit_branch("fix") as fix:
        fix.write(pa.table({"id": [3], "day": ["2999-01-01"]}, schema=schema))
        fix.publish(expect=["count(*) = 2"])
    table.write(pa.table({"id": [4], "day": ["2999-01-01"]}, schema=schema))
    assert cluster_bodies(cluster, table)[3:] == [("c", 3), ("c", 4)]


def cluster_bodies(cluster: MemoryCluster, table: Table) -> list[tuple[str, int]]:
    """Operation and id of each record of bucket 0."""
    cluster.settle()
    assert table.log is not None
    found = cluster.topic(table.log.topic).partitions[0].committed(0)
    bodies = [json.loads(each.given.value) for each in found if each.given.value is not None]
    return [(body["op"], (body["after"] or body["before"])["id"]) for body in bodies]


def test_commits_of_another_engine_are_logged_by_the_next_batch(catalog: Catalog, cluster: MemoryCluster) -> None:
    table = logged_table(catalog, **CHANGES)
    table.write(letters(a1="x"))
    without = Table(table.files.with_options({"log.system": "none"}))
    without.write(letters(a1="foreign", b2="foreign"))
    as_foreign(table)
    table.write(letters(a1="y"))
    assert records(cluster, table) == ["+1 x", "+1 foreign", "+2 foreign", "+1 y"]


def test_a_topic_says_that_its_table_has_left_it(catalog: Catalog, cluster: MemoryCluster) -> None:
    table = logged_table(catalog)
    table.write(letters(a1="x"))
    stream = Query(table.store.paths.root.rpartition("/d.db/")[0], "d.t")
    assert [row["v"] for row in stream.available()] == ["x"]
    table.overwrite(letters(b2="y"))
    assert records(cluster, table) == ["+1 x"]  # an overwrite needs no broker
    found = topic_check(table)
    assert (found.severity, found.values["left_at_snapshot"]) == (Severity.NOTE, 2)
    table.write(letters(c3="z"))
    table.write(letters(d4="z"))
    assert records(cluster, table) == ["+1 x", "left 2 OVERWRITE", "+3 z", "+4 z"]
    assert [row["v"] for row in stream.available()] == ["x", "y", "z", "z"]
    union = table.read(options={"scan.log.union": "true"}).to_arrow()
    assert sorted(union["id"].to_pylist()) == [2, 3, 4]
    table.overwrite(letters(e5="y"))
    assert sync_log(table).to_pylist()[0]["missing_snapshot_id"] == 5
    sync_log(table)
    table.write(letters(f6="z"))
    assert records(cluster, table)[4:] == ["left 5 OVERWRITE", "+6 z"]
    assert verify(table).num_rows == 0


def test_a_control_record_may_be_the_first_of_a_topic(catalog: Catalog, cluster: MemoryCluster) -> None:
    table = logged_table(catalog)
    table.overwrite(letters(a1="x"))
    table.write(letters(b2="y"))
    assert records(cluster, table) == ["left 1 OVERWRITE", "+2 y"]
    assert catalog.table("d.t").read(options={"scan.log.union": "true"}).to_arrow().num_rows == 2


@pytest.mark.sweep
def test_the_option_brings_a_topic_back_that_its_table_has_left(catalog: Catalog, cluster: MemoryCluster) -> None:
    table = logged_table(catalog)
    table.write(letters(a1="x", b2="y"))
    table.overwrite(letters(a1="z"))
    table.write(letters(c3="n"))
    catalog.alter_table("d.t", [SetOption(key="log.overwrite", text="changes")])
    # a writer that was opened before finds it, too
    table.write(letters(d4="n"))
    got = records(cluster, table)
    assert got[:4] == ["+1 x", "+2 y", "left 2 OVERWRITE", "+3 n"]
    assert got[4:] == ["+1 z", "-2 y", "+3 n", "+4 n"]


def test_what_was_logged_between_two_overwrites_is_taken_back(catalog: Catalog, cluster: MemoryCluster) -> None:
    """No state of the table is what the topic has then: it lacks 1's change, and 3, which it has, is gone."""
    table = logged_table(catalog)
    table.write(letters(a1="x"))
    table.overwrite(letters(a1="y"))
    table.write(letters(c3="n"))
    table.overwrite(letters(a1="z"))
    catalog.alter_table("d.t", [SetOption(key="log.overwrite", text="changes")])
    assert sync_log(table).to_pylist()[0]["missing_snapshot_id"] is None
    assert records(cluster, table)[3:] == ["+1 z", "+1 z", "-3 n"]


def test_a_difference_that_is_no_longer_known_is_said(catalog: Catalog, cluster: MemoryCluster) -> None:
    table = logged_table(catalog, **CHANGES)
    table.write(letters(a1="x"))
    plain = Table(table.files.with_options({"log.system": "none"}))
    plain.overwrite(letters(b2="y"))
    expire(table, 1)
    table.write(letters(c3="z"))
    assert records(cluster, table) == ["+1 x", "left 2 OVERWRITE", "+3 z"]
    found = topic_check(table)
    assert found.severity is Severity.WARNING
    assert "reset_log" in str(found.fix)
    reset_log(table)
    again = catalog.table("d.t")
    assert topic_check(again).severity is Severity.OK
    again.overwrite(letters(d4="w"))
    assert sorted(records(cluster, again)) == ["+4 w", "-2 y", "-3 z"]


def test_what_awaits_its_query_comes_first(catalog: Catalog, cluster: MemoryCluster) -> None:
    table = logged_table(catalog, **CHANGES)
    write_log_only(table, changes([("+I", 1, "batch")]))
    table.overwrite(letters(b2="y"))
    assert records(cluster, table) == ["+1 batch"]
    assert log_gap(table.store, table.latest_snapshot()) is not None


def test_a_difference_of_a_history_that_is_gone_stops_writers(catalog: Catalog) -> None:
    table = logged_table(catalog, **CHANGES)
    table.write(letters(a1="x"))
    table.overwrite(letters(b2="y"))
    for snapshot_id in (2, 3):  # as a rollback
        table.store.io.delete(table.store.paths.snapshot(snapshot_id))
    with pytest.raises(CorruptDataError, match=r"rolled back .*reset_log"):
        table.write(letters(c3="z"))


def test_a_stream_gets_an_overwrite_once(catalog: Catalog) -> None:
    table = logged_table(catalog, key=None, **CHANGES)
    stream = Query(table.store.paths.root.rpartition("/d.db/")[0], "d.t")
    table.write(letters(a1="x", b2="y"))
    got = stream.available()
    table.overwrite(letters(c3="z"))
    table.write(letters(d4="w"))
    got += stream.available()
    kinds = sorted((row["_row_kind"], row["id"]) for row in got)
    assert kinds == [("+I", 1), ("+I", 2), ("+I", 3), ("+I", 4), ("-D", 1), ("-D", 2)]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"log.consistency": "eventual"}, "log.consistency=eventual"),
        ({"merge-engine": "partial-update"}, "merge-engine=partial-update"),
        ({"sequence.field": "v"}, "sequence.field"),
        ({"ignore-delete": "true"}, "ignore-delete"),
    ],
)
def test_a_log_that_does_not_make_the_table_is_refused(
    catalog: Catalog, options: Mapping[str, str], named: str
) -> None:
    with pytest.raises(InvalidInputError, match=f"log.overwrite=changes .*{named}"):
        catalog.create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "1", **CHANGES, **options})


def test_untracked_changes_are_not_logged(catalog: Catalog, cluster: MemoryCluster) -> None:
    table = logged_table(catalog, **CHANGES)
    table.write(letters(a1="x"))
    table.overwrite(letters(b2="y"), options={"change-tracking": "false"})
    newest = table.latest_snapshot()
    assert newest is not None
    assert changes_of(newest, has_log=True) is ChangeSource.NONE
    table.write(letters(c3="z"))
    assert records(cluster, table) == ["+1 x", "+3 z"]


def test_a_branch_with_a_log_begins_with_its_rows(catalog: Catalog, cluster: MemoryCluster) -> None:
    table = logged_table(catalog, **CHANGES)
    table.write(letters(a1="x"))
    table.overwrite(letters(b2="y"))
    create_branch(table, "dev", snapshot=table.store.snapshots.latest_id(), log=True)
    there = catalog.table("d.t", branch="dev")
    assert TableLog.of(there.files) is not None
    there.write(letters(c3="z"))
    there.overwrite(letters(d4="w"))
    assert records(cluster, there) == ["+3 z", "-2 y", "-3 z", "+4 w"]


@pytest.mark.parametrize("options", [CHANGES, {}], ids=["changes", "left out"])
def test_a_table_with_a_log_goes_back_across_harmless_changes(catalog: Catalog, options: Mapping[str, str]) -> None:
    """versions.md H1: table, union read and stream say the same, and a column that is gone is named."""
    numbers = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int32())])
    table = catalog.create_table("d.t", numbers, primary_key=["id"], options={"bucket": "1", **options})
    table.write(pa.table({"id": [1, 2], "n": [10, 20]}, schema=numbers))
    create_tag(table, tag="eod")
    changed = [
        AddColumn(path=("note",), type=parse_data_type("STRING"), position=ColumnPosition()),
        RenameColumn(("n",), "m"),
        ChangeType(("m",), parse_data_type("BIGINT")),
        SetOption("snapshot.num-retained.max", "100"),
    ]
    catalog.alter_table("d.t", changed)
    table = catalog.table("d.t")
    follower = Query(catalog.warehouse, "d.t")
    seen = follower.available()
    table.write(arrow_rows(table.schema.arrow_schema, *({"id": key, "m": -1, "note": "wrong"} for key in (2, 3))))
    seen += follower.available()
    assert rollback_to_as_latest(table, tag="eod").num_rows == 1
    seen += follower.available()
    right = {(key,): {"id": key, "m": value, "note": None} for key, value in ((1, 10), (2, 20))}
    for found in (table.read(), table.read(options={"scan.log.union": "true"})):
        assert {(row["id"],): row for row in found.to_arrow().to_pylist()} == right
    assert fold(seen) == fold(Query(catalog.warehouse, "d.t").available()) == right
    catalog.alter_table("d.t", [DropColumn(("m",))])
    with pytest.raises(InvalidInputError, match=r"cause='column n was dropped'"):
        rollback_to_as_latest(catalog.table("d.t"), tag="eod")


@pytest.mark.parametrize(
    "options",
    [CHANGES, {}, {"changelog-producer": "lookup", "log.changelog-mode": "all"}],
    ids=["changes", "left out", "all"],
)
def test_a_table_with_a_log_is_rolled_back_and_each_reader_follows(
    catalog: Catalog, options: Mapping[str, str]
) -> None:
    """TAG-02, TAG-03: the rows are the tag's, later tags go, and who reads in whatever way ends with these rows."""
    table = logged_table(catalog, **{key.replace(".", "_"): text for key, text in options.items()})
    table.write(letters(a1="x", b2="y"))
    running, latest = Query(catalog.warehouse, "d.t"), Query(catalog.warehouse, "d.t", log_scan="latest")
    seen, first = running.available(), [*running.available(), *latest.available()]
    create_tag(table, tag="eod")
    table.write(letters(b2="wrong", c3="gone"))
    seen += running.available()
    create_tag(table, tag="late")
    table.write(letters(a1="wrong"))
    create_tag(table, tag="later")
    told = rollback(table, tag="eod", dry_run=True).to_pylist()
    assert table.read().to_arrow().num_rows == 3
    assert [(each["kind"], each["name"], each["objections"]) for each in told] == [
        ("tag", "later", None),
        ("tag", "late", None),
    ]
    done = rollback(table, tag="eod").to_pylist()
    assert done == told
    assert {(each["previous_snapshot_id"], each["current_snapshot_id"]) for each in done} == {(3, 4)}
    assert [each.name for each in table.tags.list()] == ["eod"]
    right = {(1,): {"id": 1, "v": "x"}, (2,): {"id": 2, "v": "y"}}
    for found in (table.read(), table.read(options={"scan.log.union": "true"})):
        assert {(row["id"],): row for row in found.to_arrow().to_pylist()} == right
    seen += running.available()
    assert fold(seen) == fold(Query(catalog.warehouse, "d.t").available()) == right
    assert fold([*first, *latest.available()]) == right
    timed = Query(catalog.warehouse, "d.t", **{"log.scan": "from-timestamp", "log.scan.timestamp-mills": "1"})
    assert fold(timed.available()) == right
    table.write(letters(d4="after"))
    seen += running.available()
    expected = right | {(4,): {"id": 4, "v": "after"}}
    assert fold(seen) == fold(Query(catalog.warehouse, "d.t").available()) == expected
    assert rollback(table, tag="eod").num_rows == 0
    assert table.read().to_arrow().num_rows == 2
    assert verify(table, rows=True).num_rows == 0


def test_a_rollback_with_a_log_that_was_interrupted_is_run_again(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows come first: what is left are tags, and the same call removes them without another commit."""
    table = logged_table(catalog)
    table.write(letters(a1="x"))
    create_tag(table, tag="eod")
    table.write(letters(a1="y"))
    create_tag(table, tag="late")
    with monkeypatch.context() as patched:
        patched.setattr("filestore.tag.tags.delete_tag", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            rollback(table, tag="eod")
    newest = table.latest_snapshot()
    assert [each.name for each in table.tags.list()] == ["eod", "late"]
    assert [each["name"] for each in rollback(table, tag="eod").to_pylist()] == ["late"]
    assert (table.latest_snapshot(), [each.name for each in table.tags.list()]) == (newest, ["eod"])
