"""The difference of two states of a table, against a comparison of all rows."""

import itertools
import random as randoms
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.diff.table_diff import open_diff, summarized
from filestore.evolution.schema_change import (
    AddColumn,
    ChangeType,
    DropColumn,
    RenameColumn,
    SchemaChange,
    apply_changes,
)
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from filestore.types.data_types import parse_data_type
from lsm.errors import InvalidInputError
from lsm.row_kind import RowKind
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


@pytest.mark.parametrize("waits", [{"deletion-vectors.enabled": "true"}, {"merge-engine": "first-row"}])
@pytest.mark.parametrize("reads_low", ["false", "true"])
def test_rows_that_no_read_shows_before_their_compaction_are_in_no_difference(
    waits: dict[str, str], reads_low: str
) -> None:
    table = key_table(bucket="2", **waits, **{"write-only": "true", "deletion-vectors.merge-on-read": reads_low})
    table.write(rows((1, 1), (2, 2)))
    table.compact(full=True)
    table.write(rows((2, 20), (3, 3)))
    table.compact(full=True)
    states: list[dict[int, int | None]] = [{}]
    states += [content(table, snapshot_id=number) for number in range(1, 5)]
    assert (states[1] == {}) == ("merge-engine" in waits or reads_low == "false")
    for before, after in itertools.product(range(5), range(1, 5)):
        assert diff_changes(table, f"{before}", f"{after}") == compared(states[before], states[after])


def test_rows_without_a_key_came_or_went() -> None:
    table = key_table(primary_key=(), bucket="-1")
    table.write(rows((1, 1), (1, 1)))
    table.write(rows((2, 2)))
    table.overwrite(rows((1, 1)))
    assert diff_changes(table, "1", "2") == [("+I", 2, 2)]
    assert sorted(diff_changes(table, "2", "3")) == [("-D", 1, 1), ("-D", 2, 2)], "one of the equal rows is there still"
    assert (summarized(open_diff(table, "1", "2")).inserted, summarized(open_diff(table, "2", "1")).deleted) == (1, 1)


# ---- columns


def altered(table: FileTable, *steps: SchemaChange) -> FileTable:
    """The table with the next version of its branch's schema."""
    newest = table.store.schemas.latest()
    assert newest is not None
    table.store.schemas.create(apply_changes(newest, steps, time_ms=table.store.clock.now_ms(), has_rows=True))
    return table.on_branch(table.store.paths.branch)


def row_there(table: FileTable, **values: Any) -> None:
    table.write(pa.table({name: [value] for name, value in values.items()}, schema=table.schema.arrow_schema))


def test_columns_are_matched_by_their_ids_and_what_became_of_them_is_told() -> None:
    """Renamed, widened, added and dropped columns: rows have the columns of the later state."""
    table = key_table(bucket="1")
    table.write(rows((1, 1), (2, 2), (3, 3)))
    table = altered(table, RenameColumn(("v",), "w"), AddColumn(path=("x",), type=parse_data_type("STRING")))
    row_there(table, id=2, w=2, x="new")
    row_there(table, id=3, w=4, x=None)
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
    row_there(dev, id=1, v=1, a=7, both=5)
    row_there(main, id=1, v=1, both=5, b=9)
    assert [str(each) for each in open_diff(main, "dev.latest", "latest").columns] == ["added b INT", "dropped a INT"]
    assert diff_changes(main, "dev.latest", "latest") == [("-U", 1, 1, 5, None), ("+U", 1, 1, 5, 9)]


def test_fields_of_a_row_on_two_branches_that_happen_to_have_one_id_are_not_one_field() -> None:
    main = key_table(bucket="1", schema=pa.schema([("id", pa.int64()), ("s", pa.struct([("a", pa.int32())]))]))
    row_there(main, id=1, s={"a": 1})
    create_tag(main.store, "fork")
    dev = altered(with_branch(main, "dev", tag="fork"), AddColumn(path=("s", "x"), type=parse_data_type("INT")))
    main = altered(main, AddColumn(path=("s", "y"), type=parse_data_type("INT")))
    row_there(dev, id=1, s={"a": 1, "x": 7})
    row_there(main, id=1, s={"a": 1, "y": 7})
    before, after = {"a": 1, "y": None}, {"a": 1, "y": 7}
    assert diff_changes(main, "dev.latest", "latest") == [("-U", 1, before), ("+U", 1, after)]


