"""A compaction at any point gives the same rows: merging some neighbours first, and the result with the rest."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.aggregate.aggregates import FieldAggregate
from lsm.aggregate.aggregation import Aggregation
from lsm.merge.merge_function import Deduplicate, FirstRow, MergeFunction
from lsm.merge.partial_update import PartialUpdate
from tests.lsm.aggregate.test_aggregation import SPECS
from tests.lsm.merge.test_partial_update import TWO_GROUPS
from tests.lsm.stories import Change, merged, random_story

LAWS = settings(max_examples=30, deadline=None, derandomize=True)
ADDS = {"+I": "+I", "+U": "+U", "-U": "+I", "-D": "+U"}
ANY = {kind: kind for kind in ADDS}
INTS: Mapping[str, tuple[pa.DataType, Callable[[Random], Any]]] = {
    name: (pa.int32(), lambda random: random.randint(1, 4)) for name in ("a", "b", "c", "d", "s", "t", "u")
}
# What removes map keys forgets that it did, as in Java (FORMAT.md, Decision 91).
FOLDED = {name: each for name, each in SPECS.items() if name not in ("timed", "few_items")}
SUMS = {name: SPECS[name] for name in ("sum", "cents", "count")}
# merge function, what becomes of the kinds of the story, columns, sequence fields
ENGINES: Mapping[str, tuple[MergeFunction, Mapping[str, str], Mapping[str, Any], tuple[str, ...]]] = {
    "deduplicate": (Deduplicate(), ANY, INTS, ()),
    "deduplicate by columns": (Deduplicate(), ANY, INTS, ("s", "t")),
    "deduplicate, ignored deletes": (Deduplicate(ignore_delete=True), ANY, INTS, ()),
    "first-row": (FirstRow(), ADDS, INTS, ()),
    "partial-update": (PartialUpdate(key_names=("k",)), ADDS, INTS, ()),
    "sequence groups": (
        PartialUpdate(
            key_names=("k",),
            sequence_groups=TWO_GROUPS,
            aggregates={"b": FieldAggregate(function="sum"), "c": FieldAggregate(function="max")},
        ),
        ADDS,
        INTS,
        (),
    ),
    "aggregation": (
        Aggregation(key_names=("k",), fields={name: spec for name, (_, _, spec) in FOLDED.items()}), ADDS, FOLDED, (),
    ),
    "sums": (
        Aggregation(key_names=("k",), fields={name: spec for name, (_, _, spec) in SUMS.items()}), ANY, SUMS, (),
    ),
    "sums of groups": (
        PartialUpdate(
            key_names=("k",),
            sequence_groups=TWO_GROUPS,
            aggregates={name: FieldAggregate(function="count" if name == "b" else "sum") for name in "abc"},
            counts_retracts=True,
        ),
        ANY,
        {name: each for name, each in INTS.items() if name != "d"},
        (),
    ),
}  # fmt: skip
FORGETTING = ("deduplicate", "sums", "sums of groups")
"""Of the oldest rows nothing is needed but what they come to."""


@pytest.mark.sampled(4)
@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
@LAWS
@given(seed=st.integers(0, 2**32), cuts=st.tuples(st.integers(0, 15), st.integers(0, 15)))
def test_merging_neighbours_first_changes_nothing(engine: str, seed: int, cuts: tuple[int, int]) -> None:
    """FL-166, FL-183, FL-186, FL-187."""
    merge, kinds, drawn, sequence_names = ENGINES[engine]
    columns = {name: each[0] for name, each in drawn.items()}
    story: list[Change] = [
        (kinds[kind], number, row)
        for kind, number, row in random_story(seed, {name: each[1] for name, each in drawn.items()})
    ]

    def merge_all(changes: list[Change], *, drop_deletes: bool) -> list[Change]:
        return merged(changes, merge, columns=columns, sequence_names=sequence_names, drop_deletes=drop_deletes)

    first, last = min(cuts), max(cuts)
    # With nothing below, deletes go. What comes later by the sequence, or is folded, may still need them.
    drops_deletes = first == 0 and engine in FORGETTING
    compacted = merge_all(story[first:last], drop_deletes=drops_deletes) if last <= len(story) else story[first:last]
    found = merge_all([*story[:first], *compacted, *story[last:]], drop_deletes=True)
    expected = merge_all(story, drop_deletes=True)
    assert [row for _, _, row in found] == [row for _, _, row in expected]
