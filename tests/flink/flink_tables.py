"""Tables of an ``id`` and a text ``v`` with a log, and their rows as Flink gives them."""

from collections.abc import Iterable, Mapping

import pyarrow as pa

from engine import Catalog
from engine.broker.broker import Broker
from engine.table import Table
from filestore.options.table.log import TOMBSTONE_FORMATS
from tests.peers.flink import Change, Flink
from tests.support.option_keys import dotted

SCHEMA = pa.schema([("id", pa.int32()), ("v", pa.string())])
State = dict[tuple[object, ...], tuple[object, ...]]
SMALL_STEPS = "'continuous.discovery-interval'='100ms'"
"""Of a stream of files, which looks for snapshots every ten seconds by default."""
_FLINK_FORMATS = {
    "debezium-json": "debezium-json",
    "json": "json",
    "avro": "avro-confluent",
    "debezium-avro": "debezium-avro-confluent",
}


def flink_table(catalog: Catalog, name: str = "db.t", **options: str) -> Table:
    """A table with a key; options with underscores for dots."""
    return catalog.create_table(name, SCHEMA, primary_key=["id"], options={"bucket": "2", **dotted(options)})


def named_after(case: str) -> str:
    """A name that is no word of SQL."""
    return f"db.of_{case.replace('-', '_')}"


def put_rows(table: Table, rows: Mapping[int, str], kind: str = "") -> None:
    """Write rows by key, all of one kind."""
    columns = {"id": pa.array(rows, pa.int32()), "v": pa.array(rows.values(), pa.string())}
    table.write(pa.table(columns | ({"_row_kind": [kind] * len(rows)} if kind else {})))


def in_table(table: Table) -> State:
    """The rows by key."""
    return {(row["id"],): tuple(row.values()) for row in table.read().to_arrow().to_pylist()}


def by_key(rows: Iterable[Change], width: int = 1) -> State:
    """What a batch query gives, by its first columns."""
    found = [row[1:] for row in rows]
    assert len({row[:width] for row in found}) == len(found)
    return {row[:width]: row for row in found}


def union_of(sources: Mapping[str, str]) -> str:
    """One query, and so one job, of several tables: each row has its table's name here before its values."""
    return " UNION ALL ".join(f"SELECT CAST('{name}' AS STRING), * FROM {source}" for name, source in sources.items())


def in_tables(tables: Mapping[str, Table]) -> State:
    """The rows of several tables by name and key, as such a query has them."""
    return {(name, *key): (name, *row) for name, table in tables.items() for key, row in in_table(table).items()}


def topic_in_flink(flink: Flink, table: Table, broker: Broker) -> str:
    """The topic of a table as a table of Flink's own connectors, `kafka` or `upsert-kafka`; its name."""
    form, url = _FLINK_FORMATS[table.options.log_format], table.options.log_registry_url
    is_upsert = table.options.log_format in TOMBSTONE_FORMATS
    sides = ("key.", "value.") if is_upsert else ("",)
    options = {
        "connector": "upsert-kafka" if is_upsert else "kafka",
        "topic": table.log.topic,
        "properties.bootstrap.servers": broker.bootstrap_servers,
        "properties.isolation.level": "read_committed",
        **{f"{side}format": form for side in sides},
        **({f"{side}{form}.url": url for side in sides} if table.options.log_is_avro else {}),
        **({} if is_upsert else {"scan.startup.mode": "earliest-offset"}),
    }
    name = "topic_" + table.log.topic.replace(".", "_")
    key = ", PRIMARY KEY (id) NOT ENFORCED" if is_upsert else ""
    texts = ", ".join(f"'{option}'='{text}'" for option, text in options.items())
    flink.define(f"CREATE TEMPORARY TABLE {name} (id INT, v STRING{key}) WITH ({texts})")
    return name
