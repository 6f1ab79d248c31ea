"""The oracle of a race finds what it is there for: lost, repeated, torn and stale rows; and allows what may be."""

from collections.abc import Mapping
from itertools import count
from typing import Any

import pyarrow as pa
import pytest

from tests.soak.table.journal import DONE, REFUSED, UNKNOWN, Deed
from tests.soak.table.kinds import GROUPS, KINDS, Kind, Shape, TornError
from tests.soak.table.oracle import Oracle

KEYED, SUMS, APPEND = KINDS["keyed"], KINDS["sums"], KINDS["append"]


class History:
    """Deeds one after the other, each of them a moment long."""

    def __init__(self) -> None:
        self.deeds: list[Deed] = []
        self._times = count(1)

    def add(self, what: str, outcome: str = DONE, *, slot: str = "writer 0", **facts: Any) -> Deed:
        began, ended = next(self._times), next(self._times)
        deed = Deed(what=what, slot=slot, began=began, ended=ended, facts=facts, outcome=outcome)
        self.deeds.append(deed)
        return deed

    def write(self, batch: int, snapshot_id: int | None, outcome: str = DONE) -> Deed:
        return self.add("write", outcome, writer=0, batch=batch, id=snapshot_id)

    def read(self, snapshot_id: int, seen: Mapping[int, Any], *, is_newest: bool = True) -> Deed:
        return self.add("read", slot="reader 0", id=snapshot_id, seen=dict(seen), is_newest=is_newest)

    def problems(self, kind: Kind = KEYED, looks: list[Deed] | None = None) -> list[str]:
        return [*Oracle(kind, self.deeds, looks or []).problems()]


def three() -> History:
    """Batches 1, 2 and 6, of the groups 1, 2 and 1, in the snapshots 1 to 3."""
    history = History()
    for snapshot_id, batch in enumerate((1, 2, 6), 1):
        history.write(batch, snapshot_id)
    return history


# ---- rows


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_batches_that_are_there_whole_are_seen_and_no_part_of_one_is(kind: Kind) -> None:
    first, second = kind.rows(0, 1), kind.rows(1, 2)
    plain = pa.concat_tables([first, second]).select(["part", "id", "v", "n", "total"])
    seen = kind.seen(plain)
    assert [*seen] == [1, GROUPS + 2]
    assert kind.fits(seen[1], None, [1], [])
    assert not kind.fits(seen[1], None, [], [])
    assert kind.fits(None, None, [], [1])
    assert not kind.fits(None, None, [1], [])
    for torn in (plain.slice(1), plain.slice(0, plain.num_rows - 1)):
        with pytest.raises(TornError):
            kind.seen(torn)


def test_a_group_shows_its_last_batch_without_the_rows_that_this_deletes() -> None:
    batch = 2 * GROUPS  # deletes
    rows = KEYED.rows(0, batch)
    kept = rows.filter(pa.compute.equal(rows["_row_kind"], "+U")).drop(["_row_kind"])
    assert 0 < kept.num_rows < rows.num_rows
    assert KEYED.seen(kept) == {0: batch}
    with pytest.raises(TornError):  # a deleted row is back
        KEYED.seen(rows.drop(["_row_kind"]))


@pytest.mark.parametrize(
    ("shape", "seen", "base", "added", "maybe", "is_right"),
    [
        (Shape.LAST, 6, 1, {6}, set(), True),
        (Shape.LAST, 1, 1, {6}, set(), False),  # lost
        (Shape.LAST, 11, 1, {6}, {11}, True),
        (Shape.LAST, 6, 1, {11}, {6}, False),  # one that may be there does not hide a later one
        (Shape.EACH, [1, 6], [1], {6}, {11}, True),
        (Shape.EACH, [1, 6, 11], [1], {6}, {11}, True),
        (Shape.EACH, [1, 11], [1], {6}, {11}, False),
        (Shape.EACH, [1, 6, 16], [1], {6}, {11}, False),  # of nobody
        (Shape.SUM, [2, 7, 6], [1, 1, 1], {6}, set(), True),
        (Shape.SUM, [3, 13, 6], [1, 1, 1], {6}, set(), False),  # twice
        (Shape.SUM, [3, 18, 11], [1, 1, 1], {6}, {11}, True),
        (Shape.SUM, [2, 12, 11], [1, 1, 1], {6}, {11}, False),
    ],
)
def test_a_group_shows_what_came_and_perhaps_what_may_have_come(
    shape: Shape, seen: Any, base: Any, added: set[int], maybe: set[int], is_right: bool
) -> None:
    assert Kind(name="any", shape=shape).fits(seen, base, added, maybe) is is_right


