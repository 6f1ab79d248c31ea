"""Options that another engine has stored with a table: honoured, or refused with their name, never ignored."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest

from engine import Catalog, sink, sql
from engine.procedures import create_tag
from engine.request.read_keys import BATCH_KEYS, STREAM_KEYS, rows_to_change
from engine.spark.data_source import FluvialDataSource
from engine.spark.read_options import ReadOptions, stream_options
from engine.table import Table
from filestore.branch.branches import create_branch
from filestore.evolution.schema_change import RemoveOption, SetOption
from filestore.options.not_built import NOT_BUILT
from filestore.options.option import At
from filestore.options.rules import ALIASES
from filestore.options.table_options import TableOptions
from lsm.errors import InvalidInputError

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
MOVING = pa.schema([pa.field("p", pa.string(), nullable=False), *SCHEMA])


def single_row(number: int) -> pa.Table:
    return pa.table({"id": [number], "v": [number]}, schema=SCHEMA)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Three snapshots of a row each, a tag on the first, and a branch that begins there."""
    made = catalog.create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for number in (1, 2, 3):
        made.write(single_row(number))
        if number == 1:
            create_tag(made, "first")
    create_branch(made.store, "dev", snapshot_id=1)
    return made


def with_stored(catalog: Catalog, options: Mapping[str, str]) -> Table:
    """The table with options that another engine has put into its schema file."""
    path = Path(catalog.warehouse) / "d.db" / "t" / "schema" / "schema-0"
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "options": {"bucket": "1", **options}}))
    return catalog.table("d.t")


def batch_read(table: Table, **given: str) -> list[int]:
    return sorted(table.read(options=given).to_arrow()["id"].to_pylist())


def stream_read(table: Table, **given: str) -> list[int]:
    found = table.stream(options=given, follow=False)
    return sorted(number for each in found for number in each.rows["id"].to_pylist())


def opened_by_spark(catalog: Catalog, *, streams: bool) -> None:
    """What ``spark.read`` and ``readStream`` do first."""
    place = {"warehouse": catalog.warehouse, "table": "d.t"}
    read = ReadOptions.parse(place, STREAM_KEYS if streams else BATCH_KEYS)
    if streams:
        stream_options(ReadOptions.parse(place | {"read.changelog": "true"}, STREAM_KEYS),
                       FluvialDataSource(place | {"read.changelog": "true"}).schema())  # fmt: skip
    else:
        read.request()


HONOURED: Final = [
    ({"scan.snapshot-id": "2"}, [1, 2]),
    ({"scan.mode": "from-snapshot-full", "scan.snapshot-id": "2"}, [1, 2]),
    ({"scan.tag-name": "first"}, [1]),
    ({"scan.version": "first"}, [1]),
    ({"scan.mode": "latest-full"}, [1, 2, 3]),
    ({"scan.mode": "latest"}, [1, 2, 3]),
    ({"scan.bounded.watermark": "5"}, [1, 2, 3]),
    ({"stream-scan-mode": "file-monitor"}, [1, 2, 3]),
    ({"type": "materialized-table", "materialized-table.definition-query": "SELECT 1"}, [1, 2, 3]),
    ({"query-auth.enabled": "false", "batch-scan-mode": "NONE", "manifest.format": "Avro"}, [1, 2, 3]),
    ({"lookup.cache-rows": "7", "of-the-future": "x"}, [1, 2, 3]),
    ({"fields.v.map.storage-layout": "shared-shredding"}, [1, 2, 3]),
]


@pytest.mark.parametrize(("options", "ids"), HONOURED, ids=str)
def test_batch_reads_honour_the_state_that_a_table_has(
    options: dict[str, str], ids: list[int], catalog: Catalog, table: Table
) -> None:
    assert batch_read(table) == [1, 2, 3]
    assert batch_read(with_stored(catalog, options)) == ids


STREAMED: Final = [
    ({"streaming-read-overwrite": "true"}, ["+I 1", "-D 1", "+I 2", "+I 3"]),
    ({"streaming-read-overwrite": "false"}, ["+I 1", "+I 3"]),
    ({"scan.mode": "latest"}, []),
    ({"scan.mode": "from-snapshot", "scan.snapshot-id": "3"}, ["+I 3"]),
    ({"log.scan": "latest"}, []),
    ({"scan.tag-name": "last"}, ["+I 2", "+I 3"]),
]


