"""A filter on value columns against a dictionary: what leaves it is deleted, what enters it is inserted."""

from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.stream.rows import matching_changes
from engine.types.row_changes import RowChanges
from lsm.row_kind import ROW_KIND_SYMBOLS

law = settings(max_examples=150, deadline=None, derandomize=True)
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
KINDS = {kind: number for number, kind in enumerate(ROW_KIND_SYMBOLS.to_pylist())}
Change = tuple[str, int, int]


def kept_changes(changes: list[Change]) -> list[Change]:
    """Of rows with v >= 5."""
    rows = pa.RecordBatch.from_pylist([{"id": key, "v": v} for _, key, v in changes], schema=SCHEMA)
    given = RowChanges(rows=rows, kinds=pa.array([KINDS[kind] for kind, _, _ in changes], pa.int8()))
    found = matching_changes(given, pa.array([v >= 5 if v else None for _, _, v in changes], pa.bool_()))
    columns = (found.kind_texts().to_pylist(), found.rows["id"].to_pylist(), found.rows["v"].to_pylist())
    return list(zip(*columns, strict=True))


def test_a_row_that_leaves_is_deleted_and_one_that_enters_is_inserted() -> None:
    stays, leaves, enters, never = ([("-U", 1, a), ("+U", 1, b)] for a, b in ((5, 6), (5, 0), (1, 7), (1, 2)))
    assert kept_changes(stays) == stays
    assert kept_changes(leaves) == [("-D", 1, 5)]
    assert kept_changes(enters) == [("+I", 1, 7)]
    assert kept_changes(never) == []
    assert kept_changes([("+I", 1, 5), ("+I", 2, 4), ("-D", 3, 6), ("-D", 4, 1)]) == [("+I", 1, 5), ("-D", 3, 6)]
    assert kept_changes([*stays, *enters, *leaves]) == [*stays, ("+I", 1, 7), ("-D", 1, 5)]
    assert [*kept_changes(stays[:1]), *kept_changes(stays[1:])] == [("-D", 1, 5), ("+I", 1, 6)], "of two batches"
    assert kept_changes([]) == []


@pytest.mark.sweep
@law
@given(
    st.lists(st.tuples(st.integers(0, 4), st.one_of(st.none(), st.integers(0, 9))), max_size=30),
    st.lists(st.integers(0, 60), max_size=4),
)
def test_changes_add_up_to_the_rows_that_match(steps: list[tuple[int, int | None]], cuts: list[int]) -> None:
    """However the changes are cut into batches; each fits the rows that were there before it."""
    state: dict[int, int] = {}
    changes: list[Change] = []
    for key, v in steps:
        if v is None:
            changes += [("-D", key, state.pop(key))] if key in state else []
        else:
            changes += [("-U", key, state[key]), ("+U", key, v)] if key in state else [("+I", key, v)]
            state[key] = v
    places = [0, *sorted(each for each in cuts if each < len(changes)), len(changes)]
    found: dict[Any, int] = {}
    for start, stop in pairwise(places):
        for kind, key, v in kept_changes(changes[start:stop]):
            if kind in ("-U", "-D"):
                assert found.pop(key) == v
            else:
                assert key not in found
                found[key] = v
    assert found == {key: v for key, v in state.items() if v >= 5}
