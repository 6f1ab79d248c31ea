"""The partial-update merge engine."""

from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.aggregate.aggregates import FieldAggregate
from lsm.errors import InvalidInputError
from lsm.merge.partial_update import PartialUpdate, SequenceGroup
from tests.lsm.row_engines import partially_updated
from tests.lsm.stories import Change, merged, random_story, rows_by_key

LAWS = settings(max_examples=100, deadline=None, derandomize=True)
PLAIN = PartialUpdate(key_names=("k",))
REMOVING = PartialUpdate(key_names=("k",), remove_record_on_delete=True)
IGNORING = PartialUpdate(key_names=("k",), ignore_delete=True)
GROUP = SequenceGroup(sequence_names=("g",), field_names=("a",))
GROUPED = PartialUpdate(key_names=("k",), sequence_groups=(GROUP,))
REMOVING_GROUP = PartialUpdate(key_names=("k",), sequence_groups=(GROUP,), remove_on_sequence_groups=("g",))


def merged_row(merge: PartialUpdate, *story: tuple[str, dict[str, Any]]) -> tuple[Any, Any, Any] | None:
    """(a, b, g) of the one key, or None when it is gone."""
    changes: list[Change] = [(kind, number, values) for number, (kind, values) in enumerate(story)]
    rows = [values for _, _, values in merged(changes, merge)]
    return (rows[0]["a"], rows[0]["b"], rows[0]["g"]) if rows else None


def test_nulls_leave_what_is_there() -> None:
    assert merged_row(PLAIN, ("+I", {"a": 1}), ("+I", {"b": "x"}), ("+U", {"a": 3})) == (3, "x", None)


def test_the_result_is_an_insert_as_new_as_the_newest_row() -> None:
    assert merged([("+U", 4, {"a": 1}), ("+U", 9, {"b": "x"})], PLAIN) == [("+I", 9, {"a": 1, "b": "x", "g": None})]


def test_a_retract_is_refused_with_the_ways_out() -> None:
    with pytest.raises(
        InvalidInputError, match=r"retract_count=1 fix=set ignore-delete=true, or partial-update\.remove"
    ):
        merged_row(PLAIN, ("+I", {"a": 1}), ("-D", {"a": 1}))
    assert merged_row(PLAIN, ("-D", {"a": 1})) is None, "a single row is not merged"


def test_a_delete_removes_the_row_if_so_wished() -> None:
    story = [("+I", {"a": 1, "b": "x"}), ("-D", {"a": 1, "b": "x"}), ("+I", {"a": 7})]
    assert merged_row(REMOVING, *story[:2]) is None
    assert merged_row(REMOVING, *story) == (7, "x", None), "on the delete's own values, as Java 1.4 has it"
    assert merged_row(REMOVING, ("+I", {"a": 1, "b": "x"}), ("-U", {"a": 1, "b": "x"}), ("+U", {"a": 2})) == (
        2,
        "x",
        None,
    )


def test_ignored_deletes_leave_the_row() -> None:
    assert merged_row(IGNORING, ("+I", {"a": 1}), ("-D", {"a": 1}), ("+I", {"b": "z"})) == (1, "z", None)
    # The version trap: an oldest row that is a retract still gives its values.
    assert merged_row(IGNORING, ("-D", {"a": 1, "b": "x"}), ("+I", {"g": 3})) == (1, "x", 3)
    assert merged_row(IGNORING, ("-D", {"a": 1}), ("-D", {"a": 1})) is None


def test_a_group_follows_its_sequence_nulls_included() -> None:
    assert merged_row(GROUPED, ("+I", {"a": 1, "b": "x", "g": 1}), ("+I", {"g": 2})) == (None, "x", 2)
    assert merged_row(GROUPED, ("+I", {"a": 1, "b": "x", "g": 5}), ("+I", {"a": 2, "b": "y", "g": 3})) == (1, "y", 5)
    assert merged_row(GROUPED, ("+I", {"a": 1, "g": 5}), ("+I", {"a": 2, "g": 5})) == (2, None, 5)
    assert merged_row(GROUPED, ("+I", {"a": 1, "g": 5}), ("+I", {"a": 2, "b": "y"})) == (1, "y", 5)
    assert merged_row(GROUPED, ("+I", {"a": 1}), ("+I", {"a": 2, "b": "y"})) == (None, "y", None)


