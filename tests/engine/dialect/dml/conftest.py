"""Tables that no other test uses, and statements on them."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from engine import Table
from engine.dialect.dml.dml import run_dml
from engine.dialect.grammar.parser import parse_statements
from engine.dialect.scope.context import SqlContext
from filestore.types.data_types import DataField
from lsm.errors import InvalidInputError
from tests.engine.dialect.conftest import Warehouse

KEY = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int32()), ("name", pa.string())])
_made: list[str] = []


class Tables:
    """Makes tables that no other test uses, and runs statements with their names in the braces."""

    def __init__(self, context: SqlContext) -> None:
        self.context = context
        self.names: dict[str, str] = {}

    def make(self, name: str, schema: pa.Schema | list[DataField] = KEY, **arguments: Any) -> Table:
        self.names[name] = f"m{len(_made)}"
        _made.append(name)
        options = {"bucket": "1" if arguments.get("primary_key") else "-1", **arguments.pop("options", {})}
        return self.context.catalog.create_table(f"default.{self.names[name]}", schema, options=options, **arguments)

    def keyed(self, name: str = "t", **options: str) -> Table:
        table = self.make(name, primary_key=["id"], options=options)
        table.write(pa.table({"id": [1, 2, 3], "v": [10, 20, 30], "name": ["a", "b", "c"]}, schema=KEY))
        return table

    def run(self, text: str) -> dict[str, Any]:
        (statement,) = parse_statements(text.format(**self.names))
        (row,) = run_dml(self.context, statement).to_pylist()
        return {key: value for key, value in row.items() if value is not None}

    def refused(self, text: str) -> str:
        with pytest.raises(InvalidInputError) as caught:
            self.run(text)
        assert "fluvial_" not in str(caught.value)
        return str(caught.value)


@pytest.fixture
def tables(warehouse: Warehouse) -> Iterator[Tables]:
    found = Tables(warehouse.context)
    yield found
    warehouse.context.settings.clear()