@pytest.mark.parametrize(("options", "changes"), STREAMED, ids=str)
def test_streams_honour_what_a_table_has(options: dict[str, str], changes: list[str], catalog: Catalog) -> None:
    made = catalog.create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    made.write(single_row(1))
    made.overwrite(single_row(2))
    made.write(single_row(3))
    create_tag(made, "last")
    begins = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"} if "overwrite" in str(options) else {}
    found = with_stored(catalog, options).stream(options=begins, follow=False)
    rows = [row for each in found for row in each.rows.to_pylist()]
    assert [f"{row['_row_kind']} {row['id']}" for row in rows] == changes


def test_a_reader_that_a_table_names_continues_where_it_was(catalog: Catalog, table: Table) -> None:
    table = with_stored(catalog, {"consumer-id": "me"})
    assert stream_read(table) == [1, 2, 3]
    table.write(single_row(4))
    assert stream_read(table) == [4]
    table = with_stored(catalog, {"consumer-id": "me", "consumer.ignore-progress": "true"})
    assert stream_read(table) == [1, 2, 3, 4]


ELSEWHERE: Final = {
    "data-evolution.enabled": "tests/engine/test_closed_tables.py",
    "deletion-vectors.merge-on-read": "tests/filestore/index/test_deletion_vector_tables.py",
    "incremental-between-scan-mode": "of a difference, which a reader asks for",
    "scan.fallback-branch": "tests/interop/test_interop_options.py",
    "scan.primary-branch": "tests/interop/test_interop_options.py",
    "streaming-read-append-overwrite": "as streaming-read-overwrite, of tables without a key",
}


def test_each_option_of_paimon_that_decides_what_a_reader_gets_is_stored_by_a_test() -> None:
    """Honoured or refused; a new one has to say which."""
    golden = Path(__file__).parents[2] / "golden"
    names = [
        key
        for each in ("paimon-2.0.0-options.txt", "paimon-other-options.txt")
        for key in (golden / each).read_text(encoding="utf-8").split()
    ]
    declared = {key: TableOptions.declared[ALIASES.get(key, key)] for key in names if key not in NOT_BUILT
                if ALIASES.get(key, key) in TableOptions.declared}  # fmt: skip
    decide = {option.key for option in declared.values() if option.decides_rows and option.at & At.READ}
    closed = {key for key in names if key in NOT_BUILT and NOT_BUILT[key].closed & At.READ}
    stored = {key for _, options in REFUSED for key in options} | {"consumer-id", "consumer.ignore-progress"}
    stored |= {key for options, _ in (*HONOURED, *STREAMED) for key in options} | {
        "log.scan.timestamp-mills",
        "scan.timestamp",
    }
    assert sorted((decide | closed) - stored - ELSEWHERE.keys()) == []


def test_a_time_that_a_table_has_is_one_of_batch_reads_too(catalog: Catalog, table: Table) -> None:
    """As in Paimon, under each spelling; beside log.scan it is where streams start."""
    time_ms = str(table.store.snapshots.read(2).time_ms)
    for key in ("scan.timestamp-millis", "log.scan.timestamp-mills", "scan.timestamp"):
        assert batch_read(with_stored(catalog, {key: time_ms})) == [1, 2]
        assert batch_read(with_stored(catalog, {key: time_ms, "scan.mode": "from-timestamp"})) == [1, 2]
    of_streams = {"log.scan.timestamp-mills": time_ms, "log.scan": "from-timestamp"}
    assert batch_read(with_stored(catalog, of_streams)) == [1, 2, 3]


