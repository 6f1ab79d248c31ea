"""``df.writeStream`` and ``df.write`` with ``format("fluvial")``: exactly once, however the frame is spread."""

import os
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from engine import Table
from engine.broker.broker import Broker
from engine.request.writer_options import NO_OPTIONS, WriterOptions
from engine.runtime.spark_messages import fluvial_error
from engine.runtime.steps import Step
from engine.spark.writer.staged_commit import StreamSessions, append_batch, overwrite_batch
from engine.spark.writer.staged_rows import StagedFile, stage_rows, staged_rows
from engine.write.driver import bucket_threads
from filestore.compact.task import CompactionTask
from filestore.manifest.commit_message import CommitMessage
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError, InvalidInputError
from tests.peers.agreement import Agreement
from tests.support.logs import changes_by_bucket
from tests.support.rows import rows_by
from tests.support.stopping import Stopped, Stopper
from tests.support.warehouses import new_table

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
BUCKETS = 3


def keyed_table(tmp_path: Path, broker: Broker | None = None, **more: Any) -> Table:
    options = {"bucket": str(BUCKETS), **more.pop("options", {})}
    if broker is not None:
        options |= {"log.system": "kafka"}
    schema, key = more.pop("schema", SCHEMA), more.pop("primary_key", ["k"])
    return new_table(tmp_path / "warehouse", schema, key=key, broker=broker, options=options, **more)


def values_by_key(table: Table) -> dict[int, int]:
    return {key: row["v"] for (key,), row in rows_by(["k"], table).items()}


def place(table: Table) -> dict[str, str]:
    return {"warehouse": table.store.paths.root.rsplit("/", 2)[0], "table": table.name}


Change = tuple[str, int, int | None]


def log_of(table: Table) -> list[Change]:
    """Every change as (sign, k, v), bucket by bucket."""
    return [change for changes in log_by_bucket(table).values() for change in changes]


def log_by_bucket(table: Table) -> dict[int, list[Change]]:
    return {
        bucket: [("-" if kind.is_retract else "+", row["k"], row["v"]) for kind, row in changes]
        for bucket, changes in changes_by_bucket(table).items()
    }


def snapshots_of(table: Table) -> list[Snapshot]:
    newest = table.latest_snapshot()
    return [table.store.snapshots.read(each) for each in range(1, (newest.id if newest else 0) + 1)]


def staged_files(table: Table) -> list[Path]:
    return [path for path in Path(table.store.paths.root, "staging").rglob("*") if path.is_file()]


def data_files(table: Table) -> set[str]:
    return {path.name for path in Path(table.store.paths.root).rglob("data-*")}


def live_data_files(table: Table) -> set[str]:
    return {file.file_name for split in table.read().plan().splits for file in split.files}


# ---- without Spark: what tasks and the committing process do, step by step


def key_batch(keys: Sequence[int], values: Sequence[int], kinds: Sequence[str] | None = None) -> pa.RecordBatch:
    columns = {"k": pa.array(keys, pa.int64()), "v": pa.array(values, pa.int64())}
    return pa.RecordBatch.from_pydict(columns | ({} if kinds is None else {"_row_kind": pa.array(kinds)}))


def stage(table: Table, parts: Sequence[pa.RecordBatch], batch: int = 0, user: str = "query") -> list[StagedFile]:
    pieces = [[part.slice(start, 1_000) for start in range(0, part.num_rows, 1_000)] for part in parts]
    files = [stage_rows(table.files, part, commit_user=user, batch_id=batch) for part in pieces]
    return [file for file in files if file is not None]


SESSIONS = StreamSessions()  # of this process, as Spark's committing process has one


def commit(table: Table, files: Sequence[StagedFile], batch: int = 0, *, run: str = "run", **more: Any) -> Any:
    options = WriterOptions(more.pop("options", {}))
    return SESSIONS.commit(table.files, options, files, commit_user="query", run_id=run, batch_id=batch, **more)


