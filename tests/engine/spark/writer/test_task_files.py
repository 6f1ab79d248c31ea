"""``format("fluvial")``: tasks that write data files themselves, beside tasks that leave their rows to the commit."""

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from engine import Table
from engine.broker.broker import Broker
from engine.request.writer_options import NO_OPTIONS
from engine.runtime.steps import Step, ignore
from engine.spark.writer import staged_commit, task_files
from engine.spark.writer.staged_commit import StreamSessions, append_batch, overwrite_batch
from engine.spark.writer.staged_rows import StagedFile, clear_staged
from engine.spark.writer.task_attempt import TaskAttempt
from engine.spark.writer.task_files import FilesOfTask, TaskPlan
from engine.spark.writer.writing_way import FilesBy, TaskShare, WrittenTable, chosen
from engine.write.batch_part import _Part
from filestore.catalog.catalog import FileCatalog
from filestore.maintenance.orphans import find_orphans
from filestore.snapshot.snapshot import CommitKind
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError
from tests.support.stopping import Stopped, Stopper
from tests.support.warehouses import new_table

SCHEMA = pa.schema(
    [pa.field("p", pa.int32(), nullable=False), pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())]
)
MIB = 1 << 20
WAYS = ("tasks", "commit", "mixed")
Parts = Sequence[pa.RecordBatch]
Left = list[StagedFile | FilesOfTask]


def batch(keys: Sequence[int], values: Sequence[int], kinds: Sequence[str] | None = None) -> pa.RecordBatch:
    columns = {
        "p": pa.array([key % 2 for key in keys], pa.int32()),
        "k": pa.array(keys, pa.int64()),
        "v": pa.array(values, pa.int64()),
    }
    return pa.RecordBatch.from_pydict(columns | ({} if kinds is None else {"_row_kind": pa.array(kinds)}))


def parted_table(tmp_path: Path, *, key: Sequence[str] = ("p", "k"), **options: str) -> Table:
    return new_table(tmp_path / "warehouse", SCHEMA, key=key, partition_by=["p"], options={"bucket": "2", **options})


def run_tasks(
    table: Table, parts: Parts, number: int = 0, *, way: str = "tasks", user: str = "query", **more: Any
) -> Left:
    """What the tasks of a batch leave; ``mixed``: the second of three writes files."""
    left = []
    for place, part in enumerate(parts):
        wanted = FilesBy("tasks" if place % 2 else "commit") if way == "mixed" else FilesBy(way)
        plan = TaskPlan(table=table.files, has_log=False, wanted=wanted, **more)
        pieces = [part.slice(start, 1_000) for start in range(0, part.num_rows, 1_000)]
        file, choice = plan.write(pieces, commit_user=user, batch_id=number, partition=place)
        assert file is None or isinstance(file, FilesOfTask) == (choice.by is FilesBy.TASKS)
        left += [] if file is None else [file]
    return left


def commit(sessions: StreamSessions, table: Table, left: Left, number: int = 0, run: str = "run", **more: Any) -> Any:
    return sessions.commit(table.files, NO_OPTIONS, left, commit_user="query", run_id=run, batch_id=number, **more)


def merged_rows(table: Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in table.read().to_arrow().to_pylist())


def left_behind(table: Table) -> set[str]:
    """Data files that no snapshot has, and everything under ``staging``."""
    store = table.store
    orphans = {file.path for file in find_orphans(store, before_ms=2**60)}
    return orphans | {str(path) for path in Path(store.paths.root, "staging").rglob("*") if path.is_file()}


# ---- the choice


