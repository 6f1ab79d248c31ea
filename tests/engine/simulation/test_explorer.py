"""What the explorer runs replays, and finds nothing on the code as it is."""

import hashlib
import os
import random
import subprocess
import sys
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from engine.simulation.explorer import (
    CRASH,
    INTERVENTIONS,
    PAUSE,
    dead_behind,
    every_place,
    explore,
    random_plan,
)
from engine.simulation.history import HistoryPlace, SimulatedHistory, run_history
from engine.simulation.invariants import Checker
from engine.simulation.pause_matrix import (
    DELETING,
    FORKING,
    MEANWHILE,
    MEANWHILE_WITH_LOG,
    PAUSED,
    PAUSED_WITH_LOG,
    forks,
    matrix,
    pairs,
    pairs_with_log,
    sampled_matrix,
)
from engine.simulation.plan import HistoryPlan
from engine.simulation.scheduler import Fault, Intervention
from engine.simulation.schedules import OVERTAKEN
from filestore.io.file_io import LocalFileIO
from lsm.errors import InvalidInputError
from tests.engine.simulation.planted_bugs import plan, publishing
from tests.test_tidy import ROOT

SEED = 16


def digest(history: SimulatedHistory) -> str:
    return hashlib.sha256(repr((history.events, history.problems, history.steps)).encode()).hexdigest()


def failures_text(histories: list[SimulatedHistory]) -> str:
    return "\n\n".join("\n".join([str(each.plan), *each.problems, each.plan.to_json()]) for each in histories)


def has_late(history: SimulatedHistory) -> bool:
    return any(each.what == "arrives late" for each in history.events)


REPLAY = """
from engine.simulation.explorer import random_plan
from tests.engine.simulation.test_explorer import digest, run_history
print(*(digest(run_history(random_plan(seed))) for seed in range(3)))
"""


@pytest.mark.long
@pytest.mark.sweep
def test_a_seed_gives_one_history_in_every_process() -> None:
    here = [digest(run_history(random_plan(seed))) for seed in range(3)]
    assert [digest(run_history(random_plan(seed))) for seed in range(3)] == here
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", REPLAY], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == here
    assert len(set(here)) == 3


def test_a_plan_is_the_same_as_text() -> None:
    for each in (random_plan(3), *every_place(plan("tag", "expire"), INTERVENTIONS.values())):
        assert HistoryPlan.of_json(each.to_json()) == each
    with pytest.raises(InvalidInputError, match="not the plan of a history"):
        HistoryPlan.of_json("{}")


@pytest.mark.sweep
def test_random_histories_hold() -> None:
    found = explore(random_plan(seed) for seed in range(SEED * 1000, SEED * 1000 + 60))
    assert failures_text(found.failed) == ""
    assert len(found.operations) > 20


FOUND = (Path(__file__).parent / "found_histories.txt").read_text().splitlines()


@pytest.mark.parametrize("text", FOUND, ids=[f"seed-{HistoryPlan.of_json(each).seed}" for each in FOUND])
def test_a_history_that_was_once_a_violation_holds(text: str) -> None:
    assert run_history(HistoryPlan.of_json(text)).problems == ()


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["tag", "savepoint"])
def test_no_death_of_a_tag_beside_an_expiry_leaves_a_name_without_files(name: str) -> None:
    """versions.md H2: a name that was not acknowledged stopped expiry until someone deleted it."""
    plans = every_place(plan(name, "write expire"), (PAUSE, CRASH, INTERVENTIONS["crash"]), changes_only=True)
    assert failures_text(explore(plans).failed) == ""


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["stream", "merge", "fast-forward"])
def test_what_a_dead_writer_created_beside_the_history_is_not_taken_for_committed(name: str) -> None:
    """The number of its snapshot had expired, and it died before it looked: its next run found the snapshot there."""
    setup = "append" if name == "stream" else "versioned"
    found = explore(dead_behind(publishing(plan(name, "write write expire", setup=setup))()))
    assert failures_text(found.failed) == ""
    assert found.histories


