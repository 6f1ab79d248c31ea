"""kill -9 at every step of a micro-batch: afterwards log and table hold each batch once, and agree."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine import Catalog
from engine.broker.broker import Broker
from engine.runtime.steps import Step
from logstore.log.log_writer import CHUNK_ROWS
from lsm.row_kind import RowKind
from tests.peers.agreement import Agreement
from tests.support.logs import folded, log_changes, visible_ends

ROWS, BUCKETS = 40, 2
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("batch", pa.int32()), ("salt", pa.string())])
DRIVER_CRASHES = [
    (Step.BATCH_STARTED, 0),
    (Step.LOG_RECOVERED, 0),  # only the first batch of a run gets there
    (Step.TASKS_DONE, 0),  # the log holds batch 0, the table does not
    (Step.TABLE_COMMITTED, 1),  # the table holds batch 1, Spark does not know
    (Step.TASKS_DONE, 2),
]
TASK_STEPS = [
    Step.PART_STARTED,
    Step.BUCKET_FENCED,
    Step.ROWS_WRITTEN,
    Step.FILES_FLUSHED,
    Step.LOG_COMMITTED,
    Step.PART_DONE,
]

pytestmark = [
    pytest.mark.broker,
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("kills of the sink"),
]


class Job:
    """The job's world on disk, and its runs."""

    def __init__(
        self,
        root: Path,
        bootstrap: str,
        batches: int,
        *,
        log: bool = True,
        rows: int = ROWS,
        writer: str = "sink",
        kills_jvm: bool = True,
        **more: str,
    ) -> None:
        """`writer` is "sink" or "format"; without `kills_jvm` only the process dies that reached the step."""
        self.root = root
        self.writer = writer
        self.kills_jvm = kills_jvm
        self.batches = batches
        options = {"bucket": str(BUCKETS), **{key.replace("_", "."): value for key, value in more.items()}}
        if log:
            options |= {"log.system": "kafka", "log.kafka.bootstrap.servers": bootstrap}
        self.catalog = Catalog(str(root / "warehouse"))
        name = f"db.t{abs(hash(str(root))) % 10**9}"
        self.table = self.catalog.create_table(name, SCHEMA, primary_key=["id"], options=options)
        (root / "input").mkdir()
        (root / "marks").mkdir()
        for batch in range(batches):
            ids = range(batch * rows, (batch + 1) * rows)
            file = root / "input" / f"part-{batch:03d}.parquet"
            pq.write_table(
                pa.table({"id": pa.array(ids, pa.int64()), "batch": pa.array([batch] * rows, pa.int32())}), file
            )
            os.utime(file, (1.7e9 + batch, 1.7e9 + batch))

    def run(self, crashes: list[tuple[Step, int]], *, master: str = "local[2,1]", restarts: int = 0) -> int:
        """Run to the end, or to a crash; a query that fails is started again so many times without a new session."""
        config = self.root / "config.json"
        config.write_text(
            json.dumps(
                {
                    "master": master,
                    "warehouse": str(self.root / "warehouse"),
                    "table": self.table.name,
                    "input": str(self.root / "input"),
                    "checkpoint": str(self.root / "checkpoint"),
                    "marks": str(self.root / "marks"),
                    "writer": self.writer,
                    "kills_jvm": self.kills_jvm,
                    "restarts": restarts,
                    "crashes": [(step.value, batch) for step, batch in crashes],
                }
            )
        )
        script = Path(__file__).with_name("crashing_job.py")
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
        done = subprocess.run(
            [sys.executable, str(script), str(config)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        (self.root / "last-run.txt").write_text(done.stdout + done.stderr)
        return done.returncode

    def crashed_at(self) -> set[str]:
        return {path.name for path in (self.root / "marks").iterdir()}

    def table_rows(self) -> dict[int, tuple[int, str]]:
        rows = self.table.read().to_arrow().to_pylist()
        assert len({row["id"] for row in rows}) == len(rows)
        return {row["id"]: (row["batch"], row["salt"]) for row in rows}

    def log_rows(self) -> list[dict[str, object]]:
        changes = log_changes(self.table)
        assert {kind for kind, _ in changes} <= {RowKind.INSERT}
        return [row for _, row in changes]

    def check(self) -> None:
        """Every row once in the log, once in the table, and the same one in both."""
        table, log = self.table_rows(), self.log_rows()
        assert sorted(table) == list(range(self.batches * ROWS))
        assert Counter(row["id"] for row in log) == Counter(range(self.batches * ROWS))
        assert {row["id"]: (row["batch"], row["salt"]) for row in log} == table
        snapshot = self.table.latest_snapshot()
        assert snapshot is not None
        ends = visible_ends(self.table)
        for bucket, known in snapshot.log_offsets.items():
            assert known <= ends[bucket]


@pytest.mark.interop
def test_a_driver_killed_at_any_step_repeats_and_loses_nothing(
    tmp_path: Path, broker: Broker, assert_peers_agree: Agreement
) -> None:
    """FL-72, FL-164: one chain of runs on one table, each killed at the next step of the driver."""
    job = Job(tmp_path, broker.bootstrap_servers, batches=4)
    for crash in DRIVER_CRASHES:
        assert job.run([crash]) != 0, (tmp_path / "last-run.txt").read_text()
    assert job.run([]) == 0, (tmp_path / "last-run.txt").read_text()
    assert job.crashed_at() == {f"{step.value}-{batch}" for step, batch in DRIVER_CRASHES}
    job.check()
    assert len(assert_peers_agree(job.table.store.paths.root)) == 4 * ROWS
    job.table.compact(full=True)
    assert len(assert_peers_agree(job.table.store.paths.root)) == 4 * ROWS


@pytest.mark.interop
def test_a_task_killed_at_any_step_is_tried_again_within_the_run(
    tmp_path: Path, broker: Broker, assert_peers_agree: Agreement
) -> None:
    """FL-78, FL-127: Spark retries the task; what the dead attempt had committed to the log is taken over."""
    job = Job(tmp_path, broker.bootstrap_servers, batches=len(TASK_STEPS) + 1)
    crashes = [(step, number) for number, step in enumerate(TASK_STEPS)]
    assert job.run(crashes, master="local[2,4]") == 0, (tmp_path / "last-run.txt").read_text()
    assert job.crashed_at() == {f"{step.value}-{number}" for number, step in enumerate(TASK_STEPS)}
    job.check()
    assert len(assert_peers_agree(job.table.store.paths.root)) == (len(TASK_STEPS) + 1) * ROWS


def test_a_task_killed_at_any_step_fails_the_run_and_the_next_run_goes_on(tmp_path: Path, broker: Broker) -> None:
    """FL-164: without retries the query fails; its restart replays the batch."""
    steps = [Step.ROWS_WRITTEN, Step.FILES_FLUSHED, Step.LOG_COMMITTED, Step.PART_DONE]
    job = Job(tmp_path, broker.bootstrap_servers, batches=len(steps) + 1)
    crashes = [(step, number) for number, step in enumerate(steps)]
    assert job.run(crashes, restarts=len(steps)) == 0, (tmp_path / "last-run.txt").read_text()
    assert job.crashed_at() == {f"{step.value}-{number}" for step, number in crashes}
    job.check()


def test_without_a_log_a_killed_driver_repeats_nothing(tmp_path: Path, broker: Broker) -> None:
    """FL-164: the snapshot alone decides."""
    job = Job(tmp_path, broker.bootstrap_servers, batches=3, log=False)
    assert job.run([(Step.TASKS_DONE, 0)]) != 0
    assert job.run([(Step.TABLE_COMMITTED, 1)]) != 0
    assert job.run([]) == 0, (tmp_path / "last-run.txt").read_text()
    assert sorted(job.table_rows()) == list(range(3 * ROWS))
    snapshots = [job.table.store.snapshots.read(i) for i in range(1, job.table.latest_snapshot().id + 1)]
    committed = [(s.commit_user, s.commit_identifier) for s in snapshots if s.commit_kind.value == "APPEND"]
    assert len(committed) == len(set(committed)) == 3


def test_an_eventual_log_folded_by_key_is_the_table_though_killed_tasks_had_shown_their_rows(
    tmp_path: Path, broker: Broker
) -> None:
    """FL-58, FL-108, FL-128: what the dead had committed to the log stays there; the newest row of a key is right."""
    rows, batches = CHUNK_ROWS + 10_000, 3
    job = Job(
        tmp_path, broker.bootstrap_servers, batches=batches, rows=rows, bucket="1", log_consistency="eventual"
    )  # fmt: skip
    visible = [(Step.FILES_FLUSHED, 0), (Step.TASKS_DONE, 1)]  # a chunk of a batch; a whole batch, without a snapshot
    assert job.run(visible, restarts=1) != 0
    assert job.run([]) == 0, (tmp_path / "last-run.txt").read_text()
    assert job.crashed_at() == {"files-flushed-0", "tasks-done-1"}
    changes = log_changes(job.table)
    assert len(changes) > batches * rows  # duplicates: at-once visibility has its price
    table = {row["id"]: row for row in job.table.read().to_arrow().to_pylist()}
    assert len(table) == batches * rows
    assert folded(changes, "id") == table
