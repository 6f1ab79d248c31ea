"""``fluvial cdc verify`` over a database that Debezium publishes and its tables: decoded, written, compared."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from engine.cli.app import run_command
from engine.procedures import create_tag
from engine.table import Table
from logstore.format.debezium import decode_envelopes
from lsm.row_kind import RowKind
from tests.stores.debezium import ChangeSource

ORDERS = pa.schema(
    [
        ("b", pa.string()),
        ("a", pa.int64()),
        ("n", pa.decimal128(10, 2)),
        ("f", pa.float64()),
        ("ts", pa.timestamp("us", "UTC")),
        ("ia", pa.list_(pa.int32())),
    ]
)
KINDS = {int(RowKind.INSERT): "+I", int(RowKind.UPDATE_AFTER): "+U", int(RowKind.DELETE): "-D"}


def write_changes(source: ChangeSource, table: Table, name: str, written: int) -> int:
    """Write the changes of a topic behind those that are written; the number of all."""
    records = [each for each in source.records() if each.topic.endswith(f".{name}")]
    new = records[written:]
    decoded = decode_envelopes(
        pa.array([each.value for each in new], pa.binary()),
        schema=pa.schema([table.schema.arrow_field(each) for each in table.schema.column_names]),
        keys=pa.array([each.key for each in new], pa.binary()),
        key_names=table.schema.primary_keys,
    )
    kinds = pa.array([KINDS[each] for each in decoded.kinds.to_pylist()], pa.string())
    table.write(pa.Table.from_batches([decoded.rows]), kinds=kinds)
    return len(records)


def verified(source: ChangeSource, warehouse: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, Any]:
    capsys.readouterr()
    places = ("--warehouse", str(warehouse), "--database", "shop", "--dsn", source.url)
    code = run_command(["cdc", "verify", *places, "--tables", r".*\.orders", "--json", *more])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("which", ["postgres_source", "mariadb_source"])
def test_a_table_that_follows_a_database_equals_it_also_when_the_connector_was_killed(
    which: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source: ChangeSource = request.getfixturevalue(which)
    is_postgres = which == "postgres_source"
    types = ("text", "timestamptz", "int[]") if is_postgres else ("varchar(20)", "timestamp(6) null", "int")
    schema = ORDERS if is_postgres else ORDERS.set(5, pa.field("ia", pa.int32()))
    array = "'{1,NULL}'" if is_postgres else "7"
    moment = "'2026-11-20 12:34:56.5'"
    source.execute(
        f"CREATE TABLE orders (b {types[0]}, a bigint, n numeric(10,2), f double precision, ts {types[1]}, "
        f"ia {types[2]}, PRIMARY KEY (b, a))",
        f"INSERT INTO orders VALUES ('x', 1, -1.50, 0.1, {moment}, {array}), ('x', 2, 2, NULL, NULL, NULL)",
    )
    source.start()
    table = Catalog(str(tmp_path)).create_table("shop.orders", schema, primary_key=["b", "a"])
    written = write_changes(source, table, "orders", 0)
    assert verified(source, tmp_path, capsys)[0] == 0
    source.connect.kill()
    source.execute(
        "UPDATE orders SET a = 3 WHERE a = 1",
        "UPDATE orders SET a = 1 WHERE a = 2",
        "INSERT INTO orders VALUES ('y', 9, 9.99, 1e300, NULL, NULL)",
        "DELETE FROM orders WHERE b = 'y'",
        "INSERT INTO orders VALUES ('y', 9, 0.01, -1e-300, NULL, NULL)",
    )
    code, (found,) = verified(source, tmp_path, capsys)
    assert (code, found["equal"], found["source_rows"], found["table_rows"]) == (1, False, 3, 2)
    kinds = {(each["key"]["b"], each["key"]["a"]): each["kind"] for each in found["differences"]}
    assert kinds == {("x", "3"): "missing", ("x", "2"): "unexpected", ("x", "1"): "different", ("y", "9"): "missing"}
    (changed,) = [each for each in found["differences"] if each["kind"] == "different"]
    assert changed["columns"]["n"] == {"source": "2.00", "table": "-1.50"}
    assert changed["columns"]["f"] == {"source": None, "table": "0.1"}
    assert len(source.rows(changed["sql"])) == 1
    source.connect.start()
    create_tag(table, "before")
    write_changes(source, table, "orders", written)
    code, (found,) = verified(source, tmp_path, capsys, "--at", "before")
    assert (code, found["table_rows"], len(found["differences"])) == (1, 2, 4)
    code, (found,) = verified(source, tmp_path, capsys)
    assert (code, found["differences"], found["not_compared"]) == (0, [], {})
    assert found["table"] == "shop.orders"


def test_a_table_that_is_not_there_is_a_difference_if_the_source_has_rows(
    postgres_source: ChangeSource, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A connector publishes nothing of an empty table."""
    Catalog(str(tmp_path)).create_database("shop")
    postgres_source.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    code, (found,) = verified(postgres_source, tmp_path, capsys)
    assert (code, found["equal"]) == (0, True)
    postgres_source.execute("INSERT INTO orders VALUES (1)")
    code, (found,) = verified(postgres_source, tmp_path, capsys)
    assert code == 1
    assert "there is no such table, and 1 rows in the database: fix='fluvial cdc resnapshot public.orders" in str(found)
