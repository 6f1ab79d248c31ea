"""Recoveries without Spark: what they refuse, and a publication of several tables that dies at every step."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine import Catalog
from engine.deploy.recovery.execution import Execution, Stage, seen_tables
from engine.deploy.recovery.job_files import JobFiles
from engine.deploy.recovery.plan_file import PlanFile, RecoveryState, alone_with, read_plan
from engine.deploy.recovery.recovery_plan import RecoveryRequest, plan_recovery
from engine.lineage.lineage import Lineage, lineage_of
from engine.procedures import (
    create_branch,
    delete_data_lineage,
    delete_table_lineage,
    recovery_plan,
    repair_lineage,
)
from engine.procedures.recovery_steps import StepKind
from engine.versions.expectations import ExpectationError
from lsm.errors import ConflictError, InvalidInputError
from tests.engine.deploy.recovery.recovered_shop import (
    TABLES,
    Died,
    DyingFile,
    load_rows,
    make_shop,
    run_barrier,
    shown_rows,
)

Fluvial = Callable[..., tuple[int, str, str]]
OLD = [{1: 1, 2: -2, 3: -3}, {1: 10, 2: -20, 3: -30}, {1: 11, 2: -19, 3: -29}]
NEW = [{1: 1, 2: 2}, {1: 10, 2: 20}, {1: 11, 2: 21}]


def lineage(catalog: Catalog) -> Lineage:
    found = lineage_of(catalog)
    assert found is not None
    return found


@pytest.fixture
def shop(tmp_path: Path) -> tuple[Catalog, Path]:
    return ran_shop(tmp_path)


def ran_shop(home: Path, *, servers: str | None = None) -> tuple[Catalog, Path]:
    """As after a run of both jobs: three barriers each, the last one with the mistake. ``servers``: of a log."""
    catalog, path = make_shop(home, servers=servers)
    options = {"bucket": "1"} | ({} if servers is None else {"log.kafka.bootstrap.servers": servers})
    names = [name.partition(".")[2] for name in TABLES]
    for job, source, target in zip(("clean", "report"), names[:2], names[1:], strict=True):
        table = catalog.create_table(
            f"shop.{target}", catalog.table("shop.raw").schema.arrow_schema, primary_key=["id"], options=options
        )
        plus = {"orders": (10, 0), "daily": (10, 1)}[target]
        for barrier, rows in enumerate(({1: 1}, {2: 2}, {2: -2, 3: -3})):
            made = {at: n * plus[0] + plus[1] for at, n in rows.items()}
            run_barrier(catalog, job, barrier, f"shop.{source}", table.name, made, read=barrier + 1)
    return catalog, path


def request(path: Path, **given: Any) -> RecoveryRequest:
    return RecoveryRequest(**{"files": JobFiles(paths=(str(path),)), "table": "shop.raw", "snapshot_id": 2, **given})


def no_spark(_: object) -> Any:
    raise AssertionError("nothing here needs Spark")


def without_jobs(path: Path, home: Path, **given: Any) -> PlanFile:
    """A plan whose pipelines are run by the test: the branches begin at the snapshots that are right."""
    plan = plan_recovery(request(path, is_incremental=True, **given))
    steps = tuple(each for each in plan.steps if each.kind not in (StepKind.REWIND, StepKind.RUN))
    file = PlanFile(home / "recover-fix.json", replace(plan, steps=steps), RecoveryState())
    file.save(file.state)
    return file


@pytest.mark.sweep
def test_a_publication_that_dies_at_every_step_shows_each_table_whole_and_ends_with_all(
    shop: tuple[Catalog, Path], tmp_path: Path
) -> None:
    """Every step is done, its end is not written down, and another process begins there. Whatever readers see in
    between, ``seen_tables`` says it, and the common tag is on a table only with its new rows."""
    catalog, path = shop
    file = without_jobs(path, tmp_path)
    at = {("unwritten", index) for index, _ in enumerate(file.plan.steps)}
    died: set[tuple[str, int]] = set()
    seen_states = set()
    while True:
        found = read_plan(file.path)
        assert found is not None
        try:
            assert Execution(DyingFile(found, at, died), no_spark).run(Stage.PUBLISH)
        except Died:
            found = read_plan(file.path)
            assert found is not None
            seen = seen_tables(catalog, found)
            states = zip(seen.values(), shown_rows(catalog), OLD, NEW, strict=True)
            assert all(rows == (new if state == "new" else old) for state, rows, old, new in states)
            seen_states.add(tuple(seen.values()))
            for name, new in zip(TABLES, NEW, strict=True):
                table = catalog.table(name)
                if file.plan.tag in table.store.snapshots.tag_names():
                    rows = table.read(version=file.plan.tag).to_arrow().to_pylist()
                    assert {row["id"]: row["n"] for row in rows} == new
            continue
        break
    assert died == at
    assert shown_rows(catalog) == NEW
    assert ("old", "old", "old") in seen_states
    assert ("new", "new", "old") in seen_states
    assert {catalog.table(name).branch for name in TABLES} == {"main"}
    writers = {(each.job, each.table, each.snapshot_id) for each in lineage(catalog).meta.sink_data_lineages()}
    assert {each for each in writers if each[0] != "load"} == {
        ("clean", "orders", 1), ("clean", "orders", 2), ("report", "daily", 1), ("report", "daily", 2),
    }  # fmt: skip


@pytest.mark.sweep
def test_a_check_that_fails_publishes_nothing_and_can_be_passed_later(
    shop: tuple[Catalog, Path], tmp_path: Path
) -> None:
    catalog, path = shop
    file = without_jobs(path, tmp_path, expected={"shop.raw": ("count(*) = 3",)})
    with pytest.raises(ExpectationError, match="nothing was published"):
        Execution(file, no_spark).run(Stage.PUBLISH)
    assert shown_rows(catalog) == OLD
    load_rows(catalog.table("shop.raw$branch_fix"), {3: 3})
    assert Execution(file, no_spark).run(Stage.PUBLISH)
    assert shown_rows(catalog)[0] == {1: 1, 2: 2, 3: 3}


@pytest.mark.sweep
def test_rows_that_came_to_main_meanwhile_are_not_dropped_silently(shop: tuple[Catalog, Path], tmp_path: Path) -> None:
    catalog, path = shop
    file = without_jobs(path, tmp_path)
    assert Execution(file, no_spark).run(Stage.COMPUTE)
    load_rows(catalog.table("shop.raw"), {7: 7})
    with pytest.raises(ConflictError, match=r"table=shop.raw then=3 now=4 .*--drop-later"):
        Execution(file, no_spark).run(Stage.PUBLISH)
    assert shown_rows(catalog)[1:] == OLD[1:]
    assert Execution(file, no_spark, drops_later=True).run(Stage.PUBLISH)
    assert shown_rows(catalog) == NEW


@pytest.mark.sweep
def test_the_steps_are_commands_with_the_names_of_the_new_jobs(shop: tuple[Catalog, Path], tmp_path: Path) -> None:
    _, path = shop
    home = str(tmp_path)
    plan = plan_recovery(
        request(path, is_incremental=True, corrections=("DELETE FROM shop.raw$branch_fix WHERE id = 2",))
    )
    commands = [each.command.replace(str(path), "F").replace(home, "H") for each in plan.steps]
    run = "fluvial run F --pipeline {0} --set pipelines.{0}.checkpoint=H/checkpoints/{0}-fix "
    run += "--set pipelines.{0}.options.pipeline.name={0}-fix --set pipelines.{0}.trigger=available-now "
    run += "--set pipelines.{0}.options.branch=fix --set pipelines.{0}.source.options.branch=fix"
    rewind = "fluvial rewind-checkpoint shop.{1} --tag branch-fix --checkpoint H/checkpoints/{0} "
    rewind += "--to H/checkpoints/{0}-fix --config F"
    assert commands[:8] == [
        "fluvial create-branch shop.raw --branch fix --snapshot 2 --config F",
        "fluvial sql 'DELETE FROM shop.raw$branch_fix WHERE id = 2' --config F",
        "fluvial create-branch shop.orders --branch fix --snapshot 2 --config F",
        "fluvial create-branch shop.daily --branch fix --snapshot 2 --config F",
        rewind.format("clean", "orders"),
        run.format("clean"),
        rewind.format("report", "daily"),
        run.format("report"),
    ]
    assert "fluvial sql 'SELECT bool_and(n >= 0) FROM shop.orders$branch_fix' --config F" in commands
    assert "fluvial sql 'SELECT count(*) > 0 FROM shop.daily$branch_fix' --config F" in commands
    full = plan_recovery(request(path))
    [clean] = [each.arguments["set"] for each in full.steps if each.job == "clean" and each.kind is StepKind.RUN]
    assert clean["pipelines.clean.source.options.scan.snapshot-id"] == ""  # the branch begins where it begins


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("given", "fact"),
    [
        ({"corrections": ("DELETE FROM shop.raw WHERE id = 1",)}, "writes=shop.raw"),
        ({"corrections": ("DROP TABLE shop.raw",)}, "writes=None"),
        ({"expected": {"shop.other": ("count(*) > 0",)}}, "a table that is not recovered"),
        ({"snapshot_id": 9, "is_incremental": True}, "no barrier that ends at the snapshot"),
        ({"branch": "taken"}, "branch exists already: table=shop.daily branch=taken"),
        ({"branch": "old"}, "the checkpoint of the new job exists already: pipeline=clean"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_done(
    shop: tuple[Catalog, Path], tmp_path: Path, given: Mapping[str, Any], fact: str
) -> None:
    catalog, path = shop
    create_branch(catalog.table("shop.daily"), "taken")
    (tmp_path / "checkpoints/clean-old").mkdir(parents=True)
    with pytest.raises(InvalidInputError) as caught:
        plan_recovery(request(path, **given))
    assert fact in str(caught.value)


@pytest.mark.sweep
def test_a_job_that_lags_behind_the_branch_of_its_source_is_refused_when_planned(
    shop: tuple[Catalog, Path], tmp_path: Path, fluvial: Fluvial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It failed when it ran; a full recovery computes it from the beginning."""
    catalog, path = shop
    monkeypatch.chdir(tmp_path)
    for barrier, at in ((3, 4), (4, 5), (5, 6)):
        load_rows(catalog.table("shop.raw"), {at: at})
        run_barrier(catalog, "clean", barrier, "shop.raw", "shop.orders", {at: at * 10}, read=at)
    run_barrier(catalog, "report", 3, "shop.orders", "shop.daily", {6: 61}, read=6)
    asked = ("recover", str(path), "--table", "shop.raw", "--snapshot", "5", "--dry-run")
    code, _, error = fluvial(*asked, "--incremental")
    assert code == 2
    assert "job=report table=shop.orders read=3 branch_begins=5 fix='recover fully" in error
    assert fluvial(*asked)[0] == 0


