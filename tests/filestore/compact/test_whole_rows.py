"""Tables whose compactions look up: of the rows of a key above level 0 that of the lowest level is all of it."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from filestore.evolution.publication import publish_changes
from filestore.evolution.schema_change import SetOption
from filestore.read.split_read import BucketFiles
from filestore.scan.snapshot_files import live_files
from filestore.table import FileTable
from lsm.errors import InvalidInputError
from lsm.merge.merge_function import of_lowest_levels, with_level
from tests.support.changelogs import changelog_changes
from tests.support.tables import key_table, newest_snapshot

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("g", pa.int64())])
ENGINES: Mapping[str, tuple[Mapping[str, str], tuple[int, int]]] = {
    "aggregation": ({"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}, (20, 2)),
    "partial-update": ({"merge-engine": "partial-update"}, (10, 2)),
    "sequence.field": ({"sequence.field": "g"}, (7, 3)),
}


def on_three_levels(**options: str) -> FileTable:
    """A table with versions of the row 1 in its levels 5, 4 and 3."""
    table = key_table(schema=SCHEMA, bucket="1", **{"file.format": "avro", **options})
    patches = options.get("merge-engine") == "partial-update"
    for count, v, g in ((1500, 10, 1), (150, None if patches else 7, 3), (2, None if patches else 3, 2)):
        others = range(2, count)
        rows: dict[str, list[Any]] = {"id": [1, *others], "v": [v, *others], "g": [g, *others]}
        table.write(pa.table(rows, schema=SCHEMA))
        table.compact(full=count == 1500)
    assert {each.file.level for each in live_files(table.store, newest_snapshot(table))} == {3, 4, 5}
    return table


def row_of(table: FileTable) -> tuple[int, int]:
    (row,) = table.read().to_arrow(["v", "g"], "id = 1").to_pylist()
    return row["v"], row["g"]


@pytest.mark.parametrize("looks_up", [{"changelog-producer": "lookup"}, {"force-lookup": "true"}])
@pytest.mark.parametrize("engine", ENGINES)
def test_the_lowest_file_has_the_whole_row(engine: str, looks_up: dict[str, str]) -> None:
    options, expected = ENGINES[engine]
    table = on_three_levels(**options, **looks_up)
    assert row_of(table) == expected
    (lowest,) = [each for each in live_files(table.store, newest_snapshot(table)) if each.file.level == 3]
    files = BucketFiles(table=table.store, partition=lowest.partition, bucket=0, files=[lowest.file])
    (batch,) = files.read(lowest.file, ["v", "g"], with_system=False)
    assert tuple(batch.to_pylist()[0].values()) == expected
    if "changelog-producer" in looks_up:
        emitted = changelog_changes(table, newest_snapshot(table))
        assert emitted[-1][2:] == expected
    table.compact(full=True)
    assert row_of(table) == expected


def test_rows_on_several_levels_are_not_made_whole_or_added_up_by_an_option() -> None:
    whole, added_up = on_three_levels(**ENGINES["aggregation"][0], changelog_producer="lookup"), key_table(bucket="1")
    with pytest.raises(InvalidInputError, match=r"levels=\[3, 4, 5\] changelog-producer=none"):
        publish_changes(whole.store, lambda _: [SetOption("changelog-producer", "none")])
    whole.compact(full=True)
    publish_changes(whole.store, lambda _: [SetOption("changelog-producer", "none")])
    publish_changes(added_up.store, lambda _: [SetOption("changelog-producer", "lookup")])


def test_rows_of_level_0_and_of_the_lowest_level_above_it_count() -> None:
    keys, levels = [1, 1, 1, 1, 2, 2, 3], [0, 4, 0, 3, 5, 2, 5]
    batches = [
        with_level(pa.record_batch({"k": [key], "n": [number], "_VALUE_KIND": pa.array([0], pa.int8())}), level)
        for number, (key, level) in enumerate(zip(keys, levels, strict=True))
    ]
    starts = np.array([True, False, False, False, True, False, True])
    rows, order, firsts = of_lowest_levels(pa.Table.from_batches(batches), np.arange(7), starts)
    assert rows.column("n").take(pa.array(order)).to_pylist() == [0, 2, 3, 5, 6]
    assert firsts.tolist() == [True, False, False, True, True]