def test_a_retract_nulls_its_group_when_it_is_not_older() -> None:
    story = [("+I", {"a": 1, "b": "x", "g": 5})]
    assert merged_row(GROUPED, *story, ("-D", {"a": 1, "b": "x", "g": 6})) == (None, "x", 6)
    assert merged_row(GROUPED, ("+I", {"a": 1, "b": "x", "g": 6}), ("-D", {"a": 1, "b": "x", "g": 5})) == (1, "x", 6)
    assert merged_row(GROUPED, ("-D", {"a": 1, "b": "x", "g": 6}), ("+I", {"a": 9, "g": 5})) == (None, "x", 6)
    assert merged_row(GROUPED, ("-D", {"a": 1, "g": 5}), ("-D", {"a": 1, "g": 6})) is None


SUMS = PartialUpdate(
    key_names=("k",), sequence_groups=(GROUP,), aggregates={"a": FieldAggregate(function="sum")}, counts_retracts=True
)


@pytest.mark.parametrize("kind", ["-U", "-D"])
def test_the_sum_of_a_group_begins_with_nothing_also_below_a_retract(kind: str) -> None:
    """A compaction between the two changes nothing."""
    early: Change = (kind, 0, {"a": 5, "b": "x", "g": 1})
    assert merged([early], SUMS) == [("+I", 0, {"a": -5, "b": "x", "g": 1})]
    for story in ([early], merged([early], SUMS)):
        assert merged([*story, ("+I", 1, {"a": 9, "g": 2})], SUMS) == [("+I", 1, {"a": 4, "b": "x", "g": 2})]
        assert merged([*story, (kind, 1, {"a": 3, "g": 2})], SUMS) == [("+I", 1, {"a": -8, "b": "x", "g": 2})]


def test_retracts_that_may_have_older_rows_stay_retracts_of_what_they_take_back_together() -> None:
    both: list[Change] = [("-U", 1, {"a": 5, "g": 1}), ("-U", 2, {"a": 3, "g": 2})]
    [together] = merged(both, SUMS, drop_deletes=False)
    assert (together[0] in ("-U", "-D"), together[2]["a"]) == (True, 8)
    assert merged([("+I", 0, {"a": 10, "g": 1}), together], SUMS) == [("+I", 2, {"a": 2, "b": None, "g": 2})]


def test_a_retract_that_touches_no_group_is_no_row() -> None:
    assert merged_row(SUMS, ("-D", {"a": 1})) is None
    assert merged_row(SUMS, ("-D", {"a": 1}), ("-U", {"a": 1})) is None


def test_a_delete_of_a_removing_group_removes_the_row() -> None:
    story = [("+I", {"a": 1, "b": "x", "g": 5}), ("-D", {"a": 1, "b": "x", "g": 6}), ("+I", {"a": 8, "g": 7})]
    assert merged_row(REMOVING_GROUP, *story[:2]) is None
    assert merged_row(REMOVING_GROUP, *story) == (8, "x", 7)
    assert merged_row(REMOVING_GROUP, *story[:2], ("+I", {"a": 8, "g": 4})) == (1, "x", 6)
    assert merged_row(REMOVING_GROUP, story[0], ("-D", {"a": 1, "g": 3})) == (1, "x", 5)


def test_aggregates_of_a_group_take_part_with_older_rows_too() -> None:
    total = PartialUpdate(key_names=("k",), sequence_groups=(GROUP,), aggregates={"a": FieldAggregate(function="sum")})
    assert merged_row(total, ("+I", {"a": 1, "g": 5}), ("+I", {"a": 10, "g": 3}), ("+I", {"a": 100, "g": 7})) == (
        111,
        None,
        7,
    )
    assert merged_row(total, ("+I", {"a": 5, "g": 5}), ("-D", {"a": 2, "g": 3})) == (3, None, 5)
    assert merged_row(total, ("+I", {"a": 5, "g": 5}), ("+I", {"a": 2})) == (5, None, 5)


def test_an_older_row_of_a_group_is_joined_in_front() -> None:
    group = SequenceGroup(sequence_names=("g",), field_names=("b",))
    joined = PartialUpdate(
        key_names=("k",), sequence_groups=(group,), aggregates={"b": FieldAggregate(function="listagg")}
    )
    assert merged_row(joined, ("+I", {"b": "m", "g": 5}), ("+I", {"b": "a", "g": 3}), ("+I", {"b": "z", "g": 7})) == (
        None,
        "a,m,z",
        7,
    )


