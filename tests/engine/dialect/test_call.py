"""CALL statements."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from engine import sql as run_sql
from engine.dialect.call import run_call
from engine.dialect.grammar.parser import parse_statements
from engine.dialect.scope.context import SqlContext
from engine.procedures import PROCEDURES
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


@pytest.mark.parametrize("where", ["", " IN sys", " FROM fluvial.sys", " IN FLUVIAL.SYS"])
def test_procedures_are_listed(where: str, tmp_path: Path) -> None:
    shown = run_sql(None, f"SHOW PROCEDURES{where}", str(tmp_path))
    assert shown["procedure"].to_pylist() == [*PROCEDURES]
    assert all(shown["description"].to_pylist())
    some = run_sql(None, f"SHOW PROCEDURES{where} LIKE 'create%branch|verify'", str(tmp_path))
    assert some["procedure"].to_pylist() == ["create_branch", "verify"]
    with pytest.raises(InvalidInputError, match=r"no procedures are there: database=shop .*IN fluvial\.sys"):
        run_sql(None, "SHOW PROCEDURES IN shop", str(tmp_path))


def test_help_has_each_argument_of_a_procedure(context: SqlContext) -> None:
    listed = call(context, "CALL sys.help()")
    assert listed["name"].to_pylist() == [*PROCEDURES]
    for name, procedure in PROCEDURES.items():
        shown = call(context, f"CALL sys.help('{name}')").to_pylist()
        table = ["table"] * procedure.is_of_table
        assert [row["name"] for row in shown] == [name, *table, *(each.name for each in procedure.parameters)]
        assert all(row["description"] for row in shown)
        required = {each.name for each in procedure.parameters if each.is_required}
        assert {row["name"] for row in shown if row["default"] == "required"} == {*table, *required}
    by_other_words = call(context, "CALL fluvial.sys.help(procedure => 'sys.Create-Tag')")
    assert by_other_words == call(context, "CALL sys.help('create_tag')")
    with pytest.raises(InvalidInputError, match=r"no such procedure: procedure=compct did_you_mean=compact"):
        call(context, "CALL sys.help('compct')")


@pytest.mark.parametrize(
    ("statement", "says"),
    [
        ("OPTIMIZE shop.orders ZORDER BY (id)", "CALL sys.compact"),
        ("VACUUM shop.orders RETAIN 168 HOURS", "CALL sys.expire_snapshots"),
        ("RESTORE TABLE shop.orders TO VERSION AS OF 1", "CALL sys.rollback_to_as_latest"),
        ("CONVERT TO DELTA shop.orders", "CALL sys.migrate_table"),
        ("FSCK REPAIR TABLE shop.orders", "CALL sys.verify"),
        ("ALTER TABLE shop.orders EXECUTE expire_snapshots(retention_threshold => '7d')", "CALL sys.procedure"),
    ],
)
def test_statements_of_other_formats_are_answered_with_the_call(statement: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=f"write=[\"']{says}") as refused:
        run_sql(None, statement, str(tmp_path))
    named = str(refused.value).partition("CALL sys.")[2].partition("(")[0]
    assert named in {*PROCEDURES, "procedure"}


@pytest.mark.parametrize(
    ("name", "ours"), [("rollback_to_snapshot", "rollback"), ("optimize", "compact"), ("vacuum", "expire_snapshots")]
)
def test_procedures_of_other_formats_are_answered_with_the_own_one(name: str, ours: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=rf"no such procedure did_you_mean=sys\.{ours}:"):
        run_sql(None, f"CALL sys.{name}('shop.orders')", str(tmp_path))
    assert ours in PROCEDURES