def test_staged_rows_come_back_by_bucket_in_the_order_of_partitions(tmp_path: Path) -> None:
    """Issue 4 item 5: rows of partition i before those of i + 1, each partition's in its order; kinds with them."""
    table = keyed_table(tmp_path, options={"write-buffer-size": "64 kb"})  # so that a task writes many record batches
    chance = random.Random(1)
    keys = [[chance.randrange(50) for _ in range(5_000)] for _ in range(4)]
    kinds = [[chance.choice(["+I", "+U", "-U", "-D"]) for _ in part] for part in keys]
    numbers = [range(number * 5_000, (number + 1) * 5_000) for number in range(4)]
    files = stage(table, [key_batch(*each) for each in zip(keys, numbers, kinds, strict=True)])
    assert any(len(file.buckets) > BUCKETS for file in files)
    back = []
    for bucket in range(BUCKETS):
        rows = pa.Table.from_batches(list(staged_rows(table.files, files, {bucket}))).to_pylist()
        assert [row["v"] for row in rows] == sorted(row["v"] for row in rows)
        back += [(row["v"], row["k"], row["_row_kind"]) for row in rows]
    sent = [zip(*each, strict=True) for each in zip(numbers, keys, kinds, strict=True)]
    assert sorted(back) == [row for part in sent for row in part]


@pytest.mark.parametrize("bad", ["unknown column", "null key", "unknown kind", "the source fails"])
def test_a_task_that_fails_leaves_no_file(tmp_path: Path, bad: str) -> None:
    table = keyed_table(tmp_path, options={"write-buffer-size": "64 kb"})

    def batches() -> Iterator[pa.RecordBatch]:
        yield key_batch(range(20_000), range(20_000), ["+I"] * 20_000)
        assert staged_files(table)  # the first rows are on disk
        if bad == "the source fails":
            raise RuntimeError(bad)
        if bad == "unknown column":
            yield pa.RecordBatch.from_pydict({"x": [1]})
        yield key_batch([None if bad == "null key" else 1], [1], ["?" if bad == "unknown kind" else "+I"])

    with pytest.raises((InvalidInputError, RuntimeError)):
        stage_rows(table.files, batches(), commit_user="query", batch_id=0)
    assert staged_files(table) == []


def test_leftovers_of_dead_attempts_go_with_the_next_commit_of_their_query_only(tmp_path: Path) -> None:
    table = keyed_table(tmp_path)
    stage(table, [key_batch([1], [1])], batch=0)  # a speculative attempt that lost
    stage(table, [key_batch([1], [1])], batch=1)  # of a run that died
    other = stage(table, [key_batch([2], [2])], batch=0, user="other/query")
    later = stage(table, [key_batch([3], [3])], batch=2)
    commit(table, stage(table, [key_batch([5], [5])], batch=1), batch=1)
    root = Path(table.store.paths.root)
    assert set(staged_files(table)) == {root / file.name for file in (*other, *later)}
    assert values_by_key(table) == {5: 5}


@pytest.mark.broker
@pytest.mark.parametrize("by", ["stream", "append", "overwrite"])
def test_what_dead_jobs_left_goes_a_day_later_with_the_next_writer(tmp_path: Path, by: str) -> None:
    """A batch job that was killed with its driver never comes back; one that still stages rows is let alone."""
    table = keyed_table(tmp_path)
    for user in ("dead/one", "empty", "alive", "query"):
        stage(table, [key_batch([1], [1]), key_batch([2], [2])], batch=3, user=user)
    staging = Path(table.store.paths.root, "staging")
    yesterday = time.time() - 86_500
    for path in (staging / "empty").rglob("*.arrow"):
        path.unlink()
    for path in staging.rglob("*"):
        os.utime(path, (yesterday, yesterday))
    young = next((staging / "alive").rglob("*.arrow"))
    os.utime(young)
    files = stage(table, [key_batch([5], [5])], batch=4)
    if by == "stream":
        commit(table, files, batch=4)
    elif by == "append":
        append_batch(table.files, NO_OPTIONS, files, commit_user="job")
    else:
        overwrite_batch(table.files, NO_OPTIONS, files, commit_user="job", partition=None)
    assert sorted(path.name for path in staging.iterdir()) == ["alive", "query"]
    assert len([path for path in staged_files(table) if path.parts[-3] == "alive"]) == 2
    assert table.read().to_arrow().to_pylist() == [{"k": 5, "v": 5}]


