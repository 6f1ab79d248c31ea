import pickle
from dataclasses import replace
from datetime import date

import pyarrow as pa
import pytest

from filestore.compact.compactor import pick_tasks
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.snapshot import CommitKind
from filestore.table import FileTable
from lsm.errors import InvalidInputError, OutcomeUnknownError, UnavailableError
from tests.support.faults import FaultyFileIO, MemoryFileIO, When
from tests.support.tables import KEY_SCHEMA, check_metadata, content, key_table, memory_catalog, referenced_files, rows

DAYS = pa.schema([("day", pa.date32()), ("kind", pa.string()), ("id", pa.int64()), ("v", pa.int64())])


def days_table(**options: str) -> FileTable:
    return memory_catalog().create_table(
        "db.t", DAYS, primary_key=["day", "kind", "id"], partition_by=["day", "kind"], options=options
    )


def day_rows(*data: tuple[int, str, int, int]) -> pa.Table:
    return pa.table(
        {
            "day": pa.array([date(2024, 1, each[0]) for each in data], pa.date32()),
            "kind": [each[1] for each in data],
            "id": [each[2] for each in data],
            "v": [each[3] for each in data],
        },
        schema=DAYS,
    )


def day_content(table: FileTable) -> dict[tuple[int, str, int], int]:
    return {(r["day"].day, r["kind"], r["id"]): r["v"] for r in table.read().to_arrow().to_pylist()}


def test_written_rows_are_read_and_newer_rows_replace_older_ones() -> None:
    """FL-06, FL-26, FL-28, FL-183."""
    table = key_table()
    table.write(rows((1, 1), (2, 2)))
    table.write(rows((2, 3), (1, 0)), pa.array(["+U", "-D"]))
    assert content(table) == {2: 3}
    check_metadata(table)


def test_rows_do_not_expire_by_themselves() -> None:
    """FL-101: however old they are, through commits and compactions."""
    catalog = memory_catalog()
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"])
    table.write(rows((1, 1), (2, 2)))
    table.store.clock.sleep(100 * 365 * 86_400)
    table.write(rows((2, 3)))
    table.compact(full=True)
    assert content(table) == {1: 1, 2: 3}
    snapshot = table.store.snapshots.latest()
    assert snapshot is not None
    assert snapshot.time_ms > 3_000_000_000_000  # it is a hundred years later


def test_an_empty_table_reads_as_no_rows_of_its_columns() -> None:
    read = key_table().read()
    assert read.to_arrow().schema.names == ["id", "v"]
    assert (read.to_arrow().num_rows, read.plan().splits) == (0, ())


def test_an_empty_write_makes_no_snapshot() -> None:
    table = key_table()
    assert table.write(rows()).snapshot is None
    table.write(rows((1, 1)))
    again = table.write(rows())
    assert again.snapshot is not None
    assert again.snapshot.id == 1


def test_a_refused_write_leaves_nothing_behind() -> None:
    disk = MemoryFileIO()
    table = key_table(disk)
    before = {*disk.files}
    with pytest.raises(InvalidInputError, match="column=v"):
        table.write(pa.table({"id": [1], "v": ["x"]}))
    assert {*disk.files} == before


@pytest.mark.sweep
@pytest.mark.parametrize("when", When)
def test_a_failed_write_is_visible_as_a_whole_or_leaves_no_data_file(when: When) -> None:
    """FL-165: the snapshot is the only thing that makes rows visible."""
    unknown = 0
    for fail_at in range(1, 60):
        disk = MemoryFileIO()
        table = key_table(disk, bucket="2")
        table.write(rows((1, 1), (2, 2)))
        io = FaultyFileIO(disk, fail_at=fail_at, when=when)
        try:
            FileTable(replace(table.store, io=io)).write(rows((2, 3), (3, 3)))
        except OutcomeUnknownError:
            unknown += 1
        except UnavailableError:
            assert content(table) == {1: 1, 2: 2}
            left = {name for name, body in disk.files.items() if "/bucket-" in name and body}
            assert left == referenced_files(table)
        else:
            assert content(table) == {1: 1, 2: 3, 3: 3}
        check_metadata(table)
    assert unknown <= 6, "the creation of the snapshot, and the looks behind it"


# ---- time travel