# ---- reads


def test_a_read_shows_the_batches_up_to_its_snapshot() -> None:
    history = three()
    history.read(3, {1: 6, 2: 2})
    history.read(2, {1: 1, 2: 2}, is_newest=False)
    history.read(1, {1: 1}, is_newest=False)
    assert history.problems() == []


@pytest.mark.parametrize(
    ("snapshot_id", "seen", "problem"),
    [
        (3, {1: 1, 2: 2}, "a read is wrong"),  # lost
        (3, {1: 6}, "a read is wrong"),
        (3, {1: 6, 2: 2, 3: 3}, "a read is wrong"),  # of nobody
        (2, {1: 1, 2: 2}, "a read is behind an acknowledged commit"),
    ],
)
def test_a_read_that_lacks_rows_has_others_or_is_stale_is_found(
    snapshot_id: int, seen: dict[int, int], problem: str
) -> None:
    history = three()
    history.read(snapshot_id, seen)
    assert [each.partition(":")[0] for each in history.problems()] == [problem]


def test_what_a_killed_writer_began_may_be_there_and_what_was_refused_is_not() -> None:
    for outcome, allowed in ((UNKNOWN, ({}, {3: 3})), (REFUSED, ({},))):
        for more in ({}, {3: 3}):
            history = three()
            history.write(3, None, outcome)
            history.read(4, {1: 6, 2: 2, **more})
            assert (history.problems() == []) is (more in allowed)


def test_a_batch_that_was_tried_again_is_there_once_and_at_its_answer_at_the_latest() -> None:
    history = History()
    history.write(1, None, UNKNOWN)
    history.write(1, 5)
    history.read(3, {1: [1, 1, 1]}, is_newest=False)
    history.read(3, {}, is_newest=False)
    history.read(5, {1: [1, 1, 1]})
    assert history.problems(SUMS) == []
    history.read(5, {1: [2, 2, 1]})
    assert len(history.problems(SUMS)) == 1


def test_two_commits_of_one_number_are_found() -> None:
    history = three()
    history.write(7, 3)
    assert history.problems() == ["two commits have one number: snapshot=3"]


# ---- going back


def test_a_restored_state_is_followed_by_what_came_after_it() -> None:
    history = three()
    history.add("restore", slot="roller 0", to=1, id=4)
    history.write(3, 5)
    history.read(5, {1: 1, 3: 3})
    history.read(3, {1: 6, 2: 2}, is_newest=False)
    assert history.problems() == []
    history.read(5, {1: 6, 2: 2, 3: 3})
    assert len(history.problems()) == 2  # of two groups


def test_a_rollback_uses_numbers_again_and_what_overlapped_with_it_may_be_on_either_side() -> None:
    history = three()
    history.read(3, {1: 6, 2: 2})
    rolled = history.add("roll back", slot="roller 0", to=1, gone=[["snapshot", "2"]])
    beside = history.write(3, 2)
    beside.began = rolled.began
    history.write(4, 2)
    history.read(2, {1: 1, 4: 4})
    history.read(3, {1: 1, 3: 3, 4: 4})
    assert history.problems() == []
    history.read(3, {1: 6, 2: 2, 4: 4})
    assert len(history.problems()) == 2