def test_who_writes_is_one_pure_choice() -> None:
    """Literals: small files, the log, dynamic buckets, changelog files and too many runs are for the commit."""
    plain = {"has_log": False, "has_key": True, "assigns_buckets": False, "keeps_changes": False, "most_runs": 8}

    def by(
        wanted: FilesBy | None = None, *, rows: tuple[int, int, int, bool] = (0, 8 * MIB, 4, True), **more: Any
    ) -> str:
        partition, size_bytes, bucket_count, is_whole = rows
        share = TaskShare(
            partition=partition, size_bytes=size_bytes, bucket_count=bucket_count, is_whole=bool(is_whole)
        )
        choice = chosen(wanted, WrittenTable(**{**plain, **more}), share)
        return f"{choice.by.value}: {choice.reason}"

    assert by() == "tasks: files of a task are large enough"
    assert by(rows=(7, 4 * MIB, 4, True)) == "tasks: files of a task are large enough"
    assert by(rows=(0, 4 * MIB - 1, 4, True)) == "commit: files of a task would be small"
    assert by(rows=(0, 0, 0, True)) == "commit: files of a task would be small"
    assert by(rows=(8, 8 * MIB, 4, True)) == "commit: tasks would make too many sorted runs"
    assert by(rows=(8, 8 * MIB, 4, True), has_key=False) == "tasks: files of a task are large enough"
    assert by(rows=(99, 33 * MIB, 4, False)) == "tasks: files of a task are large enough"
    assert by(FilesBy.TASKS, rows=(99, 1, 1, True)) == "tasks: as the option says"
    assert by(FilesBy.COMMIT) == "commit: as the option says"
    for wanted in (None, FilesBy.TASKS):
        assert by(wanted, has_log=True) == "commit: the log has one order"
        assert by(wanted, assigns_buckets=True) == "commit: buckets are assigned in one place"
        assert by(wanted, keeps_changes=True) == "commit: changelog files have one order"


def test_tables_that_tasks_cannot_write_are_known(tmp_path: Path) -> None:
    def obstacle(**options: str) -> str | None:
        return WrittenTable.of(parted_table(tmp_path, **options).files, has_log=False).obstacle

    assert obstacle() is None
    assert obstacle(**{"deletion-vectors.enabled": "true"}) is None
    assert obstacle(bucket="-1") == obstacle(bucket="-2") == "buckets are assigned in one place"
    assert obstacle(**{"changelog-producer": "input"}) == "changelog files have one order"
    assert WrittenTable.of(parted_table(tmp_path, key=[], bucket="-1").files, has_log=False).obstacle is None


@pytest.mark.sweep
def test_a_task_looks_ahead_as_far_as_its_memory_allows(tmp_path: Path) -> None:
    """What it read is written first, whichever way; the rest is not read before the choice."""
    table = parted_table(tmp_path, key=[], bucket="-1", **{"write-buffer-size": "8 mb"})
    read: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(60):
            read.append(number)
            yield batch(range(number * 10_000, (number + 1) * 10_000), [number] * 10_000)

    plan = TaskPlan(table=table.files, has_log=False)
    file, choice = plan.write(batches(), commit_user="job", batch_id=0, partition=0)
    assert choice.by is FilesBy.TASKS  # by 4 MiB for two partitions
    assert isinstance(file, FilesOfTask)
    append_batch(table.files, NO_OPTIONS, [file], commit_user="job")
    assert sorted(row[1] for row in merged_rows(table)) == list(range(600_000))
    assert left_behind(table) == set()
    small, choice = plan.write([batch([1], [1])], commit_user="job", batch_id=0, partition=0)
    assert (type(small), choice.by) == (StagedFile, FilesBy.COMMIT)


# ---- rows


