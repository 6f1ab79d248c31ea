"""Going back: what goes, what stays, and that whatever dies can be run again."""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.commit.expired_commits import ExpiredCommits
from filestore.maintenance.rollback import RollbackPlan, plan_rollback, roll_back
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.refs.removals import TAG_KINDS
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from filestore.tag.tags import create_tag, delete_tag
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError, UnavailableError
from tests.filestore.refs.test_versions import with_branch
from tests.support.faults import Disks, When
from tests.support.roots import files_there, used_files
from tests.support.tables import check_metadata, committable_of, content, failing_at, key_table, rows

FAULTS = (UnavailableError, OutcomeUnknownError, ConflictError)


def keep(count: int) -> Retention:
    return Retention(min_count=1, max_count=count, age_ms=10**15, limit=99)


def go_back(table: FileTable, **place: object) -> RollbackPlan:
    found = table.read(**place).snapshot  # type: ignore[arg-type]
    assert found is not None
    plan = plan_rollback(table.store, found)
    roll_back(table.store, plan)
    return plan


def grown() -> FileTable:
    """Six commits and compactions of one bucket; tags ``two`` and ``five`` of snapshots 2 and 5."""
    table = key_table(bucket="1", **{"num-sorted-run.compaction-trigger": "3", "changelog-producer": "input"})
    for turn in range(4):
        table.write(rows((turn % 2, turn)))
        if turn % 2:
            table.compact(full=True)
        if turn in (1, 3):
            create_tag(table.store, {1: "two", 3: "five"}[turn], snapshot_id={1: 2, 3: 5}[turn])
    assert table.store.snapshots.latest_id() == 6
    return table


def removal_names(plan: RollbackPlan) -> list[str]:
    return [str(each.reference) for each in plan.removals]


def test_a_table_goes_back_to_a_snapshot() -> None:
    """TAG-02, TAG-03: its rows are those of the snapshot, and everything after it is gone, tags too."""
    table = grown()
    before = content(table, snapshot_id=3)
    plan = go_back(table, snapshot_id=3)
    assert removal_names(plan) == ["snapshot 6", "tag five", "snapshot 5", "snapshot 4"]
    assert (plan.previous_id, plan.target.id, plan.objections) == (6, 3, ())
    assert table.store.snapshots.ids() == [1, 2, 3]
    assert table.store.snapshots.tag_names() == ["two"]
    assert table.store.io.read_bytes(table.store.paths.latest_hint) == b"3"
    assert content(table) == before
    assert files_there(table) == used_files(table)
    check_metadata(table)
    table.write(rows((7, 7)))
    assert content(table) == {**before, 7: 7}
    assert table.store.snapshots.ids() == [1, 2, 3, 4]


def test_a_plan_tells_the_files_and_does_nothing() -> None:
    table = grown()
    before, there = dict(table.store.io.files), files_there(table)  # type: ignore[attr-defined]
    plan = plan_rollback(table.store, table.store.snapshots.tag("two"))
    assert dict(table.store.io.files) == before  # type: ignore[attr-defined]
    reported = [path for each in plan.removals for path in (*(file.path for file in each.data), *each.metadata.all)]
    roll_back(table.store, plan)
    assert sorted(reported) == sorted(there - files_there(table))
    assert len(reported) == len(set(reported))
    assert plan_rollback(table.store, table.store.snapshots.read(2)).removals == ()


def test_a_tag_whose_snapshot_has_expired_is_the_only_snapshot_then() -> None:
    """TAG-02: the snapshot is made again from the tag, and history goes on from its number."""
    table = grown()
    create_tag(table.store, "kept", snapshot_id=3, retained_ms=90_000)
    before = content(table, tag="kept")
    list(expire_snapshots(table.store, keep(1)))
    assert table.store.snapshots.ids() == [6]
    go_back(table, tag="kept")
    assert table.store.snapshots.ids() == [3]
    assert (table.store.snapshots.earliest_id(), table.store.snapshots.claimed_up_to()) == (3, 3)
    assert b"tag" not in table.store.io.read_bytes(table.store.paths.snapshot(3))
    assert content(table) == before
    assert table.store.snapshots.tag_names() == ["kept", "two"]
    assert files_there(table) == used_files(table)
    table.write(rows((7, 7)))
    create_tag(table.store, "next")
    list(expire_snapshots(table.store, keep(1)))
    delete_tag(table.store, "kept")
    assert content(table) == {**before, 7: 7}
    assert files_there(table) == used_files(table)


