"""CALL statements."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import sqlglot

from engine import Catalog, Table
from engine.procedures import call
from engine.sql.context import SqlContext
from lsm.errors import InvalidInputError


@dataclass
class Argument:
    name: str | None
    value: Any
    start: int = 3
    stop: int = 4


@dataclass
class Tree:
    procedure: tuple[str, ...]
    arguments: tuple[Argument, ...]
    start: int = 1
    stop: int = 2


class Source:
    def problem(self, problem: str, start: int, stop: int) -> InvalidInputError:
        return InvalidInputError(f"{problem} at={start}-{stop}")


@dataclass
class Statement:
    tree: Tree
    source: Source


def statement(name: str, /, *positional: str, **named: str) -> Statement:
    """Values are SQL texts of literals."""
    values = [(None, text) for text in positional] + list(named.items())
    arguments = tuple(Argument(key, sqlglot.parse_one(text, read="spark")) for key, text in values)
    return Statement(Tree(tuple(name.split(".")), arguments), Source())


@pytest.fixture
def context(catalog: Catalog, new_table: Callable[..., Table]) -> SqlContext:
    new_table()

    def no_spark() -> Any:
        raise AssertionError("no procedure of these needs Spark")

    return SqlContext(catalog=catalog, open_spark=no_spark, database="shop")


def test_procedures_are_called_by_name_and_by_position(context: SqlContext) -> None:
    """TAG-61; named and positional arguments, tables with and without database and catalog."""
    made = call(context, statement("sys.create_tag", table="'orders'", tag="'a'", snapshot="1"))
    assert made.to_pylist()[0]["tagged_snapshot_id"] == 1
    call(context, statement("fluvial.sys.create_tag", "'shop.orders'", "'b'", "NULL", "'7 d'"))
    call(context, statement("CREATE_TAG", TABLE="'fluvial.shop.orders'", name="'c'"))
    deleted = call(context, statement("sys.delete_tag", table="'orders'", tag="'a,b'", dry_run="true"))
    assert deleted.column("tag_name").to_pylist() == ["a", "b"]
    expired = call(
        context, statement("sys.expire_snapshots", table="'orders'", older_than="TIMESTAMP '2020-01-01 00:00:00'")
    )
    assert expired.num_rows == 0
    assert call(context, statement("sys.compact_database", including_tables="'none'")).num_rows == 0


@pytest.mark.parametrize(
    ("wrong", "fact"),
    [
        (statement("sys.creat_tag", table="'orders'"), "no such procedure did_you_mean=sys.create_tag at=1-2"),
        (statement("other.create_tag", table="'orders'"), "no such procedure .*at=1-2"),
        (statement("sys.create_tag", tag="'a'"), "argument is missing: procedure=create_tag argument=table"),
        (statement("sys.create_tag", "'orders'", tag="'a'"), "by name or by position, not both at=1-2"),
        (statement("sys.create_tag", table="'orders'", tag="1 + 1"), "an argument is a literal at=3-4"),
        (statement("sys.create_tag", table="'orders'", tga="'a'"), "did_you_mean=tag"),
        (statement("sys.create_tag", table="'orders'", tag="'a'", snapshot="'x'"), "value='x' expected=integer"),
        (statement("sys.create_tag", table="'orders'", tag="'a'", snapshot="-1"), "no such snapshot to tag"),
        (statement("sys.create_tag", table="'ordres'", tag="'a'"), "ordres"),
    ],
)
def test_what_is_wrong_with_a_call_is_pointed_at(context: SqlContext, wrong: Statement, fact: str) -> None:
    with pytest.raises(InvalidInputError, match=fact):
        call(context, wrong)
