"""Changes to a table, applied one by one, and what a merge makes of them."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa

from lsm.keys.keys import key_at
from lsm.merge.merge import RunSource, merge_runs
from lsm.merge.merge_function import MergeFunction
from lsm.row_kind import SEQUENCE_NUMBER, SEQUENCE_NUMBER_FIELD, VALUE_KIND, VALUE_KIND_FIELD, RowKind

Change = tuple[str, int, dict[str, Any]]
"""(kind symbol, sequence number, values); the key column is `k`, 1 unless said otherwise."""

KIND_OF_SYMBOL = {kind.symbol: int(kind) for kind in RowKind}
COLUMNS: Mapping[str, pa.DataType] = {"a": pa.int32(), "b": pa.string(), "g": pa.int32()}


def schema_of(columns: Mapping[str, pa.DataType]) -> pa.Schema:
    """Key, value columns, and what the tree adds."""
    fields = [pa.field(name, kind) for name, kind in columns.items()]
    return pa.schema([pa.field("k", pa.int64(), nullable=False), *fields, SEQUENCE_NUMBER_FIELD, VALUE_KIND_FIELD])


def story_batch(changes: Sequence[Change], columns: Mapping[str, pa.DataType] = COLUMNS) -> pa.RecordBatch:
    """The changes as rows, in the order given."""
    rows = [
        {"k": 1} | values | {SEQUENCE_NUMBER: number, VALUE_KIND: KIND_OF_SYMBOL[symbol]}
        for symbol, number, values in changes
    ]
    return pa.RecordBatch.from_pylist(rows, schema_of(columns))


def source_of(batches: Sequence[pa.RecordBatch]) -> RunSource:
    """A run that is given its first key."""
    first = next((batch for batch in batches if batch.num_rows), None)
    return RunSource(min_key=key_at([first.column("k")], 0) if first else None, open=lambda: iter(batches))


def emitted_changes(tables: Sequence[pa.Table]) -> list[Change]:
    """Rows back as changes, without the key if it is 1."""
    changes = []
    for row in (row for table in tables for row in table.to_pylist()):
        values = {name: value for name, value in row.items() if name not in (SEQUENCE_NUMBER, VALUE_KIND)}
        if values["k"] == 1:
            del values["k"]
        changes.append((RowKind(row[VALUE_KIND]).symbol, row[SEQUENCE_NUMBER], values))
    return changes


def merged(
    changes: Sequence[Change],
    merge: MergeFunction,
    *,
    columns: Mapping[str, pa.DataType] = COLUMNS,
    sequence_names: Sequence[str] = (),
    sequence_descending: bool = False,
    drop_deletes: bool = True,
) -> list[Change]:
    """What is read when every change lies in a file of its own, as in the golden tables."""
    # Without a smallest key every run is open from the start, so that all keys are merged together, not one by one.
    runs = [[story_batch([change], columns)] for change in changes]
    tables = merge_runs(
        [RunSource(min_key=None, open=partial(iter, run)) for run in runs],
        key_names=["k"],
        merge=merge,
        sequence_names=sequence_names,
        sequence_descending=sequence_descending,
        drop_deletes=drop_deletes,
    )
    return emitted_changes(list(tables))


def values_of(changes: Sequence[Change]) -> list[dict[str, Any]]:
    """The values alone."""
    return [values for _, _, values in changes]


def random_story(seed: int, values: Mapping[str, Callable[[Random], Any]]) -> list[Change]:
    """Up to 15 changes of up to 4 keys, a third of the values null, a third of the rows retracts."""
    random = Random(seed)
    key_count = random.randint(1, 4)
    story: list[Change] = []
    for number in range(random.randint(1, 15)):
        row = {name: None if random.random() < 0.33 else draw(random) for name, draw in values.items()}
        symbol = random.choice(["+I", "+I", "+U", "+U", "-U", "-D"])
        story.append((symbol, number, {"k": random.randint(2, key_count + 1)} | row))
    return story


def rows_by_key(story: Sequence[Change]) -> dict[int, list[tuple[str, dict[str, Any]]]]:
    """(kind, values without the key) of every key, oldest first, smallest key first."""
    found: dict[int, list[tuple[str, dict[str, Any]]]] = {key: [] for key in sorted({row["k"] for _, _, row in story})}
    for symbol, _, row in story:
        found[row["k"]].append((symbol, {name: value for name, value in row.items() if name != "k"}))
    return found
