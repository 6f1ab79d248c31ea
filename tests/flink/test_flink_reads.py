"""A real Flink, with its stock connectors and without a hint, on our files, our log, and both as one."""

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from engine.broker.broker import Broker
from filestore.options.flink_log import flink_reads_log
from filestore.options.table.log import TOMBSTONE_FORMATS
from tests.flink.flink_tables import SCHEMA, SMALL_STEPS, by_key, flink_table, in_table, put_rows, topic_in_flink
from tests.peers.flink import Flink, replayed, rows_of_changes

EXACT = {"log_changelog__mode": "all", "changelog__producer": "lookup"}
AVRO, DEBEZIUM_AVRO = {"log_format": "avro"}, {"log_format": "debezium-avro"}
KINDS: Mapping[str, Mapping[str, str]] = {
    "upsert": {},
    "upsert-input": {"changelog__producer": "input"},
    "upsert-lookup": {"changelog__producer": "lookup"},
    "upsert-full-compaction": {"changelog__producer": "full-compaction"},
    "exact": EXACT,
    "json": {"log_format": "json"},
    "avro": AVRO,
    "debezium-avro": DEBEZIUM_AVRO,
    "debezium-avro-exact": {**EXACT, **DEBEZIUM_AVRO},
    "first-row": {"merge__engine": "first-row", "changelog__producer": "lookup"},
    "deletion-vectors": {"deletion__vectors_enabled": "true"},
    "partial-update": {"merge__engine": "partial-update", "changelog__producer": "lookup"},
    "sequence-field": {"sequence_field": "v", "changelog__producer": "lookup"},
}

TOPICS = ("upsert", "exact", "json", "avro", "debezium-avro", "debezium-avro-exact", "deletion-vectors")


@pytest.mark.parametrize("options", KINDS.values(), ids=KINDS)
def test_a_stream_begins_with_every_row_and_goes_on(
    options: Mapping[str, str], catalog: Catalog, flink: Flink, tmp_path: Path
) -> None:
    table = flink_table(catalog, **options)
    put_rows(table, {key: f"a{key}" for key in range(20)})
    put_rows(table, {key: f"b{key}" for key in range(10, 25)})  # level 0 has two runs
    name = f"{flink.catalog(tmp_path)}.db.t"
    if not flink_reads_log(table.options):
        table.compact(full=True)  # the next changes of such a table are the compaction's
    assert by_key(flink.sql(f"SELECT * FROM {name}")) == in_table(table)
    with flink.stream(f"SELECT * FROM {name} /*+ OPTIONS({SMALL_STEPS}) */") as stream:
        stream.wait(lambda changes: rows_of_changes(changes) == in_table(table))
        put_rows(table, {1: "changed", 60: "new"})
        if "merge__engine" not in options:
            put_rows(table, {2: "a2"}, "-D")
        if not flink_reads_log(table.options):
            table.compact(full=True)
        found = stream.wait(lambda changes: rows_of_changes(changes) == in_table(table))
    assert replayed(found) == in_table(table)


def test_a_table_without_a_key_is_followed_by_its_log(catalog: Catalog, flink: Flink, tmp_path: Path) -> None:
    table = catalog.create_table("db.t", SCHEMA, options={"bucket": "2", "bucket-key": "id"})
    put_rows(table, {1: "a", 2: "a"})
    name = f"{flink.catalog(tmp_path)}.db.t"
    with flink.stream(f"SELECT * FROM {name}") as stream:
        stream.wait(lambda changes: len(changes) == 2)
        put_rows(table, {2: "b", 3: "b"})
        found = stream.wait(lambda changes: len(changes) == 4)
    assert sorted(found) == [("+I", 1, "a"), ("+I", 2, "a"), ("+I", 2, "b"), ("+I", 3, "b")]
    assert sorted(flink.sql(f"SELECT * FROM {name}")) == sorted(found)


def test_an_exact_log_is_followed_by_its_changes(catalog: Catalog, flink: Flink, tmp_path: Path) -> None:
    """Rows of level 0 too; the two options of the hint are those that the schema file leaves out for this."""
    table = flink_table(catalog, **EXACT)
    put_rows(table, {1: "a", 2: "a"})
    hint = "'log.system'='kafka', 'changelog-producer'='none'"
    with flink.stream(f"SELECT * FROM {flink.catalog(tmp_path)}.db.t /*+ OPTIONS({hint}) */") as stream:
        stream.wait(lambda changes: len(changes) == 2)
        put_rows(table, {1: "b"})
        found = stream.wait(lambda changes: len(changes) == 4)
    assert found[2:] == [("-D", 1, "a"), ("+I", 1, "b")]
    assert replayed(found) == in_table(table)


@pytest.mark.parametrize("case", TOPICS)
def test_a_topic_makes_the_table(case: str, catalog: Catalog, flink: Flink, broker: Broker) -> None:
    """Without Paimon's connector: an envelope of Debezium's, or `upsert-kafka`; JSON, or Avro of a registry."""
    table = flink_table(catalog, **KINDS[case])
    put_rows(table, {key: f"a{key}" for key in range(10)})
    put_rows(table, {key: f"b{key}" for key in range(5)})
    put_rows(table, {7: "a7"}, "-D")
    name = topic_in_flink(flink, table, broker)
    with flink.stream(f"SELECT * FROM {name}") as stream:
        stream.wait(lambda changes: rows_of_changes(changes) == in_table(table))
        put_rows(table, {3: "c", 60: "new"})
        found = stream.wait(lambda changes: rows_of_changes(changes) == in_table(table))
    if {**EXACT, **KINDS[case]} == KINDS[case] or table.options.log_format in TOMBSTONE_FORMATS:
        assert replayed(found) == in_table(table)


