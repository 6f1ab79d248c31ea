"""Changes by version as Spark's tasks read them, batch and stream, without Spark: against differences of states."""

import pickle
import random as randoms
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.request.read_keys import CHANGES_OPTION
from engine.spark.changes_reader import ChangesReader, ChangesRequest, ChangesStreamReader, columns_of_changes
from filestore.diff.version_range import Bound
from filestore.evolution.schema_change import SetOption
from filestore.scan.snapshot_files import live_files
from filestore.tag.tags import create_tag, delete_tag
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.tables import expire_all_but

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])
KINDS: Mapping[str, tuple[tuple[str, ...], Mapping[str, str]]] = {  # key and options
    "none": (("id",), {}),
    "input": (("id",), {"changelog-producer": "input"}),
    "lookup": (("id",), {"changelog-producer": "lookup"}),
    "full-compaction": (("id",), {"changelog-producer": "full-compaction"}),
    "vectors": (("id",), {"changelog-producer": "lookup", "deletion-vectors.enabled": "true"}),
    "sum": (("id",), {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}),
    "append": ((), {"bucket": "-1"}),
    "counted": ((), {"row-counts": "true"}),
}
Change = tuple[Any, ...]


def changes_options(table: Table, request: ChangesRequest, **more: str) -> dict[str, str]:
    warehouse = str(Path(table.store.paths.root).parents[1])
    return {"warehouse": warehouse, "table": table.name, CHANGES_OPTION: request.to_option(), **more}


def rows_without_time(batches: Iterator[pa.RecordBatch]) -> list[Change]:
    return [(*row.values(),)[:-1] for batch in batches for row in batch.to_pylist()]  # without the time


def batch_changes_of(table: Table, request: ChangesRequest) -> Counter[Change]:
    reader = ChangesReader(changes_options(table, request), columns_of_changes(table.files, request))
    task = pickle.loads(pickle.dumps(reader))
    return Counter(
        row for part in reader.partitions() for row in rows_without_time(task.read(pickle.loads(pickle.dumps(part))))
    )


class Followed:
    """A stream that is stopped and started again."""

    def __init__(self, table: Table, request: ChangesRequest, **options: str) -> None:
        self.table, self.request, self.options = table, request, options
        self.at: dict[str, Any] | None = None
        self.rows: list[Change] = []

    def catch_up(self) -> None:
        """A new process reads all that there is."""
        schema = columns_of_changes(self.table.files, ChangesRequest())
        reader = ChangesStreamReader(changes_options(self.table, self.request, **self.options), schema)
        here = reader.initialOffset() if self.at is None else self.at
        task = pickle.loads(pickle.dumps(reader))
        while (end := reader.latestOffset(here, ReadMaxRows(2**31))) != here:
            for part in reader.partitions(here, end):
                self.rows += rows_without_time(task.read(part))
            reader.commit(end)
            here = self.at = end


def write_something(random: randoms.Random, table: Table, kind: str) -> None:
    keys = random.sample(range(8), random.randint(1, 5))
    data = {"id": keys, "v": [random.choice([None, 1, 2]) for _ in keys]}
    deletes = kind not in ("sum", "append")
    kinds = {"_row_kind": [random.choice(["+I", "+U", "-D"]) if deletes else "+I" for _ in keys]}
    match random.random():
        case chance if chance < 0.2:
            table.compact(full=random.random() < 0.5)
        case chance if chance < 0.3:
            table.overwrite(pa.table(data, schema=SCHEMA))
        case _:
            table.write(pa.table(data | kinds, schema=SCHEMA.append(pa.field("_row_kind", pa.string()))))


def rows_of_version(changes: Counter[Change], up_to: int) -> Counter[Change]:
    """The rows of a version."""
    signs = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}
    rows: Counter[Change] = Counter()
    for (*row, kind, version), count in changes.items():
        if version <= up_to:
            rows[tuple(row)] += signs[kind] * count
    return Counter({row: count for row, count in rows.items() if count})


@pytest.mark.sampled(5)
@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [1, 2])
def test_batch_stream_and_difference_fold_to_equal_rows_at_every_version(tmp_path: Path, kind: str, seed: int) -> None:
    """Over every kind of table, writes, deletes, overwrites, compactions and restarts of the stream."""
    random = randoms.Random(f"{kind} {seed}")
    key, options = KINDS[kind]
    table = Catalog(str(tmp_path / "warehouse")).create_table(
        "db.t", SCHEMA, primary_key=key, options={"bucket": "2", "num-sorted-run.compaction-trigger": "4", **options}
    )
    request = ChangesRequest(start=Bound(version="0"), shows_updates=True)
    followed = Followed(table, request)
    for _ in range(8):
        write_something(random, table, kind)
        if random.random() < 0.5 and table.store.snapshots.latest_id():
            followed.catch_up()
    followed.catch_up()
    changes = batch_changes_of(table, request)
    assert Counter(followed.rows) == changes
    newest_id = table.store.snapshots.latest_id() or 0
    for version in range(1, newest_id + 1):
        entries = live_files(table.store, table.store.snapshots.read(version))
        if kind == "vectors" and any(each.file.level == 0 for each in entries):
            continue  # reads and differences wait for the compaction
        whole = Counter(tuple(row.values())[:-1] for row in table.diff("0", str(version)).to_arrow().to_pylist())
        signed = rows_of_version(changes, version)
        assert kind == "counted" or signed == whole
    first = random.randint(1, newest_id)
    later = batch_changes_of(
        table, ChangesRequest(start=Bound(version=str(first), is_inclusive=False), shows_updates=True)
    )
    assert later == Counter({each: count for each, count in changes.items() if each[-1] > first})
    split = batch_changes_of(table, ChangesRequest(start=Bound(version="0")))
    assert {each[-2] for each in split} <= {"insert", "delete"}
    assert rows_of_version(split, newest_id) == rows_of_version(changes, newest_id)