def test_reads_travel_by_snapshot_tag_and_time() -> None:
    """FL-142, TAG-06, TAG-07, TAG-08: version control."""
    table = key_table()
    for number in (1, 2, 3):
        table.write(rows((1, number)))
    second = table.store.snapshots.read(2)
    table.store.io.write_new(table.store.paths.tag("eod"), second.to_json().encode())
    assert content(table, snapshot_id=1) == {1: 1}
    assert content(table, tag="eod") == {1: 2}
    assert content(table, timestamp_ms=second.time_ms) == {1: 2}
    assert content(table, timestamp_ms=second.time_ms - 1) == {1: 1}


def test_a_read_stays_at_its_snapshot_while_the_table_goes_on() -> None:
    table = key_table()
    table.write(rows((1, 1)))
    read = table.read()
    table.write(rows((1, 2)))
    table.compact(full=True)
    assert read.to_arrow().column("v").to_pylist() == [1]


@pytest.mark.parametrize(
    ("travel", "text"),
    [
        ({"snapshot_id": 9}, "version=snapshot.9 earliest=1 latest=1"),
        ({"snapshot_id": 0}, "no such snapshot"),
        ({"tag": "none"}, "no such tag: tag=none"),
        ({"timestamp_ms": 5}, "version=timestamp.5"),
        ({"snapshot_id": 1, "tag": "x"}, "only one of"),
    ],
)
def test_places_that_do_not_exist_are_named(travel: dict[str, object], text: str) -> None:
    table = key_table()
    table.write(rows((1, 1)))
    with pytest.raises(InvalidInputError, match=text):
        table.read(**travel)  # type: ignore[arg-type]


# ---- overwriting


def test_without_partitions_everything_is_replaced() -> None:
    """FL-29."""
    table = key_table()
    table.write(rows((1, 1), (2, 2)))
    result = table.overwrite(rows((3, 3)))
    assert result.snapshot is not None
    assert result.snapshot.commit_kind is CommitKind.OVERWRITE
    assert content(table) == {3: 3}
    assert content(table, snapshot_id=1) == {1: 1, 2: 2}
    table.overwrite(rows())
    assert content(table) == {}
    check_metadata(table)


def test_the_partitions_that_occur_are_replaced() -> None:
    """FL-30: dynamic parts."""
    table = days_table()
    table.write(day_rows((1, "a", 1, 1), (1, "b", 1, 1), (2, "a", 1, 1)))
    table.overwrite(day_rows((1, "a", 5, 5)))
    assert day_content(table) == {(1, "a", 5): 5, (1, "b", 1): 1, (2, "a", 1): 1}
    whole = table.with_options({"dynamic-partition-overwrite": "false"})
    whole.overwrite(day_rows((2, "a", 6, 6)))
    assert day_content(table) == {(2, "a", 6): 6}


def test_a_named_partition_is_replaced_as_a_whole() -> None:
    """FL-30: static parts."""
    table = days_table()
    table.write(day_rows((1, "a", 1, 1), (1, "b", 1, 1), (2, "a", 1, 1)))
    table.overwrite(day_rows((1, "a", 5, 5)), partition={"day": date(2024, 1, 1)})
    assert day_content(table) == {(1, "a", 5): 5, (2, "a", 1): 1}
    table.overwrite(day_rows(), partition={"day": date(2024, 1, 2), "kind": "a"})
    assert day_content(table) == {(1, "a", 5): 5}


@pytest.mark.parametrize(
    ("partition", "text"),
    [
        ({"day": date(2024, 1, 2)}, "outside the partition"),
        ({"id": 1}, "not a partition column: column=id"),
        ({"day": "monday"}, "not a value of the partition column: column=day value='monday'"),
    ],
)
def test_wrong_partitions_are_refused_and_nothing_is_left(partition: dict[str, object], text: str) -> None:
    table = days_table()
    before = {*table.store.io.files}  # type: ignore[attr-defined]
    with pytest.raises(InvalidInputError, match=text):
        table.overwrite(day_rows((1, "a", 1, 1)), partition=partition)
    assert {*table.store.io.files} == before  # type: ignore[attr-defined]


def test_an_overwritten_table_goes_on_as_usual() -> None:
    table = key_table()
    for number in range(3):
        table.write(rows((1, number)))
    table.overwrite(rows((1, 10), (2, 20)))
    table.write(rows((1, 11)))
    table.compact(full=True)
    assert content(table) == {1: 11, 2: 20}
    check_metadata(table)


# ---- merge engines through files


