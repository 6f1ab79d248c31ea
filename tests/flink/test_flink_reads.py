"""A real Flink, with its stock connectors and without a hint, on our files, our log, and both as one."""

import datetime as dt
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from engine import Catalog
from engine.broker.broker import Broker
from engine.table import Table
from filestore.options.flink_log import flink_reads_log
from filestore.options.table.log import TOMBSTONE_FORMATS
from filestore.options.table_options import TableOptions
from tests.flink.flink_tables import (
    SCHEMA,
    SMALL_STEPS,
    by_key,
    flink_table,
    in_table,
    in_tables,
    named_after,
    put_rows,
    topic_in_flink,
    union_of,
)
from tests.peers import normalise
from tests.peers.flink import Change, Flink, replayed, rows_of_changes
from tests.stores.secure_broker import Right, SecureBroker
from tests.support.option_keys import dotted
from tests.support.streams import Query

EXACT = {"log_changelog__mode": "all", "changelog__producer": "lookup"}
AVRO, DEBEZIUM_AVRO = {"log_format": "avro"}, {"log_format": "debezium-avro"}
KINDS: Mapping[str, Mapping[str, str]] = {
    "upsert": {},
    "upsert-input": {"changelog__producer": "input"},
    "upsert-lookup": {"changelog__producer": "lookup"},
    "upsert-full-compaction": {"changelog__producer": "full-compaction"},
    "exact": EXACT,
    "eventual": {"log_consistency": "eventual"},
    "json": {"log_format": "json"},
    "json-eventual": {"log_format": "json", "log_consistency": "eventual", "log_changelog__mode": "upsert"},
    "avro": AVRO,
    "debezium-avro": DEBEZIUM_AVRO,
    "debezium-avro-exact": {**EXACT, **DEBEZIUM_AVRO},
    "first-row": {"merge__engine": "first-row", "changelog__producer": "lookup"},
    "deletion-vectors": {"deletion__vectors_enabled": "true"},
    "partial-update": {"merge__engine": "partial-update", "changelog__producer": "lookup"},
    "aggregation": {
        "merge__engine": "aggregation", "changelog__producer": "lookup", "fields_v_aggregate__function": "listagg",
    },
    "sequence-field": {"sequence_field": "v", "changelog__producer": "lookup"},
}  # fmt: skip

BY_CASE = (0, 1)
"""Where a job of several tables has the name of a table and the key."""
TOPICS = ("upsert", "exact", "json", "avro", "debezium-avro", "debezium-avro-exact", "deletion-vectors")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("follows", ["log", "files"])
def test_a_stream_begins_with_every_row_and_goes_on(
    follows: str, catalog: Catalog, flink: Flink, tmp_path: Path
) -> None:
    """Rows of level 0 too: where Flink takes the changelogs of compactions, with the next one.

    One job reads a table of each kind; one of the files also those kinds whose log it would follow without a hint.
    """
    kinds = {case: TableOptions.parse(dotted(given), primary_key=["id"]) for case, given in KINDS.items()}
    cases = [case for case, options in kinds.items() if flink_reads_log(options) == (follows == "log")]
    hinted = {} if follows == "log" else dict.fromkeys(("upsert", "upsert-input"), "'log.system'='none', ")
    cases += hinted
    tables = {case: flink_table(catalog, named_after(case), **KINDS[case]) for case in cases}
    for table in tables.values():
        put_rows(table, {key: f"a{key}" for key in range(20)})
        if follows == "files":
            table.compact(full=True)
    begins = in_tables(tables)
    for table in tables.values():
        put_rows(table, {key: f"b{key}" for key in range(10, 25)})
    sees_level_0 = [case for case in cases if kinds[case].changelog_producer in ("none", "input")]
    begins |= in_tables({case: tables[case] for case in sees_level_0})
    warehouse = flink.catalog(tmp_path)
    query = union_of(
        {
            case: f"{warehouse}.{each.name} /*+ OPTIONS({hinted.get(case, '')}{SMALL_STEPS}) */"
            for case, each in tables.items()
        }
    )
    assert by_key(flink.sql(query), 2) == in_tables(tables)
    with flink.stream(query) as stream:
        stream.until(begins, BY_CASE)
        for case, table in tables.items():
            put_rows(table, {1: "changed", 60: "new"})
            if "merge__engine" not in KINDS[case]:
                put_rows(table, {2: "a2"}, "-D")
            if follows == "files":
                table.compact(full=True)
        found = stream.until(in_tables(tables), BY_CASE)
    as_written = {
        "upsert-input"
    } & hinted.keys()  # changelog files of the input: our writes do not say what they replace
    exact = {case: table for case, table in tables.items() if case not in as_written}
    assert replayed([each for each in found if each[1] in exact], BY_CASE) == in_tables(exact)