@pytest.mark.sweep
def test_a_replay_after_the_commit_only_cleans_up(tmp_path: Path, broker: Broker) -> None:
    """FL-72, FL-164."""
    table = keyed_table(tmp_path, broker)
    commit(table, stage(table, [key_batch([1, 2, 3], [1, 2, 3])]))
    before = snapshots_of(table), log_of(table)
    for run in ("run", "another run"):
        done = commit(table, stage(table, [key_batch([1, 2, 4], [7, 7, 7])]), run=run)
        assert done.already_committed
    assert (snapshots_of(table), log_of(table)) == before
    assert staged_files(table) == []


@pytest.mark.broker
def test_a_commit_whose_staged_rows_are_gone_fails_and_shows_nothing(tmp_path: Path, broker: Broker) -> None:
    """An ``abort`` may run while the commit of a stopped query still does."""
    table = keyed_table(tmp_path, broker)
    files = stage(table, [key_batch([1, 2, 3, 4], [1] * 4), key_batch([1, 2, 3, 4], [2] * 4)])
    Path(table.store.paths.root, files[1].name).unlink()
    with pytest.raises(CorruptDataError, match="staged rows are gone"):
        commit(table, files)
    assert (table.latest_snapshot(), log_of(table), data_files(table)) == (None, [], set())
    commit(table, stage(table, [key_batch([1], [3])]), run="next")
    assert values_by_key(table) == {1: 3}