def test_of_a_table_with_a_log_no_snapshot_goes() -> None:
    """Records of a log stay: the older rows can only be written again, and tags can go."""
    table = grown()
    logged = table.with_options({"log.system": "kafka", "log.kafka.bootstrap.servers": "nowhere:1"})
    plan = plan_rollback(logged.store, table.store.snapshots.read(1))
    assert {each.reference.kind for each in plan.removals} <= {*TAG_KINDS}
    with pytest.raises(InvalidInputError, match=r"records in a log cannot be undone: .*rollback_to_as_latest"):
        roll_back(logged.store, plan)


def test_a_tag_from_which_a_branch_was_made_is_in_the_way() -> None:
    """TAG-03: what a branch needs does not go with the snapshots of main."""
    table = grown()
    branch = with_branch(table, "dev", tag="five")
    with pytest.raises(InvalidInputError, match=r"later=tag five fix='delete the branch dev first"):
        plan_rollback(table.store, table.store.snapshots.read(1))
    go_back(table, snapshot_id=5)
    branch.write(rows((9, 9)))
    assert content(table) == {0: 2, 1: 3}
    go_back(branch, version="5")
    assert content(branch) == {0: 2, 1: 3}
    assert files_there(table) == used_files(table)


def test_whoever_would_be_hurt_objects() -> None:
    """A running stream, a reader that is further, a stream whose commits have expired."""
    table = grown()
    table.new_commit("query").commit(committable_of(table, 5, rows((1, 1))))
    table.store.consumers.write("late", 5)
    plan = plan_rollback(table.store, table.store.snapshots.read(6))
    assert plan.objections == ("a stream committed in the last 10 minutes and may be running: commit_user=query",)
    plan = plan_rollback(table.store, table.store.snapshots.read(3))
    assert plan.objections[1] == "a reader has advanced further: consumer=late next_snapshot=5"
    roll_back(table.store, plan)
    assert table.store.consumers.next_snapshots() == {"late": 4}
    table.store.clock.sleep(700)
    table.new_commit("query").commit(committable_of(table, 6, rows((1, 1))))
    table.store.clock.sleep(700)
    table.write(rows((2, 2)))
    assert plan_rollback(table.store, table.store.snapshots.read(2)).objections == (
        "a reader has advanced further: consumer=late next_snapshot=4",
    )


def test_what_a_stream_committed_after_an_expired_tag_is_not_held_against_it_later() -> None:
    """FL-88: its note says that batch 7 is there, which is not true any more after going back."""
    table = key_table(bucket="1")
    for batch in (6, 7):
        table.new_commit("query").commit(committable_of(table, batch, rows((batch, 1))))
        if batch == 6:
            create_tag(table.store, "t")
    table.new_commit("early").commit(committable_of(table, 1, rows((9, 1))))
    table.write(rows((10, 1)))
    list(expire_snapshots(table.store, keep(1)))
    notes = ExpiredCommits(table.store)
    assert (notes.newest("query"), notes.newest("early")) == (7, 1)
    plan = plan_rollback(table.store, table.store.snapshots.tag("t"))
    assert plan.objections == (
        "streams with expired commits wrote after it, and would not detect the loss of these commits",
    )
    roll_back(table.store, plan)
    assert (notes.newest("query"), notes.newest("early")) == (None, None)
    assert table.new_commit("query").filter_committed([6, 7]) == [7]


def test_a_snapshot_that_is_about_to_expire_is_no_place_to_go_back_to() -> None:
    table = grown()
    table.store.snapshots.claim_up_to(4)
    with pytest.raises(ConflictError, match=r"about to expire: .*snapshot=3 earliest=4"):
        plan_rollback(table.store, table.store.snapshots.read(3))
    assert plan_rollback(table.store, table.store.snapshots.read(2)).target_tag is None  # a tag keeps its files