REFUSED = [
    ("read", {"scan.mode": "compacted-full"}),
    ("read", {"scan.mode": "from-file-creation-time", "scan.file-creation-time-millis": "1"}),
    ("read", {"scan.file-creation-time-millis": "1"}),
    ("read", {"scan.creation-time-millis": "1"}),
    ("read", {"incremental-between": "1,2"}),
    ("read", {"incremental-between-timestamp": "1,2"}),
    ("read", {"incremental-to-auto-tag": "first"}),
    ("read", {"incremental-between-tag-to-snapshot": "first,2"}),
    ("read", {"scan.bucket": "0"}),
    ("read", {"scan.fallback-snapshot-branch": "dev"}),
    ("read", {"scan.fallback-delta-branch": "dev"}),
    ("read", {"batch-scan-mode": "compact"}),
    ("read", {"postpone.merge-on-read": "true"}),
    ("read", {"query-auth.enabled": "TRUE"}),
    ("read", {"branch": "dev"}),
    ("stream", {"scan.mode": "compacted-full"}),
    ("stream", {"scan.mode": "from-creation-timestamp", "scan.creation-time-millis": "1"}),
    ("stream", {"scan.version": "first"}),
    ("stream", {"scan.savepoint-id": "1"}),
    ("stream", {"scan.watermark": "1"}),
    ("stream", {"scan.bounded.watermark": "1"}),
    ("stream", {"stream-scan-mode": "file-monitor"}),
    ("stream", {"incremental-between": "1,2"}),
    ("stream", {"branch": "dev"}),
    ("write", {"branch": "dev"}),
    ("write", {"upsert-key": "id"}),
    ("write", {"changelog-producer.row-deduplicate-ignore-fields": "v"}),
    ("write", {"pk-btree.index.columns": "v"}),
    ("write", {"row-tracking.enabled": "true"}),
    ("open", {"fields.v.of-the-future": "x"}),
    ("open", {"chain-table.enabled": "true"}),
    ("open", {"pk-clustering-override": "true"}),
    ("open", {"sequence.snapshot-ordering": "true"}),
    ("open", {"type": "format-table"}),
]


@pytest.mark.parametrize(("use", "options"), REFUSED, ids=str)
def test_what_a_table_has_and_is_not_honoured_is_refused_with_its_name(
    use: str, options: dict[str, str], catalog: Catalog, table: Table
) -> None:
    """Writing goes on where only reads would get other rows, and the other way around; ALTER mends the table."""
    says = "|".join(rf"{re.escape(key)}( value)?={re.escape(value)}" for key, value in options.items())
    if use == "open":
        with pytest.raises(InvalidInputError, match=says):
            with_stored(catalog, options)
        return
    table = with_stored(catalog, options)
    uses: dict[str, Callable[[], object]] = {
        "read": lambda: batch_read(table),
        "stream": lambda: stream_read(table),
        "write": lambda: table.write(single_row(4)),
    }
    with pytest.raises(InvalidInputError, match=says):
        uses[use]()
    if use != "write" and "branch" not in options:
        with pytest.raises(InvalidInputError, match=says):
            opened_by_spark(catalog, streams=use == "stream")
        table.write(single_row(4))
    if "row-tracking.enabled" in options:
        return  # once there are rows it does not change
    for each in options:
        catalog.alter_table("d.t", [RemoveOption(each)])
    mended = catalog.table("d.t")
    mended.write(single_row(4))
    assert batch_read(mended) == stream_read(mended) == [1, 2, 3, 4]


def test_a_table_that_a_query_of_another_engine_fills_is_read_and_not_written(catalog: Catalog, table: Table) -> None:
    """Issue 1, finding 9: Flink's materialized tables have ordinary files."""
    filled = with_stored(catalog, {"type": "materialized-table"})
    assert batch_read(filled) == stream_read(filled) == [1, 2, 3]
    says = "option=type value=materialized-table"
    with pytest.raises(InvalidInputError, match=says):
        filled.write(single_row(4))
    with pytest.raises(InvalidInputError, match=says):
        catalog.create_table("d.m", SCHEMA, options={"type": "materialized-table"})


@pytest.mark.parametrize(
    "options",
    [
        {"scan.mode": "from-timestamp"},
        {"scan.mode": "from-snapshot"},
        {"scan.mode": "from-snapshot-full"},
        {"scan.mode": "latest-full", "scan.snapshot-id": "2"},
        {"scan.mode": "from-timestamp", "scan.tag-name": "first"},
    ],
    ids=str,
)
def test_a_mode_that_a_table_has_counts_with_its_place(options: dict[str, str], catalog: Catalog, table: Table) -> None:
    """Paimon refuses such a table: the mode alone was read as the newest state, a place beside another mode counted."""
    table = with_stored(catalog, options)
    with pytest.raises(InvalidInputError, match=f"scan.mode={options['scan.mode']} "):
        batch_read(table)
    if options["scan.mode"] != "latest-full":  # a stream begins with the full rows of that snapshot
        with pytest.raises(InvalidInputError, match=f"start={options['scan.mode']} "):
            stream_read(table)