STEPS = (
    Step.BATCH_STARTED, Step.LOG_RECOVERED, Step.PART_STARTED, Step.BUCKET_FENCED, Step.ROWS_WRITTEN,
    Step.FILES_FLUSHED, Step.LOG_COMMITTED, Step.PART_DONE, Step.TASKS_DONE, Step.TABLE_COMMITTED,
)  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.broker
@pytest.mark.parametrize("seed", range(8))
def test_commits_that_stop_at_any_step_land_once(tmp_path: Path, broker: Broker, seed: int) -> None:
    """FL-72, FL-164: each attempt of a batch has other rows; every bucket must get those of one attempt, once."""
    chance = random.Random(seed)
    table = keyed_table(tmp_path, broker)
    stopper = Stopper()
    attempts = run = 0
    for batch in range(4):
        stops = [(chance.choice(STEPS), chance.randrange(3)) for _ in range(chance.randrange(4))]
        for stop in [*stops, None]:
            attempts += 1
            run += chance.randrange(2)  # a new start of the query, or the same
            keys = chance.sample(range(batch * 20, (batch + 1) * 20), chance.randrange(1, 9))
            parts = [key_batch(keys, [attempts * 2 + part] * len(keys)) for part in range(2)]  # the second is newer
            stopper.set(stop)
            with suppress(Stopped):
                commit(table, stage(table, parts, batch), batch, run=str(run), observe=stopper)
    folded = {}
    for changes in log_by_bucket(table).values():
        assert len(set(changes)) == len(changes)
        attempts_of_batch = defaultdict(set)
        for _, k, v in changes:
            attempts_of_batch[k // 20].add(v // 2)
            folded[k] = v
        assert {len(each) for each in attempts_of_batch.values()} == {1}
    assert folded == values_by_key(table)
    appended = [each for each in snapshots_of(table) if each.commit_kind is CommitKind.APPEND]
    assert [each.commit_identifier for each in appended] == list(range(4))
    assert staged_files(table) == []


@pytest.mark.sweep
def test_sorted_runs_never_pass_the_stop_trigger(tmp_path: Path) -> None:
    """FL-166: nobody compacts beside it, so the commit does when it must, and only then."""
    stop = 4
    options = {"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": str(stop), "bucket": "1"}
    table = keyed_table(tmp_path, options=options)
    for batch in range(12):
        commit(table, stage(table, [key_batch(range(5), [batch] * 5)], batch), batch)
        assert max(len(split.files) for split in table.read().plan().splits) <= stop
    kinds = [each.commit_kind for each in snapshots_of(table)]
    assert 0 < kinds.count(CommitKind.COMPACT) <= 12 // (stop - 1)
    assert values_by_key(table) == dict.fromkeys(range(5), 11)


def test_buckets_that_a_batch_waits_for_are_compacted_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each task of compaction waits until another one runs beside it."""
    both, run = threading.Barrier(2), bucket_threads.run_task

    def beside_another(store: TableStore, task: CompactionTask) -> CommitMessage:
        both.wait(20)
        return run(store, task)

    monkeypatch.setattr(bucket_threads, "run_task", beside_another)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    options = {"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "2", "bucket": "2"}
    table = keyed_table(tmp_path, options=options)
    for batch in range(4):
        commit(table, stage(table, [key_batch(range(20), [batch] * 20)], batch), batch)
    assert [each.commit_kind for each in snapshots_of(table)].count(CommitKind.COMPACT) >= 1
    assert values_by_key(table) == dict.fromkeys(range(20), 3)


@pytest.mark.sweep
def test_a_looked_up_changelog_is_there_when_the_batch_ends(tmp_path: Path) -> None:
    """FL-135, option lookup-wait; compactions that only keep the table in shape still wait for the stop trigger."""
    table = keyed_table(tmp_path, options={"changelog-producer": "lookup", "bucket": "2"})
    for batch in range(3):
        commit(table, stage(table, [key_batch(range(5), [batch] * 5)], batch), batch)
    kinds = [(each.commit_kind, each.changelog_record_count) for each in snapshots_of(table)]
    append = (CommitKind.APPEND, None)
    assert kinds == [
        append,
        (CommitKind.COMPACT, 5),
        append,
        (CommitKind.COMPACT, 10),
        append,
        (CommitKind.COMPACT, 10),
    ]


def test_write_only_leaves_compaction_to_others(tmp_path: Path) -> None:
    options = {"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "2", "bucket": "1"}
    table = keyed_table(tmp_path, options=options)
    for batch in range(5):
        commit(table, stage(table, [key_batch([1], [batch])], batch), batch, options={"write-only": "true"})
    assert {each.commit_kind for each in snapshots_of(table)} == {CommitKind.APPEND}


def test_what_a_failed_batch_wrote_without_a_log_is_deleted(tmp_path: Path) -> None:
    table = keyed_table(tmp_path, primary_key=[], options={"bucket-key": "k"})
    with pytest.raises(InvalidInputError, match="inserts only"):
        commit(table, stage(table, [key_batch(range(50), range(50)), key_batch([7], [7], ["-D"])]))
    assert (table.latest_snapshot(), data_files(table)) == (None, set())


# ---- with Spark


def spread(spark: SparkSession, rows: int = 3_000, keys: int = 100, partitions: int = 7) -> DataFrame:
    """Upserts of the same keys in every partition; v rises with partition and place in it."""
    return spark.range(0, rows, 1, partitions).selectExpr(f"pmod(hash(id), {keys}) AS k", "id AS v")


def newest(rows: int = 3_000, keys: int = 100, *, spark: SparkSession) -> dict[int, int]:
    grouped = spread(spark, rows, keys).groupBy("k").max("v")
    return {row["k"]: row["max(v)"] for row in grouped.collect()}


def check_order(table: Table, expected: dict[int, int]) -> None:
    """Files hold the newest row of each key; the log holds every row, those of one key in their order."""
    assert values_by_key(table) == expected
    by_key = defaultdict(list)
    for sign, k, v in log_of(table):
        assert sign == "+"
        by_key[k].append(v)
    assert {k: values[-1] for k, values in by_key.items()} == expected
    assert all(a < b for values in by_key.values() for a, b in pairwise(values))


@pytest.mark.spark
@pytest.mark.broker
def test_an_appended_frame_lands_once_and_in_order(spark: SparkSession, tmp_path: Path, broker: Broker) -> None:
    """FL-28, FL-32, FL-33."""
    table = keyed_table(tmp_path, broker)
    spread(spark).write.format("fluvial").options(**place(table)).mode("append").save()
    check_order(table, newest(spark=spark))
    assert len(log_of(table)) == 3_000
    assert len(snapshots_of(table)) == 1
    assert staged_files(table) == []


def stream_of(spark: SparkSession, folder: Path, frames: Sequence[DataFrame]) -> DataFrame:
    """One micro-batch for each frame."""
    for number, frame in enumerate(frames):
        frame.write.parquet(str(folder / f"{number:03d}"))
    return (
        spark.readStream.schema(frames[0].schema)
        .option("recursiveFileLookup", "true")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder))
    )


@pytest.mark.spark
@pytest.mark.broker
def test_a_stream_lands_once_and_in_order(spark: SparkSession, tmp_path: Path, broker: Broker) -> None:
    """FL-27, FL-32: deletes too; the commit user is the query's id, so that a restart goes on with its batches."""
    table = keyed_table(tmp_path, broker)
    frames = [spark.range(n * 100, n * 100 + 100, 1, 1).selectExpr("id % 40 AS k", "id AS v") for n in range(3)]
    frames = [frame.selectExpr("*", "IF(k = 7, '-D', '+U') AS _row_kind") for frame in frames]
    changes = stream_of(spark, tmp_path / "input", frames).repartition(5, "v")
    query = changes.writeStream.format("fluvial").options(**place(table))
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.exception() is None
    assert sorted(values_by_key(table)) == [k for k in range(40) if k != 7]
    log = log_of(table)
    assert sorted(v for _, _, v in log) == list(range(300))
    assert {k for sign, k, _ in log if sign == "-"} == {7}
    folded = {k: v for sign, k, v in log if sign == "+"}
    assert folded == values_by_key(table)
    assert [(each.commit_user, each.commit_identifier) for each in snapshots_of(table)] == [
        (query.id, batch) for batch in range(3)
    ]
    assert staged_files(table) == []


@pytest.mark.spark
def test_a_table_without_key_and_log_keeps_every_row(spark: SparkSession, tmp_path: Path) -> None:
    table = keyed_table(tmp_path, primary_key=[], options={"bucket": "-1"})
    frame = spread(spark)
    for _ in range(2):
        frame.write.format("fluvial").options(**place(table)).mode("append").save()
    assert table.read().to_arrow().num_rows == 6_000
    assert sorted(table.read().to_arrow()["v"].to_pylist()[:3_000]) == list(range(3_000))


PARTITIONED = pa.schema([("dt", pa.string()), ("region", pa.int32()), ("k", pa.int64()), ("v", pa.int64())])


def partitioned(tmp_path: Path, **more: Any) -> Table:
    table = keyed_table(
        tmp_path, schema=PARTITIONED, primary_key=["dt", "region", "k"], partition_by=["dt", "region"], **more
    )
    table.write(
        pa.table(
            {
                "dt": ["a", "a", "b", "b"],
                "region": pa.array([1, 2, 1, 2], pa.int32()),
                "k": [1, 1, 1, 1],
                "v": [0, 0, 0, 0],
            }
        )
    )
    return table


def overwritten(spark: SparkSession, table: Table, values: str, **options: str) -> set[tuple[str, int, int, int]]:
    frame = spark.sql(f"SELECT * FROM VALUES {values} AS t(dt, region, k, v)").repartition(3)
    frame.write.format("fluvial").options(**place(table), **options).mode("overwrite").save()
    return {tuple(row.values()) for row in table.read().to_arrow().to_pylist()}


@pytest.mark.spark
def test_overwrite_replaces_the_partitions_that_occur(spark: SparkSession, tmp_path: Path) -> None:
    """FL-29, FL-30."""
    table = partitioned(tmp_path)
    found = overwritten(spark, table, "('a', 1, 5, 9), ('c', 1, 5, 9)")
    assert found == {("a", 1, 5, 9), ("c", 1, 5, 9), ("a", 2, 1, 0), ("b", 1, 1, 0), ("b", 2, 1, 0)}
    newest = table.latest_snapshot()
    assert newest.commit_kind is CommitKind.OVERWRITE
    assert newest.properties["fluvial.changes"] == "files"
    assert staged_files(table) == []


@pytest.mark.spark
def test_overwrite_of_a_given_partition_replaces_all_of_it(spark: SparkSession, tmp_path: Path) -> None:
    """FL-30, FL-34: a part of the partition columns is enough; without change tracking streams are not reported."""
    table = partitioned(tmp_path)
    found = overwritten(spark, table, "('a', 2, 5, 9)", partition="dt=a", **{"change-tracking": "false"})
    assert found == {("a", 2, 5, 9), ("b", 1, 1, 0), ("b", 2, 1, 0)}
    assert table.latest_snapshot().properties["fluvial.changes"] == "none"
    assert overwritten(spark, table, "('b', 2, 5, 9)", partition="region=2, dt=b") == {
        ("a", 2, 5, 9),
        ("b", 1, 1, 0),
        ("b", 2, 5, 9),
    }
    found = overwritten(spark, table, "('z', 1, 1, 1)", **{"dynamic-partition-overwrite": "false"})
    assert found == {("z", 1, 1, 1)}


@pytest.mark.spark
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"partition": "dt=b"}, "rows lie outside the partition"),
        ({"partition": "day=b"}, "not a partition column"),
        ({"partition": "region=x"}, "not a value of the partition column"),
    ],
)
def test_a_wrong_partition_is_refused_and_changes_nothing(
    spark: SparkSession, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    table = partitioned(tmp_path)
    before = data_files(table)
    with pytest.raises(PySparkException, match=said):
        overwritten(spark, table, "('a', 1, 5, 9)", **options)
    assert len(snapshots_of(table)) == 1
    assert data_files(table) == before
    assert staged_files(table) == []


@pytest.mark.spark
@pytest.mark.broker
def test_overwrite_puts_nothing_into_the_log_and_keeps_its_offsets(
    spark: SparkSession, tmp_path: Path, broker: Broker
) -> None:
    """FL-29: a reader of the log continues after it."""
    table = keyed_table(tmp_path, broker)
    table.write(key_batch([1, 2, 3], [1, 2, 3]))
    log, offsets = log_of(table), table.latest_snapshot().log_offsets
    spread(spark).write.format("fluvial").options(**place(table)).mode("overwrite").save()
    assert values_by_key(table) == newest(spark=spark)
    assert (log_of(table), table.latest_snapshot().log_offsets) == (log, offsets)
    table.write(key_batch([1], [77]))
    assert len(log_of(table)) == len(log) + 1


@pytest.mark.spark
@pytest.mark.parametrize(
    ("frame", "options", "said"),
    [
        ("id AS k, id AS w", {}, "did_you_mean|no such column: column=w"),
        ("id AS v", {}, "a column that may not be null is missing: column=k"),
        ("id AS k, 'x' AS v", {}, "column type does not fit: column=v"),
        ("id AS k, 1 AS _row_kind", {}, "row kinds are text"),
        ("id AS k", {"change-traking": "false"}, "did_you_mean=change-tracking"),
        ("id AS k", {"change-tracking": "no"}, "option=change-tracking value='no' expected='true or false'"),
        ("id AS k", {"partition": "k=1"}, "not a partition column"),
        ("id AS k, '?' AS _row_kind", {}, "not a row kind"),
    ],
)
def test_a_bad_frame_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path, frame: str, options: dict[str, str], said: str
) -> None:
    """Issue 4 item 5: the words are those of the sink; all but the last are refused before a row is computed."""
    table = keyed_table(tmp_path)
    with pytest.raises(PySparkException, match=said):
        spark.range(10).selectExpr(*frame.split(", ")).write.format("fluvial").options(**place(table), **options).mode(
            "append"
        ).save()
    assert table.latest_snapshot() is None
    assert staged_files(table) == []
    assert data_files(table) == set()