def test_a_batch_that_began_and_ended_during_a_rollback_may_be_there() -> None:
    history = three()
    rolled = history.add("roll back", slot="roller 0", to=1, gone=[["snapshot", "2"]])
    during = history.write(3, 4)
    rolled.ended = during.ended
    history.read(4, {1: 1, 3: 3}, is_newest=False)
    history.read(4, {1: 1}, is_newest=False)
    assert history.problems() == []


def test_a_batch_that_was_tried_before_a_restore_may_have_gone_with_it() -> None:
    history = three()
    history.write(7, None, UNKNOWN)
    history.add("restore", slot="roller 0", to=1, id=5)
    history.write(7, 6)
    history.read(6, {1: 1}, is_newest=False)
    history.read(6, {1: 1, 2: 7}, is_newest=False)
    assert history.problems() == []


def test_a_rollback_of_unknown_outcome_ends_with_a_look_at_the_table() -> None:
    history = three()
    history.add("roll back", UNKNOWN, slot="roller 0", to=1)
    history.read(7, {4: 4})  # nobody knows
    look = history.add("look", slot="race", id=1, seen={1: 1})
    history.deeds.remove(look)
    history.write(3, 2)
    history.read(2, {1: 1, 3: 3})
    assert history.problems(looks=[look]) == []
    history.read(2, {1: 1, 2: 2, 3: 3})
    assert len(history.problems(looks=[look])) == 1


# ---- tags, savepoints, branches


def test_a_tag_is_there_unless_it_was_deleted_or_may_have_gone() -> None:
    history = three()
    for name, retained in (
        ("kept", None),
        ("moved", None),
        ("gone", None),
        ("short", "1 s"),
        ("was", None),
        ("dead", None),
    ):
        history.add("tag", slot="tagger 0", name=name, retained=retained, id=2)
    history.add("retag", slot="tagger 0", name="moved", retained=None, id=3)
    history.add("untag", slot="tagger 0", name="gone")
    history.add("untag", UNKNOWN, slot="tagger 0", name="dead")
    history.add("untag", REFUSED, slot="tagger 0", name="kept")
    history.add("rename tag", slot="tagger 0", name="was", target="is")
    assert Oracle(KEYED, history.deeds, []).tags() == {
        "kept": {2}, "moved": {3}, "gone": {None}, "short": {2, None}, "was": {None}, "is": {2}, "dead": {2, None},
    }  # fmt: skip


def test_a_rollback_may_take_later_tags_and_no_earlier_ones() -> None:
    history = three()
    history.add("tag", slot="tagger 0", name="early", retained=None, id=1)
    history.add("tag", slot="tagger 0", name="late", retained=None, id=3)
    history.add("roll back", slot="roller 0", to=2, gone=[["tag", "late"]])
    assert Oracle(KEYED, history.deeds, []).tags() == {"early": {1}, "late": {3, None}}


def test_savepoints_are_kept_by_their_numbers() -> None:
    history = three()
    history.add("save", slot="saver 0", number=1, id=2)
    history.add("save", slot="saver 0", number=2, id=3)
    history.add("unsave", slot="saver 0", number=1)
    assert Oracle(KEYED, history.deeds, []).savepoints() == {1: {None}, 2: {3}}


def test_a_branch_shows_where_it_began_and_what_was_written_to_it_and_main_gets_that_by_a_merge() -> None:
    history = three()
    history.add("branch", slot="brancher 0", name="b1", id=2)
    history.add("branch write", slot="brancher 0", name="b1", writer=10, batch=1)
    group = 10 * GROUPS + 1
    history.add("merge", slot="brancher 0", name="b1", id=4)
    history.add("branch write", slot="brancher 0", name="b1", writer=10, batch=2)
    history.read(4, {1: 6, 2: 2, group: 1})
    oracle = Oracle(KEYED, history.deeds, [])
    assert [*oracle.problems()] == []
    state = oracle.branch_state("b1")
    assert state is not None
    assert state.differences(KEYED, {1: 1, 2: 2, group: 1, group + 1: 2}, is_settled=True) == []
    assert len(state.differences(KEYED, {1: 6, 2: 2, group: 1}, is_settled=True)) == 2
