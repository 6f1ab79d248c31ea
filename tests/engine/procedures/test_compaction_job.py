"""The job that only compacts: ``fluvial compact --watch``."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from engine import Catalog, Table
from engine.cli.app import run_command
from engine.deploy import compaction_job
from engine.deploy.compaction_job import CompactionJob, JobEvent, JobPolicy
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from engine.monitor.inspection import inspect_table
from filestore.commit.table_commit import TableCommit
from filestore.compact.compactor import run_task
from filestore.compact.task import CompactionTask
from filestore.maintenance.orphans import find_orphans
from filestore.manifest.commit_message import CommitMessage
from filestore.table_store import TableStore
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError
from tests.engine.procedures.conftest import order_rows

QUICK = JobPolicy(interval_s=0.01, most_wait_s=0.04)
KEEP_ONE = {"snapshot__num_retained__min": "1", "snapshot__num_retained__max": "1"}
Content = Callable[..., set[tuple[str, int, int]]]


class Recorder:
    """Notes what a job tells, and stops it after so many events."""

    def __init__(self, stop_after: int) -> None:
        self.stop, self.events, self._left = threading.Event(), list[JobEvent](), stop_after

    def __call__(self, event: JobEvent) -> None:
        self.events.append(event)
        self._left -= 1
        if self._left == 0:
            self.stop.set()

    def words(self) -> list[str]:
        return [each.event for each in self.events]


def job(catalog: Catalog, recorder: Recorder, *names: str, policy: JobPolicy = QUICK) -> CompactionJob:
    found: Sequence[str] = names or ("shop.orders",)
    return CompactionJob(catalog, lambda: found, policy=policy, on_event=recorder, must_exist=len(found) == 1)


def most_runs(table: Table) -> int:
    return max(len(bucket.runs) for bucket in inspect_table(table.store).buckets)


def orphans(table: Table) -> list[str]:
    return [
        each.path for each in find_orphans(table.store, before_ms=1 << 60, private_directories=(), spared=lambda: ())
    ]


@pytest.mark.sweep
@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_a_write_only_stream_leaves_is_compacted_while_it_writes(
    new_table: Callable[..., Table], catalog: Catalog, content: Content, parallelism: int
) -> None:
    """FL-162, FL-166: rows stay what they are, runs stay few, and old snapshots go."""
    table = new_table(write_only="true", **KEEP_ONE)
    recorder, expected = Recorder(0), content(catalog)
    policy = JobPolicy(interval_s=0.01, most_wait_s=0.04, parallelism=parallelism)
    thread = threading.Thread(target=job(catalog, recorder, policy=policy).run, args=(recorder.stop,), daemon=True)
    thread.start()
    for number in range(12):
        table.write(order_rows(("d1", 1, 100 + number), ("d3", number, number)))
        expected = {each for each in expected if each[:2] != ("d1", 1)} | {
            ("d1", 1, 100 + number),
            ("d3", number, number),
        }
        if number % 4 == 3:
            wait_for(lambda: most_runs(table) < 5)
    recorder.stop.set()
    thread.join(30)
    assert content(catalog) == expected
    assert set(recorder.words()) == {"compacted"}
    assert all(each.files_before > each.files_after > 0 for each in recorder.events)
    assert table.store.snapshots.ids()[0] > 1
    assert orphans(table) == []


def test_each_commit_takes_the_buckets_that_cost_readers_most_first_and_says_what_is_left(
    new_table: Callable[..., Table], catalog: Catalog
) -> None:
    new_table()
    recorder = Recorder(2)
    policy = JobPolicy(is_full=True, interval_s=0.01, buckets_per_commit=1)
    job(catalog, recorder, policy=policy).run(recorder.stop)
    first, second = recorder.events[0], recorder.events[1]
    assert first.files_before == 2
    assert first.tasks_left == second.tasks_left + 1 > 0


def test_a_stop_commits_what_is_done_and_leaves_nothing_behind(
    new_table: Callable[..., Table], catalog: Catalog, monkeypatch: pytest.MonkeyPatch, content: Content
) -> None:
    table = new_table()
    recorder, before = Recorder(0), content(catalog)

    def stopped(store: TableStore, task: CompactionTask) -> CommitMessage:
        recorder.stop.set()
        return run_task(store, task)

    monkeypatch.setattr(compaction_job, "run_task", stopped)
    job(catalog, recorder, policy=JobPolicy(is_full=True, interval_s=0.01)).run(recorder.stop)
    (event,) = recorder.events
    assert (event.event, event.buckets) == ("compacted", 1)
    assert event.tasks_left > 0
    assert (content(catalog), orphans(table)) == (before, [])


def test_a_second_signal_leaves_the_table_as_it_was(
    new_table: Callable[..., Table], catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, ran = new_table(), list[str]()

    def interrupted(store: TableStore, task: CompactionTask) -> CommitMessage:
        if ran:
            raise KeyboardInterrupt
        ran.append("once")
        return run_task(store, task)

    monkeypatch.setattr(compaction_job, "run_task", interrupted)
    recorder = Recorder(0)
    with pytest.raises(KeyboardInterrupt):
        job(catalog, recorder, policy=JobPolicy(is_full=True)).run(recorder.stop)
    assert (recorder.events, table.store.snapshots.latest_id(), orphans(table)) == ([], 2, [])


def test_a_bucket_that_cannot_be_merged_stops_no_other_and_is_tried_again_later(
    new_table: Callable[..., Table], catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_table()

    def failing(store: TableStore, task: CompactionTask) -> CommitMessage:
        if len(task.files) == 2:
            raise CorruptDataError("page checksum: file=x")
        return run_task(store, task)

    monkeypatch.setattr(compaction_job, "run_task", failing)
    recorder = Recorder(4)
    job(catalog, recorder, policy=JobPolicy(is_full=True, interval_s=0.01, most_wait_s=0.04)).run(recorder.stop)
    assert recorder.words() == ["compacted", "failed", "failed", "failed"]
    assert [each.retry_s for each in recorder.events[1:]] == [0.01, 0.02, 0.04]
    assert "CorruptDataError: page checksum: file=x bucket=" in str(recorder.events[1].error)


def test_a_compaction_that_another_commit_overtook_leaves_no_file_and_is_done_again(
    new_table: Callable[..., Table], catalog: Catalog, monkeypatch: pytest.MonkeyPatch, content: Content
) -> None:
    table, before = new_table(), content(catalog)
    left = [1]

    def overtaken(self: object, *arguments: object, **named: object) -> object:
        if left:
            left.pop()
            raise ConflictError("a file is gone")
        return real(self, *arguments, **named)

    real: Callable[..., object] = TableCommit.commit_compaction
    monkeypatch.setattr(TableCommit, "commit_compaction", overtaken)
    recorder = Recorder(2)
    job(catalog, recorder, policy=JobPolicy(is_full=True, interval_s=0.01)).run(recorder.stop)
    assert recorder.words() == ["overtaken", "compacted"]
    assert (content(catalog), orphans(table), most_runs(table)) == (before, [], 1)


def test_tables_come_and_go_beside_others(
    new_table: Callable[..., Table], catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_table("shop.a")
    new_table("shop.b")

    def check(table: TableStore, *arguments: object, **named: object) -> object:
        if table.name == "shop.b":
            raise InvalidInputError("cannot replace files that have an index: table=shop.b")
        return real_commit(table, *arguments, **named)

    real_commit: Callable[..., object] = compaction_job.replace_compacted
    monkeypatch.setattr(compaction_job, "replace_compacted", check)
    recorder = Recorder(3)
    policy = JobPolicy(is_full=True, interval_s=0.01)
    job(catalog, recorder, "shop.a", "shop.b", "shop.c", policy=policy).run(recorder.stop)
    reported = {each.table: (each.event, each.error) for each in recorder.events}
    assert {table: event for table, (event, _) in reported.items()} == {
        "shop.a": "compacted", "shop.b": "refused", "shop.c": "gone",
    }  # fmt: skip
    assert "have an index" in str(reported["shop.b"][1])
    with pytest.raises(InvalidInputError, match="no such table"):
        job(catalog, recorder, "shop.c").run(threading.Event())


@pytest.mark.sweep
def test_new_options_are_taken(new_table: Callable[..., Table], catalog: Catalog) -> None:
    """Without a new snapshot: the trigger is lowered while the job runs."""
    new_table(num_sorted_run__compaction_trigger="50").write(order_rows(("d1", 1, 10)))
    recorder = Recorder(1)
    thread = threading.Thread(target=job(catalog, recorder).run, args=(recorder.stop,), daemon=True)
    thread.start()
    thread.join(0.2)
    assert recorder.events == []
    SqlSession(SqlContext(catalog=catalog, open_spark=lambda: pytest.fail("no Spark"))).execute(
        "ALTER TABLE shop.orders SET ('num-sorted-run.compaction-trigger' = '2')"
    )
    thread.join(30)
    assert recorder.words() == ["compacted"]


def test_waits_double_until_they_are_longest() -> None:
    policy = JobPolicy(interval_s=10, most_wait_s=70)
    waits = [0.0]
    for _ in range(5):
        waits.append(policy.next_wait_s(waits[-1]))
    assert waits == [0, 10, 20, 40, 70, 70]
    assert JobPolicy(interval_s=10, most_wait_s=1).next_wait_s(0) == 10


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_command_tells_a_line_for_each_commit_and_ends_well(
    new_table: Callable[..., Table], catalog: Catalog, number: signal.Signals
) -> None:
    table = new_table(write_only="true")
    command = [sys.executable, "-m", "engine.cli", "compact-database", "--warehouse", catalog.warehouse]
    command += ["--watch", "--interval", "0.05", "--compact-strategy", "full", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3]) as process:
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        table.write(order_rows(("d1", 1, 5)))
        second = json.loads(process.stdout.readline())
        process.send_signal(number)
        rest = process.stdout.read()
    assert (process.returncode, rest) == (0, "")
    assert (first["table"], first["event"], second["buckets"]) == ("shop.orders", "compacted", 1)
    assert second["snapshot_id"] > first["snapshot_id"]


def test_one_table_is_watched_where_it_is_told_to(
    new_table: Callable[..., Table],
    catalog: Catalog,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    new_table()
    monkeypatch.setattr(compaction_job.CompactionJob, "run", lambda self, _stop: self._check(self_watch(self), _stop))
    arguments = [
        "compact",
        "shop.orders",
        "--warehouse",
        catalog.warehouse,
        "--watch",
        "--full",
        "--partitions",
        "dt=d2",
    ]
    assert run_command(arguments) == 0
    assert "shop.orders: snapshot 3: 1 buckets, 1 files became 1" in capsys.readouterr().out


def self_watch(found: CompactionJob) -> object:
    return compaction_job._Watch("shop.orders", found._policy)


def wait_for(is_so: Callable[[], bool]) -> None:
    pause = threading.Event()
    for _ in range(600):
        if is_so():
            return
        pause.wait(0.05)
    raise AssertionError("it did not come to that")


@pytest.mark.sweep
def test_a_watching_job_ends_when_its_time_is_over(
    new_table: Callable[..., Table], catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--time-limit``, for hours off the peak: what is running is committed; ``--most-buckets`` is of one commit."""
    new_table()
    place = ["--warehouse", catalog.warehouse, "--json", "--watch", "--interval", "0.05", "--full"]
    assert run_command(["compact", "shop.orders", *place, "--time-limit", "3 s", "--most-buckets", "1"]) == 0
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(events) > 1
    assert {each["buckets"] for each in events} == {1}