@pytest.mark.spark
@pytest.mark.parametrize("streaming", [False, True], ids=["batch", "stream"])
def test_a_commit_that_fails_leaves_nothing_behind(spark: SparkSession, tmp_path: Path, streaming: bool) -> None:
    """Spark calls ``abort``, in another process than the commit's: it deletes what the tasks staged."""
    table = keyed_table(tmp_path, primary_key=[], options={"bucket-key": "k"})
    frame = spark.range(0, 50, 1, 1).selectExpr("id AS k", "IF(id = 7, '-D', '+I') AS _row_kind")

    def write() -> None:
        if not streaming:
            frame.repartition(3).write.format("fluvial").options(**place(table)).mode("append").save()
            return
        stream = stream_of(spark, tmp_path / "input", [frame]).repartition(3).writeStream.format("fluvial")
        stream = stream.options(**place(table)).option("checkpointLocation", str(tmp_path / "checkpoint"))
        stream.start().awaitTermination(60)

    with pytest.raises(PySparkException, match="takes inserts only"):
        write()
    assert (table.latest_snapshot(), staged_files(table), data_files(table)) == (None, [], set())


@pytest.mark.spark
def test_narrower_types_and_missing_columns_fit(spark: SparkSession, tmp_path: Path) -> None:
    """FL-31."""
    table = keyed_table(tmp_path)
    spark.range(3).selectExpr("CAST(id AS INT) AS k").write.format("fluvial").options(**place(table)).mode(
        "append"
    ).save()
    assert values_by_key(table) == {0: None, 1: None, 2: None}