@pytest.mark.parametrize("case", TOPICS)
def test_a_bounded_read_of_a_topic_ends_where_a_snapshot_does(
    case: str, catalog: Catalog, flink: Flink, broker: Broker
) -> None:
    """Its offsets are behind a record, not behind the marks of transactions, at which Flink 3.2 waits for a record.

    One bucket has no record but the table's claim to it, one has more records behind the snapshot.
    """
    table = flink_table(catalog, **KINDS[case], bucket="3")
    put_rows(table, {1: "a", 2: "a", 3: "a"})
    put_rows(table, {1: "b"})
    put_rows(table, {2: "a"}, "-D")
    expected, ends = in_table(table), table.store.snapshots.latest().log_offsets
    assert len(ends) < 3
    put_rows(table, {1: "later", 3: "later"})
    bounds = ";".join(f"partition:{bucket},offset:{ends.get(bucket, 0)}" for bucket in range(3))
    hint = f"'scan.bounded.mode'='specific-offsets', 'scan.bounded.specific-offsets'='{bounds}'"
    name = topic_in_flink(flink, table, broker)
    found = flink.sql(f"SELECT * FROM {name} /*+ OPTIONS({hint}) */", streaming=True)
    assert rows_of_changes(found) == expected


ALL = pa.schema(
    [
        pa.field("id", pa.int32(), nullable=False),
        ("b", pa.bool_()), ("i8", pa.int8()), ("i16", pa.int16()), ("i64", pa.int64()),
        ("f", pa.float32()), ("d", pa.float64()), ("dec", pa.decimal128(38, 10)), ("s", pa.string()),
        ("bin", pa.binary()), ("date", pa.date32()), ("time", pa.time32("ms")),
        ("ts", pa.timestamp("us")), ("ltz", pa.timestamp("us", "UTC")),
        ("list", pa.list_(pa.string())), ("map", pa.map_(pa.string(), pa.int32())),
        ("row", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.float64()))])),
    ]
)  # fmt: skip
LEAST: Mapping[str, Any] = {
    "b": False, "i8": -128, "i16": -32768, "i64": -(2**63), "f": -1.5, "d": -1e300,
    "dec": Decimal("-9999999999999999999999999999.9999999999"), "s": "\x00 \U0001f600 \"\\ \n",
    "bin": bytes(range(256)),
    "date": dt.date(1, 1, 1), "time": dt.time(0), "ts": dt.datetime(1, 1, 1),
    "ltz": dt.datetime(1, 1, 1, tzinfo=dt.UTC),
    "list": [], "map": [], "row": {"x": None, "y": []},
}  # fmt: skip
MOST: Mapping[str, Any] = {
    "b": True, "i8": 127, "i16": 32767, "i64": 2**63 - 1, "f": 3.25, "d": 5e-324, "dec": Decimal("0.0000000001"),
    "s": "", "bin": b"", "date": dt.date(9999, 12, 31), "time": dt.time(23, 59, 59),
    "ts": dt.datetime(9999, 12, 31, 23, 59, 59, 999999), "ltz": dt.datetime(9999, 12, 31, 23, 59, 59, 999999, dt.UTC),
    "list": ["a", None], "map": [("k", 1), ("l", None)], "row": {"x": 1, "y": [1.5, None]},
}  # fmt: skip


def test_values_of_every_type_are_the_same_in_files_log_and_topic(
    catalog: Catalog, flink: Flink, broker: Broker, tmp_path: Path
) -> None:
    """The oracle is Paimon's reader of the files. Of a TIME in JSON, Flink itself drops the fraction of a second."""
    table = catalog.create_table("db.all", ALL, primary_key=["id"], options={"bucket": "2"})

    def rows(first: int) -> pa.Table:
        values = [{"id": first, **LEAST}, {"id": first + 1, **MOST}, {"id": first + 2}]
        return pa.Table.from_pylist([{**dict.fromkeys(ALL.names), **each} for each in values], ALL)

    table.write(rows(0))
    name = f"{flink.catalog(tmp_path)}.db.`all`"
    with flink.stream(f"SELECT * FROM {name}") as stream:
        stream.wait(lambda changes: len(changes) == 3)
        table.write(rows(10))
        found = stream.wait(lambda changes: len(changes) == 6)
    expected = by_key(flink.sql(f"SELECT * FROM {name}"))
    for key, row in rows_of_changes(found).items():
        assert dict(zip(ALL.names, row, strict=True)) == dict(zip(ALL.names, expected[key], strict=True))
    assert [row[1:] for row in sorted(expected.values())[:3]] == [row[1:] for row in sorted(expected.values())[3:]]
    flink.both(
        f"CREATE TEMPORARY TABLE topic_of_all WITH ('connector'='kafka', 'topic'='{table.log.topic}', "
        f"'format'='debezium-json', 'properties.bootstrap.servers'='{broker.bootstrap_servers}', "
        "'scan.startup.mode'='earliest-offset') "
        f"LIKE {name} (EXCLUDING OPTIONS EXCLUDING CONSTRAINTS)"
    )
    with flink.stream("SELECT * FROM topic_of_all") as stream:
        stream.wait(lambda changes: rows_of_changes(changes) == expected)