ENGINES: Mapping[str, Mapping[str, str]] = {
    "deduplicate": {},
    "first-row": {"merge-engine": "first-row"},
    "partial-update": {"merge-engine": "partial-update"},
    "sum": {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"},
    "last_value": {"merge-engine": "aggregation", "fields.v.aggregate-function": "last_value"},
    "listagg": {"sequence.field": "v"},
    "vectors": {"deletion-vectors.enabled": "true"},
    "small buffer": {"write-buffer-size": "64 kb"},
}


@pytest.mark.sampled(2)
@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
def test_a_key_gets_its_rows_in_the_order_of_tasks_whoever_writes(tmp_path: Path, engine: str) -> None:
    """The oracle is one process that gets all rows in that order."""
    chance = random.Random(engine)
    options = {"bucket": "2", **ENGINES[engine]}
    kinds = ["+I", "+U", "-D"] if engine in ("deduplicate", "vectors", "small buffer") else ["+I"]
    batches = []
    for _ in range(3):
        parts = []
        for _ in range(3):
            size = chance.choice([3, 40, 2_500])
            keys = [chance.randrange(60) for _ in range(size)]
            values = [chance.randrange(1_000_000) for _ in keys]
            parts.append(batch(keys, values, [chance.choice(kinds) for _ in keys]))
        batches.append(parts)
    found = {}
    for way in (*WAYS, "oracle"):
        table, sessions = parted_table(tmp_path, **options), StreamSessions()
        for number, parts in enumerate(batches):
            if way == "oracle":
                table.write(pa.Table.from_batches(parts))
            else:
                commit(sessions, table, run_tasks(table, parts, number, way=way), number)
        if engine in ("vectors", "first-row"):
            table.compact(full=True)
        found[way] = merged_rows(table)
        assert left_behind(table) == set()
    assert len(found["oracle"]) > 10
    assert {way: rows == found["oracle"] for way, rows in found.items()} == dict.fromkeys(found, True)


@pytest.mark.sweep
@pytest.mark.parametrize("bucket", ["-1", "2"])
@pytest.mark.parametrize("way", WAYS)
def test_rows_without_a_key_are_all_there_and_their_files_are_in_order(tmp_path: Path, way: str, bucket: str) -> None:
    more = {"bucket-key": "k"} if bucket == "2" else {}
    table, sessions = parted_table(tmp_path, key=[], bucket=bucket, **more), StreamSessions()
    for number in range(2):
        parts = [
            batch(range(50), range(first, first + 50))
            for first in (number * 150, number * 150 + 50, number * 150 + 100)
        ]
        commit(sessions, table, run_tasks(table, parts, number, way=way), number)
    assert sorted(row[2] for row in merged_rows(table)) == list(range(300))
    for split in table.read().plan().splits if bucket == "2" else ():
        numbers = sorted((file.min_sequence_number, file.max_sequence_number) for file in split.files)
        assert all(last < first for (_, last), (first, _) in pairwise(numbers))
    assert left_behind(table) == set()


@pytest.mark.parametrize("way", WAYS)
def test_an_overwrite_replaces_the_partitions_of_its_rows(tmp_path: Path, way: str) -> None:
    table = parted_table(tmp_path)
    table.write(pa.Table.from_batches([batch(range(20), range(20))]))

    def overwrite(parts: Parts, partition: Mapping[str, object] | None, user: str) -> None:
        left = run_tasks(table, parts, user=user, way=way, replaces=True)
        overwrite_batch(table.files, NO_OPTIONS, left, commit_user=user, partition=partition)

    overwrite([batch([2, 4], [7, 7]), batch([2, 6], [8, 8]), batch([6], [9])], None, "first")
    odd = [(1, key, key) for key in range(1, 20, 2)]
    assert merged_rows(table) == [(0, 2, 8), (0, 4, 7), (0, 6, 9), *odd]
    with pytest.raises(InvalidInputError, match="rows lie outside the partition"):
        overwrite([batch([2, 3], [0, 0]), batch([4], [0])], {"p": 1}, "second")
    clear_staged(table.store, "second")  # as ``abort`` does
    assert merged_rows(table) == [(0, 2, 8), (0, 4, 7), (0, 6, 9), *odd]
    assert left_behind(table) == set()


# ---- numbers


def test_files_that_others_overtook_are_numbered_again(tmp_path: Path) -> None:
    """A commit of another writer between the tasks and their commit: these rows come later, so they win."""
    table = parted_table(tmp_path)
    table.write(pa.Table.from_batches([batch(range(8), [0] * 8)]))
    left = run_tasks(table, [batch(range(8), [1] * 8), batch(range(4), [2] * 4)])
    assert isinstance(left[0], FilesOfTask)
    written = [path for path in Path(table.store.paths.root).rglob("data-*") if left[0].attempt.id in path.name]
    assert written
    table.write(pa.Table.from_batches([batch(list(range(8)) * 10, [7] * 80)]))
    commit(StreamSessions(), table, left)
    assert {row[1]: row[2] for row in merged_rows(table)} == {key: 2 if key < 4 else 1 for key in range(8)}
    assert left_behind(table) == set()
    assert not any(path.exists() for path in written)


@pytest.mark.parametrize("numbers", [1, 3, 1 << 26])
def test_a_task_with_more_rows_than_numbers_keeps_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, numbers: int
) -> None:
    monkeypatch.setattr(task_files, "_NUMBERS_OF_A_TASK", numbers)
    table, sessions = parted_table(tmp_path), StreamSessions()
    for number in range(2):
        parts = [batch(list(range(40)) * times, [times] * 40 * times) for times in (5, 3, 2, 1)]
        commit(sessions, table, run_tasks(table, parts, number, way="mixed" if number else "tasks"), number)
        assert [row[2] for row in merged_rows(table)] == [1] * 40
    assert left_behind(table) == set()


