"""An unknown option is refused wherever options are given, and a similar one is named."""

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, sink, sql
from engine.kafka.options import KafkaSourceOptions
from engine.request.read_keys import BATCH_KEYS, STREAM_KEYS
from engine.request.writer_options import BATCH_WRITE_KEYS
from engine.spark.read_options import ReadOptions
from engine.spark.system_reader import system_schema
from engine.spark.write_options import STREAM_WRITE_KEYS, WriteOptions
from lsm.errors import InvalidInputError

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False)])
ROWS = pa.table({"id": [1]}, schema=SCHEMA)
Options = Mapping[str, str]


def place(catalog: Catalog, table: str = "d.t") -> dict[str, str]:
    return {"warehouse": catalog.warehouse, "table": table}


ENTRIES: dict[str, tuple[str, Callable[[Catalog, Options], Any]]] = {
    "Catalog": ("metastor", lambda c, o: Catalog(c.warehouse, o)),
    "Catalog, of tables": ("table-default.buckett", lambda c, o: Catalog(c.warehouse, o)),
    "create_table": ("buckett", lambda c, o: c.create_table("d.u", SCHEMA, options=o)),
    "system_table": ("scan.snapshot-idd", lambda c, o: c.system_table("d.t$files", o)),
    "read": ("scan.log.unoin", lambda c, o: c.table("d.t").read(options=o)),
    "dataframe": ("scan.log.unoin", lambda c, o: c.table("d.t").dataframe(None, options=o)),  # type: ignore[arg-type]
    "write": ("write.merge-schem", lambda c, o: c.table("d.t").write(ROWS, options=o)),
    "append": ("write.merge-schem", lambda c, o: c.table("d.t").append(ROWS, o)),  # type: ignore[arg-type]
    "overwrite": ("dynamic-partition-overwrit", lambda c, o: c.table("d.t").overwrite(ROWS, options=o)),
    "sink": ("change-trackin", lambda c, o: sink(c.table("d.t"), o)),
    "spark.read": ("scan.log.unoin", lambda c, o: ReadOptions.parse(place(c) | dict(o), BATCH_KEYS)),
    "spark.read, system table": ("scan.snapshot-idd", lambda c, o: system_schema(place(c, "d.t$files") | dict(o))),
    "spark.readStream": ("read.changelg", lambda c, o: ReadOptions.parse(place(c) | dict(o), STREAM_KEYS)),
    "df.write": ("write.merge-schem", lambda c, o: WriteOptions.parse(place(c) | dict(o), BATCH_WRITE_KEYS)),
    "df.writeStream": ("change-trackin", lambda c, o: WriteOptions.parse(place(c) | dict(o), STREAM_WRITE_KEYS)),
    "fluvial-kafka": ("value.fromat", lambda _, o: KafkaSourceOptions.parse(o)),
    "sql": ("buckett", lambda c, o: sql(None, "SHOW TABLES", c, **o)),
    "SET": ("buckett", lambda c, o: sql(None, f"SET table-storage.{next(iter(o))} = 1", c)),
    "CREATE": ("buckett", lambda c, o: sql(None, f"CREATE TABLE d.u (id INT) WITH ('{next(iter(o))}' = '1')", c)),
    "ALTER": ("buckett", lambda c, o: sql(None, f"ALTER TABLE d.t SET ('{next(iter(o))}' = '1')", c)),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_misspelt_option_is_refused_with_the_one_that_was_meant(entry: str, catalog: Catalog) -> None:
    catalog.create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "1"}).write(ROWS)
    key, call = ENTRIES[entry]
    with pytest.raises(InvalidInputError, match="unknown") as caught:
        call(catalog, {key: "true"})
    assert key.removeprefix("table-default.") in str(caught.value)
    assert "did_you_mean" in str(caught.value)
    assert catalog.table("d.t").read().to_arrow().num_rows == 1


@pytest.mark.parametrize("key", ["bootstrap.server", "bootstrap-servers", "bootstrap_servers", "boostrap.servers"])
def test_misspelt_brokers_do_not_make_a_table_without_a_log(key: str, catalog: Catalog) -> None:
    given = {f"log.kafka.{key}": "localhost:9092"}
    message = f"unknown option: option=log.kafka.{key} did_you_mean=log.kafka.bootstrap.servers"
    for make in (
        lambda: catalog.create_table("d.t", SCHEMA, options=given),
        lambda: Catalog(catalog.warehouse, given).create_table("d.t", SCHEMA),
    ):
        with pytest.raises(InvalidInputError, match=message):
            make()
    login = {"log.kafka.sasl.username": "u"}  # of a catalog, for tables that have brokers
    assert Catalog(catalog.warehouse, login).create_table("d.t", SCHEMA).options.log_system == "none"
