"""System tables: what they say is what the files, snapshots and schemas of the table say."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.scan.live_files import LiveFiles
from filestore.system_tables import SYSTEM_TABLES
from filestore.system_tables.json_columns import json_objects
from filestore.table import FileTable
from lsm.errors import InvalidInputError
from tests.support.tables import committable_of, key_table, memory_catalog, rows
from tests.support.vectors import golden_tables

GOLDEN = Path(__file__).parents[2] / "golden" / "java-1.4.2"


def read_system_table(table: FileTable, name: str, **options: Any) -> list[dict[str, Any]]:
    return SYSTEM_TABLES[name].read(table.store, **options).to_pylist()


@pytest.fixture(scope="module")
def table() -> FileTable:
    """Seven writes of overlapping keys into two buckets, a compaction, one more write."""
    made = key_table(bucket="2")
    for start in range(7):
        made.write(rows(*((key, start) for key in range(start, start + 20))))
    made.compact()
    made.write(rows((1, None), (100, 1)), pa.array(["-D", "+I"]))
    return made


@pytest.mark.parametrize("path", golden_tables(), ids=lambda path: path.name)
def test_tables_of_every_writer_can_be_seen(path: Path) -> None:
    table = FileTable.open(f"db.{path.name}", str(path))
    for system in SYSTEM_TABLES.values():
        found = system.read(table.store)
        found.validate(full=True)
        assert found.schema == system.schema
        for field in system.schema:
            assert field.nullable or found.column(field.name).null_count == 0


def test_files_are_the_live_files(table: FileTable) -> None:
    live = LiveFiles.latest(table.store)
    files = {file.file_name: (key, file) for key in live.buckets() for file in live.files(key)}
    found = read_system_table(table, "files")
    assert {Path(each["file_path"]).name for each in found} == set(files)
    for each in found:
        key, file = files[Path(each["file_path"]).name]
        assert (each["bucket"], each["level"], each["record_count"]) == (key.bucket, file.level, file.row_count)
        assert json.loads(each["min_key"]) == {"id": table.store.key_of(file.min_key)[0]}
        assert json.loads(each["max_key"]) == {"id": table.store.key_of(file.max_key)[0]}
        assert json.loads(each["null_value_counts"])["id"] == 0
        assert each["file_source"] == ("COMPACT" if each["level"] else "APPEND")
    assert sum(each["deleteRowCount"] for each in found) == 1


def test_statistics_stay_with_their_files() -> None:
    """Files whose statistics are of other columns are decoded apart, and come back in their places."""
    table = key_table(bucket="1")
    for value in range(8):
        table.with_options({"metadata.stats-mode": "none" if value % 2 else "full"}).write(rows((value, 10 * value)))
    live = LiveFiles.latest(table.store)
    keys = {file.file_name: table.store.key_of(file.min_key)[0] for key in live.buckets() for file in live.files(key)}
    found = read_system_table(table, "files")
    assert len(found) == 8
    for each in found:
        value = keys[Path(each["file_path"]).name]
        assert json.loads(each["min_key"]) == {"id": value}
        expected = None if value % 2 else {"id": value, "v": 10 * value}
        assert (each["max_value_stats"] and json.loads(each["max_value_stats"])) == expected


def test_files_of_an_older_snapshot_can_be_seen(table: FileTable) -> None:
    first = table.store.snapshots.read(1)
    assert [each["level"] for each in read_system_table(table, "files", snapshot=first)] == [0, 0]
    assert sum(each["record_count"] for each in read_system_table(table, "buckets", snapshot=first)) == 20


def test_a_filter_chooses_rows(table: FileTable) -> None:
    found = read_system_table(table, "files", filter="level > 0 AND bucket = 1")
    assert [(each["bucket"], each["level"] > 0) for each in found] == [(1, True)]
    with pytest.raises(InvalidInputError, match="levle"):
        read_system_table(table, "files", filter="levle = 1")


def test_buckets_add_up_files_and_count_runs(table: FileTable) -> None:
    live = LiveFiles.latest(table.store)
    files = read_system_table(table, "files")
    for each in read_system_table(table, "buckets"):
        inside = [file for file in files if file["bucket"] == each["bucket"]]
        key = next(key for key in live.buckets() if key.bucket == each["bucket"])
        assert each["file_count"] == len(inside)
        assert each["file_size_in_bytes"] == sum(file["file_size_in_bytes"] for file in inside)
        assert each["sorted_runs"] == len(live.levels(key).runs)
        assert each["l0_files"] == sum(file["level"] == 0 for file in inside)
    [whole] = read_system_table(table, "partitions")
    assert (whole["file_count"], whole["deleted_record_count"], whole["total_buckets"]) == (len(files), 1, 2)


def test_compaction_debt_is_what_the_next_compaction_reads() -> None:
    table = key_table(bucket="1")
    for start in range(4):
        table.write(rows((start, start)))
    assert [each["compaction_debt"] for each in read_system_table(table, "buckets")] == [0]
    table.write(rows((9, 9)))
    [bucket] = read_system_table(table, "buckets")
    assert bucket["sorted_runs"] == 5
    assert bucket["compaction_debt"] == bucket["file_size_in_bytes"]
    table.compact()
    assert [each["compaction_debt"] for each in read_system_table(table, "buckets")] == [0]


def test_snapshots_and_commits_name_query_and_batch() -> None:
    """Streaming commits of ours are known by their query and micro-batch, all others by user and identifier only."""
    table = key_table(bucket="1")
    table.new_commit("the-query").commit(committable_of(table, 7, rows((1, 1)), log_offsets={0: 3}))
    table.new_commit("the-query").commit(committable_of(table, 8, rows((2, 2)), log_offsets={0: 10}))
    table.write(rows((3, 3)))
    found = read_system_table(table, "snapshots")
    assert [(each["query_id"], each["batch_id"]) for each in found] == [
        ("the-query", 7),
        ("the-query", 8),
        (None, None),
    ]
    assert [each["commit_identifier"] for each in found] == [7, 8, BATCH_IDENTIFIER]
    assert [each["log_offsets"] for each in found] == ['{"0":3}', '{"0":10}', '{"0":10}']
    commits = read_system_table(table, "commits")
    assert [each["log_record_count"] for each in commits] == [3, 7, 0]
    assert [each["ms_since_previous"] is None for each in commits] == [True, False, True]
    slices = read_system_table(table, "log_offsets")
    assert [(each["start_offset"], each["end_offset"]) for each in slices] == [(0, 3), (3, 10), (10, 10)]


def test_compactions_say_what_they_read_and_wrote(table: FileTable) -> None:
    [found] = read_system_table(table, "compactions")
    assert (found["snapshot_id"], found["bucket_count"]) == (8, 2)
    assert (found["input_files"], found["output_files"]) == (14, 2)
    assert (found["input_rows"], found["output_rows"]) == (140, 26)
    assert found["input_bytes"] > found["output_bytes"] > 0


def test_tags_begin_with_the_columns_that_were_asked_for() -> None:
    """TAG-40, TAG-41."""
    table = FileCatalog(str(GOLDEN)).table("db.app_branches")
    assert SYSTEM_TABLES["tags"].schema.names[:5] == [
        "tag_name",
        "tagged_snapshot_id",
        "schema_id",
        "commit_time",
        "record_count",
    ]
    assert [tuple(each.values())[:5] for each in read_system_table(table, "tags")] == [
        ("t_ttl", 1, 0, 1795211387701, 2),
        ("tag1", 1, 0, 1795211387701, 2),
    ]
    retained, forever = read_system_table(table, "tags")
    assert (retained["create_time"].isoformat(), retained["time_retained"]) == (
        "2026-11-20T22:08:27.971000",
        "7 days, 0:00:00",
    )
    assert (forever["create_time"], forever["time_retained"]) == (None, None)


def test_branches_begin_with_the_columns_that_were_asked_for() -> None:
    """BR-48: name, tag_name, tagged_snapshot_id; an empty branch was made from no tag."""
    table = FileCatalog(str(GOLDEN)).table("db.app_branches")
    assert SYSTEM_TABLES["branches"].schema.names[:3] == ["name", "tag_name", "tagged_snapshot_id"]
    assert [tuple(each.values())[:3] for each in read_system_table(table, "branches")] == [
        ("b1", None, None),
        ("b2", "tag1", 1),
    ]


def test_consumers_say_what_they_hold_back(table: FileTable) -> None:
    table.store.consumers.write("report", 3)
    [found] = read_system_table(table, "consumers")
    assert (found["consumer_id"], found["next_snapshot_id"], found["snapshots_behind"]) == ("report", 3, 7)
    table.store.consumers.delete("report")


def test_no_secret_is_shown() -> None:
    table = memory_catalog().create_table(
        "db.t", pa.schema([("id", pa.int64())]), options={"computed-column-comment.token": "hush", "bucket": "-1"}
    )
    for name in ("options", "schemas"):
        assert "hush" not in str(read_system_table(table, name))
    assert {
        each["key"]: each["source"]
        for each in read_system_table(table.with_options({"read.changelog": "true"}), "options")
    } == {
        "bucket": "table",
        "file.format": "table",
        "computed-column-comment.token": "table",
        "read.changelog": "reader",
    }


def test_functions_of_aggregated_columns_can_be_seen() -> None:
    table = memory_catalog().create_table(
        "db.t",
        pa.schema([("id", pa.int64()), ("a", pa.int64()), ("b", pa.string())]),
        primary_key=["id"],
        options={
            "merge-engine": "aggregation",
            "fields.a.aggregate-function": "sum",
            "fields.b.aggregate-function": "listagg",
            "fields.b.list-agg-delimiter": ";",
        },
    )
    found = read_system_table(table, "aggregation_fields")
    assert [(each["field_name"], each["function"], each["function_options"]) for each in found] == [
        ("id", None, None),
        ("a", "sum", None),
        ("b", "listagg", '{"fields.b.list-agg-delimiter":";"}'),
    ]


@pytest.mark.parametrize(
    "values",
    [
        pa.array([1, None], pa.int64()),
        pa.array(['a"b\\\n', "é"]),
        pa.array([1.5, float("nan")]),
        pa.array([True, None]),
        pa.array([b"\x00\xff", None]),
        pa.array([0, None], pa.date32()),
    ],
    ids=lambda values: str(values.type),
)
def test_json_objects_are_json(values: pa.Array) -> None:
    texts = json_objects({'na"me': values, "n": pa.array([1, 2])}).to_pylist()
    parsed = [json.loads(text) for text in texts]
    assert [each["n"] for each in parsed] == [1, 2]
    plain = [None if value is None else value for value in values.to_pylist()]
    if isinstance(plain[0], int | str | bool):
        assert [each['na"me'] for each in parsed] == plain


def quickest(work: Callable[[], object]) -> float:
    times = []
    for _ in range(3):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


@pytest.mark.sweep
def test_many_files_cost_little_more_than_reading_their_manifests() -> None:
    """Columns all the way: turning the entries into rows takes less time than decoding them."""
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    [message] = committable_of(table, 1, rows((2, 2))).messages
    [file] = message.new_files
    many = [
        replace(file, file_name=f"data-{at}.parquet", min_sequence_number=10 + at, max_sequence_number=10 + at)
        for at in range(4000)
    ]
    table.new_commit("many").commit(
        replace(committable_of(table, 1, rows((2, 2))), messages=[replace(message, new_files=tuple(many))])
    )
    loading = quickest(lambda: LiveFiles.latest(table.store))
    assert quickest(lambda: SYSTEM_TABLES["files"].read(table.store)) < 3 * loading + 0.1
    assert len(read_system_table(table, "files")) == 4001