def test_partial_updates_fill_the_row_up() -> None:
    """FL-187."""
    schema = pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string())])
    table = key_table(
        schema=schema, merge_engine="partial-update", **{"partial-update.remove-record-on-delete": "true"}
    )
    table.write(pa.table({"id": [1], "a": [1]}))
    table.write(pa.table({"id": [1], "b": ["x"]}))
    assert table.read().to_arrow().to_pylist() == [{"id": 1, "a": 1, "b": "x"}]
    table.write(pa.table({"id": [1], "a": [1], "b": ["x"]}), pa.array(["-D"]))
    assert table.read().to_arrow().num_rows == 0
    table.write(pa.table({"id": [1], "a": [7]}))
    assert table.read().to_arrow().to_pylist() == [{"id": 1, "a": 7, "b": None}], "a delete carries no old values"
    table.compact(full=True)
    assert table.read().to_arrow().to_pylist() == [{"id": 1, "a": 7, "b": None}]


@pytest.mark.sweep
def test_aggregations_fold_over_files() -> None:
    """FL-186."""
    table = key_table(
        merge_engine="aggregation",
        **{"fields.v.aggregate-function": "sum", "aggregation.remove-record-on-delete": "true"},
    )
    table.write(rows((1, 10), (2, 5)))
    table.write(rows((1, 3)), pa.array(["-U"]))
    table.write(rows((1, 4)), pa.array(["+U"]))
    assert content(table) == {1: 11, 2: 5}
    table.write(rows((2, 5)), pa.array(["-D"]))
    assert content(table) == {1: 11}
    table.write(rows((2, 2)))
    assert content(table) == {1: 11, 2: 2}, "a delete carries no old values"
    table.compact(full=True)
    assert content(table) == {1: 11, 2: 2}


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"merge-engine": "first-row"}, "-D", "ignore-delete"),
        ({"merge-engine": "partial-update"}, "-D", "remove-record-on-delete"),
        ({"merge-engine": "aggregation", "fields.v.aggregate-function": "max"}, "-D", r"fields\.v\.ignore-retract"),
        (
            {
                "merge-engine": "aggregation",
                "fields.v.aggregate-function": "max",
                "aggregation.remove-record-on-delete": "true",
            },
            "-U",
            "column=v aggregate-function=max",
        ),
    ],
)
def test_retracts_that_no_merge_could_take_back_are_refused_at_once(
    options: dict[str, str], kind: str, text: str
) -> None:
    """They would make the table unreadable."""
    table = key_table(**options)
    with pytest.raises(InvalidInputError, match=text):
        table.write(rows((1, 1)), pa.array([kind]))


def test_sequence_fields_decide_whatever_came_first() -> None:
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64()), ("g", pa.int32())])
    table = key_table(schema=schema, **{"sequence.field": "g"})

    def write(v: int, g: int | None) -> None:
        table.write(pa.table({"id": [1], "v": [v], "g": pa.array([g], pa.int32())}))

    write(1, 5)
    write(2, 3)
    assert content(table) == {1: 1}
    write(3, None)
    assert content(table) == {1: 1}
    write(4, 5)
    assert content(table) == {1: 4}
    table.compact(full=True)
    assert content(table) == {1: 4}


# ---- the object


def test_a_table_can_be_sent_to_another_process() -> None:
    table = key_table()
    table.write(rows((1, 1)))
    sent = pickle.loads(pickle.dumps(table))
    assert isinstance(sent, FileTable)
    assert content(sent) == {1: 1}
    assert pick_tasks(sent.store, LiveFiles.latest(sent.store), full=True)


def test_options_may_be_in_force_for_one_object_only() -> None:
    table = key_table()
    other = table.with_options({"source.split.target-size": "1 b"})
    assert other.options.source_split_target_size_bytes == 1
    assert FileTable.open("db.t", table.store.paths.root, io=table.store.io).options.source_split_target_size_bytes > 1
    with pytest.raises(InvalidInputError, match="bucket"):
        table.with_options({"bucket": "many"})


def test_opening_costs_three_small_file_operations() -> None:
    """BR-21: the first of them asks which branch is main."""
    disk = MemoryFileIO()
    table = key_table(disk)
    io = FaultyFileIO(disk)
    FileTable.open("db.t", table.store.paths.root, io=io)
    assert io.calls == 3
    assert KEY_SCHEMA.names == list(table.schema.column_names)