def three_versions(tmp_path: Path) -> Table:
    table = Catalog(str(tmp_path / "warehouse")).create_table(
        "db.t", SCHEMA, primary_key=["id"], options={"bucket": "1"}
    )
    for value in (1, 2, 3):
        table.write(pa.table({"id": [1], "v": [value]}))
    return table


def test_a_stream_without_a_start_begins_with_the_newest_state(tmp_path: Path) -> None:
    table = three_versions(tmp_path)
    followed = Followed(table, ChangesRequest())
    followed.catch_up()
    table.write(pa.table({"id": [1], "v": [4]}))
    followed.catch_up()
    assert followed.rows == [(1, 3, "insert", 3), (1, 3, "delete", 4), (1, 4, "insert", 4)]


def test_a_start_that_is_gone_is_an_error_of_new_streams_only(tmp_path: Path) -> None:
    table = three_versions(tmp_path)
    create_tag(table.store, "two", snapshot_id=2)
    behind_two = ChangesRequest(start=Bound(version="two", is_inclusive=False))
    followed = Followed(table, behind_two)
    followed.catch_up()
    delete_tag(table.store, "two")
    table.write(pa.table({"id": [1], "v": [4]}))
    followed.catch_up()
    assert [each[-1] for each in followed.rows] == [3, 3, 4, 4]
    with pytest.raises(InvalidInputError, match=r"no such version: .*version='two'"):
        Followed(table, behind_two).catch_up()
    with pytest.raises(InvalidInputError, match="a stream has no end: end=version 4"):
        Followed(table, ChangesRequest(end=Bound(version="4"))).catch_up()
    expire_all_but(table.files, 1)
    with pytest.raises(CorruptDataError, match=r"expired|gone"):
        Followed(table, ChangesRequest(start=Bound(version="2"))).catch_up()


def test_a_column_may_not_be_named_as_one_of_the_changes(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("_Change_Type", pa.string())])
    table = Catalog(str(tmp_path / "warehouse")).create_table("db.t", schema, primary_key=["id"])
    with pytest.raises(InvalidInputError, match="column=_Change_Type fix=rename the column"):
        columns_of_changes(table.files, ChangesRequest())


def test_a_stream_leaves_out_what_a_commit_only_rewrote(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path / "warehouse")).create_table("db.t", SCHEMA, options={"bucket": "-1"})
    table.write(pa.table({"id": [1, 1, 2], "v": [1, 1, 2]}))
    table.overwrite(pa.table({"id": [1, 2, 3], "v": [1, 2, 3]}))
    followed = Followed(table, ChangesRequest(start=Bound(version="2")))
    followed.catch_up()
    assert sorted(followed.rows) == [(1, 1, "delete", 2), (3, 3, "insert", 2)]


@pytest.mark.parametrize("mode", ["auto", "all"])
def test_from_the_log_a_change_has_no_version_and_the_time_of_its_record(
    tmp_path: Path, broker: Broker, mode: str
) -> None:
    """The rows are those of the files: with what each change replaces, of an exact and of an upsert log. The reader
    asks for the log, or the table says so: a statement has no options of a reader."""
    servers = {"log.kafka.bootstrap.servers": broker.bootstrap_servers}
    options = {"bucket": "1", "log.changelog-mode": mode, **servers}
    options |= {"changelog-producer": "lookup"} if mode == "all" else {}
    catalog = Catalog(str(tmp_path / "warehouse"))
    table = catalog.create_table(f"db.changes_{mode}", SCHEMA, primary_key=["id"], options=options)
    table.write(pa.table({"id": [1, 2], "v": [1, 2]}))
    request = ChangesRequest(shows_updates=True)
    asked = {"streaming-read-mode": "log"}
    if mode == "all":
        table, asked = catalog.alter_table(table.name, [SetOption("streaming-read-mode", "log")]), {}
    of_log = Followed(table, request, **asked)
    of_log.catch_up()
    table.write(pa.table({"id": [1, 2], "v": [5, None], "_row_kind": ["+U", "-D"]}))
    of_log.catch_up()
    start = ChangesRequest(start=Bound(version="0"), shows_updates=True)
    of_files = Followed(table, start, **{"streaming-read-mode": "file"})
    of_files.catch_up()
    assert Counter(each[:-1] for each in of_log.rows) == Counter(each[:-1] for each in of_files.rows)
    assert [each[-1] for each in of_log.rows] == [1, 1, None, None, None]
