"""Tables without a key whose rows come and go, against a Counter over random histories."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from filestore.changelog.snapshot_changes import plan_changes, plan_diff, read_changes, read_whole
from filestore.diff.table_diff import open_diff, summarized
from filestore.evolution.schema_change import AddColumn, ChangeType, DropColumn, RenameColumn, SchemaChange, SetOption
from filestore.maintenance.rewriting import rescale
from filestore.scan.live_files import LiveFiles
from filestore.schema.row_counts import HIDDEN_NAMES, repeated, signed
from filestore.table import FileTable
from filestore.types.data_types import parse_data_type
from lsm.errors import InvalidInputError
from lsm.row_kind import RowKind
from tests.support.rows import write_changes
from tests.support.tables import check_metadata, memory_catalog, stored_rows

SCHEMA = pa.schema([("p", pa.string()), ("n", pa.int32()), ("s", pa.list_(pa.string()))])
EXAMPLES = int(os.environ.get("FLUVIAL_MODEL_EXAMPLES", "8"))
Row = tuple[Any, ...]
Counts = Counter[Row]


def counted_table(
    schema: pa.Schema = SCHEMA, *, partition_by: Sequence[str] = (), io: Any = None, **options: str
) -> FileTable:
    texts = {"row-counts": "true", **{key.replace("_", "-"): text for key, text in options.items()}}
    return memory_catalog(io).create_table("db.t", schema, partition_by=partition_by, options=texts)


def row_of(values: Mapping[str, Any]) -> Row:
    return tuple(tuple(value) if isinstance(value, list) else value for value in values.values())


def write_counted(table: FileTable, changes: Iterable[tuple[str, Row]]) -> None:
    """Commit rows with their kinds."""
    write_changes(table, *((kind, *row) for kind, row in changes))


def counted_rows(table: FileTable, **how: Any) -> Counts:
    return Counter(row_of(row) for row in table.read().to_arrow(**how).to_pylist())


def summed_changes(changes: Iterable[tuple[pa.RecordBatch, pa.Array]]) -> Counts:
    """What changes sum up to; no row is reported with two signs."""
    found: Counts = Counter()
    for rows, kinds in changes:
        assert rows.num_rows == len(kinds) > 0
        assert set(kinds.to_pylist()) <= {RowKind.INSERT, RowKind.DELETE}
        for row, kind in zip(rows.to_pylist(), kinds.to_pylist(), strict=True):
            found[row_of(row)] += 1 if kind == RowKind.INSERT else -1
    return found


def is_sum(counts: Counts, expected: Counts) -> bool:
    return {row: n for row, n in counts.items() if n} == {row: n for row, n in expected.items() if n}


VALUES = st.tuples(st.sampled_from("ab"), st.none() | st.integers(0, 2), st.sampled_from([None, (), ("x", None)]))
CHANGES = st.lists(st.tuples(st.sampled_from(["+I", "+I", "-D", "+U", "-U"]), VALUES), min_size=1, max_size=12)
STEPS = st.lists(CHANGES | st.sampled_from(["compact", "full", "rescale"]), min_size=1, max_size=7)
SHAPES: list[tuple[Sequence[str], Mapping[str, str]]] = [
    ((), {}),
    (("p",), {"bucket": "2"}),
    ((), {"bucket": "3", "row-counts.index-key": "p", "num-sorted-run.compaction-trigger": "2"}),
]


@pytest.mark.sweep
@pytest.mark.parametrize("shape", SHAPES, ids=["plain", "partitioned", "indexed"])
@given(steps=STEPS, wanted=st.integers(0, 2))
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_history_of_rows_is_a_counter(
    shape: tuple[Sequence[str], Mapping[str, str]], steps: list[Any], wanted: int
) -> None:
    """FL-05, FL-06, FL-184, FL-185: any changelog without a key; reads, streams and differences at every snapshot."""
    table = counted_table(partition_by=shape[0], **shape[1])
    counts: Counts = Counter()
    states: dict[int, Counts] = {}
    streamed: Counts = Counter()
    previous = None
    for step in steps:
        if step == "rescale":
            before = table
            table = table.with_options({"bucket": str(table.options.bucket % 3 + 1)})
            rescale(before.store, table.store, keep=lambda _: True)
        elif isinstance(step, str):
            table.compact(full=step == "full")
        else:
            write_counted(table, step)
            for kind, row in step:
                counts[row] += 1 if kind[0] == "+" else -1
        visible = +counts
        assert counted_rows(table) == visible
        chosen = Counter({row: n for row, n in visible.items() if row[1] is not None and row[1] >= wanted})
        assert counted_rows(table, filter=f"n >= {wanted}") == chosen
        assert table.read().to_arrow(columns=[]).num_rows == visible.total()
        assert table.read().to_arrow(columns=["s", "n"]).column_names == ["s", "n"]
        latest = table.store.snapshots.latest()
        while latest is not None and (previous is None or previous.id < latest.id):
            following = table.store.snapshots.read(1 if previous is None else previous.id + 1)
            for split in plan_changes(table.store, previous, following):
                for row, n in summed_changes(read_changes(table, split)).items():
                    streamed[row] += n
            previous = following
        assert is_sum(streamed, counts)
        if latest is not None:
            states[latest.id] = counts.copy()
            whole = (read_whole(table, split) for split in table.new_scan().plan().splits)
            assert is_sum(summed_changes(change for each in whole for change in each), counts)
    check_metadata(table)
    for before_id, old in states.items():
        for after_id, new in states.items():
            splits = plan_diff(table.store, table.store.snapshots.read(before_id), table.store.snapshots.read(after_id))
            found = summed_changes(change for split in splits for change in read_changes(table, split))
            change = new.copy()
            change.subtract(old)
            assert is_sum(found, change)


def test_users_see_their_columns_only() -> None:
    """FL-06: hash and count are in no schema, read or batch that a user gets; files have them."""
    table = counted_table()
    write_counted(table, [("+I", ("a", 1, None))] * 3)
    assert table.schema.column_names == ("p", "n", "s")
    assert table.schema.primary_keys == ()
    assert table.read().to_arrow().column_names == ["p", "n", "s"]
    assert set(table.schema.options) == {"row-counts", "bucket", "file.format", "data-file.thin-mode"}
    (stored,) = stored_rows(table.store).to_pylist()
    assert stored.keys() == {"p", "n", "s", *HIDDEN_NAMES}
    assert stored["_row_count"] == 3
    with pytest.raises(InvalidInputError, match="unknown column"):
        table.read().to_arrow(filter="_row_count > 1")
    assert table.at_schema(0).schema == table.schema
    assert table.with_options({"write-only": "true"}).store.schema.primary_keys == HIDDEN_NAMES[:2]


def test_a_delete_before_its_row_takes_the_row_away_when_it_comes() -> None:
    """FL-184: a count below nothing reads as none, stays stored through compaction, and streams get it."""
    table = counted_table()
    write_counted(table, [("-D", ("a", 1, None))] * 2)
    table.compact(full=True)
    assert counted_rows(table) == Counter()
    (split,) = table.new_scan().plan().splits
    assert summed_changes(read_whole(table, split)) == {("a", 1, None): -2}
    write_counted(table, [("+I", ("a", 1, None))] * 3)
    table.compact(full=True)
    assert counted_rows(table) == {("a", 1, None): 1}


def test_counts_of_nothing_go_with_a_full_compaction() -> None:
    """FL-184: rows that came and went take no place once nothing older is left."""
    table = counted_table()
    write_counted(table, [("+I", ("a", n, None)) for n in range(5)])
    write_counted(table, [("-D", ("a", n, None)) for n in range(4)])
    table.compact(full=True)
    live = LiveFiles.latest(table.store)
    assert [file.row_count for key in live.buckets() for file in live.files(key)] == [1]


def test_a_row_that_is_there_very_often_is_read_in_pieces() -> None:
    """FL-184: memory follows the batch, not the count; a change of a count is reported by what it changed."""
    schema = pa.schema([("n", pa.int64()), ("_row_count", pa.int64())])

    def batch(*pairs: tuple[int, int]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist([{"n": n, "_row_count": c} for n, c in pairs], schema=schema)

    pieces = list(repeated([batch((1, 200_000), (2, 0), (3, -5), (4, 3))]))
    assert max(len(piece) for piece in pieces) <= 65_536
    assert Counter(n for piece in pieces for n in piece.column("n").to_pylist()) == {1: 200_000, 4: 3}
    before, after = pa.array([1], pa.int8()), pa.array([2], pa.int8())
    split_pair = [(batch((1, 1_000_000)), before), (batch((1, 1_000_001)), after)]
    ((rows, kinds),) = signed(iter(split_pair), is_difference=True)
    assert (rows.to_pylist(), kinds.to_pylist()) == ([{"n": 1}], [RowKind.INSERT])


def test_an_index_key_sorts_and_prunes_files() -> None:
    """FL-185: rows lie by the index columns, and a filter on them leaves out files and buckets."""
    schema = pa.schema([pa.field("k", pa.int64()), ("v", pa.string())])
    table = counted_table(schema, **{"row-counts.index-key": "k", "bucket-key": "k", "bucket": "4"})
    for start in (0, 1000):
        write_counted(table, [("+I", (k, f"v{k % 3}")) for k in range(start, start + 1000)])
        table.compact(full=True)
    assert table.schema.field("k").type.nullable is False
    read = table.read()
    assert len({split.bucket for split in read.plan("k = 7").splits}) == 1
    keys = read.to_arrow(columns=["k"], filter="k >= 990 and k < 1010").column("k").to_pylist()
    assert sorted(keys) == list(range(990, 1010))
    write_counted(table, [("+I", (5000, "x"))])
    assert len(table.read().plan("k = 5000").splits[0].files) == 1
    with pytest.raises(InvalidInputError, match="column=k"):
        table.write(pa.table({"k": pa.array([None], pa.int64()), "v": ["x"]}))


@pytest.mark.parametrize(
    ("options", "more", "message"),
    [
        ({}, {"primary_key": ["n"]}, "rows with a key are there once"),
        ({"rowkind.field": "p"}, {}, "_row_kind"),
        ({"bucket": "-1"}, {}, "one bucket"),
        ({"deletion-vectors.enabled": "true"}, {}, "summed by readers"),
        ({"log.format": "json"}, {}, "debezium-json"),
        ({"ignore-update-before": "true"}, {}, "counted permanently"),
        ({"ignore-delete": "true"}, {}, "counted permanently"),
        ({"ignore-delete": " true"}, {}, "counted permanently"),
        ({"ignore-delete": "TRUE "}, {}, "counted permanently"),
        ({"deletion-vectors.enabled": " true"}, {}, "summed by readers"),
        ({"log.format": " JSON"}, {}, "debezium-json"),
        ({"fields.n.aggregate-function": "sum"}, {}, "not folded"),
        ({"merge-engine": "first-row"}, {}, "needs a primary key"),
        ({"changelog-producer": "lookup"}, {}, "needs a primary key"),
        ({"row-counts.index-key": "x"}, {}, "column=x"),
        ({"row-counts.index-key": "p"}, {"partition_by": ["p"]}, "partition columns"),
        ({"row-counts.index-key": "s"}, {}, "type cannot be used here"),
        ({"bucket-key": "n"}, {}, "part of the primary key"),
        ({"row-counts": "maybe"}, {}, "row-counts"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, str], more: dict[str, Any], message: str) -> None:
    """FL-06: a table either has a key or counts its rows, and says so at once."""
    with pytest.raises(InvalidInputError, match=message):
        memory_catalog().create_table("db.t", SCHEMA, options={"row-counts": "true", **options}, **more)


def test_hidden_names_are_reserved_in_such_tables() -> None:
    """FL-184: a user's column cannot hide behind a hidden one."""
    schema = pa.schema([("_row_count", pa.int64())])
    with pytest.raises(InvalidInputError, match="reserved"):
        memory_catalog().create_table("db.t", schema, options={"row-counts": "true"})
    memory_catalog().create_table("db.t", schema)