def test_a_table_without_a_key_is_followed_by_its_log(catalog: Catalog, flink: Flink, tmp_path: Path) -> None:
    """By a job that is there before the first row, too."""
    table = catalog.create_table("db.t", SCHEMA, options={"bucket": "2", "bucket-key": "id"})
    query = f"SELECT * FROM {flink.catalog(tmp_path)}.db.t"
    with flink.stream(query) as early:
        put_rows(table, {1: "a", 2: "a"})
        with flink.stream(query) as late:
            late.wait(lambda changes: len(changes) == 2)
            put_rows(table, {2: "b", 3: "b"})
            found = late.wait(lambda changes: len(changes) == 4)
        assert sorted(early.wait(lambda changes: len(changes) == 4)) == sorted(found)
    assert sorted(found) == [("+I", 1, "a"), ("+I", 2, "a"), ("+I", 2, "b"), ("+I", 3, "b")]
    assert sorted(flink.sql(query)) == sorted(found)


@pytest.mark.long
def test_a_table_with_partitions_is_followed_by_its_log(catalog: Catalog, flink: Flink, tmp_path: Path) -> None:
    """By a job that is there before the first row, too; a bucket of each partition is one of the log's."""
    schema = pa.schema([("zone", pa.string()), *SCHEMA])
    keys = ["zone", "id"]
    table = catalog.create_table("db.t", schema, primary_key=keys, partition_by=["zone"], options={"bucket": "2"})
    query = f"SELECT * FROM {flink.catalog(tmp_path)}.db.t"

    def put(zone: str, v: str) -> None:
        table.write(pa.table({"zone": [zone] * 9, "id": pa.array(range(9), pa.int32()), "v": [v] * 9}))

    def has_all(changes: list[Change]) -> bool:
        rows = {tuple(row.values()) for row in table.read().to_arrow().to_pylist()}
        return set(rows_of_changes(changes, key=(0, 1)).values()) == rows

    with flink.stream(query) as early:
        put("east", "a")
        put("west", "a")
        with flink.stream(query) as late:
            late.wait(has_all)
            put("east", "b")
            put("north", "b")
            for stream in (early, late):
                replayed(stream.wait(has_all), key=(0, 1))
    assert {row[1:] for row in flink.sql(f"{query} WHERE zone = 'east'")} == {("east", key, "b") for key in range(9)}


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