def test_a_commit_meanwhile_stops_it_and_nothing_is_lost() -> None:
    table = grown()
    plan = plan_rollback(table.store, table.store.snapshots.read(2))
    table.write(rows((8, 8)))
    with pytest.raises(ConflictError, match=r"another writer committed during .*snapshot=7"):
        roll_back(table.store, plan)
    assert content(table) == {0: 2, 1: 3, 8: 8}
    go_back(table, snapshot_id=2)
    assert table.store.snapshots.ids() == [1, 2]
    assert files_there(table) == used_files(table)


@pytest.mark.sampled(2)
@pytest.mark.sweep
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
@pytest.mark.parametrize("target", ["snapshot", "expired tag"])
def test_whatever_dies_the_next_run_finishes_it(target: str, when: When) -> None:
    """Every operation fails once. On the way readers see states that the table had; at the end no file is left over."""
    before = grown()
    states = {each: content(before, snapshot_id=each) for each in before.store.snapshots.ids()}
    if target == "expired tag":
        list(expire_snapshots(before.store, keep(2)))
    disks = Disks()
    for fail_at in range(1, 400):
        table, again, faulty = failing_at(before, fail_at, when)
        is_done = False
        with suppress(*FAULTS):
            go_back(again, tag="two")
            is_done = True
        if not disks.is_new(table.store.io, is_done) and faulty.calls >= fail_at:
            continue
        if not is_done:
            latest = table.store.snapshots.latest_id()
            assert latest is not None
            assert content(table) == states[latest]
            go_back(table, tag="two")
        assert table.store.snapshots.ids()[-1] == 2
        assert content(table) == states[2]
        assert table.store.snapshots.tag_names() == ["two"]
        assert files_there(table) == used_files(table)
        assert not [path for path in table.store.io.files if "/rollback/" in path]
        if faulty.calls < fail_at:
            break
    else:
        pytest.fail("the sweep did not end")


@pytest.mark.sweep
@settings(max_examples=30, deadline=None)
@given(
    steps=st.lists(st.sampled_from(["write", "write", "compact", "tag", "expire", "branch", "back"]), max_size=14),
    random=st.randoms(use_true_random=False),
)
def test_after_any_history_everything_that_is_left_can_be_read(steps: list[str], random: object) -> None:
    """TAG-02, TAG-03, TAG-64: an oracle remembers what each snapshot and tag showed; no file too many, none too few."""
    table = key_table(bucket="1", **{"num-sorted-run.compaction-trigger": "2"})
    table.write(rows((0, 0)))
    shown: dict[str, dict[int, int | None]] = {}
    branches: list[FileTable] = []
    for turn, step in enumerate(steps):
        before = content(table)
        match step:
            case "write":
                table.write(rows((turn % 3, turn)))
            case "compact":
                table.compact(full=True)
            case "tag":
                create_tag(table.store, f"t{turn}")
                shown[f"t{turn}"] = content(table)
            case "expire":
                list(expire_snapshots(table.store, keep(2)))
            case "branch" if shown:
                tag = random.choice(sorted(shown))  # type: ignore[attr-defined]
                branches.append(with_branch(table, f"b{turn}", tag=tag))
                branches[-1].write(rows((5, turn)))
            case "back":
                places = [*table.store.snapshots.ids(), *(table.store.snapshots.tag(tag).id for tag in shown)]
                target = random.choice(places)  # type: ignore[attr-defined]
                found = table.store.snapshots.find(target) or next(
                    table.store.snapshots.tag(tag) for tag in shown if table.store.snapshots.tag(tag).id == target
                )
                expected = content(table, **_place(table, found.id, shown))
                with suppress(InvalidInputError):  # a branch is in the way
                    roll_back(table.store, plan_rollback(table.store, found))
                    assert table.store.snapshots.latest_id() == target
                assert content(table) == (expected if table.store.snapshots.latest_id() == target else before)
        shown = {tag: rows_then for tag, rows_then in shown.items() if tag in table.store.snapshots.tag_names()}
    assert {tag: content(table, tag=tag) for tag in table.store.snapshots.tag_names()} == shown
    assert files_there(table) == used_files(table)
    for branch in branches:
        content(branch)


def _place(table: FileTable, snapshot_id: int, shown: dict[str, dict[int, int | None]]) -> dict[str, object]:
    if table.store.snapshots.exists(snapshot_id):
        return {"snapshot_id": snapshot_id}
    return {"tag": next(tag for tag in shown if table.store.snapshots.tag(tag).id == snapshot_id)}
