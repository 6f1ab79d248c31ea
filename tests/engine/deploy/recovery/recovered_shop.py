"""A shop with two jobs in a row, for tests of recoveries."""

import re
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession

from engine import Catalog, Table
from engine.deploy.config.job_config import load_job
from engine.deploy.job import run_job
from engine.deploy.recovery.job_files import JobFiles
from engine.deploy.recovery.plan_file import PlanFile, RecoveryState, read_plan
from engine.deploy.recovery.recovery_plan import RecoveryRequest, plan_recovery
from engine.lineage.origins import CommitOrigin, SourceRead
from engine.procedures.recovery_steps import StepKind
from engine.request.writer_options import NO_OPTIONS
from engine.write.session import LocalRunner, Upkeep, WriteSession
from tests.support.logs import folded, log_changes
from tests.support.streams import Query, fold

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
TABLES = ("shop.raw", "shop.orders", "shop.daily")
WRONG = [{1: 1, 2: -2, 3: -3}, {1: 10, 2: -20, 3: -30}, {1: 11, 2: -19, 3: -29}]
RIGHT = [{1: 1, 2: 2, 3: 3}, {1: 10, 2: 20, 3: 30}, {1: 11, 2: 21, 3: 31}]
PAGE = Path(__file__).resolve().parents[4] / "docs/recovery.md"


def block_of_page(language: str) -> str:
    """The one block of the page in a language."""
    [found] = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


class Died(BaseException):
    """A process that ended here."""


class DyingFile(PlanFile):
    """A plan file whose process dies once for each step of some kinds: when it is done, before that is written."""

    def __init__(self, file: PlanFile, at: set[tuple[str, int]], died: set[tuple[str, int]]) -> None:
        super().__init__(file.path, file.plan, file.state)
        self._at, self._died = at, died

    def save(self, state: RecoveryState) -> None:
        for index in state.facts.keys() - self.state.facts.keys():
            self.die("unwritten", index)
        super().save(state)

    def die(self, when: str, index: int) -> None:
        if (when, index) in self._at - self._died:
            self._died.add((when, index))
            raise Died(f"{when} {self.plan.steps[index].command}")


def make_shop(home: Path, *, servers: str | None = None) -> tuple[Catalog, Path]:
    """The job file, and ``raw`` with two right snapshots and a wrong one; with ``servers`` its tables have a log."""
    path = home / "shop.yaml"
    text = block_of_page("yaml").replace("warehouse: ", f"warehouse: {home}/")
    log = {} if servers is None else {"log.kafka.bootstrap.servers": servers}
    options = "".join(f", {key}: '{value}'" for key, value in log.items())
    assert "{bucket: 1}" in text
    text = text.replace("{bucket: 1}", f"{{bucket: 1{options}}}")
    path.write_text(text.replace("checkpoint: ", f"checkpoint: {home}/"))
    catalog = Catalog(str(home / "warehouse"))
    raw = catalog.create_table("shop.raw", SCHEMA, primary_key=["id"], options={"bucket": "1", **log})
    for rows in ({1: 1}, {2: 2}, {2: -2, 3: -3}):
        load_rows(raw, rows)
    return catalog, path


def incremental_recovery(path: Path) -> PlanFile:
    """A new plan, in its file: what came after snapshot 2 of ``raw`` goes, and one row is written as it should be."""
    request = RecoveryRequest(
        files=JobFiles(paths=(str(path),)),
        table="shop.raw",
        snapshot_id=2,
        is_incremental=True,
        corrections=("INSERT INTO shop.raw$branch_fix VALUES (3, 3)",),
    )
    file = PlanFile(path.parent / "recover-fix.json", plan_recovery(request), RecoveryState())
    file.save(file.state)
    return file


def dying_at_every_step(
    first: PlanFile,
    repeated: Collection[StepKind],
    attempt: Callable[[PlanFile], bool],
    kinds: Collection[StepKind] = frozenset(StepKind),
) -> PlanFile:
    """Carry out a plan by processes that die, each when a step is done and before that is written.

    Args:
        first: the plan.
        repeated: kinds of steps that every death repeats: a process dies at the first of them only.
        attempt: to carry it out.
        kinds: of the steps where processes die.

    Returns:
        The plan when it is done.
    """
    again = [index for index, each in enumerate(first.plan.steps) if each.kind in repeated]
    dying = [index for index, each in enumerate(first.plan.steps) if each.kind in kinds]
    at = {("unwritten", index) for index in dying if index not in again[1:]}
    died: set[tuple[str, int]] = set()
    while True:
        found = read_plan(first.path)
        assert found is not None
        file = DyingFile(found, at, died)
        with suppress(Died):
            assert attempt(file)
            assert died == at
            return file


def load_rows(table: Table, rows: Mapping[int, int], job: str = "load") -> None:
    frame = pa.table({"id": list(rows), "n": list(rows.values())}, schema=SCHEMA)
    table.write(frame, options={"pipeline.name": job})


def run_barrier(
    catalog: Catalog, job: str, barrier: int, source: str, target: str, rows: Mapping[int, int], *, read: int
) -> None:
    """What a batch of a stream leaves: the rows, and in their snapshot what it had read of its source."""
    from_table, table = catalog.table(source).store, catalog.table(target).files
    found = SourceRead.of(from_table, from_table.snapshots.read(read))
    origin = CommitOrigin(job=job, barrier_id=barrier, reads=() if found is None else (found,), run=f"run of {job}")
    session = WriteSession(
        table,
        LocalRunner(),
        commit_user=f"{job} {target}",
        options=NO_OPTIONS,
        upkeep=Upkeep.BATCH,
        origin=lambda batch_id, rows: origin,
    )
    with session:
        frame = pa.table({"id": list(rows), "n": list(rows.values())}, schema=SCHEMA)
        session.write(frame.to_batches(), batch_id=barrier)


def shown_rows(catalog: Catalog) -> list[dict[int, int]]:
    """What readers of the three tables see."""
    tables = (catalog.table(name).read().to_arrow().to_pylist() for name in TABLES)
    return [{row["id"]: row["n"] for row in rows} for rows in tables]


def run_in_turn(spark: SparkSession, path: Path, *overlays: str) -> None:
    """Each pipeline after the one before, so that all barriers are where they always are."""
    job = load_job(str(path), overlays=overlays, environment={})
    for each in job.pipelines:
        run_job(job.chosen([each.name]), spark=spark)


def agreed_rows(catalog: Catalog, onto: list[dict[int, int]]) -> list[dict[int, int]]:
    """What every kind of reader sees of the three tables: they must agree. ``onto``: the rows before each topic."""
    tables = [catalog.table(name) for name in TABLES]
    for table, before in zip(tables, onto, strict=True):
        rows = {row["id"]: row["n"] for row in table.read().to_arrow().to_pylist()}
        union = table.read(options={"scan.log.union": "true"}).to_arrow().to_pylist()
        assert {row["id"]: row["n"] for row in union} == rows
        topic = folded(log_changes(table), "id")
        gone = {row["id"] for kind, row in log_changes(table) if kind.is_retract} - topic.keys()
        kept = {key: value for key, value in before.items() if key not in gone}
        assert kept | {key: row["n"] for key, row in topic.items()} == rows, table.name
        stream = fold(Query(catalog.warehouse, table.name).available())
        assert {key: row["n"] for (key,), row in stream.items()} == rows
    return shown_rows(catalog)