def test_a_worker_reads_only_what_was_committed_since(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batch after batch a task asks for the table's highest number; it opens all manifests once."""
    table, sessions = parted_table(tmp_path), StreamSessions()
    reads = []
    whole = task_files.LiveFiles.latest
    monkeypatch.setattr(task_files.LiveFiles, "latest", lambda store: (reads.append(store.name), whole(store))[1])
    for number in range(4):
        left = run_tasks(table, [batch(range(9), [number] * 9)], number)
        assert isinstance(left[0], FilesOfTask)
        commit(sessions, table, left, number)
    assert len(reads) == 2  # the empty table, then its first snapshot; deltas from there
    assert {row[2] for row in merged_rows(table)} == {3}


# ---- attempts

STEPS = (
    Step.PART_STARTED, Step.ROWS_WRITTEN, Step.FILES_FLUSHED, Step.PART_DONE,
    Step.BATCH_STARTED, Step.TASKS_DONE, Step.TABLE_COMMITTED,
)  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.sweep
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(6))
def test_batches_whose_attempts_stop_anywhere_land_once(tmp_path: Path, way: str, seed: int) -> None:
    """FL-72, FL-164 without a log: attempts have different rows; a batch has those of one, and nothing is left."""
    chance = random.Random(f"{way} {seed}")
    table, sessions, stopper = parted_table(tmp_path), StreamSessions(), Stopper()
    expected: dict[int, set[int]] = {}
    attempts = run = between = 0
    for number in range(4):
        stops = [(chance.choice(STEPS), chance.randrange(3)) for _ in range(chance.randrange(4))]
        for stop in [*stops, None]:
            attempts += 1
            run += chance.randrange(2)
            keys = range(number * 20, number * 20 + 9)
            parts = [batch(keys, [attempts] * 9) for _ in range(3)]
            stopper.set(stop)
            between += (
                stop is not None and stop[0] is Step.TASKS_DONE
            )  # files are the committing process's, unpublished
            with suppress(Stopped):
                left = run_tasks(table, parts, number, way=way, observe=stopper)
                commit(sessions, table, left, number, run=str(run), observe=stopper)
            expected.setdefault(number, set()).add(attempts)
    by_batch: dict[int, set[int]] = {}
    for _, k, v in merged_rows(table):
        by_batch.setdefault(k // 20, set()).add(v)
    assert all(len(by_batch[number]) == 1 and by_batch[number] <= expected[number] for number in range(4))
    assert len(merged_rows(table)) == 36
    appended = [each for each in map(table.store.snapshots.read, table.store.snapshots.ids())]
    appended = [each for each in appended if each.commit_kind is CommitKind.APPEND]
    assert [each.commit_identifier for each in appended] == list(range(4))
    orphans = left_behind(table)
    assert not any("staging" in path for path in orphans)
    assert between or not orphans


@pytest.mark.sweep
@pytest.mark.parametrize("at", [Step.PART_STARTED, Step.ROWS_WRITTEN, Step.FILES_FLUSHED])
def test_files_of_a_killed_attempt_go_with_the_commit_of_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: Step
) -> None:
    """A worker that is killed cleans nothing up; its files have the attempt's name, in the winner's directories."""
    table = parted_table(tmp_path, **{"write-buffer-size": "64 kb"})
    stopper = Stopper()
    stopper.set((at, 2 if at is Step.ROWS_WRITTEN else 0))
    parts = [batch(range(20_000), [1] * 20_000)]
    with monkeypatch.context() as killed:
        killed.setattr(_Part, "abort", lambda self: None)
        killed.setattr(TaskAttempt, "delete", lambda self, store: None)
        with pytest.raises(Stopped):
            run_tasks(table, parts, observe=stopper)
    dead = {path for path in left_behind(table) if "/bucket-" in path}
    assert bool(dead) == (at is not Step.PART_STARTED)
    commit(StreamSessions(), table, run_tasks(table, parts))
    assert len(merged_rows(table)) == 20_000
    assert left_behind(table) == set()


