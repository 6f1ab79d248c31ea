"""Options that another engine has stored with a table: honoured, or refused with their name, never ignored."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from engine.procedures import create_tag
from engine.request.read_keys import BATCH_KEYS, STREAM_KEYS
from engine.spark.data_source import FluvialDataSource
from engine.spark.read_options import ReadOptions, stream_options
from engine.table import Table
from filestore.branch.branches import create_branch
from filestore.evolution.schema_change import RemoveOption, SetOption
from lsm.errors import InvalidInputError

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])


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


@pytest.mark.parametrize(
    ("options", "ids"),
    [
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
    ],
    ids=str,
)
def test_batch_reads_honour_the_state_that_a_table_has(
    options: dict[str, str], ids: list[int], catalog: Catalog, table: Table
) -> None:
    assert batch_read(table) == [1, 2, 3]
    assert batch_read(with_stored(catalog, options)) == ids


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
