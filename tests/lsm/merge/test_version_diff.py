"""Changes of many versions in one merge, against a dictionary that goes through them one by one."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.merge.version_diff import diff_versions
from lsm.row_kind import SEQUENCE_NUMBER, VALUE_KIND, VALUE_KIND_FIELD, RowKind

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.float64())])
Version = Mapping[int, tuple[str, float | None]]
KINDS = {kind.symbol: kind for kind in RowKind}

kinds = st.sampled_from(["+I", "+U", "-D", "-U"])
values = st.sampled_from([None, 0.0, -0.0, 1.5])
versions_of_keys = st.dictionaries(st.integers(0, 9), st.tuples(kinds, values), max_size=6)


def batches(found: Version, batch_rows: int) -> list[pa.RecordBatch]:
    keys = sorted(found)
    columns = [
        pa.array(keys, pa.int64()),
        pa.array([found[key][1] for key in keys], pa.float64()),
        pa.array([KINDS[found[key][0]] for key in keys], pa.int8()),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA.append(VALUE_KIND_FIELD)).to_batches(max_chunksize=batch_rows)


def version_changes(
    base: Mapping[int, float | None], versions: list[Version], batch_rows: int = 3
) -> list[tuple[Any, ...]]:
    whole = {key: ("+I", value) for key, value in base.items()}
    tables = diff_versions(
        lambda: (batch.select(SCHEMA.names) for batch in batches(whole, batch_rows)),
        [partial(iter, batches(each, batch_rows)) for each in versions],
        key_names=["k"],
        section_bytes=64,
    )
    return [
        (row[SEQUENCE_NUMBER], RowKind(row[VALUE_KIND]).symbol, row["k"], repr(row["v"]))
        for table in tables
        for row in table.to_pylist()
    ]


def test_a_delete_has_the_row_that_it_removes() -> None:
    found = version_changes({1: 1.0, 2: 2.0}, [{1: ("+U", 1.5), 3: ("+I", 3.0)}, {1: ("-D", None), 9: ("-D", 0.0)}])
    assert found == [
        (0, "-U", 1, "1.0"), (0, "+U", 1, "1.5"), (1, "-D", 1, "1.5"), (0, "+I", 3, "3.0"),
    ]  # fmt: skip


@pytest.mark.sweep
@settings(max_examples=150, deadline=None)
@given(
    base=st.dictionaries(st.integers(0, 9), values, max_size=8),
    versions=st.lists(versions_of_keys, max_size=5),
    batch_rows=st.integers(1, 4),
)
def test_every_version_changes_what_the_one_before_left(
    base: dict[int, float | None], versions: list[Version], batch_rows: int
) -> None:
    state, expected = dict(base), []
    for number, version in enumerate(versions):
        for key, (kind, value) in version.items():
            is_add, was_there, old = kind in ("+I", "+U"), key in state, repr(state.get(key))
            if is_add and not was_there:
                expected.append((number, "+I", key, repr(value)))
            elif is_add and old != repr(value):
                expected += [(number, "-U", key, old), (number, "+U", key, repr(value))]
            elif not is_add and was_there:
                expected.append((number, "-D", key, old))
            if is_add:
                state[key] = value
            else:
                state.pop(key, None)
    found = version_changes(base, versions, batch_rows)
    assert sorted(found, key=lambda each: (each[2], each[0])) == found, "by key, and then by version"
    assert sorted(found, key=repr) == sorted(expected, key=repr)