def test_a_finished_attempt_that_lost_leaves_nothing_and_another_querys_stay(tmp_path: Path) -> None:
    """Speculation: both attempts of a task end, and Spark hands over one of them."""
    table = parted_table(tmp_path)
    other = run_tasks(table, [batch([5], [5])], user="other")
    run_tasks(table, [batch(range(9), [1] * 9)])
    later = run_tasks(table, [batch([7], [7])], 1)
    commit(StreamSessions(), table, run_tasks(table, [batch(range(9), [2] * 9)]))
    assert {row[2] for row in merged_rows(table)} == {2}
    commit(StreamSessions(), table, later, 1)
    append_batch(table.files, NO_OPTIONS, other, commit_user="other")
    assert {row[1]: row[2] for row in merged_rows(table)} == {**dict.fromkeys(range(9), 2), 5: 5, 7: 7}
    assert left_behind(table) == set()


@pytest.mark.parametrize("stops", ["before it cleans up", "before it publishes"])
def test_a_commit_that_dies_leaves_what_it_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: str
) -> None:
    """The next run replays the batch with other files: those of the dead one stay if and only if they are visible."""
    table = parted_table(tmp_path)
    with monkeypatch.context() as dying:

        def die(*args: object, **given: object) -> None:
            raise Stopped

        if stops == "before it publishes":
            dying.setattr(staged_commit, "discard", lambda *args: None)
            dying.setattr("engine.write.batch_writer.BatchWriter._publish", die)
        dying.setattr(staged_commit, "clear_staged", die)
        with pytest.raises(Stopped):
            commit(StreamSessions(), table, run_tasks(table, [batch(range(9), [1] * 9)]))
    commit(StreamSessions(), table, run_tasks(table, [batch(range(9), [2] * 9)]), run="next")
    assert {row[2] for row in merged_rows(table)} == {1 if stops == "before it cleans up" else 2}
    orphans = left_behind(table)
    assert bool(orphans) == (stops == "before it publishes")  # claimed by a process that is gone: for orphan cleaning
    assert not any("staging" in path for path in orphans)


def test_what_an_abort_deletes_is_never_published_and_the_other_way_round(tmp_path: Path) -> None:
    """An ``abort`` may run while the commit of a stopped query still does: the first one has the files."""
    table = parted_table(tmp_path)
    (first,) = run_tasks(table, [batch([1], [1])])
    assert isinstance(first, FilesOfTask)
    first.attempt.delete(table.store)
    with pytest.raises(CorruptDataError, match="files of a task are gone"):
        commit(StreamSessions(), table, [first])
    assert (table.latest_snapshot(), left_behind(table)) == (None, set())
    (second,) = run_tasks(table, [batch([1], [2])])
    assert isinstance(second, FilesOfTask)
    second.attempt.claim(table.store)  # a commit is under way
    second.attempt.delete(table.store)
    clear_staged(table.store, "query")
    assert any("/bucket-" in path for path in left_behind(table))


# ---- with Spark


def spread(spark: SparkSession, rows: int, keys: int, partitions: int) -> DataFrame:
    """Upserts of the same keys in every partition; v rises with partition and place in it."""
    return spark.range(0, rows, 1, partitions).selectExpr(
        f"CAST(pmod(hash(id), {keys}) % 2 AS INT) AS p", f"CAST(pmod(hash(id), {keys}) AS BIGINT) AS k", "id AS v"
    )