@pytest.mark.sweep
@pytest.mark.parametrize("setup", ["keyed", "append"])
def test_the_first_commit_of_a_table_is_not_taken_back_under_another_one(setup: str) -> None:
    """Seed 50000386: it looked whether one follows, was paused, and then listed one; or what followed had expired."""
    is_wanted = lambda operation, path: "/snapshot" in path and operation != "delete"  # noqa: E731
    for others in ("write", "write write expire"):
        two = plan("drop create overwrite", others, setup=setup)
        found = explore(every_place(two, (PAUSE,), is_wanted=is_wanted))
        assert failures_text(found.failed) == ""
        assert found.histories > 10


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["tag", "savepoint", "branch", "merge", "fast-forward"])
@pytest.mark.parametrize("others", ["rollback", "drop create write write", "replace-main"])
def test_what_a_process_creates_behind_the_end_of_what_it_names_and_dies_is_nobodys(name: str, others: str) -> None:
    """It did not live to take it back. The same call, another one of the name, or a repair frees what it left."""
    plans = every_place(
        plan(name, others, setup="versioned"), (PAUSE,), is_wanted=lambda operation, _: operation == "create_exclusive"
    )
    assert failures_text(explore(dead_behind(plans)).failed) == ""


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["write", "stream", "overwrite", "compact-full", "tag"])
def test_a_creation_that_arrives_when_nobody_waits_for_it_any_more_loses_nothing(name: str) -> None:
    """Its client had gone on or given up; and it arrived behind what others did meanwhile."""
    late = Intervention(fault=Fault.LATE)
    choices = (late, replace(late, pause=PAUSE.pause))
    for others in ("write write expire", "rollback write write", "drop create write write"):
        two = plan(name, others, is_object_store=True)
        plans = every_place(two, choices, is_wanted=lambda operation, _: operation == "create_exclusive")
        found: list[SimulatedHistory] = []
        failed = explore(plans, done=found.append).failed
        assert failures_text(failed) == ""
        assert found
        assert all(map(has_late, found))


@pytest.mark.sweep
def test_two_expiries_and_a_deleted_tag_never_find_a_healthy_table_corrupt() -> None:
    """versions.md M5: an expiry of a branch met one of main, and named a healthy snapshot as damaged."""
    for first in ("expire", "delete-tag"):
        two = plan(first, "write-branch expire-branch", setup="versioned")
        reverse = plan("write-branch expire-branch", first, setup="versioned")
        plans = [*every_place(two, (PAUSE,), changes_only=True), *every_place(reverse, (PAUSE,), changes_only=True)]
        assert failures_text(explore(plans).failed) == ""


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("paused", "meanwhile", "setup"), [("write", "rollback write write", "append"), ("overwrite", "rescale", "keyed")]
)
def test_a_snapshot_that_was_created_is_not_forgotten_before_it_is_confirmed(
    paused: str, meanwhile: str, setup: str
) -> None:
    """Its number belonged to another one, or a rescaling followed it, before its writer looked."""
    plans = every_place(
        plan(paused, meanwhile, setup=setup), (PAUSE,), is_wanted=lambda _, path: "/snapshot/snapshot-" in path
    )
    assert failures_text(explore(plans).failed) == ""


@pytest.mark.sampled(2)
@pytest.mark.sweep
@pytest.mark.parametrize(
    ("first", "second"),
    [("replace-main", "savepoint"), ("savepoint", "replace-main"), ("tag", "replace-main"), ("replace-main", "tag"),
     ("replace-main", "delete-tag"), ("delete-tag", "replace-main")],
)  # fmt: skip
def test_no_tag_or_savepoint_is_lost_with_a_main_that_is_replaced(first: str, second: str) -> None:
    """What came before the seal is found, what comes behind it takes itself back; the dead are completed."""
    plans = every_place(plan(first, second, setup="versioned"), (PAUSE, CRASH), changes_only=True)
    assert failures_text(explore(plans).failed) == ""


@pytest.mark.parametrize(("first", "second"), [("replace-tag", "delete-tag"), ("delete-tag", "replace-tag")])
def test_a_tag_that_was_deleted_is_not_there_again_because_it_was_being_replaced(first: str, second: str) -> None:
    """Seed 2200205: the replacement had seen the tag before it was deleted; now one of the two learns of the other."""
    two = plan(first, second, setup="versioned", file_format="avro", is_object_store=True)
    plans = every_place(two, (PAUSE, CRASH), changes_only=True, is_wanted=lambda _, path: "/tag" in path)
    found = explore(plans)
    assert failures_text(found.failed) == ""
    assert found.operations[second] > 1


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "others"),
    [("delete-branch write expire", "delete-tag"), ("delete-branch expire-some delete-tag", "write expire"),
     ("delete-branch expire-some replace-tag", "write expire")],
)  # fmt: skip
def test_a_tag_that_goes_beside_an_expiry_takes_no_file_that_others_use(name: str, others: str) -> None:
    """The snapshots that shared its files were gone when it looked, or half deleted; newer ones had the files, too."""
    first, last = len(name.split()) - 1, name.split()[-1]
    before = run_history(plan(" ".join(name.split()[:first]), setup="versioned"))
    plans = every_place(plan(name, others, setup="versioned"), (PAUSE, CRASH))
    found = explore(each for each in plans if each.choices[0][1] > before.steps)
    assert failures_text(found.failed) == ""
    assert found.operations[last] > 10