def test_a_job_gives_its_own_login(flink: Flink, secure_broker: SecureBroker, tmp_path: Path) -> None:
    """The table stores none: its topic is behind TLS and a password, and only who gives one follows it."""
    topics, ids = (
        Right("ALL", "TOPIC", "db.", is_prefix=True),
        Right("ALL", "TRANSACTIONAL_ID", "fluvial.", is_prefix=True),
    )
    owner = secure_broker.new_user(topics, ids)
    catalog = Catalog(str(tmp_path), options={f"log.kafka.{name}": value for name, value in owner.items()})
    table = flink_table(catalog, f"db.secure_{tmp_path.name}")
    put_rows(table, {1: "a"})
    reader = secure_broker.new_user(Right("READ", "TOPIC", table.log.topic), Right("READ", "GROUP", "*"))
    login = (
        "org.apache.flink.kafka.shaded.org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{reader["sasl.username"]}" password="{reader["sasl.password"]}";'
    )
    given = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": login,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(secure_broker.authority),
    }
    hint = ", ".join(f"'{option}'='{text}'" for option, text in given.items())
    name = f"{flink.catalog(tmp_path)}.{table.name}"
    assert owner["sasl.password"] not in str(flink.sql(f"SHOW CREATE TABLE {name}"))
    with flink.stream(f"SELECT * FROM {name} /*+ OPTIONS({hint}) */") as stream:
        put_rows(table, {2: "b"})
        stream.wait(lambda changes: rows_of_changes(changes) == in_table(table))


def test_a_job_may_take_changes_as_they_are_in_the_log(catalog: Catalog, flink: Flink, tmp_path: Path) -> None:
    """FLIP-188's `log.scan.remove-normalize`: no state completes an update by the row that it replaces."""
    table = flink_table(catalog)
    put_rows(table, {1: "a"})
    hint = "'scan.remove-normalize'='true'"
    with flink.stream(f"SELECT * FROM {flink.catalog(tmp_path)}.db.t /*+ OPTIONS({hint}) */") as stream:
        stream.wait(lambda changes: len(changes) == 1)
        put_rows(table, {1: "b"})
        assert stream.wait(lambda changes: len(changes) == 2) == [("+I", 1, "a"), ("+I", 1, "b")]


@pytest.mark.long
def test_a_topic_makes_the_table(catalog: Catalog, flink: Flink, broker: Broker) -> None:
    """Without Paimon's connector: an envelope of Debezium's, or `upsert-kafka`; JSON, or Avro of a registry."""
    tables = {case: flink_table(catalog, named_after(case), **KINDS[case]) for case in TOPICS}
    for table in tables.values():
        put_rows(table, {key: f"a{key}" for key in range(10)})
        put_rows(table, {key: f"b{key}" for key in range(5)})
        put_rows(table, {7: "a7"}, "-D")
    query = union_of({case: topic_in_flink(flink, table, broker) for case, table in tables.items()})
    with flink.stream(query) as stream:
        stream.until(in_tables(tables), BY_CASE)
        for table in tables.values():
            put_rows(table, {3: "c", 60: "new"})
        found = stream.until(in_tables(tables), BY_CASE)
    for case, table in tables.items():
        if table.options.log_is_exact or table.options.log_format in TOMBSTONE_FORMATS:
            changes = [(kind, *row) for kind, where, *row in found if where == case]
            assert replayed(changes) == in_table(table), case