@pytest.mark.sampled(1)
@pytest.mark.spark
@pytest.mark.parametrize("way", ["tasks", "auto"])
def test_frames_that_tasks_write_land_once_and_in_order(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """FL-27 to FL-33, without a log: append, stream, overwrite; with ``auto`` rows are many enough for tasks."""
    table = parted_table(tmp_path)
    root = table.store.paths.root
    place = {"warehouse": root.rsplit("/", 2)[0], "table": table.name, "write.files-by": way}
    frame = spread(spark, 3_000 if way == "tasks" else 450_000, 2_000, 2)
    expected = {row["k"]: row["v"] for row in frame.groupBy("k").agg({"v": "max"}).toDF("k", "v").collect()}
    for round in range(2):
        frame.write.format("fluvial").options(**place).mode("append").save()
        assert {row[1]: row[2] for row in merged_rows(table)} == expected
        assert sum(len(split.files) for split in table.read().plan().splits) == (round + 1) * 2 * 4
    frame.write.parquet(str(tmp_path / "input"))
    changes = spark.readStream.schema(frame.schema).parquet(str(tmp_path / "input"))
    query = changes.selectExpr("p", "k", "-v AS v").writeStream.format("fluvial").options(**place)
    query = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert query.exception() is None
    newest = table.latest_snapshot()
    assert newest is not None
    assert (newest.commit_user, newest.commit_identifier) == (query.id, 0)
    assert len(merged_rows(table)) == len(expected)
    assert {row[2] <= 0 for row in merged_rows(table)} == {True}
    frame.where("p = 0").write.format("fluvial").options(**place).mode("overwrite").save()
    assert {row[1]: row[2] > 0 for row in merged_rows(table)} == {key: key % 2 == 0 for key in expected}
    assert left_behind(table) == set()


@pytest.mark.broker
def test_a_table_that_got_a_log_meanwhile_refuses_files_of_tasks(tmp_path: Path, broker: Broker) -> None:
    """Files hold the newest row of each key, the log every row."""
    table = new_table(
        tmp_path / "warehouse",
        SCHEMA,
        key=["p", "k"],
        partition_by=["p"],
        broker=broker,
        options={"log.system": "kafka"},
    )
    left = run_tasks(table, [batch([1], [1])])
    with pytest.raises(ConflictError, match="the table got a log while tasks wrote files"):
        commit(StreamSessions(), table, left)
    assert table.latest_snapshot() is None
    plan = TaskPlan(table=table.files, has_log=True, wanted=FilesBy.TASKS, observe=ignore)
    staged, _ = plan.write([batch([1], [1])], commit_user="query", batch_id=0, partition=0)
    assert isinstance(staged, StagedFile)
    commit(StreamSessions(), table, [staged], run="next")
    assert merged_rows(table) == [(1, 1, 1)]
    assert left_behind(table) == set()


def test_files_of_an_attempt_at_external_places_are_deleted_with_it(tmp_path: Path) -> None:
    """Those that it noted; a note names no file outside of the table and its places."""
    places = {"data-file.external-paths": f"file://{tmp_path}/x", "data-file.external-paths.strategy": "entropy-inject"}
    catalog = FileCatalog(str(tmp_path / "w"), {"external-paths.allowed": str(tmp_path / "x")})
    table = catalog.create_table("db.t", SCHEMA, options=places)
    attempt = TaskAttempt.begin(table.store, "staging/u/1")
    write = replace(table, store=attempt.named(table.store)).new_write(max_sequence_numbers=lambda partition, bucket: 0)
    write.write(batch([1, 2], [1, 2]))
    attempt.note(table.store, write.prepare_commit())
    note, stranger = tmp_path / "w" / "db.db" / "t" / f"{attempt.place}.files", tmp_path / "x" / "private"
    stranger.write_text("kept")
    assert len([*tmp_path.glob("x/db.db/t/**/data-*")]) == 1
    note.write_text(json.dumps([*json.loads(note.read_text()), str(stranger), "../u"]))
    attempt.delete(table.store)
    assert [*tmp_path.glob("x/**/data-*")] == []
    assert stranger.exists()