@pytest.mark.sampled(2)
@pytest.mark.sweep
@pytest.mark.parametrize("name", ["expire", "expire-some", "clean", "delete-tag", "rollback"])
def test_a_tag_that_is_renamed_while_tags_are_listed_keeps_its_files(name: str) -> None:
    """It had its new name behind the listing, and the old one was gone before it was looked at."""
    two = plan(name, "rename-tag", setup="versioned")
    plans = every_place(two, (PAUSE, CRASH), is_wanted=lambda _, path: "/tag" in path)
    found = explore(plans)
    assert failures_text(found.failed) == ""
    assert found.operations["rename-tag"] > 1


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("name", ["clean", "expire-some"])
def test_a_tag_that_moves_while_its_files_are_looked_up_is_not_found_corrupt(name: str) -> None:
    """Seed 5168: it has its name still, and another snapshot."""
    plans = every_place(plan(name, "replace-tag write expire", setup="versioned"), (PAUSE,))
    assert failures_text(explore(islice(plans, 40, None)).failed) == ""


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["branch", "merge", "fast-forward", "delete-branch"])
def test_an_operation_on_a_branch_beside_a_rename_of_the_table_is_completed_there(name: str) -> None:
    """Its last step would find nothing under the former name, and the branch be blocked in the renamed table."""
    setup = "keyed" if name == "branch" else "versioned"
    plans = every_place(
        plan(name, "rename", setup=setup), (PAUSE, CRASH), is_wanted=lambda _, path: "OPERATION" in path
    )
    assert failures_text(explore(plans).failed) == ""


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["merge", "fast-forward"])
def test_the_note_of_a_merge_is_not_left_in_a_table_that_was_made_again(name: str) -> None:
    """The note replaces the file of a tag: the tag of a branch that the new table never had, and of files long gone."""
    plans = every_place(
        plan(name, "drop create write write", setup="versioned"), (PAUSE, CRASH),
        is_wanted=lambda _, path: "tag-merged-" in path,
    )  # fmt: skip
    assert failures_text(explore(plans).failed) == ""


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("name", "others", "setup"),
    [("expire", "drop create write write", "keyed"), ("expire", "drop create write write write", "append"),
     ("write", "drop create write write write write write", "keyed")],
)  # fmt: skip
def test_what_deletes_by_name_deletes_nothing_of_a_table_that_was_made_again(
    name: str, others: str, setup: str
) -> None:
    """The snapshots of the new table have the ids of the old one: an expiry that was paused deleted its commits."""
    plans = every_place(plan(name, others, setup=setup), (PAUSE,), is_wanted=lambda _, path: "snapshot-" in path)
    assert failures_text(explore(plans).failed) == ""


@pytest.mark.sweep
def test_no_commit_comes_between_the_snapshots_that_a_fast_forward_publishes() -> None:
    """It was refused with a part of the branch in main; now the writer waits, also for one that died."""
    is_wanted = lambda _, path: "/snapshot/" in path or "MAIN-BRANCH" in path  # noqa: E731
    two = plan("write-branch fast-forward", "write", setup="versioned")
    found = explore(every_place(two, (PAUSE, CRASH), changes_only=True, is_wanted=is_wanted))
    assert failures_text(found.failed) == ""
    assert 0 < found.operations["fast-forward"] < found.histories


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("others", ["replace-main", "drop create", "drop create write write"])
def test_a_replacement_of_main_that_is_paused_takes_nothing_from_another_run_or_another_table(others: str) -> None:
    """A second run ended the operation of the first, or lost its tags; the table that was made again was dropped.

    It lost its first schema, or the files of its first snapshots.
    """
    plans = every_place(plan("replace-main", others, setup="versioned"), (PAUSE,))
    every = 3 if others == "replace-main" else 1
    assert failures_text(explore(islice(plans, 0, None, every)).failed) == ""


@pytest.mark.sweep
def test_no_schema_version_comes_between_those_that_a_fast_forward_publishes() -> None:
    """The repeat of a dead one was refused with a part of the branch in main."""
    is_wanted = lambda _, path: "/schema/" in path or "/snapshot/" in path or "MAIN-BRANCH" in path  # noqa: E731
    two = plan("write-branch fast-forward", "alter", setup="versioned")
    found = explore(every_place(two, (PAUSE, CRASH), changes_only=True, is_wanted=is_wanted))
    assert failures_text(found.failed) == ""
    assert 0 < found.operations["alter"] < found.histories


@pytest.mark.sweep
@pytest.mark.parametrize("others", ["rename", "drop"])
def test_a_rollback_beside_the_end_of_its_table_is_not_acknowledged(others: str) -> None:
    """It removed nothing, and left notes that kept the name taken."""
    plans = every_place(plan("rollback", others), (PAUSE, CRASH), changes_only=True)
    assert failures_text(explore(plans).failed) == ""