@pytest.mark.sweep
def test_jobs_that_no_file_has_are_named(shop: tuple[Catalog, Path]) -> None:
    catalog, path = shop
    run_barrier(catalog, "notebook", 1, "shop.orders", "shop.raw", {9: 9}, read=3)
    with pytest.raises(InvalidInputError, match=r"jobs=notebook .*--without notebook"):
        plan_recovery(request(path))
    load_rows(catalog.table("shop.daily"), {9: 9}, "manual")
    with pytest.raises(InvalidInputError, match=r"its rows would be lost: table=shop.daily jobs=manual"):
        plan_recovery(request(path, without=frozenset(["notebook"])))
    assert plan_recovery(request(path, without=frozenset(["notebook", "manual"]))).tables == TABLES


@pytest.mark.sweep
def test_a_plan_knows_what_the_snapshots_say_and_refuses_what_was_deleted(shop: tuple[Catalog, Path]) -> None:
    """LN-35, LN-38: a store that was lost made a plan of the first table alone, and the others stayed wrong."""
    catalog, path = shop
    for stored in (Path(catalog.warehouse) / ".fluvial").glob("lineage.sqlite*"):
        stored.unlink()
    assert plan_recovery(request(path, is_incremental=True)).tables == TABLES
    delete_table_lineage(catalog, "report")
    delete_data_lineage(catalog, "report")
    missing = r"lineage of commits is not in the store: .* commits=3 .*shop.daily@1.* fix='fluvial repair-lineage --all"
    with pytest.raises(InvalidInputError, match=missing):
        plan_recovery(request(path))
    with pytest.raises(InvalidInputError, match=missing):
        recovery_plan(catalog.table("shop.raw"), 2)
    assert plan_recovery(request(path, without=frozenset(["report"]))).tables == TABLES[:2]
    assert repair_lineage.for_all is not None
    repair_lineage.for_all(catalog)
    assert plan_recovery(request(path)).tables == TABLES


