"""The difference of two states of a table, against a comparison of all rows."""

import random as randoms
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.diff.table_diff import open_diff, summarized
from filestore.evolution.schema_change import AddColumn, RenameColumn, SchemaChange, apply_changes
from filestore.maintenance.snapshot_expiry import Retention, expire_snapshots
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from filestore.types.data_types import parse_data_type
from lsm.errors import InvalidInputError
from tests.filestore.refs.test_versions import with_branch
from tests.support.faults import FaultyFileIO
from tests.support.rows import change_tuples
from tests.support.tables import content, key_table, reopened, rows


def diff_changes(table: FileTable, before: str, after: str) -> list[tuple[Any, ...]]:
    return change_tuples(open_diff(table, before, after).changes())


def compared(before: Mapping[int, int | None], after: Mapping[int, int | None]) -> list[tuple[Any, ...]]:
    """The oracle."""
    found: list[tuple[Any, ...]] = []
    for key in sorted({*before, *after}):
        if key not in after:
            found.append(("-D", key, before[key]))
        elif key not in before:
            found.append(("+I", key, after[key]))
        elif before[key] != after[key]:
            found += [("-U", key, before[key]), ("+U", key, after[key])]
    return found


def test_what_differs_between_two_snapshots_tags_and_branches() -> None:
    """The net difference by key: what came and went again is not in it."""
    table = key_table(bucket="1")
    table.write(rows((1, 1), (2, 2), (3, 3)))
    create_tag(table.store, "start")
    branch = with_branch(table, "dev", tag="start")
    branch.write(rows((3, 30), (4, 40)))
    table.write(rows((1, 10), (9, 9)))
    table.write(rows((9, 0)), pa.array(["-D"]))
    table.write(rows((2, 0)), pa.array(["-D"]))
    assert diff_changes(table, "start", "latest") == [("-U", 1, 1), ("+U", 1, 10), ("-D", 2, 2)]
    assert diff_changes(table, "latest", "start") == [("-U", 1, 10), ("+U", 1, 1), ("+I", 2, 2)]
    assert diff_changes(table, "1", "2") == [("-U", 1, 1), ("+U", 1, 10), ("+I", 9, 9)]
    assert diff_changes(table, "dev.latest", "main.latest") == [
        ("-U", 1, 1), ("+U", 1, 10), ("-D", 2, 2), ("-U", 3, 30), ("+U", 3, 3), ("-D", 4, 40),
    ]  # fmt: skip
    assert diff_changes(table, "0", "start") == [("+I", 1, 1), ("+I", 2, 2), ("+I", 3, 3)]
    assert diff_changes(table, "timestamp.1", "start") == diff_changes(table, "0", "start")
    assert diff_changes(table, "3", "3") == []
    with pytest.raises(InvalidInputError, match=r"the empty table can only come first: .*before=1 after=0"):
        open_diff(table, "1", "0")
    list(expire_snapshots(table.store, Retention(min_count=1, max_count=1, age_ms=10**15, limit=9)))
    with pytest.raises(InvalidInputError, match="no such snapshot"):
        open_diff(table, "timestamp.1", "latest")
    assert diff_changes(table, "start", "latest") == [("-U", 1, 1), ("+U", 1, 10), ("-D", 2, 2)]


@pytest.mark.long
@pytest.mark.sweep
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), buckets=st.integers(1, 3), engine=st.sampled_from(["deduplicate", "aggregation"]))
def test_any_two_states_of_any_history(seed: int, buckets: int, engine: str) -> None:
    """Also over a branch, compactions, deletes and merge engines that fold; the oracle reads both states whole."""
    random = randoms.Random(seed)
    options = {"merge-engine": engine} | ({"fields.v.aggregate-function": "sum"} if engine == "aggregation" else {})
    table = key_table(bucket=str(buckets), **{"num-sorted-run.compaction-trigger": "3"}, **options)
    here = table
    for _ in range(random.randint(2, 9)):
        here.write(rows(*((key, random.randint(0, 3)) for key in random.sample(range(12), random.randint(1, 6)))))
        if engine == "deduplicate" and random.random() < 0.3:
            here.write(rows((random.randint(0, 11), 0)), pa.array(["-D"]))
        if random.random() < 0.3:
            here.compact(full=random.random() < 0.5)
        if random.random() < 0.3 and not table.store.io.list_names(table.store.paths.branch_dir):
            create_tag(table.store, "fork")
            here = with_branch(table, "dev", tag="fork")
    places = [str(each) for each in table.store.snapshots.ids()]
    if here is not table:
        places += ["fork", *(f"dev.{each}" for each in here.store.snapshots.ids())]
    one, two = random.choice(places), random.choice(places)
    expected = compared(content(table, version=one), content(table, version=two))
    assert sorted(diff_changes(table, one, two)) == sorted(expected)
    summary = summarized(open_diff(table, one, two))
    kinds = [change[0] for change in expected]
    assert (summary.inserted, summary.deleted) == (kinds.count("+I"), kinds.count("-D"))
    assert summary.updated == kinds.count("+U") == summary.changed_values["v"]