def rate(spark: SparkSession) -> DataFrame:
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).option("numPartitions", 2).load()
    return source.selectExpr("value AS k", "value AS v")


@pytest.mark.spark
def test_a_stream_must_not_overwrite(spark: SparkSession, tmp_path: Path) -> None:
    """FL-27."""
    table = keyed_table(tmp_path)
    counts = rate(spark).groupBy("k").count().selectExpr("k", "count AS v")
    stream = counts.writeStream.format("fluvial").options(**place(table)).outputMode("complete")
    with pytest.raises(PySparkException, match="a stream cannot overwrite a table"):
        stream.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(60)
    assert table.latest_snapshot() is None


@pytest.mark.spark
def test_a_stream_without_a_checkpoint_of_its_own_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """FL-85: under a place for all queries, Spark gives a nameless one a new directory at each start."""
    table = keyed_table(tmp_path)
    with pytest.raises(AnalysisException, match="checkpointLocation"):
        rate(spark).writeStream.format("fluvial").options(**place(table)).start()
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "all"))
    try:
        with pytest.raises(PySparkException, match="a restart would write everything again"):
            rate(spark).writeStream.format("fluvial").options(**place(table)).start().awaitTermination(60)
        named = rate(spark).writeStream.format("fluvial").options(**place(table)).queryName("named")
        query = named.trigger(once=True).start()
        query.awaitTermination(60)
        assert query.exception() is None
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert len(snapshots_of(table)) == 1