@pytest.mark.sweep
def test_the_command_plans_shows_continues_and_refuses(
    shop: tuple[Catalog, Path], fluvial: Fluvial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, path = shop
    monkeypatch.chdir(tmp_path)
    asked = ("recover", str(path), "--table", "shop.raw", "--snapshot", "2", "--incremental")
    code, out, _ = fluvial(*asked, "--dry-run", "--json")
    shown = json.loads(out)
    assert (code, shown["published"], set(shown["tables"].values())) == (0, False, {"old"})
    assert not (tmp_path / "recover-fix.json").exists()
    code, out, err = fluvial(*asked, "--until", "prepare", "--json")
    assert code == 0, err
    done = [each["kind"] for each in json.loads(out)["steps"] if each["fact"] is not None]
    assert done == ["branch", "branch", "branch"]
    code, out, _ = fluvial("recover", "--dry-run")
    assert (code, out.count("done")) == (0, 3)
    code, _, err = fluvial("recover", str(path), "--table", "shop.raw", "--snapshot", "1")
    assert (code, "another recovery" in err, "differs=snapshot_id,is_incremental" in err) == (2, True, True)
    code, _, err = fluvial("recover", "--branch", "none")
    assert (code, "no plan file" in err) == (2, True)
    with alone_with(tmp_path / "recover-fix.json"):
        code, _, err = fluvial("recover")
    assert (code, "another process" in err) == (1, True)
