"""Upsert changes completed by what they replace: a pure function against a dictionary."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.stream.rows import exact_changes
from engine.types.row_changes import RowChanges
from lsm.row_kind import RowKind

law = settings(max_examples=300, deadline=None, derandomize=True)
SCHEMA = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("x", pa.float64()), ("tags", pa.list_(pa.int64()))])
KEYS = ("dt", "id")

values = st.sampled_from([None, 0.0, -0.0, 1.5, math.nan])
tags = st.sampled_from([None, (), (1,), (1, None), (2, 1)])
keys = st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 4))
rows = st.tuples(keys, values, tags)


def row(found: tuple[Any, ...]) -> dict[str, Any]:
    (dt, number), x, some = found
    return {"dt": dt, "id": number, "x": x, "tags": None if some is None else list(some)}


def text(found: dict[str, Any]) -> str:
    """What makes two rows the same: NaN is NaN, -0.0 is not 0.0."""
    return repr(found)


@pytest.mark.long
@pytest.mark.sweep
@law
@given(st.lists(rows, max_size=6), st.lists(st.tuples(rows, st.booleans()), min_size=1, max_size=25), st.data())
def test_every_change_gets_its_kind_and_the_row_that_it_replaces(
    before: list[Any], changes: list[tuple[Any, bool]], data: st.DataObject
) -> None:
    """FL-129, FL-131, FL-138: -U is made by key and repeats are dropped; the state is the table, not the consumer's,
    and a reader that upserts by key needs none of it."""
    state = {each[0]: row(each) for each in before}
    known = pa.Table.from_pylist(list(state.values()), schema=SCHEMA)
    first = data.draw(st.integers(0, len(changes)))
    given_rows = (
        pa.Table.from_pylist([row(each) for each, _ in changes], schema=SCHEMA).combine_chunks().to_batches()[0]
    )
    found_kinds = np.array([RowKind.INSERT if add else RowKind.DELETE for _, add in changes], np.int8)
    given_changes = RowChanges(rows=given_rows, kinds=pa.array(found_kinds), offsets=pa.array(range(len(changes))))

    expected = []
    for offset, (each, add) in enumerate(changes):
        old, new = state.get(each[0]), row(each)
        reported: list[tuple[str, dict[str, Any]]] = []
        if add and old is None:
            reported = [("+I", new)]
        elif add and old is not None and text(old) != text(new):
            reported = [("-U", old), ("+U", new)]
        elif not add and old is not None:
            reported = [("-D", old)]
        if add:
            state[each[0]] = new
        else:
            state.pop(each[0], None)
        if offset >= first:
            expected += [(offset, kind, text(shown)) for kind, shown in reported]

    found = [
        (offset, kind, text(shown))
        for piece in exact_changes(
            known, given_changes, key_names=KEYS, first_offset=first, columns=SCHEMA.names, compared=SCHEMA.names
        )
        for offset, kind, shown in zip(
            piece.offsets.to_pylist(), piece.kind_texts().to_pylist(), piece.rows.to_pylist(), strict=True
        )
    ]
    assert found == expected