@pytest.mark.spark
@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("scan.branch", "an option of reads, not a write option: scan.branch=dev fix='branch=dev'"),
        ("scan.tag-name", "an option of reads, not a write option: scan.tag-name=dev fix='leave it out"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
def test_options_of_reads_are_refused_in_one_line(
    spark: SparkSession, tmp_path: Path, key: str, said: str, streaming: bool
) -> None:
    """L8: Spark's message has no traceback, and what a command shows of it is this line."""
    given = {**place(keyed_table(tmp_path)), key: "dev"}

    def write() -> None:
        if streaming:
            frame = spark.readStream.format("rate").load().selectExpr("value AS k", "value AS v")
            writer = frame.writeStream.format("fluvial").options(**given)
            writer.option("checkpointLocation", str(tmp_path / "c")).start().awaitTermination(60)
        else:
            frame = spark.range(3).selectExpr("id AS k", "id AS v")
            frame.write.format("fluvial").options(**given).mode("append").save()

    with pytest.raises(PySparkException) as caught:
        write()
    assert said in str(caught.value)
    assert "Traceback" not in str(caught.value)
    shown = fluvial_error(caught.value, "write failed:")
    assert isinstance(shown, InvalidInputError)
    assert str(shown).startswith(said)
    assert "\n" not in str(shown)


def test_what_spark_refuses(spark: SparkSession, tmp_path: Path) -> None:
    """Partitions are the table's; neither save mode error nor ignore has a meaning for a table that exists."""
    write = spark.range(3).selectExpr("id AS k").write.format("fluvial").options(**place(keyed_table(tmp_path)))
    with pytest.raises(PySparkException, match="partitioning"):
        write.mode("append").partitionBy("k").save()
    for mode in ("error", "ignore"):
        with pytest.raises(AnalysisException, match=r"(?i)mode"):
            spark.range(3).selectExpr("id AS k").write.format("fluvial").mode(mode).save()


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.broker
@pytest.mark.interop
def test_peers_read_what_was_written(
    spark: SparkSession, tmp_path: Path, broker: Broker, assert_peers_agree: Agreement
) -> None:
    options = {"num-sorted-run.compaction-trigger": "2", "num-sorted-run.stop-trigger": "2"}
    table = keyed_table(tmp_path, broker, options=options)
    for _ in range(2):
        spread(spark).write.format("fluvial").options(**place(table)).mode("append").save()
    spread(spark, rows=500).write.format("fluvial").options(**place(table)).mode("overwrite").save()
    commit(table, stage(table, [key_batch([1, 2], [0, 0], ["+U", "-D"])]))
    assert len(assert_peers_agree(table.store.paths.root)) == len(values_by_key(table))
