"""Recoveries by job files, from the mistake to the published tables and the jobs that continue."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine import Catalog
from engine.broker.broker import Broker
from engine.deploy.recovery.execution import Execution, Stage, StepReport, write_overlays
from engine.deploy.recovery.plan_file import PlanFile, RecoveryState
from engine.lineage.graph.lateness import TableCommits
from engine.lineage.graph.view import view_of_table
from engine.lineage.lineage import lineage_of
from engine.lineage.truth.checked import checked_meta
from engine.procedures import impact
from engine.procedures.recovery import validate_snapshot
from engine.procedures.recovery_steps import StepKind
from tests.engine.deploy.recovery.recovered_shop import (
    RIGHT,
    WRONG,
    Died,
    agreed_rows,
    block_of_page,
    dying_at_every_step,
    incremental_recovery,
    load_rows,
    make_shop,
    run_in_turn,
    shown_rows,
)
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

Fluvial = Callable[..., tuple[int, str, str]]
ROOT = Path(__file__).resolve().parents[4]
_NOT_IN_FULL = (StepKind.REWIND, StepKind.REVIEW)


def stored_links(catalog: Catalog) -> set[tuple[str, str, str, int]]:
    """What the store says about the jobs of the shop: which snapshots they read and wrote."""
    lineage = lineage_of(catalog)
    assert lineage is not None
    found = {("reads", each.job, each.table, each.snapshot_id) for each in lineage.meta.source_data_lineages()}
    found |= {("writes", each.job, each.table, each.snapshot_id) for each in lineage.meta.sink_data_lineages()}
    return {each for each in found if each[1] != "load"}


def names_in_graph(catalog: Catalog) -> set[str]:
    """As every answer: compared with the snapshots first."""
    lineage = lineage_of(catalog)
    assert lineage is not None
    with checked_meta(lineage, catalog) as meta:
        view = view_of_table(meta, "shop.daily", tables=_NoTables(), last=20, upstream=True, downstream=True)
    return {node.name if isinstance(node.name, str) else ".".join(node.name) for node in view.graph.nodes}


class _NoTables:
    now_ms = 0

    def newest_id(self, table: str) -> int | None:
        return None

    def commits_after(self, table: str, snapshot_id: int) -> TableCommits:
        raise AssertionError(table)


@pytest.mark.long
def test_an_incremental_recovery_ends_right(spark: SparkSession, tmp_path: Path) -> None:
    """LN-06, LN-31 to LN-34, LN-38, LN-39, LN-40, LN-41, LN-75: each step twice, as if its end was lost.

    It dies where a full recovery does not, see below; at every step it dies in test_logged_recovery.py, where the same
    steps have a topic besides.
    """
    catalog, path = make_shop(tmp_path)
    run_in_turn(spark, path)
    assert shown_rows(catalog) == WRONG

    def main_is_untouched(report: StepReport) -> None:
        if report.step.kind is StepKind.TAG and report.fact is None:
            assert shown_rows(catalog) == WRONG

    file = dying_at_every_step(
        incremental_recovery(path),
        _NOT_IN_FULL,
        lambda file: Execution(file, lambda _: spark, on_step=main_is_untouched).run(Stage.PUBLISH),
        _NOT_IN_FULL,
    )
    assert shown_rows(catalog) == RIGHT
    assert stored_links(catalog) == {
        ("reads", "clean", "raw", 1), ("writes", "clean", "orders", 1),
        ("reads", "clean", "raw", 2), ("writes", "clean", "orders", 2),
        ("reads", "clean-fix", "raw", 3), ("writes", "clean-fix", "orders", 3),
        ("reads", "report", "orders", 1), ("writes", "report", "daily", 1),
        ("reads", "report", "orders", 2), ("writes", "report", "daily", 2),
        ("reads", "report-fix", "orders", 3), ("writes", "report-fix", "daily", 3),
        ("writes", "recover-fix-1", "raw", 3),
    }  # fmt: skip
    assert not [name for name in names_in_graph(catalog) if "$" in name]
    hits = impact(catalog.table("shop.raw"), 3).to_pylist()
    assert [(hit["job"], hit["table"], hit["snapshot_id"]) for hit in hits] == [
        ("clean-fix", "shop.orders", 3),
        ("report-fix", "shop.daily", 3),
    ]
    assert validate_snapshot(catalog, "shop.orders", 3, "SELECT id, n * 10 AS n FROM raw").num_rows == 0
    assert validate_snapshot(catalog, "shop.daily", 3, "SELECT id, n + 1 AS n FROM orders").num_rows == 0

    overlay = write_overlays(file)[str(path)]
    load_rows(catalog.table("shop.raw"), {4: -4})
    run_in_turn(spark, path, overlay)
    wrong = [{**rows, 4: value} for rows, value in zip(RIGHT, (-4, -40, -39), strict=True)]
    assert shown_rows(catalog) == wrong  # the new jobs continued, on what was published


@pytest.mark.long
def test_a_full_recovery_by_the_command_dies_at_every_kind_of_step(
    spark: SparkSession, tmp_path: Path, fluvial: Fluvial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LN-35 to LN-37, LN-06, LN-75, for tables without a log: the command is given again as it was until it is done."""
    catalog, path = make_shop(tmp_path)
    run_in_turn(spark, path)
    assert shown_rows(catalog) == WRONG
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("engine.cli.job_commands.recover._started", lambda *_: spark)  # else the command would end it
    saved, left = PlanFile.save, {*StepKind} - {*_NOT_IN_FULL}

    def save(file: PlanFile, state: RecoveryState) -> None:
        for index in state.facts.keys() - file.state.facts.keys():
            if file.plan.steps[index].kind in left:
                left.remove(file.plan.steps[index].kind)
                raise Died(file.plan.steps[index].command)
        saved(file, state)

    monkeypatch.setattr(PlanFile, "save", save)
    deaths, was_published, asked = len(left), False, _full_recovery(path)
    for _ in range(deaths):
        with pytest.raises(Died):
            fluvial(*asked)
        was_published = was_published or json.loads((tmp_path / "recover-again.json").read_text())["publishing"]
        assert was_published or shown_rows(catalog) == WRONG
    code, out, error = fluvial(*asked)
    assert (code, left) == (0, set()), error
    assert (json.loads(out)["published"], set(json.loads(out)["tables"].values())) == (True, {"new"})
    assert shown_rows(catalog) == RIGHT
    assert stored_links(catalog) == {
        ("reads", "clean-again", "raw", 3), ("writes", "clean-again", "orders", 1),
        ("reads", "report-again", "orders", 1), ("writes", "report-again", "daily", 1),
        ("writes", "recover-again-1", "raw", 3),
    }  # fmt: skip
    hits = impact(catalog.table("shop.raw"), 3).to_pylist()
    assert [(hit["job"], hit["table"]) for hit in hits] == [
        ("clean-again", "shop.orders"),
        ("report-again", "shop.daily"),
    ]
    assert not [name for name in names_in_graph(catalog) if "$" in name]


