"""Who follows a table whose changes come with compactions has the rows when a write returns, or is told why not."""

import logging
import random
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog, Table, sql
from engine.follow.position import FollowPosition
from engine.monitor.doctor import diagnose, examine
from engine.monitor.symptom import Severity
from filestore.snapshot.snapshot import CommitKind
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from tests.support.streams import content, rows
from tests.support.warehouses import ID_SCHEMA

PRODUCERS = ("lookup", "full-compaction")
SCHEMA = pa.schema([("p", pa.string()), ("id", pa.int64()), ("v", pa.string())])
LAYOUTS: Mapping[str, tuple[dict[str, str], list[str]]] = {
    "one bucket": ({"bucket": "1"}, []),
    "buckets": ({"bucket": "3"}, []),
    "dynamic buckets": ({"bucket": "-1", "dynamic-bucket.target-row-num": "3"}, []),
    "partitions": ({"bucket": "2"}, ["p"]),
}


class Follower:
    """Keeps rows by key from one bounded stream to the next, and takes each change at its word."""

    def __init__(self) -> None:
        self.state: dict[int, dict[str, Any]] = {}
        self.position: FollowPosition | None = None

    def catch_up(self, table: Table) -> dict[int, dict[str, Any]]:
        with table.stream(self.position, follow=False) as stream:
            for changes in stream:
                for row in changes.rows.to_pylist():
                    kind = row.pop("_row_kind")
                    assert (row["id"] in self.state) == (kind != "+I")
                    if kind in ("-U", "-D"):
                        assert self.state.pop(row["id"]) == row
                    else:
                        self.state[row["id"]] = row
                    if kind == "-U":
                        self.state[row["id"]] = row  # until its +U comes
                self.position = changes.position
        return self.state


def awaiting_table(catalog: Catalog, layout: str, **options: str) -> Table:
    own, partition_by = LAYOUTS[layout]
    key = [*partition_by, "id"]
    given = {**own, **{key.replace("_", "-"): text for key, text in options.items()}}
    return catalog.create_table("db.t", SCHEMA, primary_key=key, partition_by=partition_by, options=given)


def by_id(table: Table) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in table.read().to_arrow().to_pylist()}


def a_batch(chance: random.Random, number: int) -> pa.Table:
    ids = chance.sample(range(12), 4)
    kinds = [chance.choice(["+I", "+U", "-D"]) for _ in ids]
    found = [{"p": "ab"[each % 2], "id": each, "v": f"v{number}"} for each in ids]
    return pa.Table.from_pylist(found, schema=SCHEMA).append_column("_row_kind", pa.array(kinds))


def by_write(table: Table, given: pa.Table) -> None:
    table.write(given)


def by_append(table: Table, given: pa.Table) -> None:
    table.append(iter(given.to_batches()))


def by_writer(table: Table, given: pa.Table) -> None:
    with table.writer("gateway") as writer:
        writer.write(given).result()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("write", [by_write, by_append, by_writer])
@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_followers_have_what_was_written_when_the_write_returns(
    catalog: Catalog, write: Callable[[Table, pa.Table], None], producer: str, layout: str
) -> None:
    """From the start, from positions between, and in a copy; each change once, with the row that was there."""
    table = awaiting_table(catalog, layout, changelog_producer=producer)
    chance, follower = random.Random(f"{producer} {layout}"), Follower()
    table.write(a_batch(chance, 0))
    with table.live() as live:
        for number in range(1, 6):
            write(table, a_batch(chance, number))
            state = by_id(table)
            assert Follower().catch_up(table) == state
            assert follower.catch_up(table) == state
            latest = table.latest_snapshot()
            assert latest is not None
            live.wait_for(str(latest.id))
            assert {row["id"]: row for row in live.rows()} == state


@pytest.mark.parametrize("write", [by_write, by_append, by_writer])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_who_follows_the_files_of_a_table_with_a_log_has_them_too(
    catalog: Catalog, write: Callable[[Table, pa.Table], None], producer: str
) -> None:
    """``streaming-read-mode=file``: the log is for others."""
    log = {"log.system": "kafka", "log.kafka.bootstrap.servers": "files:9092", "streaming-read-mode": "file"}
    with serving("files:9092", MemoryEnvironment(MemoryCluster())):
        table = awaiting_table(catalog, "buckets", changelog_producer=producer, **log)
        chance, follower = random.Random(producer), Follower()
        for number in range(4):
            write(table, a_batch(chance, number))
            assert follower.catch_up(table) == by_id(table)
            assert Follower().catch_up(table) == by_id(table)


def test_a_copy_has_a_write_that_it_waits_for(catalog: Catalog) -> None:
    table = awaiting_table(catalog, "buckets", changelog_producer="lookup")
    with table.live() as live:
        for number in range(20):
            done = table.write([{"p": "a", "id": 1, "v": f"v{number}"}])
            live.wait_for(table.handle_of(done))
            assert list(live.rows()) == [{"p": "a", "id": 1, "v": f"v{number}"}]


