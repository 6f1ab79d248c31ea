"""CALL statements."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from engine.dialect.call import run_call
from engine.dialect.grammar.parser import parse_statements
from engine.dialect.scope.context import SqlContext
from lsm.errors import InvalidInputError


def call(context: SqlContext, text: str) -> pa.Table:
    return run_call(context, parse_statements(text)[0])


@pytest.fixture
def context(tmp_path: Path) -> SqlContext:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("shop.orders", pa.schema([("id", pa.int64())]), primary_key=["id"])
    table.write(pa.table({"id": [1]}))

    def no_spark() -> Any:
        raise AssertionError("no procedure of these needs Spark")

    return SqlContext(catalog=catalog, open_spark=no_spark, database="shop")


def test_procedures_are_called_by_name_and_by_position(context: SqlContext) -> None:
    """TAG-61; named and positional arguments, tables with and without database and catalog."""
    made = call(context, "CALL sys.create_tag(table => 'orders', tag => 'a', snapshot => 1)")
    assert made.to_pylist()[0]["tagged_snapshot_id"] == 1
    call(context, "CALL fluvial.sys.create_tag('shop.orders', 'b', NULL, '7 d')")
    call(context, "call CREATE_TAG(TABLE => 'fluvial.shop.orders', name => 'c')")
    deleted = call(context, "CALL sys.delete_tag(table => 'orders', tag => 'a,b', dry_run => true)")
    assert deleted.column("tag_name").to_pylist() == ["a", "b"]
    expired = call(
        context, "CALL sys.expire_snapshots(table => 'orders', older_than => TIMESTAMP '2020-01-01 00:00:00')"
    )
    assert expired.num_rows == 0
    assert call(context, "CALL sys.compact_database(including_tables => 'none')").num_rows == 0


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        ("sys.creat_tag(table => 'orders')", "no such procedure did_you_mean=sys.create_tag.* line=1 column=6"),
        ("other.create_tag(table => 'orders')", "no such procedure.* line=1 column=6"),
        ("sys.create_tag(tag => 'a')", "argument is missing: procedure=create_tag argument=table"),
        ("sys.create_tag('orders', tag => 'a')", "by name or by position, not both.* line=1 column=6"),
        ("sys.create_tag(table => 'orders', tag => 1 + 1)", "an argument is a literal.* line=1 column=40"),
        ("sys.create_tag(table => 'orders', tga => 'a')", "did_you_mean=tag"),
        ("sys.create_tag(table => 'orders', tag => 'a', snapshot => 'x')", "value='x' expected=integer"),
        ("sys.create_tag(table => 'orders', tag => 'a', snapshot => -1)", "no such snapshot to tag"),
        ("sys.create_tag(table => 'ordres', tag => 'a')", "ordres"),
    ],
)
def test_what_is_wrong_with_a_call_is_pointed_at(context: SqlContext, wrong: str, fact: str) -> None:
    with pytest.raises(InvalidInputError, match=fact):
        call(context, f"CALL {wrong}")