def test_rows_keep_being_the_same_rows_when_columns_come() -> None:
    """FL-184: after ADD and RENAME COLUMN a delete still finds the row that was written before."""
    catalog = memory_catalog()
    table = catalog.create_table("db.t", SCHEMA, options={"row-counts": "true"})
    write_counted(table, [("+I", ("a", 1, None))] * 2)
    changes = [AddColumn(path=("c",), type=parse_data_type("DOUBLE")), RenameColumn(("n",), "m")]
    catalog.alter_table("db.t", changes)
    after = catalog.table("db.t")
    assert after.schema.column_names == ("p", "m", "s", "c")
    write_counted(after, [("-D", ("a", 1, None, None)), ("+I", ("a", 1, None, 2.5))])
    after.compact(full=True)
    assert counted_rows(after) == {("a", 1, None, None): 1, ("a", 1, None, 2.5): 1}
    assert summed_changes(open_diff(after, "1", "latest").changes()) == {
        ("a", 1, None, None): -1,
        ("a", 1, None, 2.5): 1,
    }
    assert summarized(open_diff(after, "1", "latest")).inserted == 1
    write_counted(table, [("-D", ("a", 1, None))])  # a writer that was opened before
    assert counted_rows(catalog.table("db.t")) == {("a", 1, None, 2.5): 1}