# ---- whatever was compacted

VALUES = {
    "BIGINT": [1, 2**40, None],
    "INT": [1, 7, None],
    "VARCHAR": ["a", "", None],
    "DOUBLE": [0.5, float("nan"), None],
}
WIDER = {"INT": "BIGINT"}


class Evolving:
    """A table whose columns come, go, and change, and what each of its snapshots shows."""

    def __init__(self, random: randoms.Random, *, has_key: bool, file_format: str) -> None:
        self.random, self.has_key, self.names = random, has_key, 0
        schema = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("s", pa.struct([("a", pa.int32())]))])
        options = {"file.format": file_format, "disable-explicit-type-casting": "false"}
        key = ["id"] if has_key else []
        self.table = key_table(schema=schema, primary_key=key, bucket="1" if has_key else "-1", **options)

    def alter(self) -> None:
        columns = [field for field in self.table.schema.fields if field.name not in ("id", "s")]
        nested = self.table.schema.field("s").type.fields
        self.names += 1
        kind = self.random.choice(["add", "drop", "rename", "widen", "nested add", "nested drop", "swap"])
        chosen = self.random.choice(columns) if columns else None
        steps: list[SchemaChange] = []
        if kind == "add" or chosen is None:
            data_type = parse_data_type(self.random.choice(["BIGINT", "INT", "STRING", "DOUBLE"]))
            steps = [AddColumn(path=(f"c{self.names}",), type=data_type)]
        elif kind == "drop":
            steps = [DropColumn((chosen.name,))]
        elif kind == "rename":
            steps = [RenameColumn((chosen.name,), f"c{self.names}")]
        elif kind == "swap":
            steps = [DropColumn((chosen.name,)), AddColumn(path=(chosen.name,), type=parse_data_type("STRING"))]
        elif kind == "widen":
            wider = WIDER.get(chosen.type.root, "STRING" if chosen.type.root == "BIGINT" else None)
            steps = [ChangeType((chosen.name,), parse_data_type(wider))] if wider else []
        elif kind == "nested add":
            steps = [AddColumn(path=("s", f"n{self.names}"), type=parse_data_type("INT"))]
        elif len(nested) > 1:
            steps = [DropColumn(("s", self.random.choice(nested).name))]
        if steps:
            self.table = altered(self.table, *steps)

    def write(self) -> None:
        made = []
        for _ in range(self.random.randint(1, 3)):
            values: dict[str, Any] = {"id": self.random.randint(0, 4)}
            for field in self.table.schema.fields:
                if field.type.root == "ROW":
                    values[field.name] = {each.name: self.random.choice([3, 4, None]) for each in field.type.fields}
                elif field.name != "id":
                    values[field.name] = self.random.choice(VALUES[field.type.root])
            made.append(values)
        self.table.write(pa.Table.from_pylist(made, schema=self.table.schema.arrow_schema))


def shown_there(table: FileTable, version: str) -> tuple[Any, list[dict[str, Any]]]:
    """The columns and rows of a state."""
    read = table.read(version=version)
    return read.table.schema, read.to_arrow().to_pylist()


def as_shown_beside(value: Any, own: Any, other: Any) -> Any:
    """A value of a column, or of a field inside it, as a column of another state shows it; the ids say what is what."""
    if own is None or value is None:
        return None
    if own.root == other.root == "ROW":
        known = {field.id: field for field in own.fields}
        return {
            field.name: None
            if field.id not in known
            else as_shown_beside(value[known[field.id].name], known[field.id].type, field.type)
            for field in other.fields
        }
    return str(value) if other.root == "VARCHAR" else int(value) if own.root == "VARCHAR" else value


