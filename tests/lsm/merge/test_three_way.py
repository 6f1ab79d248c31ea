"""The three-way merge of sorted rows, against dicts."""

import random
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pytest

from lsm.merge.three_way import KeyDecision, MergeSide, RowsOf, merge_changed, merge_three
from lsm.row_kind import VALUE_KIND_FIELD, RowKind

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.float64()), ("s", pa.string()), VALUE_KIND_FIELD])
NAN = float("nan")
Values = tuple[float | None, str | None]
Content = Mapping[int, Values | None]  # None: a retract


def sorted_run(content: Content, batch_rows: int = 7) -> RowsOf:
    """A sorted run in small batches."""

    def rows() -> Iterator[pa.RecordBatch]:
        ids = sorted(content)
        for start in range(0, len(ids), batch_rows):
            some = ids[start : start + batch_rows]
            values = [content[each] or (None, None) for each in some]
            kinds = [RowKind.DELETE if content[each] is None else RowKind.INSERT for each in some]
            columns = [some, [each[0] for each in values], [each[1] for each in values], [int(each) for each in kinds]]
            yield pa.RecordBatch.from_arrays(
                [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
            )

    return rows


def decided_rows(found: Iterator[pa.Table]) -> list[tuple[int, str, str, str, str | None]]:
    """Key, decision, side, kind and text of each row, in the order given."""
    return [
        (
            row["id"],
            KeyDecision(row["_decision"]).name,
            MergeSide(row["_side"]).name,
            RowKind(row["_VALUE_KIND"]).symbol,
            row["s"],
        )
        for table in found
        for row in table.to_pylist()
    ]


def test_what_each_change_of_a_key_comes_to() -> None:
    """BR-15: kept, applied, removed, and in conflict; with what a writer needs of each."""
    base: Content = {1: (1.0, "a"), 2: (1.0, "a"), 3: (1.0, "a"), 4: (1.0, "a"), 5: (1.0, "a"), 7: (NAN, None)}
    main: Content = {1: (1.0, "a"), 2: (1.0, "m"), 3: (1.0, "a"), 4: (1.0, "m"), 5: (1.0, "x"), 7: (NAN, None), 8: None}
    branch = {
        1: (1.0, "b"),
        2: (1.0, "a"),
        4: (1.0, "b"),
        5: (1.0, "x"),
        6: (1.0, "new"),
        7: (NAN, None),
        8: (1.0, "b"),
    }
    found = decided_rows(merge_three([sorted_run(base)], [sorted_run(main)], [sorted_run(branch)], key_names=["id"]))
    assert found == [
        (1, "APPLY", "MAIN", "-U", "a"), (1, "APPLY", "BRANCH", "+I", "b"),
        (3, "APPLY", "MAIN", "-D", "a"),
        (4, "CONFLICT", "BASE", "+I", "a"), (4, "CONFLICT", "MAIN", "-U", "m"), (4, "CONFLICT", "BRANCH", "+I", "b"),
        (6, "APPLY", "BRANCH", "+I", "new"),
        (8, "APPLY", "MAIN", "+U", None), (8, "APPLY", "BRANCH", "+I", "b"),
    ]  # fmt: skip


def random_content(rng: random.Random, *, retracts: bool) -> Content:
    values = [(None, "a"), (1.0, "a"), (NAN, "a"), (-0.0, None), (0.0, None)]
    every = [*values, *([None] if retracts else [])]
    return {key: rng.choice(every) for key in rng.sample(range(120), rng.randint(0, 120))}


@pytest.mark.parametrize("seed", range(60))
def test_states_against_a_dict(seed: int) -> None:
    """BR-15: 120 keys each time; rows that are kept are the rest of main."""
    rng = random.Random(seed)
    base, main, branch = (random_content(rng, retracts=rng.random() < 0.3) for _ in range(3))
    found = decided_rows(
        merge_three(*split(rng, base, main, branch), key_names=["id"], keeps=True, section_bytes=2_000)
    )
    decided = {key: decision for key, decision, *_ in found}
    for key in range(120):
        was, here, there = (comparable_values(side.get(key)) for side in (base, main, branch))
        expected = "KEEP" if there in (was, here) else "APPLY" if here == was else "CONFLICT"
        assert decided.get(key) == (expected if expected != "KEEP" or here is not None else None)
    assert [row[0] for row in found] == sorted(row[0] for row in found)


@pytest.mark.parametrize("seed", range(30))
def test_changes_against_a_dict(seed: int) -> None:
    """BR-15: without the base every key with two different rows is in doubt."""
    rng = random.Random(seed)
    _, main, branch = (random_content(rng, retracts=True) for _ in range(3))
    _, *sides = split(rng, {}, main, branch)
    decided = {key: decision for key, decision, *_ in decided_rows(merge_changed(*sides, key_names=["id"]))}
    for key in range(120):
        if key not in branch or (key in main and comparable_values(main[key]) == comparable_values(branch[key])):
            assert key not in decided
        else:
            assert decided[key] == ("CONFLICT" if key in main else "APPLY")


def split(rng: random.Random, *sides: Content) -> list[list[Callable[[], Iterator[pa.RecordBatch]]]]:
    """Each side as one or two runs with different keys."""
    found = []
    for side in sides:
        parts: list[dict[int, Values | None]] = [{}, {}]
        for key, value in side.items():
            parts[rng.random() < 0.3][key] = value
        found.append([sorted_run(part) for part in parts if part or rng.random() < 0.5])
    return found


def comparable_values(values: Values | None) -> object:
    """Equal for values that count as equal: NaN is NaN, and -0.0 is not 0.0."""
    return None if values is None else (repr(values[0]), values[1])
