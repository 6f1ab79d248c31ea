"""Changes of many versions in one merge, against a merge of everything up to each version."""

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.aggregate.aggregates import FieldAggregate
from lsm.aggregate.aggregation import Aggregation
from lsm.merge.merge import RunSource, merge_runs
from lsm.merge.merge_function import Deduplicate, FirstRow, MergeFunction
from lsm.merge.partial_update import PartialUpdate
from lsm.merge.version_diff import BEFORE_ALL, VersionDiff, with_age
from tests.lsm.stories import Change, emitted_changes, merged, random_story, story_batch

COLUMNS: Mapping[str, pa.DataType] = {"a": pa.int32(), "b": pa.float64(), "s": pa.int32(), "t": pa.string()}
VALUES = {
    "a": lambda random: random.randint(1, 4),
    "b": lambda random: random.choice([0.0, -0.0, 0.1, 0.2, 1e9]),
    "s": lambda random: random.randint(1, 3),
    "t": lambda random: random.choice("xy"),
}
SUMS = {"a": FieldAggregate(function="sum"), "b": FieldAggregate(function="sum")}
WHOLE = {"a": FieldAggregate(function="sum"), "b": FieldAggregate(function="max", ignore_retract=True)}
# merge function, whether retracts are taken, sequence fields, whether it composes
ENGINES: Mapping[str, tuple[MergeFunction, bool, tuple[str, ...], bool]] = {
    "deduplicate": (Deduplicate(), True, (), True),
    "deduplicate by a column": (Deduplicate(), True, ("s",), True),
    "ignored deletes": (Deduplicate(ignore_delete=True), True, (), True),
    "ignored deletes by a column": (Deduplicate(ignore_delete=True), True, ("s",), True),
    "first-row": (FirstRow(ignore_delete=True), True, (), True),
    "first-row of inserts": (FirstRow(), False, (), True),
    "partial-update by a column": (PartialUpdate(key_names=("k",)), False, ("s",), True),
    "partial-update": (PartialUpdate(key_names=("k",)), False, (), True),
    "partial-update with deletes": (PartialUpdate(key_names=("k",), remove_record_on_delete=True), True, (), False),
    "float sums by a column": (Aggregation(key_names=("k",), fields=SUMS, sequence_names=("s",)), True, ("s",), False),
    "aggregation": (Aggregation(key_names=("k",), fields=WHOLE), True, (), True),
}  # fmt: skip


def version_changes(
    versions: Sequence[Sequence[Change]],
    merge: MergeFunction,
    *,
    sequence_names: Sequence[str] = (),
    composes: bool = True,
) -> list[Change]:
    """Kind, version and row of each change; the first version is the state before, each change in a run of its own."""
    numbered = [(number, change) for number, changes in enumerate(versions) for change in changes]
    runs = [[with_age(story_batch([change], COLUMNS), number)] for number, change in numbered]
    tables = merge_runs(
        [RunSource(min_key=None, open=partial(iter, run)) for run in runs],
        key_names=["k"],
        merge=VersionDiff(inner=merge, key_names=["k"], versions=range(len(versions)), composes=composes),
        sequence_names=sequence_names,
        drop_deletes=True,
    )
    return emitted_changes(list(tables))


def changes_between(before: Sequence[Change], after: Sequence[Change], version: int) -> list[Change]:
    """Of two states."""
    old, new = ({row.get("k", 1): row for _, _, row in state} for state in (before, after))
    found: list[Change] = [("-D", version, row) for key, row in old.items() if key not in new]
    found += [("+I", version, row) for key, row in new.items() if key not in old]
    for key, row in new.items():
        if key in old and repr(old[key]) != repr(row):
            found += [("-U", version, old[key]), ("+U", version, row)]
    return found


def one(kind: str, number: int, key: int, value: int | None) -> Change:
    return (kind, number, {"k": key, "a": value, "b": None, "s": None, "t": None})


def test_a_delete_has_the_row_that_it_removes() -> None:
    found = version_changes(
        [
            [one("+I", 0, 2, 1), one("+I", 1, 3, 2)],
            [one("+U", 2, 2, 5), one("+I", 3, 4, 3)],
            [one("-D", 4, 2, None), one("-D", 5, 9, 0)],
        ],
        Deduplicate(),
    )
    assert [(kind, version, row["k"], row["a"]) for kind, version, row in found] == [
        ("-U", 1, 2, 1), ("+U", 1, 2, 5), ("-D", 2, 2, 5), ("+I", 1, 4, 3),
    ]  # fmt: skip
    assert BEFORE_ALL == 0


@pytest.mark.sampled(3)
@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    cuts=st.lists(st.integers(0, 30), max_size=30),
    composes=st.booleans(),
    hot=st.booleans(),
    whole=st.booleans(),
)
def test_every_version_changes_what_the_one_before_left(
    engine: str, seed: int, cuts: list[int], composes: bool, hot: bool, whole: bool
) -> None:
    """Of a key that a few versions wrote, and of one that all did, whose states are folded from those before; of rows
    with and without nulls."""
    merge, takes_retracts, sequence_names, may_compose = ENGINES[engine]
    story = [*random_story(seed, VALUES), *random_story(seed + 1, VALUES)]
    story = [
        (kind if takes_retracts else "+I", number, row | ({"k": 2} if hot else {}))
        for number, (kind, _, row) in enumerate(story)
    ]
    if whole:
        random = Random(seed)
        story = [(kind, number, {name: VALUES[name](random) if value is None else value for name, value in row.items()})
                 for kind, number, row in story]  # fmt: skip
    bounds = range(len(story)) if hot else sorted({each for each in cuts if each < len(story)})
    ends = [*bounds, len(story)]
    versions = [story[begin:end] for begin, end in zip([0, *ends[:-1]], ends, strict=True)]
    states = [merged(story[:end], merge, columns=COLUMNS, sequence_names=sequence_names) if end else [] for end in ends]
    expected = [
        change
        for version in range(1, len(versions))
        for change in changes_between(states[version - 1], states[version], version)
    ]
    found = version_changes(versions, merge, sequence_names=sequence_names, composes=composes and may_compose)
    assert [(row.get("k", 1), number) for _, number, row in found] == sorted(
        (row.get("k", 1), number) for _, number, row in found
    ), "by key, and then by version"
    assert sorted(found, key=repr) == sorted(expected, key=repr)