@pytest.mark.parametrize(
    "change",
    [
        DropColumn(("n",)),
        ChangeType(("n",), parse_data_type("BIGINT")),
        DropColumn(("_row_count",)),
        RenameColumn(("_row_hash_1",), "x"),
        SetOption("merge-engine", "deduplicate"),
        SetOption("changelog-producer", "input"),
        SetOption("log.consistency", "eventual"),
        SetOption("row-counts", "false"),
        SetOption("deletion-vectors.enabled", "true"),
        SetOption("fields.n.aggregate-function", "sum"),
    ],
)
def test_changes_by_which_rows_would_be_others_are_refused(change: SchemaChange) -> None:
    """FL-184: what would make deletes miss their rows is said when it is asked for."""
    catalog = memory_catalog()
    table = catalog.create_table("db.t", SCHEMA, options={"row-counts": "true"})
    write_counted(table, [("+I", ("a", 1, None))])
    with pytest.raises(InvalidInputError):
        catalog.alter_table("db.t", [change])


def test_rows_are_counted_from_the_first_on() -> None:
    """FL-06: an append table does not become one that counts, and says which option takes changes."""
    catalog = memory_catalog()
    table = catalog.create_table("db.t", SCHEMA)
    with pytest.raises(InvalidInputError, match="row-counts=true"):
        write_counted(table, [("-D", ("a", 1, None))])
    with pytest.raises(InvalidInputError, match="from the first on"):
        catalog.alter_table("db.t", [SetOption("row-counts", "true")])