def test_a_bounded_read_of_a_topic_ends_where_a_snapshot_does(catalog: Catalog, flink: Flink, broker: Broker) -> None:
    """Its offsets are behind a record, not behind the marks of transactions, at which Flink 3.2 waits for a record.

    One bucket has no record but the table's claim to it, one has more records behind the snapshot.
    """
    tables = {
        case: flink_table(catalog, named_after(case), **KINDS[case], bucket="3") for case in ("upsert", "exact", "json")
    }
    sources = {}
    for case, table in tables.items():
        put_rows(table, {1: "a", 2: "a", 3: "a"})
        put_rows(table, {1: "b"})
        put_rows(table, {2: "a"}, "-D")
        assert len(table.store.snapshots.latest().log_offsets) < 3
        sources[case] = f"{topic_in_flink(flink, table, broker)} /*+ OPTIONS({bounded(table)}) */"
    expected = in_tables(tables)
    for table in tables.values():
        put_rows(table, {1: "later", 3: "later"})
    assert rows_of_changes(flink.sql(union_of(sources), streaming=True), BY_CASE) == expected


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
    """The oracle is Paimon's reader of the files. Of a TIME in JSON, Flink itself drops the fraction of a second.

    What Flink writes, of what it read in the topic, is the same to our batch reads and streams.
    """
    tables = {
        case: catalog.create_table(named_after(case), ALL, primary_key=["id"], options={"bucket": "2", **dotted(given)})
        for case, given in KINDS.items()
        if case in ("upsert", "json", "exact")
    }
    warehouse = flink.catalog(tmp_path)
    names = {case: f"{warehouse}.{table.name}" for case, table in tables.items()}

    def put(first: int) -> None:
        for table in tables.values():
            table.write(every_value(first))
            if not flink_reads_log(table.options):
                table.compact(full=True)

    put(0)
    query = union_of({case: f"{name} /*+ OPTIONS({SMALL_STEPS}) */" for case, name in names.items()})
    with flink.stream(query) as stream:
        stream.wait(lambda changes: len(changes) == 3 * len(tables))
        put(10)
        found = stream.wait(lambda changes: len(changes) == 6 * len(tables))
    expected = by_key(flink.sql(query), 2)
    assert rows_of_changes(found, BY_CASE) == expected
    values = [row[2:] for _, row in sorted(expected.items())]
    assert values == values[:3] * (2 * len(tables))
    topics = {case: topic_like(flink, names[case], table, broker) for case, table in tables.items()}
    with flink.stream(union_of(topics)) as stream:
        stream.until(expected, BY_CASE)
    ours = {case: Query(tmp_path, table.name) for case, table in tables.items()}
    copied = ", ".join(f"`{column}`" for column in ALL.names[1:])
    inserts = [
        f"INSERT INTO {names[case]} SELECT id + 20, {copied} FROM {topic} /*+ OPTIONS({bounded(tables[case])}) */ "
        "WHERE id < 10;"
        for case, topic in topics.items()
    ]
    flink.sql(f"EXECUTE STATEMENT SET BEGIN {' '.join(inserts)} END", streaming=True)
    for case, table in tables.items():
        by_flink = table.read().to_arrow().filter(pc.field("id") >= 20)
        streamed = [row for row in ours[case].available() if row["id"] >= 20]
        assert [row["_row_kind"] for row in streamed] == ["+I"] * 3, case
        for found_here in (by_flink, pa.Table.from_pylist(streamed, ALL)):
            assert normalise(found_here) == normalise(every_value(20)), case


def every_value(first: int) -> pa.Table:
    """Three rows from an id on: the least values, the greatest, and nulls."""
    values = [{"id": first, **LEAST}, {"id": first + 1, **MOST}, {"id": first + 2}]
    return pa.Table.from_pylist([{**dict.fromkeys(ALL.names), **each} for each in values], ALL)


def topic_like(flink: Flink, name: str, table: Table, broker: Broker) -> str:
    """A table of Flink's own connectors on the topic, with the columns that the catalog has; its name."""
    is_upsert = table.options.log_format in TOMBSTONE_FORMATS
    made = f"topic_of_{name.rpartition('.')[2]}"
    flink.define(
        f"CREATE TEMPORARY TABLE {made} WITH ('topic'='{table.log.topic}', "
        f"'properties.bootstrap.servers'='{broker.bootstrap_servers}', "
        + (
            "'connector'='upsert-kafka', 'key.format'='json', 'value.format'='json'"
            if is_upsert
            else "'connector'='kafka', 'format'='debezium-json', 'scan.startup.mode'='earliest-offset'"
        )
        + f") LIKE {name} (EXCLUDING OPTIONS{'' if is_upsert else ' EXCLUDING CONSTRAINTS'})"
    )
    return made


def bounded(table: Table) -> str:
    """The hint with which a topic is read up to the newest snapshot."""
    known = table.store.snapshots.latest().log_offsets
    ends = ";".join(f"partition:{bucket},offset:{known.get(bucket, 0)}" for bucket in range(table.options.bucket))
    return f"'scan.bounded.mode'='specific-offsets', 'scan.bounded.specific-offsets'='{ends}'"