def test_files_that_both_states_share_are_not_read() -> None:
    """The cost grows with what changed: a bucket, or a range of keys, that nobody touched is not opened."""
    table = key_table(bucket="1", **{"num-sorted-run.compaction-trigger": "9"})
    table.write(rows((1, 1), (2, 2)))
    table.write(rows((5, 5)))
    reading = FaultyFileIO(table.store.io)
    assert diff_changes(reopened(table, reading), "1", "2") == [("+I", 5, 5)]  # type: ignore[arg-type]
    opened = [line for line in reading.log if line.startswith("open_input")]
    assert len(opened) == 1


def test_rows_without_a_key_came_or_went() -> None:
    table = key_table(primary_key=(), bucket="-1")
    table.write(rows((1, 1), (1, 1)))
    table.write(rows((2, 2)))
    table.overwrite(rows((1, 1)))
    assert diff_changes(table, "1", "2") == [("+I", 2, 2)]
    assert sorted(diff_changes(table, "2", "3")) == [("+I", 1, 1), ("-D", 1, 1), ("-D", 1, 1), ("-D", 2, 2)]
    assert (summarized(open_diff(table, "1", "2")).inserted, summarized(open_diff(table, "2", "1")).deleted) == (1, 1)


# ---- columns


def altered(table: FileTable, *steps: SchemaChange) -> FileTable:
    """The table with the next version of its branch's schema."""
    newest = table.store.schemas.latest()
    assert newest is not None
    table.store.schemas.create(apply_changes(newest, steps, time_ms=table.store.clock.now_ms(), has_rows=True))
    return table.on_branch(table.store.paths.branch)


def row(table: FileTable, **values: Any) -> None:
    table.write(pa.table({name: [value] for name, value in values.items()}, schema=table.schema.arrow_schema))


def test_columns_are_matched_by_their_ids_and_what_became_of_them_is_told() -> None:
    """Renamed, widened, added and dropped columns: rows have the columns of the later state."""
    table = key_table(bucket="1")
    table.write(rows((1, 1), (2, 2), (3, 3)))
    table = altered(table, RenameColumn(("v",), "w"), AddColumn(path=("x",), type=parse_data_type("STRING")))
    row(table, id=2, w=2, x="new")
    row(table, id=3, w=4, x=None)
    diff = open_diff(table, "1", "latest")
    assert [str(each) for each in diff.columns] == ["renamed v to w", "added x STRING"]
    assert diff_changes(table, "1", "latest") == [
        ("-U", 2, 2, None), ("+U", 2, 2, "new"), ("-U", 3, 3, None), ("+U", 3, 4, None),
    ]  # fmt: skip
    assert summarized(diff).changed_values == {"x": 1, "w": 1}
    assert [str(each) for each in open_diff(table, "latest", "1").columns] == ["renamed w to v", "dropped x STRING"]
    assert diff_changes(table, "latest", "1") == [("-U", 3, 4), ("+U", 3, 3)]


def test_columns_of_two_branches_that_happen_to_have_one_id_are_not_one_column() -> None:
    """After branches have parted, each counts ids on by itself: name and type decide then."""
    main = key_table(bucket="1")
    main.write(rows((1, 1)))
    create_tag(main.store, "fork")
    dev = altered(with_branch(main, "dev", tag="fork"), AddColumn(path=("a",), type=parse_data_type("INT")))
    dev = altered(dev, AddColumn(path=("both",), type=parse_data_type("INT")))
    main = altered(main, AddColumn(path=("both",), type=parse_data_type("INT")))
    main = altered(main, AddColumn(path=("b",), type=parse_data_type("INT")))
    row(dev, id=1, v=1, a=7, both=5)
    row(main, id=1, v=1, both=5, b=9)
    assert [str(each) for each in open_diff(main, "dev.latest", "latest").columns] == ["added b INT", "dropped a INT"]
    assert diff_changes(main, "dev.latest", "latest") == [("-U", 1, 1, 5, None), ("+U", 1, 1, 5, 9)]