@pytest.mark.parametrize(
    ("options", "fact"),
    [
        ({"sequence_groups": (GROUP, GROUP)}, "a column is in two sequence groups: .* columns=\\['a', 'g'\\]"),
        ({"sequence_groups": (SequenceGroup(sequence_names=("g",), field_names=("k",)),)}, "a key column is in"),
        ({"remove_on_sequence_groups": ("g",)}, "not a sequence column"),
        ({"sequence_groups": (GROUP,), "aggregates": {"g": FieldAggregate()}}, "a sequence column cannot"),
        ({"aggregates": {"a": FieldAggregate(function="sum")}}, "needs a sequence group"),
        ({"sequence_groups": (GROUP,), "remove_record_on_delete": True}, "conflicts with ignore-delete"),
        ({"ignore_delete": True, "remove_record_on_delete": True}, "conflicts with ignore-delete"),
        (
            {"sequence_groups": (GROUP,), "ignore_delete": True, "remove_on_sequence_groups": ("g",)},
            "cannot both remove the row and be ignored",
        ),
    ],
)
def test_options_that_contradict_are_refused(options: dict[str, Any], fact: str) -> None:
    with pytest.raises(InvalidInputError, match=fact):
        PartialUpdate(key_names=("k",), **options)


COLUMNS = {name: pa.int32() for name in ("a", "b", "c", "d", "s", "t", "u")}
TWO_GROUPS = (
    SequenceGroup(sequence_names=("s", "t"), field_names=("a", "b")),
    SequenceGroup(sequence_names=("u",), field_names=("c",)),
)
MODES: dict[str, dict[str, Any]] = {
    "remove": {"remove_record_on_delete": True},
    "ignore": {"ignore_delete": True},
    "groups": {"sequence_groups": TWO_GROUPS},
    "groups, sum": {"sequence_groups": TWO_GROUPS, "aggregates": {"b": FieldAggregate(function="sum")}},
    "groups, max": {
        "sequence_groups": TWO_GROUPS,
        "aggregates": {"c": FieldAggregate(function="max", ignore_retract=True)},
    },
    "groups, last": {
        "sequence_groups": TWO_GROUPS,
        "aggregates": {
            "b": FieldAggregate(function="last_non_null_value"),
            "c": FieldAggregate(function="last_value"),
        },
    },
    "groups, product": {"sequence_groups": TWO_GROUPS, "aggregates": {"b": FieldAggregate(function="product")}},
    "groups, collect": {"sequence_groups": TWO_GROUPS, "aggregates": {"b": FieldAggregate(function="collect")}},
    "groups, nested": {
        "sequence_groups": TWO_GROUPS,
        "aggregates": {"b": FieldAggregate(function="nested_update", nested_key=("x",))},
    },
    "groups, ignore": {"sequence_groups": TWO_GROUPS, "ignore_delete": True},
    "groups, remove": {"sequence_groups": TWO_GROUPS, "remove_on_sequence_groups": ("t",)},
    "groups, remove both": {
        "sequence_groups": TWO_GROUPS,
        "remove_on_sequence_groups": ("s", "u"),
        "aggregates": {"b": FieldAggregate(function="sum")},
    },
}

ITEM = pa.struct([("x", pa.int32()), ("y", pa.int32())])
LISTS: dict[str, tuple[pa.DataType, Callable[[Random], Any]]] = {  # type and values of column b
    "groups, collect": (pa.list_(pa.int32()), lambda random: random.choices([1, 2, 3], k=random.randint(0, 2))),
    "groups, nested": (
        pa.list_(ITEM),
        lambda random: [{"x": random.randint(1, 2), "y": random.randint(1, 2)} for _ in range(random.randint(0, 2))],
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.sweep
@pytest.mark.parametrize("mode", MODES)
@LAWS
@given(seed=st.integers(0, 2**32))
def test_columns_are_updated_like_rows_one_by_one(mode: str, seed: int) -> None:
    options = MODES[mode]
    kinds: dict[str, tuple[pa.DataType, Callable[[Random], Any]]] = {
        name: (kind, lambda random: random.randint(1, 4)) for name, kind in COLUMNS.items()
    }
    kinds["b"] = LISTS.get(mode, kinds["b"])
    story = random_story(seed, {name: draw for name, (_, draw) in kinds.items()})
    expected = [
        rows[0]
        if len(rows) == 1
        else partially_updated(
            rows,
            list(COLUMNS),
            groups=options.get("sequence_groups", ()),
            aggregates=options.get("aggregates"),
            ignore_delete=options.get("ignore_delete", False),
            remove_on_delete=options.get("remove_record_on_delete", False),
            removing=options.get("remove_on_sequence_groups", ()),
        )
        for rows in rows_by_key(story).values()
    ]
    columns = {name: kind for name, (kind, _) in kinds.items()}
    found = merged(story, PartialUpdate(key_names=("k",), **options), columns=columns, drop_deletes=False)
    assert [(kind, {name: row[name] for name in COLUMNS}) for kind, _, row in found] == expected