@pytest.mark.parametrize(
    "options", [{"scan.snapshot-id": "1"}, {"scan.version": "first"}, {"incremental-between": "1,2"}], ids=str
)
def test_a_statement_changes_the_present_whatever_state_a_table_has_for_reads(
    options: dict[str, str], catalog: Catalog, table: Table
) -> None:
    """UPDATE and MERGE have read the rows of then, and would have written them over those of now."""
    table = with_stored(catalog, options)
    assert batch_read(table, **rows_to_change({})) == [1, 2, 3]
    assert batch_read(table, **rows_to_change({"scan.snapshot-id": "2"})) == [1, 2]


def test_a_state_that_the_reader_names_takes_the_place_of_the_tables(catalog: Catalog, table: Table) -> None:
    table = with_stored(catalog, {"incremental-between": "1,2", "scan.version": "first"})
    assert batch_read(table, **{"scan.mode": "latest"}) == [1, 2, 3]
    assert batch_read(table, **{"scan.tag-name": "first"}) == [1]
    assert stream_read(table, **{"log.scan": "full"}) == [1, 2, 3]


@pytest.mark.parametrize("key", ["branch", "scan.branch", "incremental-between", "incremental-to-auto-tag"])
def test_what_is_of_one_reader_is_no_option_of_a_table(key: str, catalog: Catalog) -> None:
    catalog.create_table("d.u", SCHEMA)
    says = f"no table has this option, which a reader or writer is given: option={key} value=dev fix='leave it out'"
    for make in (
        lambda: catalog.create_table("d.t", SCHEMA, options={key: "dev"}),
        lambda: Catalog(catalog.warehouse, {key: "dev"}).create_table("d.t", SCHEMA),
        lambda: catalog.alter_table("d.u", [SetOption(key, "dev")]),
    ):
        with pytest.raises(InvalidInputError, match=says):
            make()


@pytest.mark.parametrize(
    "key", ["log.generation", "log.marker-key", "log.kafka.topic-id", "log.transactional-id.prefix"]
)
def test_what_the_engine_notes_of_a_log_is_given_by_no_one_else(key: str, catalog: Catalog) -> None:
    catalog.create_table("d.u", SCHEMA)
    says = f"a table has this option from the engine, with what it is about: option={key} value=7"
    for make in (
        lambda: catalog.create_table("d.t", SCHEMA, options={key: "7"}),
        lambda: catalog.alter_table("d.u", [SetOption(key, "7")]),
    ):
        with pytest.raises(InvalidInputError, match=says):
            make()


def test_a_table_in_which_a_key_moves_between_partitions_is_read_and_changed_by_no_way(catalog: Catalog) -> None:
    """Another engine writes such a table from an index of all its keys: a new partition takes the row from the old."""
    table = catalog.create_table("d.p", MOVING, primary_key=["p", "id"], partition_by=["p"], options={"bucket": "-1"})
    table.write(pa.table({"p": ["a", "b"], "id": [1, 2], "v": [1, 2]}, schema=MOVING))
    path = Path(catalog.warehouse) / "d.db" / "p" / "schema" / "schema-0"
    path.write_text(json.dumps({**json.loads(path.read_text()), "primaryKeys": ["id"]}))
    table = catalog.table("d.p")
    before = table.store.snapshots.latest_id()
    assert batch_read(table) == stream_read(table) == [1, 2]
    row = pa.table({"p": ["b"], "id": [1], "v": [9]}, schema=MOVING)
    for change in (
        lambda: table.write(row),
        lambda: table.append(row),
        lambda: table.overwrite(row),
        lambda: table.files.compact(full=True),
        lambda: sink(table),
        *(
            lambda text=text: sql(None, text, catalog)  # type: ignore[misc]
            for text in (
                "INSERT INTO d.p VALUES ('b', 1, 9)",
                "INSERT OVERWRITE d.p VALUES ('b', 1, 9)",
                "UPDATE d.p SET v = 9 WHERE id = 1",
                "DELETE FROM d.p WHERE id = 1",
                "TRUNCATE TABLE d.p",
                "MERGE INTO d.p USING (SELECT 1L id) s ON d.p.id = s.id WHEN MATCHED THEN UPDATE SET v = 9",
                "ALTER TABLE d.p DROP PARTITION (p = 'a')",
            )
        ),
        lambda: catalog.create_table("d.q", MOVING, primary_key=["id"], partition_by=["p"]),
    ):
        with pytest.raises(InvalidInputError, match=r"primary_key=\['id'\]"):
            change()
    assert table.store.snapshots.latest_id() == before
    assert batch_read(catalog.table("d.p")) == [1, 2]
