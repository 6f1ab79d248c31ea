"""The states that answers allow, against literals."""

from dataclasses import replace

from engine.simulation import model
from engine.simulation.model import Catalogue, Deed, Effect, ModelTable, frozen, on_table, possible_states

START: Catalogue = (("t", ModelTable(branches=(("main", frozen({1: 1})),))),)


def deed(effect: Effect, began: int, ended: int, *, done: bool = True, at: int | None = None) -> Deed:
    return Deed(
        actor=0, name="x", effect=effect, began=began, ended=ended, is_acknowledged=done, may_be_done=not done,
        published=at,
    )  # fmt: skip


def main_rows(*deeds: Deed) -> set[model.Frozen]:
    found = possible_states(START, [*deeds])
    return {frozen(dict(state)["t"].rows("main") or {}) if dict(state).get("t") else () for state in found}


PUT2, PUT3 = (on_table("t", model.put({number: number})) for number in (2, 3))
CLEAR = on_table("t", model.overwrite({}))


def test_what_ended_before_another_began_came_first() -> None:
    assert main_rows(deed(PUT2, 0, 1), deed(CLEAR, 2, 3)) == {()}
    assert main_rows(deed(CLEAR, 0, 1), deed(PUT2, 2, 3)) == {((2, 2),)}


def test_what_overlaps_came_in_either_order_unless_its_moment_is_known() -> None:
    assert main_rows(deed(PUT2, 0, 9), deed(CLEAR, 0, 9)) == {(), ((2, 2),)}
    assert main_rows(deed(PUT2, 0, 9, at=7), deed(CLEAR, 0, 9, at=5)) == {((2, 2),)}


def test_what_may_be_done_is_done_or_not() -> None:
    assert main_rows(deed(PUT2, 0, 1, done=False), deed(PUT3, 2, 3)) == {((1, 1), (3, 3)), ((1, 1), (2, 2), (3, 3))}


def test_what_is_impossible_has_no_state() -> None:
    assert main_rows(deed(model.drop("t"), 0, 1), deed(PUT2, 2, 3)) == set()


def test_a_merge_brings_what_changed_on_the_branch_alone() -> None:
    table = ModelTable(branches=(("main", frozen({1: 1, 2: 2})),))
    branched = model.branch_off("b", {1: 1, 2: 2})(table)
    assert branched is not None
    changed = branched.with_rows("b", {1: 10}).with_rows("main", {1: 1, 2: 2, 3: 3})
    merged = model.merge("b")(changed)
    assert merged is not None
    assert merged.rows("main") == {1: 10, 3: 3}


def test_a_merge_is_refused_where_both_changed_a_key_differently() -> None:
    branched = model.branch_off("b", {1: 1, 2: 2})(ModelTable(branches=(("main", frozen({1: 1, 2: 2})),)))
    assert branched is not None
    there = branched.with_rows("b", {1: 10})  # 2 was deleted
    assert model.merge("b")(there.with_rows("main", {1: 11, 2: 2})) is None
    assert model.merge("b")(there.with_rows("main", {1: 1, 2: 20})) is None
    alike = model.merge("b")(there.with_rows("main", {1: 10, 3: 3}))
    assert alike is not None
    assert alike.rows("main") == {1: 10, 3: 3}


def test_a_rollback_of_a_table_that_was_made_again_goes_back_to_what_its_numbers_are_there() -> None:
    again = [deed(model.drop("t"), 0, 1), deed(model.create("t"), 2, 3), deed(PUT2, 4, 5), deed(PUT3, 6, 7)]
    back = on_table("t", model.rolled_back(2, {1: 1, 9: 9}))
    compacted = on_table("t", model.rolled_back(2, {1: 1, 9: 9}, compactions=1))
    rolled_back = replace(deed(back, 10, 11), otherwise=(compacted,))
    assert main_rows(*again, deed(CLEAR, 8, 9), rolled_back) == {((2, 2),), ((2, 2), (3, 3))}
    assert main_rows(rolled_back) == {((1, 1), (9, 9))}