@pytest.mark.sweep
def test_writers_side_by_side_leave_no_change_behind(catalog: Catalog) -> None:
    """A compaction that is overtaken by another one's commit is tried again."""
    table = awaiting_table(catalog, "one bucket", changelog_producer="lookup")
    follower = Follower()

    def write(first: int) -> None:
        for number in range(5):
            catalog.table("db.t").write([{"p": "a", "id": first, "v": f"v{number}"}])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(write, range(3)))
    assert follower.catch_up(table) == by_id(table) == {n: {"p": "a", "id": n, "v": "v4"} for n in range(3)}


def test_every_so_many_commits_make_a_full_compaction(catalog: Catalog) -> None:
    """full-compaction.delta-commits, across processes: it is counted in the snapshots."""
    options = {"changelog-producer": "full-compaction", "full-compaction.delta-commits": "3"}
    catalog.create_table("db.t", ID_SCHEMA, primary_key=["id"], options={"bucket": "1", **options})
    seen = []
    for number in range(7):
        table = catalog.table("db.t")
        table.write(rows([number]))
        seen.append(len(Follower().catch_up(table)))
    assert seen == [0, 0, 3, 3, 3, 6, 6]


def test_an_overwrite_comes_with_its_own_commit(catalog: Catalog) -> None:
    for producer in PRODUCERS:
        table = catalog.create_table(
            f"db.{producer.replace('-', '_')}", ID_SCHEMA, primary_key=["id"],
            options={"bucket": "1", "changelog-producer": producer, "write-buffer-size": "1 kb"},
        )  # fmt: skip
        follower = Follower()
        table.write(rows(range(100)))
        follower.catch_up(table)
        table.overwrite(rows([*range(50, 300), *range(60, 200)], "new"))
        latest = table.latest_snapshot()
        assert latest is not None
        assert latest.commit_kind is CommitKind.OVERWRITE
        assert follower.catch_up(table) == by_id(table)
        assert len(follower.state) == 250


@pytest.mark.parametrize("producer", PRODUCERS)
@pytest.mark.parametrize("given", ["table", "writer"])
def test_who_waits_for_the_compactions_of_others_is_told(
    catalog: Catalog, producer: str, given: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By stream, copy and doctor; what is compacted then comes once."""
    own = {"write-only": "true"} if given == "table" else {}
    options = {"bucket": "1", "changelog-producer": producer, **own}
    table = catalog.create_table("db.t", ID_SCHEMA, primary_key=["id"], options=options)
    table.write(rows(range(8)), options={"write-only": "true"})
    follower = Follower()
    with caplog.at_level(logging.WARNING, "fluvial.stream"):
        assert follower.catch_up(table) == {}
    assert f"db.t snapshot=1 rows=8 changelog-producer={producer}" in caplog.text
    assert ("write-only=true" in caplog.text) == (given == "table")
    caplog.clear()
    with caplog.at_level(logging.WARNING, "fluvial.stream"), table.live() as live:
        assert list(live.rows()) == []
    assert "rows=8" in caplog.text
    [symptom] = [each for each in diagnose(examine(table)) if each.check == "changes"]
    assert (symptom.severity, symptom.values["unemitted_row_count"]) == (
        Severity.WARNING if given == "table" else Severity.NOTE,
        8,
    )
    assert "fluvial compact" in (symptom.fix or "")
    table.compact(full=True)
    assert follower.catch_up(table) == by_id(table)
    [symptom] = [each for each in diagnose(examine(table)) if each.check == "changes"]
    assert symptom.values["unemitted_row_count"] == 0
    assert symptom.severity == (Severity.WARNING if given == "table" else Severity.OK)


def test_followers_of_other_tables_are_told_nothing(catalog: Catalog, caplog: pytest.LogCaptureFixture) -> None:
    for producer in ("none", "input"):
        table = catalog.create_table(
            f"db.{producer}", ID_SCHEMA, primary_key=["id"],
            options={"bucket": "1", "write-only": "true", "changelog-producer": producer},
        )  # fmt: skip
        table.write(rows([1]))
        with caplog.at_level(logging.WARNING, "fluvial"):
            assert len(Follower().catch_up(table)) == 1
        assert caplog.text == ""
        [symptom] = [each for each in diagnose(examine(table)) if each.check == "changes"]
        assert symptom.severity is Severity.OK


@pytest.mark.spark
@pytest.mark.parametrize("producer", PRODUCERS)
def test_followers_have_what_sparks_batch_jobs_write(spark: SparkSession, tmp_path: Path, producer: str) -> None:
    warehouse = str(tmp_path / "warehouse")
    table = Catalog(warehouse).create_table(
        "db.t", ID_SCHEMA, primary_key=["id"], options={"bucket": "2", "changelog-producer": producer}
    )
    follower = Follower()
    sql(spark, "INSERT INTO db.t VALUES (1, 'a'), (2, 'b')", warehouse)
    assert follower.catch_up(table) == {row["id"]: row for row in content(table).values()}
    frame = spark.createDataFrame([(2, "c"), (3, "d")], "id bigint, v string")
    frame.write.format("fluvial").options(warehouse=warehouse, table="db.t").mode("append").save()
    assert follower.catch_up(table) == {row["id"]: row for row in content(table).values()}
    sql(spark, "UPDATE db.t SET v = 'x' WHERE id = 1", warehouse)
    sql(spark, "DELETE FROM db.t WHERE id = 3", warehouse)
    assert follower.catch_up(table) == {1: {"id": 1, "v": "x"}, 2: {"id": 2, "v": "c"}}