@pytest.mark.soak
@pytest.mark.broker
def test_a_full_recovery_by_the_command_is_killed_and_run_again(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """LN-35 to LN-37: without checkpoints of the old jobs, for which the tables are computed from the beginning."""
    catalog, path = make_shop(tmp_path, servers=broker.bootstrap_servers)
    run_in_turn(spark, path)
    _recover_fully(tmp_path, path)
    assert agreed_rows(Catalog(catalog.warehouse), [{1: 1, 2: 2}, {}, {}]) == RIGHT
    assert {(job, table) for kind, job, table, _ in stored_links(catalog) if kind == "writes"} == {
        ("clean-again", "orders"), ("report-again", "daily"), ("recover-again-1", "raw"),
    }  # fmt: skip


def _full_recovery(path: Path) -> list[str]:
    correction = block_of_page("sql").replace("_fix", "_again")
    asked = ["recover", str(path), "--table", "shop.raw", "--snapshot", "2", "--branch", "again"]
    return [*asked, "--correct", correction, "--publish", "--json"]


def _recover_fully(home: Path, path: Path) -> None:
    """By the command, which is killed while a pipeline runs, and run again.

    Between two steps the end of a process leaves what the deaths above leave: the plan's file and those of the tables.
    """
    command = [sys.executable, "-m", "engine.cli", *_full_recovery(path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "engine" / "plugin")])}
    started = home / "checkpoints" / "clean-again" / "offsets" / "0"
    _killed(command, home, environment, lambda: started.exists())
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["published"], set(result["tables"].values())) == (True, {"new"})
    assert result["overlays"] == {str(path): str(Path("recover-again.shop.yaml"))}


def _killed(command: list[str], home: Path, environment: dict[str, str], when: Callable[[], bool]) -> None:
    with (home / "killed.log").open("w") as log:
        killed = subprocess.Popen(command, cwd=home, env=environment, stdout=log, stderr=log)
        wait_until(lambda: when() or killed.poll() is not None, "nothing to kill", 200)
        assert killed.poll() is None, (home / "killed.log").read_text()
        killed.send_signal(signal.SIGKILL)
        killed.wait()
