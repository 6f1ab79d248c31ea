"""The merge of sorted runs."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm.keys.keys import comparable, internal_value, key_order
from lsm.merge.merge import RunSource, merge_runs
from lsm.merge.merge_function import Deduplicate
from lsm.row_kind import SEQUENCE_NUMBER, VALUE_KIND
from tests.lsm.key_columns import KEY_TYPES
from tests.lsm.stories import emitted_changes, source_of, story_batch

LAWS = settings(max_examples=150, deadline=None, derandomize=True)
NAMES = ["a", "b"]


def run(*keys: int, number: int = 0, batch_rows: int = 1000) -> list[pa.RecordBatch]:
    """A sorted run whose rows all have one sequence number."""
    changes = [("+I", number, {"k": key, "a": number}) for key in keys]
    return [story_batch(changes[index : index + batch_rows]) for index in range(0, len(keys), batch_rows)]


def merge(*runs: list[pa.RecordBatch], **section: int) -> list[pa.Table]:
    sources = [source_of(batches) for batches in runs]
    return list(merge_runs(sources, key_names=["k"], merge=Deduplicate(), drop_deletes=True, **section))


def keys_of(tables: list[pa.Table]) -> list[int]:
    return [key for table in tables for key in table.column("k").to_pylist()]


def test_no_runs_give_nothing() -> None:
    assert merge() == []
    assert merge([]) == []
    assert merge([story_batch([])], run(1)) == merge(run(1))


def test_a_run_alone_passes_through_batch_by_batch() -> None:
    batches = run(1, 2, 3, 4, batch_rows=2)
    assert [table.to_batches() for table in merge(batches)] == [[batches[0]], [batches[1]]]


def test_a_run_passes_through_where_no_other_has_keys() -> None:
    tables = merge(run(1, 2, 3, 4, 9), run(4, 5, number=1))
    assert [table.column("k").to_pylist() for table in tables] == [[1, 2, 3], [4, 5, 9]]


def test_a_run_is_opened_when_its_keys_are_reached() -> None:
    opened: list[int] = []

    def late(first: int) -> RunSource:
        def batches() -> Iterator[pa.RecordBatch]:
            opened.append(first)
            yield from run(first, first + 1)

        return RunSource(min_key=(first,), open=batches)

    tables = merge_runs([late(30), late(10), late(20)], key_names=["k"], merge=Deduplicate(), drop_deletes=True)
    seen = [(table.column("k").to_pylist(), list(opened)) for table in tables]
    assert seen == [([10, 11], [10]), ([20, 21], [10, 20]), ([30, 31], [10, 20, 30])]


def test_a_section_is_no_larger_than_asked_for_however_large_the_batches_are() -> None:
    even, odd = run(*range(0, 2000, 2)), run(*range(1, 2000, 2))
    tables = merge(even, odd, section_rows=100)
    assert keys_of(tables) == list(range(2000))
    assert max(len(table) for table in tables) <= 200


def test_a_section_may_end_in_a_later_batch_of_a_run() -> None:
    tables = merge(run(0) + run(*range(1, 1000)), run(0, 5000, number=1), section_rows=100)
    assert keys_of(tables) == [*range(1000), 5000]
    assert len(tables[0]) <= 100


def test_small_batches_are_gathered_into_sections() -> None:
    even, odd = run(*range(0, 2000, 2), batch_rows=10), run(*range(1, 2000, 2), batch_rows=10)
    tables = merge(even, odd, section_rows=500)
    assert keys_of(tables) == list(range(2000))
    assert len(tables) <= 8


def test_no_more_is_read_than_a_section_and_a_batch_of_each_run() -> None:
    """Bounded memory: what has been read and not yet given out stays within the section and one batch per run."""
    read = 0

    def counted(batches: list[pa.RecordBatch]) -> RunSource:
        def rows() -> Iterator[pa.RecordBatch]:
            nonlocal read
            for batch in batches:
                read += batch.num_rows
                yield batch

        return RunSource(min_key=(0,), open=rows)

    runs = [counted(run(*range(0, 5000, step), number=step, batch_rows=50)) for step in (1, 2, 3, 5, 50)]
    given_out = 0
    tables = merge_runs(runs, key_names=["k"], merge=Deduplicate(), drop_deletes=True, section_rows=400)
    for table in tables:
        given_out = max(table.column("k").to_pylist())
        consumed = sum(given_out // step + 1 for step in (1, 2, 3, 5, 50))
        assert read - consumed <= 400 + 5 * 50
    assert given_out == 4999


def test_a_run_may_turn_out_to_have_no_rows() -> None:
    empty = RunSource(min_key=(2,), open=lambda: iter([story_batch([])]))
    sources = [source_of(run(1, 2, 3)), empty, source_of(run(3, 4, number=1))]
    tables = merge_runs(sources, key_names=["k"], merge=Deduplicate(), drop_deletes=True)
    assert keys_of(list(tables)) == [1, 2, 3, 4]


def test_a_table_without_rows_is_not_given() -> None:
    adds, deletes = run(1, 2), [story_batch([("-D", 1, {"k": key}) for key in (1, 2)])]
    assert merge(adds, deletes) == []
    assert merge(deletes) == []


def test_values_of_equal_keys_meet_across_sections() -> None:
    tables = merge(run(*range(50), batch_rows=7), run(*range(50), number=1, batch_rows=3), section_rows=5)
    assert keys_of(tables) == list(range(50))
    assert {values["a"] for _, _, values in emitted_changes(tables)} == {1}


@pytest.mark.parametrize("number", [0, 2])
def test_the_order_of_runs_does_not_matter(number: int) -> None:
    left, right = run(1, 2, 3, number=1), run(2, 3, 4, number=number)
    assert emitted_changes(merge(left, right)) == emitted_changes(merge(right, left))


@pytest.mark.sweep
@LAWS
@given(st.data())
def test_a_merge_equals_a_dictionary(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(sorted(KEY_TYPES)), min_size=1, max_size=2))
    one_key = st.tuples(*(KEY_TYPES[name][1] for name in types))
    pool = data.draw(st.lists(one_key, min_size=1, max_size=40))
    descending, with_field = data.draw(st.booleans()), data.draw(st.booleans())
    drop_deletes = data.draw(st.booleans())
    fields = [pa.field(name, KEY_TYPES[kind][0]) for name, kind in zip(NAMES, types, strict=False)]
    schema = pa.schema(
        [*fields, ("v", pa.int32()), ("g", pa.int32()), (SEQUENCE_NUMBER, pa.int64()), (VALUE_KIND, pa.int8())]
    )
    newest: dict[tuple[Any, ...], tuple[tuple[Any, ...], int, int]] = {}
    sources = []
    value = 0
    for index in range(data.draw(st.integers(1, 5))):
        columns = [pa.array(values, field.type) for values, field in zip(zip(*pool, strict=True), fields, strict=True)]
        order, starts = key_order(columns, presorted=False)
        wanted = data.draw(st.lists(st.booleans(), min_size=len(order), max_size=len(order)))
        rows = []
        for row in (int(row) for row, new, take in zip(order, starts, wanted, strict=True) if new and take):
            value += 1
            field = data.draw(st.sampled_from([None, 1, 2]))
            number = data.draw(st.sampled_from([index, index, 0]))
            kind = data.draw(st.integers(0, 3))
            rows.append((*pool[row], value, field, number, kind))
            rank = 0 if field is None else (-field if descending else field)
            age = ((field is not None, rank) if with_field else (), number, kind % 2 == 0, index)
            key = tuple(comparable(internal_value(column[row])) for column in columns)
            newest[key] = max(newest.get(key, (((), -1, False, -1), 0, 0)), (age, value, kind))
        run_rows = pa.Table.from_arrays(
            [pa.array(list(values), field.type) for values, field in zip(zip(*rows, strict=True), schema, strict=True)]
            if rows
            else [pa.array([], field.type) for field in schema],
            schema=schema,
        )
        batches = run_rows.to_batches(max_chunksize=data.draw(st.sampled_from([1, 4, 1000])))
        first = [column[order[0]] for column in columns]
        keyed = rows and data.draw(st.booleans())
        min_key = tuple(comparable(internal_value(scalar)) for scalar in first) if keyed else None
        sources.append(RunSource(min_key=min_key, open=lambda batches=batches: iter(batches)))
    tables = merge_runs(
        sources,
        key_names=[field.name for field in fields],
        merge=Deduplicate(),
        sequence_names=["g"] if with_field else [],
        sequence_descending=descending,
        drop_deletes=drop_deletes,
        section_rows=data.draw(st.sampled_from([1, 8, 1000])),
    )
    found = [number for table in tables for number in table.column("v").to_pylist()]
    assert found == [newest[key][1] for key in sorted(newest) if not (drop_deletes and newest[key][2] % 2)]


@pytest.mark.sweep
@LAWS
@given(
    st.lists(st.lists(st.integers(0, 200), max_size=60), min_size=1, max_size=6),
    st.integers(1, 3000),
    st.integers(1, 30),
)
def test_sections_by_bytes_merge_to_the_same_rows(keys: list[list[int]], section_bytes: int, batch: int) -> None:
    """FL-144: the memory that a merge gets decides how it is cut, not what it yields."""
    runs = [run(*sorted(set(each)), number=number * 1000, batch_rows=batch) for number, each in enumerate(keys)]
    whole = merge(*runs)
    cut = merge(*runs, section_bytes=section_bytes)
    assert [row for table in cut for row in table.to_pylist()] == [row for table in whole for row in table.to_pylist()]


def test_a_section_has_as_many_rows_as_its_bytes_allow() -> None:
    runs = [run(*range(1000), number=number, batch_rows=50) for number in range(4)]
    row_bytes = runs[0][0].nbytes / 50
    tables = merge(*runs, section_bytes=round(400 * row_bytes))
    assert max(table.num_rows for table in tables) <= 300
    assert sum(table.num_rows for table in tables) == 1000
