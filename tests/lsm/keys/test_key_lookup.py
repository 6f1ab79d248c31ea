import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lsm.keys.key_lookup import rows_with_keys, sorted_rows_with_keys
from lsm.keys.keys import key_order

TYPES = {
    "int": (pa.int32(), st.integers(0, 5)),
    "text": (pa.string(), st.sampled_from(["", "a", "b"])),
    "double": (pa.float64(), st.sampled_from([0.0, -0.0, 1.5, float("nan")])),
    "flag": (pa.bool_(), st.booleans()),
}


@pytest.mark.sweep
@given(data=st.data(), names=st.lists(st.sampled_from(sorted(TYPES)), min_size=1, max_size=3, unique=True))
def test_the_rows_found_are_those_with_a_key_in_the_list(data: st.DataObject, names: list[str]) -> None:
    """One column or several, of any type that keys have: as a set of tuples finds them."""
    row = st.tuples(*(TYPES[name][1] for name in names))
    some, wanted = data.draw(st.lists(row, max_size=12)), data.draw(st.lists(row, max_size=6, unique_by=repr))
    schema = pa.schema([pa.field(name, TYPES[name][0]) for name in names])
    rows, keys = (
        pa.Table.from_arrays(
            [pa.array([each[i] for each in part], f.type) for i, f in enumerate(schema)], schema=schema
        )
        for part in (some, wanted)
    )
    found = {repr(each) for each in wanted}
    expected = [index for index, each in enumerate(some) if repr(each) in found]
    assert rows_with_keys(rows, keys).tolist() == expected
    ordered, asked = in_order(rows), in_order(keys)
    batch = ordered.combine_chunks().to_batches()[0] if len(ordered) else pa.RecordBatch.from_pylist([], schema=schema)
    assert sorted_rows_with_keys(batch, asked).tolist() == rows_with_keys(ordered, asked).tolist()


def in_order(rows: pa.Table) -> pa.Table:
    """By key, each once."""
    order, starts = key_order([each.combine_chunks() for each in rows.columns], presorted=False)
    return rows.take(pa.array(order[starts])).combine_chunks()