@pytest.mark.sweep
def test_a_drop_that_is_repeated_drops_what_has_the_name() -> None:
    interventions = (INTERVENTIONS["crash"], INTERVENTIONS["lost answer"], INTERVENTIONS["pause, lost answer"])
    for is_object_store in (False, True):
        plans = every_place(plan("drop", "drop create", is_object_store=is_object_store), interventions)
        assert failures_text(explore(plans).failed) == ""


@pytest.mark.sweep
def test_an_expiry_beside_a_deleted_branch_does_not_find_a_healthy_table_corrupt() -> None:
    """The files of the branch go before its references, and its dead deletion does not stop expiry either."""
    plans = every_place(
        plan("delete-branch", "write expire", setup="versioned"), (PAUSE, CRASH),
        is_wanted=lambda operation, path: operation == "delete" and "manifest" in path,
    )  # fmt: skip
    found = [run_history(each) for each in plans]
    assert len(found) > 4
    assert [deed.error for each in found for deed in each.deeds if deed.name == "expire" and deed.error] == []
    assert failures_text([each for each in found if each.problems]) == ""


@pytest.mark.soak
@pytest.mark.sweep
def test_every_pair_of_the_pause_matrix_holds_where_it_publishes() -> None:
    found = explore(sampled_matrix(SEED, more=0))
    assert failures_text(found.failed) == ""
    assert found.histories > len(PAUSED) * len(MEANWHILE)


@pytest.mark.sweep
def test_no_deletion_takes_a_fork_for_history() -> None:
    """Of a writer that dies, waits or goes on behind its creation; before the deletion, and at a place within it."""
    known = [*forks(steps=1)]
    assert len(known) == 3 * len(FORKING) * len(DELETING)
    rng = random.Random(SEED)
    found = explore([*known, *rng.sample([*forks(["compact-full", "overwrite"])], 60)])
    assert failures_text(found.failed) == ""
    assert min(found.operations[each] for each in ("delete-tag", "delete-savepoint", "tag-batch", "expire-tags")) > 9


def test_random_histories_have_writers_that_are_overtaken() -> None:
    plans = [each for each in (random_plan(seed) for seed in range(400)) if each.rates == OVERTAKEN]
    assert len(plans) > 20
    assert {"tagged", "saved", "batches"} <= {each.setup for each in plans}
    assert sum(len(each.actors) >= 3 for each in plans) > len(plans) // 2


def test_the_matrix_has_every_pair_at_every_place() -> None:
    known = {(each.actors[0][0], each.actors[1]) for each in pairs()}
    assert known == {(name, others) for name in PAUSED for others in MEANWHILE.values()}
    logged = [*pairs_with_log()]
    known = {(each.actors[0][0], each.actors[1]) for each in logged}
    every = {(name, others) for name in PAUSED_WITH_LOG for others in MEANWHILE_WITH_LOG.values()}
    assert {others for _, others in every - known} == {("log-sink", "log-sink")}  # beside another one, or its adopter
    assert {each.setup for each in logged} == {"logged", "logged-exact", "logged-append"}
    assert {each.actors[0] for each in islice(matrix(["log-sink"]), 9)} == {("log-sink",)}
    first = next(matrix())
    assert first.choices[0][:2] == (0, 1)


def test_a_history_runs_in_a_directory_of_a_warehouse(tmp_path: Path) -> None:
    place = HistoryPlace(root=str(tmp_path / "h"), io=LocalFileIO())
    alone = run_history(plan("write", "expire"), place=place)
    assert alone.problems == ()
    assert (tmp_path / "h" / "d.db" / "t" / "snapshot").is_dir()


def test_a_disk_that_was_found_sound_is_not_examined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the same exploration; another one, perhaps of other code, examines it; another disk is examined too."""
    examined: list[str] = []
    monkeypatch.setattr(Checker, "_check_writable", lambda _, name: examined.append(name))
    for _ in range(2):
        explore([plan("tag"), plan("tag"), plan("write"), plan("tag")])
        assert examined == ["d.t", "d.t"]
        examined.clear()
    monkeypatch.setattr(Checker, "_check_writable", lambda self, name: self.problems.append(name))
    assert len(explore([plan("tag"), plan("tag")]).failed) == 2


def test_a_violation_is_shown_with_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("filestore.maintenance.snapshot_expiry.other_references", lambda *_: [])
    (failed,) = explore([plan("compact-full expire", setup="versioned")]).failed
    assert "files are missing" in failed.problems[0]
    assert any(line.endswith("expire is acknowledged") for line in failed.trace())
    assert len(failed.trace(most=3)) == 4
