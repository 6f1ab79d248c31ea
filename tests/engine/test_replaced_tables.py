"""CREATE OR REPLACE TABLE where names are directories: there is always a table of the name."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from filestore.io import file_io
from filestore.io.disk import exchange
from filestore.io.file_io import LocalFileIO

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
STEPS = ("move_directory", "exchange_directories", "delete_tree", "create_exclusive", "delete")


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """``shop.orders`` with two rows."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    table = catalog.create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [1, 2], "v": [1, 2]}, schema=SCHEMA))
    return catalog


def replaced(catalog: Catalog, column: str) -> None:
    def no_spark() -> SparkSession:
        raise AssertionError("nothing here needs Spark")

    session = SqlSession(SqlContext(catalog=catalog, open_spark=no_spark, database="shop"))
    session.execute(f"CREATE OR REPLACE TABLE orders ({column} INT)")


def names_of_columns(catalog: Catalog) -> tuple[str, ...]:
    return tuple(catalog.table("shop.orders").schema.column_names)


@pytest.fixture
def can_exchange(tmp_path: Path) -> None:
    """The file system of the tests has such a step; on one that has none these tests would show nothing."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    assert exchange(str(tmp_path / "one"), str(tmp_path / "two")), "give --basetemp a file system that exchanges names"


@pytest.mark.usefixtures("can_exchange")
@pytest.mark.parametrize("method", STEPS)
def test_readers_find_the_old_table_or_the_new_one(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """After each step on the disk, and also where the process dies there."""
    step, seen = getattr(LocalFileIO, method), []

    def looked_at(self: LocalFileIO, *given: Any) -> Any:
        done = step(self, *given)
        seen.append(names_of_columns(catalog))
        return done

    with monkeypatch.context() as patch:
        patch.setattr(LocalFileIO, method, looked_at)
        replaced(catalog, "c")
    assert set(seen) <= {("id", "v"), ("c",)}
    assert names_of_columns(catalog) == ("c",)
    assert catalog.list_tables("shop") == ["orders"]
    for number in range(len(seen)):
        left = [number]

        def dies(self: LocalFileIO, *given: Any) -> Any:
            done = step(self, *given)
            left[0] -= 1  # noqa: B023
            if left[0] < 0:  # noqa: B023
                raise KeyboardInterrupt
            return done

        with monkeypatch.context() as patch:
            patch.setattr(LocalFileIO, method, dies)
            with pytest.raises(KeyboardInterrupt):
                replaced(catalog, f"d{number}")
        assert names_of_columns(catalog) in {("c",), *((f"d{each}",) for each in range(number + 1))}


def test_where_the_file_system_has_no_such_step_the_old_table_is_dropped_first(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_io, "exchange", lambda one, other: False)
    replaced(catalog, "c")
    assert names_of_columns(catalog) == ("c",)
    assert catalog.list_tables("shop") == ["orders"]
    assert catalog.table("shop.orders").read().to_arrow().num_rows == 0
