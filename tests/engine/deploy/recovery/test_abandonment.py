"""Recoveries that are given up before they are published, without Spark."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path

import pytest

from engine import Catalog
from engine.deploy.recovery.execution import Execution, Stage, abandon
from engine.deploy.recovery.plan_file import PlanFile, RecoveryState, read_plan
from engine.deploy.recovery.recovery_plan import plan_recovery
from engine.lineage.truth.checked import checked_meta
from filestore.branch.branches import list_branches
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from lsm.errors import InvalidInputError
from tests.engine.deploy.recovery.recovered_shop import TABLES, load_rows, shown_rows
from tests.engine.deploy.recovery.test_plan_file import OLD, lineage, no_spark, ran_shop, request, shop, without_jobs

Fluvial = Callable[..., tuple[int, str, str]]
__all__ = ["shop"]


def prepared(shop: tuple[Catalog, Path], home: Path) -> PlanFile:
    """Branches are made and written, and both jobs have begun in their new checkpoints."""
    catalog, path = shop
    file = PlanFile(home / "recover-fix.json", plan_recovery(request(path, is_incremental=True)), RecoveryState())
    file.save(file.state)
    assert Execution(file, no_spark).run(Stage.PREPARE)
    for name in TABLES:
        load_rows(catalog.table(f"{name}$branch_fix"), {9: 9}, f"{'clean' if 'orders' in name else 'report'}-fix")
    for job in ("clean", "clean-fix", "report", "report-fix"):
        (home / "checkpoints" / job / "offsets").mkdir(parents=True)
        (home / "checkpoints" / job / "metadata").write_text("{}")
    return file


def true_lineage(catalog: Catalog) -> set[tuple[str, int, str, int]]:
    """What jobs have read and written, as every answer gives it: compared with the snapshots."""
    with checked_meta(lineage(catalog), catalog) as meta:
        rows = [*meta.source_data_lineages(), *meta.sink_data_lineages()]
    return {(each.job, each.barrier_id, each.table, each.snapshot_id) for each in rows}


def branches(catalog: Catalog) -> list[str]:
    return [each.name for name in TABLES for each in list_branches(catalog.table(name).store)]


@pytest.mark.sweep
def test_a_recovery_is_given_up_by_the_command(shop: tuple[Catalog, Path], tmp_path: Path, fluvial: Fluvial) -> None:
    """Its branches, checkpoints, lineage and plan go; tables and the old checkpoints stay, and it can begin again."""
    catalog, path = shop
    first = true_lineage(catalog)
    prepared(shop, tmp_path)
    plan = str(tmp_path / "recover-fix.json")
    before, known = shown_rows(catalog), true_lineage(catalog)
    code, out, _ = fluvial("recover", "--abandon", "--plan", plan, "--dry-run", "--json")
    would_go = json.loads(out)
    assert (code, would_go["abandoned"], branches(catalog)) == (0, False, ["fix"] * 3)
    code, out, error = fluvial("recover", "--abandon", "--plan", plan)
    assert code == 0, error
    names = [f"{each['what']} {each['name']}" for each in would_go["removed"]]
    assert names == [line.partition(":")[0] for line in out.splitlines()], "the dry run says what goes"
    assert [line.partition(":")[0] for line in out.splitlines()] == [
        "branch shop.daily$branch_fix", "branch shop.orders$branch_fix", "branch shop.raw$branch_fix",
        f"checkpoint {tmp_path}/checkpoints/clean-fix", f"checkpoint {tmp_path}/checkpoints/report-fix",
        "lineage clean-fix", "lineage report-fix", f"plan {plan}",
    ]  # fmt: skip
    assert (branches(catalog), shown_rows(catalog)) == ([], before)
    assert sorted(each.name for each in (tmp_path / "checkpoints").iterdir()) == ["clean", "report"]
    assert {("clean", 2, "raw", 3), ("clean", 2, "orders", 3), ("report", 2, "daily", 3)} <= first < known
    assert true_lineage(catalog) == first, "also the barriers of the old jobs"
    assert read_plan(Path(plan)) is None
    plan_recovery(request(path, is_incremental=True))
    code, _, error = fluvial("recover", "--abandon", "--plan", plan)
    assert (code, "no plan file" in error) == (2, True)


@pytest.mark.sweep
def test_topics_of_the_branches_go_and_those_of_the_tables_stay(tmp_path: Path) -> None:
    """Issue 16 point 10: a recovery of tables with a log is given up."""
    cluster = MemoryCluster()
    with serving("memory:9092", MemoryEnvironment(cluster)):
        catalog, path = ran_shop(tmp_path, servers="memory:9092")
        before, rows = set(cluster.topics), shown_rows(catalog)
        assert len(before) == len(TABLES)
        file = prepared((catalog, path), tmp_path)
        assert len(cluster.topics) == 2 * len(TABLES)
        assert len(list(abandon(file))) == len([*TABLES, "2 checkpoints", "", "2 jobs", "", "the plan"])
        assert (set(cluster.topics), branches(catalog), shown_rows(catalog)) == (before, [], rows)


@pytest.mark.sweep
def test_giving_up_can_die_anywhere_and_is_run_again(shop: tuple[Catalog, Path], tmp_path: Path) -> None:
    """What is half gone is not continued."""
    catalog, _ = shop
    file = prepared(shop, tmp_path)
    for count in (1, 2, 1, 1, 9):
        found = read_plan(file.path)
        assert found is not None
        assert list(islice(abandon(found), count))
        left = read_plan(file.path)
        if left is not None:
            with pytest.raises(InvalidInputError, match=r"the recovery was given up: .* --abandon completes that"):
                Execution(left, no_spark).run(Stage.PUBLISH)
    assert (branches(catalog), file.path.exists()) == ([], False)


@pytest.mark.sweep
def test_a_publication_is_not_given_up(shop: tuple[Catalog, Path], tmp_path: Path, fluvial: Fluvial) -> None:
    """Readers may see it."""
    catalog, path = shop
    file = without_jobs(path, tmp_path)
    assert Execution(file, no_spark).run(Stage.PUBLISH)
    published = shown_rows(catalog)
    assert published != OLD
    code, _, error = fluvial("recover", "--abandon", "--plan", str(file.path))
    assert (code, "is being published, or was" in error) == (2, True)
    assert shown_rows(catalog) == published
    code, _, error = fluvial("recover", "--abandon", "--publish", "--plan", str(file.path))
    assert (code, "named by its plan alone" in error) == (2, True)
