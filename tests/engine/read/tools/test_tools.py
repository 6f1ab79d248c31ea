"""Other Python tools read tables: the same rows by every way, and only the columns and files that a query wants."""

import math
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import datafusion
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pytest

from engine import Catalog, Table
from lsm.errors import InvalidInputError
from tests.support.faults import FaultyFileIO
from tests.support.tables import reopened

SCHEMA = pa.schema(
    [("day", pa.date32()), ("id", pa.int64()), ("x", pa.float64()), ("s", pa.string()), ("wide", pa.string())]
)
DAYS = [date(2026, 1, day) for day in (1, 2, 3)]
COUNT, WIDTH = 200, 2_000


def day_rows(day: int) -> pa.Table:
    generator = np.random.default_rng(day)
    texts = [generator.bytes(WIDTH // 2).hex() for _ in range(COUNT)]
    values = [None if each % 7 == 0 else math.nan if each % 11 == 0 else each / 4 for each in range(COUNT)]
    columns = {
        "day": pa.array([DAYS[day]] * COUNT, pa.date32()),
        "id": pa.array(range(day * COUNT, (day + 1) * COUNT), pa.int64()),
        "x": pa.array(values, pa.float64()),
        "s": pa.array([None if each % 5 == 0 else f"s{each % 10}" for each in range(COUNT)]),
        "wide": pa.array(texts),
    }
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    catalog = Catalog(str(tmp_path_factory.mktemp("tools") / "warehouse"))
    made = catalog.create_table(
        "db.t", SCHEMA, primary_key=["day", "id"], partition_by=["day"], options={"bucket": "1"}
    )
    for day in range(len(DAYS)):
        made.write(day_rows(day))
    return made


ALL = pa.concat_tables([day_rows(day) for day in range(len(DAYS))])


def same(found: pa.Table, wanted: pa.Table) -> bool:
    """Whether both have the same rows; texts may be large, floats may be NaN."""
    return sorted(map(repr, found.to_pylist())) == sorted(map(repr, wanted.to_pylist()))


@pytest.mark.sweep
def test_every_tool_gets_the_same_rows(table: Table) -> None:
    read = table.read()
    context = datafusion.SessionContext()
    context.register_dataset("t", read.to_dataset())
    found = {
        "pyarrow": pa.table(read),
        "reader": read.to_reader().read_all(),
        "dataset": read.to_dataset().to_table(),
        "stream": pa.RecordBatchReader.from_stream(read).read_all(),
        "polars": pl.DataFrame(read).to_arrow(),
        "table": pl.DataFrame(table).to_arrow(),
        "table by name": duckdb.sql('SELECT * FROM "table"').to_arrow_table(),
        "polars lazy": read.to_polars().collect().to_arrow(),
        "polars streaming": read.to_polars().collect(engine="streaming").to_arrow(),
        "duckdb": read.to_duckdb().to_arrow_table(),
        "duckdb by name": duckdb.sql("SELECT * FROM read").to_arrow_table(),
        "datafusion": pa.table(context.sql("SELECT * FROM t")),
        "pandas": pa.Table.from_pandas(read.to_pandas(types_mapper=pd.ArrowDtype), preserve_index=False),
    }
    assert {name: same(rows, ALL) for name, rows in found.items()} == dict.fromkeys(found, True)


def test_a_read_of_no_rows_has_its_schema(table: Table) -> None:
    read = table.read()
    assert read.to_reader(filter="id < 0").read_all().schema == read.schema
    assert read.to_polars().filter(pl.col("id") < 0).collect().columns == SCHEMA.names
    assert read.to_pandas(["id"], "id < 0").shape == (0, 1)


CONDITIONS: list[tuple[Any, Any, str]] = [  # for PyArrow, for Polars, for DuckDB: of the same rows
    (pc.field("id") > 450, pl.col("id") > 450, "id > 450"),
    (pc.field("day") == pa.scalar(DAYS[1]), pl.col("day") == pl.lit(DAYS[1]), "day = DATE '2026-01-02'"),
    (pc.field("id").isin([3, 203, 999]), pl.col("id").is_in([3, 203, 999]), "id IN (3, 203, 999)"),
    (pc.field("s").is_null(), pl.col("s").is_null(), "s IS NULL"),
    (~(pc.field("s") == "s1"), pl.col("s") != "s1", "s <> 's1'"),
    (pc.field("s").is_valid() & (pc.field("id") < 9), (pl.col("s") > "") & (pl.col("id") < 9), "s > '' AND id < 9"),
    (pc.starts_with(pc.field("s"), "s3"), pl.col("s").str.starts_with("s3"), "s LIKE 's3%'"),
    ((pc.field("id") < 5) | (pc.field("id") > 590), ~pl.col("id").is_between(5, 590), "id NOT BETWEEN 5 AND 590"),
    (pc.utf8_length(pc.field("s")) > 5, pl.col("s").str.len_chars() > 5, "length(s) > 5"),
    (pc.field("id") > 0.5, pl.col("id") > 0.5, "id > 0.5"),
]  # fmt: skip


@pytest.mark.parametrize(("arrow", "polars", "text"), CONDITIONS, ids=[text for *_, text in CONDITIONS])
def test_a_condition_means_what_it_means_in_its_tool(table: Table, arrow: Any, polars: pl.Expr, text: str) -> None:
    read, columns = table.read(), ["s", "id"]
    wanted = ALL.filter(arrow).select(columns)
    assert same(read.to_arrow(columns, arrow), wanted)
    assert same(read.to_dataset().to_table(columns=columns, filter=arrow), wanted)
    assert same(read.to_polars().filter(polars).select(columns).collect().to_arrow(), wanted)
    assert same(read.to_duckdb().filter(text).project("s, id").to_arrow_table(), wanted)


@pytest.mark.parametrize("above", [True, False])
def test_nan_is_compared_as_in_the_tool(table: Table, above: bool) -> None:
    """Arrow: no comparison with NaN is true. Polars and DuckDB: it is greater than every number."""
    read, every = table.read(), pl.DataFrame(ALL)
    x = pc.field("x")
    expression = x > 40 if above else ~(x <= 40)
    assert same(read.to_arrow(filter=expression), ALL.filter(expression))
    condition = pl.col("x") > 40 if above else ~(pl.col("x") <= 40)
    assert same(read.to_polars().filter(condition).collect().to_arrow(), every.filter(condition).to_arrow())
    text = "x > 40" if above else "NOT x <= 40"
    assert same(read.to_duckdb().filter(text).to_arrow_table(), duckdb.from_arrow(ALL).filter(text).to_arrow_table())
    assert read.to_arrow(filter="x > 40").num_rows == every.filter(pl.col("x") > 40).height


QUERIES: dict[str, Callable[[Any], int]] = {
    "pyarrow": lambda read: read.to_arrow(["id"], pc.field("day") == pa.scalar(DAYS[2])).num_rows,
    "dataset": lambda read: read.to_dataset().to_table(["id"], filter=pc.field("day") == pa.scalar(DAYS[2])).num_rows,
    "polars": lambda read: read.to_polars().filter(pl.col("day") == pl.lit(DAYS[2])).select("id").collect().height,
    "duckdb": lambda read: len(read.to_duckdb().filter("day = DATE '2026-01-03'").project("id").fetchall()),
    "pandas": lambda read: len(read.to_pandas(["id"], "day = DATE '2026-01-03'")),
    "datafusion": lambda read: _by_datafusion(read, "SELECT id FROM t WHERE day = DATE '2026-01-03'"),
}


def _by_datafusion(read: Any, text: str) -> int:
    context = datafusion.SessionContext()
    context.register_dataset("t", read.to_dataset())
    return sum(batch.num_rows for batch in context.sql(text).collect())


def bytes_read() -> int:
    """Of files and pipes by this process until now."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("rchar:")))


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_only_wanted_columns_and_files_are_read(table: Table, query: Callable[[Any], int]) -> None:
    """One of three files, and of that one column: the others are a thousand times as large."""
    counted = FaultyFileIO(table.store.io)
    again = Table(reopened(table.files, counted))  # type: ignore[arg-type]
    query(table.read())  # modules are imported
    before = bytes_read()
    assert query(again.read()) == COUNT
    assert bytes_read() - before < COUNT * WIDTH / 4
    opened = {line.split(" ", 1)[1] for line in counted.log if "/data-" in line}
    assert {Path(path).parent.parent.name for path in opened} == {"day=20456"}, "the third day since 1970"


def test_polars_stops_at_the_rows_that_it_wants(table: Table) -> None:
    counted = FaultyFileIO(table.store.io)
    read = Table(reopened(table.files, counted)).read()  # type: ignore[arg-type]
    assert read.to_polars().head(3).select("id").collect().height == 3
    assert len({line for line in counted.log if "/data-" in line}) == 1


def test_what_a_dataset_cannot_do_is_refused_and_does_not_crash(table: Table) -> None:
    given = table.read().to_dataset()
    assert isinstance(given, pyarrow.dataset.Dataset)
    assert (given.count_rows(), given.head(2).num_rows) == (ALL.num_rows, 2)
    assert given.to_table(columns={"twice": pc.field("id") * 2}).column("twice")[1].as_py() == 2
    for call in (
        lambda: given.filter(pc.field("id") > 1),
        lambda: given.replace_schema(SCHEMA),
        lambda: given.join(given, "id"),
        lambda: given.join_asof(given, "id", [], 1, "id"),
        lambda: given.sort_by("id"),
        lambda: given.partition_expression,
    ):
        with pytest.raises(InvalidInputError, match="a dataset of this table cannot do that: method="):
            call()


def test_an_expression_that_does_not_fit_is_refused(table: Table) -> None:
    for expression in (pc.field("nope") > 1, pc.field("s") > 1, pc.field("id") + 1):
        with pytest.raises(InvalidInputError, match="filter does not fit the columns: reason="):
            table.read().to_arrow(filter=expression)


def test_columns_that_a_read_adds_are_there_for_tools(table: Table) -> None:
    read = table.read(options={"read.metadata-columns": "_snapshot_id"})
    assert read.to_polars().select("_snapshot_id", "id").head(1).collect().row(0) == (3, 0)
    assert read.to_duckdb().project("max(_snapshot_id)").fetchall() == [(3,)]
    assert read.to_arrow(["id"], pc.field("_snapshot_id") == 2).num_rows == 0
    assert read.to_arrow(["id"]).schema.names == ["id", "_snapshot_id"]


def test_differences_and_system_tables_go_to_tools_too(table: Table) -> None:
    assert pl.DataFrame(table.diff(2)).height == COUNT
    files = Catalog(str(Path(table.store.paths.root).parents[1])).system_table("db.t$files")
    assert files.to_polars().filter(pl.col("record_count") == COUNT).collect().height == 3
    assert files.to_arrow(["level"], pc.field("record_count") * 2 > COUNT).to_pylist() == [{"level": 0}] * 3
    assert duckdb.sql("SELECT sum(record_count) FROM files").fetchall() == [(3 * COUNT,)]


def test_what_notebooks_show_is_short(table: Table, tmp_path: Path) -> None:
    shown = [table.read(), Catalog(str(tmp_path)), table, table.write([]), table.diff(2)]
    assert [len(repr(each)) < 160 for each in shown] == [True] * len(shown)
    assert repr(table.read()) == "BatchRead('db.t', snapshot=3, snapshot)"
    html = table.read()._repr_html_()
    assert "<td>wide</td><td>string</td>" in html
    assert "<td>wide</td><td>string</td>" in table._repr_html_()


def test_an_error_while_reading_is_of_the_table(table: Table, tmp_path: Path) -> None:
    def gone(*_: object) -> Iterator[pa.RecordBatch]:
        raise InvalidInputError("lost: file=x")
        yield

    read = table.read()
    read.to_batches = gone  # type: ignore[assignment, method-assign]
    with pytest.raises((InvalidInputError, OSError), match="lost: file=x"):
        read.to_reader().read_all()
    with pytest.raises((InvalidInputError, pl.exceptions.ComputeError), match="lost: file=x"):
        read.to_polars().collect()
