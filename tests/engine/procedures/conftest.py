"""A warehouse on disk, and the three ways to call a procedure."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.cli.app import run_command
from engine.procedures import PROCEDURES
from engine.procedures.registry import bind
from tests.support.option_keys import dashed
from tests.support.rows import arrow_rows, row_set

SCHEMA = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("v", pa.int64())])
Rows = list[dict[str, Any]]
Call = Callable[..., Rows]


@pytest.fixture
def new_table(catalog: Catalog) -> Callable[..., Table]:
    """Makes ``shop.orders``: days d1 and d2, written in two commits."""

    def make(name: str = "shop.orders", **options: str) -> Table:
        texts = dashed(options)
        table = catalog.create_table(
            name,
            SCHEMA,
            primary_key=["dt", "id"],
            partition_by=["dt"],
            options={"bucket": "2", "log.system": "none", **texts},
        )
        table.write(order_rows(("d1", 1, 1), ("d1", 2, 2), ("d2", 3, 3)))
        table.write(order_rows(("d1", 1, 9)))
        return table

    return make


@pytest.fixture(params=["python", "sql", "cli"])
def call(request: pytest.FixtureRequest, catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a procedure on ``shop.orders`` and gives its rows: by each of the three ways."""

    def run(name: str, /, **arguments: Any) -> Rows:
        procedure = PROCEDURES[name]
        target: Any = catalog.table("shop.orders") if procedure.is_of_table else catalog
        if request.param == "python":
            own = {procedure.aliases.get(key, key): value for key, value in arguments.items()}
            return procedure(target, **own).to_pylist()  # type: ignore[no-any-return]
        if request.param == "sql":
            return procedure.run(target, bind(procedure, (), arguments)).to_pylist()  # type: ignore[no-any-return]
        place = ["--warehouse", catalog.warehouse]
        place += ["--database", "shop", "--table", "orders"] if procedure.is_of_table else []
        code = run_command([name.replace("_", "-"), *place, *_flags(arguments), "--json"])
        captured = capsys.readouterr()
        assert code == 0, captured.err
        return json.loads(captured.out)["rows"]  # type: ignore[no-any-return]

    return run


def _flags(arguments: Mapping[str, Any]) -> list[str]:
    found = []
    for name, value in arguments.items():
        flag = f"--{name.replace('_', '-')}"
        found += [flag] if value is True else [flag, str(value)]
    return found


def order_rows(*values: tuple[str, int, int]) -> pa.Table:
    """Rows of ``shop.orders``."""
    return arrow_rows(SCHEMA, *values)


@pytest.fixture
def content() -> Callable[..., frozenset[tuple[str, int, int]]]:
    """The rows of a table, by a fresh look at it."""

    def read(catalog: Catalog, **travel: Any) -> frozenset[tuple[str, int, int]]:
        return row_set(catalog.table("shop.orders"), **travel)

    return read