def net(one: tuple[Any, Any], two: tuple[Any, Any], *, has_key: bool) -> list[Any]:
    """The oracle: both states whole, as rows of the later one's columns."""
    (schema, rows), (later, after) = one, two
    own = {field.id: field for field in schema.fields}
    before = [
        {
            field.name: as_shown_beside(row[own[field.id].name], own[field.id].type, field.type)
            if field.id in own
            else None
            for field in later.fields
        }
        for row in rows
    ]
    removed, added = Counter(map(repr, before)), Counter(map(repr, after))
    if not has_key:
        return sorted([*((row, "-D") for row in (removed - added).elements()),
                       *((row, "+I") for row in (added - removed).elements())])  # fmt: skip
    olds, news = ({row["id"]: repr(row) for row in rows} for rows in (before, after))
    found = [(row, "-U" if key in news else "-D") for key, row in olds.items() if news.get(key) != row]
    found += [(row, "+U" if key in olds else "+I") for key, row in news.items() if olds.get(key) != row]
    return sorted(found)


@pytest.mark.parametrize("file_format", ["parquet", "avro"])
@pytest.mark.parametrize("has_key", [True, False], ids=["key", "no key"])
@pytest.mark.sweep
def test_a_difference_is_a_function_of_what_both_states_show(has_key: bool, file_format: str) -> None:
    """Not of their files: what a compaction rewrote, and which files still hold a dropped column, does not show."""
    refused: list[str] = []
    for seed in range(6):
        random = randoms.Random(seed)
        history = Evolving(random, has_key=has_key, file_format=file_format)
        for _ in range(6):
            history.write()
            if random.random() < 0.6:
                history.alter()
            if random.random() < 0.3:
                history.table.compact(full=True)
        history.write()
        history.table.compact(full=True)
        table = history.table
        states = {each: shown_there(table, str(each)) for each in table.store.snapshots.ids()}
        newest = max(states)
        for one, two in [(newest - 1, newest), *(random.choices([*states], k=2) for _ in range(15))]:
            try:
                found = open_diff(table, str(one), str(two))
                rows = [
                    (repr(row), RowKind(kind).symbol)
                    for batch, kinds in found.changes()
                    for row, kind in zip(batch.to_pylist(), kinds.to_pylist(), strict=True)
                ]
            except InvalidInputError as error:
                refused.append(str(error))
                continue
            assert sorted(rows) == net(states[one], states[two], has_key=has_key), (seed, one, two)
    assert [each for each in refused if "cannot be read as the column's new type" not in each] == []


@pytest.mark.parametrize("has_key", [True, False], ids=["key", "no key"])
def test_a_widened_column_shows_the_values_of_both_states_in_either_direction(has_key: bool) -> None:
    """It failed with "reopen the table", which did not help, where the earlier state has the narrower type."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.int32())])
    table = key_table(schema=schema, primary_key=["id"] if has_key else [], bucket="1" if has_key else "-1")
    row_there(table, id=1, v=1)
    table = altered(table, ChangeType(("v",), parse_data_type("BIGINT")))
    row_there(table, id=2, v=2**40)
    assert diff_changes(table, "1", "2") == [("+I", 2, 2**40)]
    assert diff_changes(table, "2", "1") == [("-D", 2, 2**40)]
    assert open_diff(table, "2", "1").table.schema.field("v").type.root == "BIGINT"
    table.compact(full=True)
    assert diff_changes(table, "3", "1") == [("-D", 2, 2**40)]


def test_a_shared_file_is_read_only_where_it_shows_another_row_in_one_of_the_states() -> None:
    """A column that was dropped since, and is null in the later state, is; a wider type or another name is not."""
    table = key_table(bucket="1", schema=pa.schema([("id", pa.int64()), ("v", pa.int32()), ("w", pa.int64())]))
    row_there(table, id=1, v=1, w=1)
    table = altered(table, ChangeType(("v",), parse_data_type("BIGINT")), RenameColumn(("v",), "x"))
    row_there(table, id=5, x=5, w=5)
    table = altered(table, DropColumn(("w",)))
    row_there(table, id=9, x=9)

    def opened(before: str, after: str) -> int:
        reading = FaultyFileIO(table.store.io)
        diff_changes(reopened(table, reading), before, after)  # type: ignore[arg-type]
        return sum(line.startswith("open_input") for line in reading.log)

    assert (opened("1", "2"), opened("2", "1"), opened("2", "3")) == (1, 1, 1)
    assert opened("3", "2") == 5  # the first two files on both sides
