"""A table is compared with a real PostgreSQL and a real MariaDB: what is equal, and exactly what is not."""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pymysql
import pytest
import sqlalchemy as sa

from engine import Catalog
from engine.cdc.rules.names import SourceTable
from engine.cdc.verify.comparison import Comparison, _bare, compared, paired
from engine.cdc.verify.database import SourceDatabase
from engine.table import Table

_numbers = count(1)
US = pa.timestamp("us")
TypeSample = tuple[str, pa.DataType, str, Any]


@contextmanager
def new_database(server: str) -> Iterator[str]:
    """A database of its own, by its address."""
    name = f"compared{next(_numbers)}"
    engine = sa.create_engine(server, isolation_level="AUTOCOMMIT", poolclass=sa.NullPool)
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    try:
        yield sa.make_url(server).set(database=name).render_as_string(hide_password=False)
    finally:
        with engine.connect() as connection:
            connection.exec_driver_sql(f"DROP DATABASE {name}")


def execute(url: str, *statements: str) -> None:
    address = sa.make_url(url)
    if address.get_backend_name() == "postgresql":
        with psycopg.connect(address.set(drivername="postgresql").render_as_string(hide_password=False)) as connection:
            for each in statements:
                connection.execute(each)
        return
    connection = pymysql.connect(
        host=str(address.host), port=int(address.port or 0), user=str(address.username),
        password=str(address.password), database=str(address.database), autocommit=True, charset="utf8mb4",
    )  # fmt: skip
    with connection, connection.cursor() as cursor:
        for each in statements:
            cursor.execute(each)


def compare(url: str, name: str, table: Table, **bounds: int) -> Comparison:
    with SourceDatabase.reading(url) as database:
        (source,) = [each for each in database.tables() if each.name == name]
        gone = SourceTable(source.schema, f"{name}_gone")
        assert database.lacks([SourceTable(source.schema, name), gone]) == {gone}
        state = table.read()
        pair = paired(database.dialect, source, database.name_of(source), state.schema)
        assert pair.left_out == {}
        return compared(database, pair, state, **bounds)


def check_texts(server: str, home: Path, columns: Mapping[str, TypeSample], *before: str) -> None:
    """A row of these values and one of nulls are equal in the database and in a table.

    Args:
        server: gets a database.
        home: gets a warehouse.
        columns: by name the type there and here, the value there as SQL and here.
        before: statements.
    """
    schema = pa.schema([(name, kind) for name, (_, kind, _, _) in columns.items()])
    arrays = [pa.array([value, None if name != "id" else 2], kind) for name, (_, kind, _, value) in columns.items()]
    with new_database(server) as url:
        execute(
            url,
            *before,
            f"CREATE TABLE types ({', '.join(f'{name} {kind}' for name, (kind, *_) in columns.items())})",
            f"INSERT INTO types VALUES ({', '.join(text for _, _, text, _ in columns.values())})",
            "INSERT INTO types (id) VALUES (2)",
        )
        table = Catalog(str(home)).create_table("shop.types", schema, primary_key=["id"])
        table.write(pa.Table.from_arrays(arrays, schema=schema))
        found = compare(url, "types", table)
        assert (found.is_equal, found.differences, found.source_rows, found.table_rows) == (True, (), 2, 2)


def test_every_type_of_postgres_has_the_text_of_its_column(postgres: str, tmp_path: Path) -> None:
    """What a comparison does not see as equal here, it would report in every table."""
    columns = {
        "id": ("int PRIMARY KEY", pa.int32(), "1", 1),
        "b": ("boolean", pa.bool_(), "false", False),
        "b1": ("bit(1)", pa.bool_(), "B'1'", True),
        "i2": ("smallint", pa.int16(), "-32768", -32768),
        "wide": ("int", pa.int64(), "7", 7),
        "f4": ("real", pa.float32(), "0.1", 0.1),
        "f8": ("double precision", pa.float64(), "-1e300", -1e300),
        "nan": ("double precision", pa.float64(), "'NaN'", float("nan")),
        "n": ("numeric(10,2)", pa.decimal128(10, 2), "-12345678.90", Decimal("-12345678.90")),
        "n4": ("numeric(10,2)", pa.decimal128(12, 4), "0.05", Decimal("0.0500")),
        "n38": ("numeric(38,10)", pa.decimal128(38, 10), "-0.0000000001", Decimal("-1E-10")),
        "nfree": ("numeric", pa.string(), "1e-20", "0.00000000000000000001"),
        "m": ("money", pa.decimal128(19, 2), "'-1234.56'", Decimal("-1234.56")),
        "t": ("text", pa.string(), "E'é \\U0001F600:1\\n'", "é 😀:1\n"),
        "empty": ("text", pa.string(), "''", ""),
        "none": ("text", pa.string(), "NULL", None),
        "ch": ("char(5)", pa.string(), "'ab'", "ab   "),
        "uu": ("uuid", pa.string(), "'123E4567-e89b-12d3-a456-426614174000'", "123e4567-e89b-12d3-a456-426614174000"),
        "en": ("mood", pa.string(), "'happy'", "happy"),
        "own": ("positive", pa.int32(), "5", 5),
        "js": ("json", pa.string(), """'{"a" : 1}'""", '{"a" : 1}'),
        "by": ("bytea", pa.binary(), "'\\x00ff10'", b"\x00\xff\x10"),
        "ip": ("inet", pa.string(), "'10.0.0.1'", "10.0.0.1"),
        "ra": ("int4range", pa.string(), "'[1,4]'", "[1,5)"),
        "d": ("date", pa.date32(), "'0001-01-01'", -719162),
        "tm": ("time", pa.string(), "'24:00'", "24:00:00.000000"),
        "tm3": ("time(3)", pa.time32("ms"), "'12:34:56.7'", 45296700),
        "tz": ("timetz", pa.string(), "'12:34:56.5+02'", "10:34:56.5Z"),
        "ts": ("timestamp", US, "'1969-12-31 23:59:59.999999'", -1),
        "ts3": ("timestamp(3)", pa.timestamp("ms"), "'2026-11-20 12:34:56.789'", 1795178096789),
        "tstz": ("timestamptz", pa.timestamp("us", "UTC"), "'1970-01-01 02:00:00.5+02'", 500_000),
        "iv": ("interval", pa.int64(), "'1 year 2 months 3 days 04:05:06.789'", 37091106789000),
        "ia": ("int[]", pa.list_(pa.int32()), "'{1,null,3}'", [1, None, 3]),
        "ta": ("text[]", pa.list_(pa.string()), '\'{"a,b",null,""}\'', ["a,b", None, ""]),
        "na": ("numeric(5,2)[]", pa.list_(pa.decimal128(5, 2)), "'{1.5,-2}'", [Decimal("1.50"), Decimal("-2.00")]),
        "e": ("int[]", pa.list_(pa.int32()), "'{}'", []),
    }
    before = ("CREATE TYPE mood AS ENUM ('happy')", "CREATE DOMAIN positive AS int CHECK (value > 0)")
    check_texts(postgres, tmp_path, columns, *before)


def test_every_type_of_mariadb_has_the_text_of_its_column(mysql: str, tmp_path: Path) -> None:
    columns = {
        "id": ("INT PRIMARY KEY", pa.int32(), "1", 1),
        "b1": ("BIT(1)", pa.bool_(), "b'1'", True),
        "b0": ("BIT(1)", pa.bool_(), "b'0'", False),
        "t1": ("TINYINT(1)", pa.int16(), "-128", -128),
        "bu": ("BIGINT UNSIGNED", pa.decimal128(20, 0), "18446744073709551615", Decimal(2**64 - 1)),
        "f": ("FLOAT", pa.float32(), "0.1", 0.1),
        "d": ("DOUBLE", pa.float64(), "-1e300", -1e300),
        "n": ("DECIMAL(10,2)", pa.decimal128(10, 2), "-12345678.90", Decimal("-12345678.90")),
        "n65": ("DECIMAL(65,30)", pa.string(), "1.5", "1.5" + "0" * 29),
        "c": ("CHAR(5)", pa.string(), "'ab'", "ab"),
        "v": ("VARCHAR(20) CHARACTER SET utf8mb4", pa.string(), "'é 😀:\\n'", "é 😀:\n"),
        "la": ("VARCHAR(20) CHARACTER SET latin1", pa.string(), "'é'", "é"),
        "none": ("TEXT", pa.string(), "NULL", None),
        "bl": ("BLOB", pa.binary(), "x'00ff10'", b"\x00\xff\x10"),
        "en": ("ENUM('a','b')", pa.string(), "'b'", "b"),
        "st": ("SET('x','y','z')", pa.string(), "'x,z'", "x,z"),
        "js": ("JSON", pa.string(), """'{"a": 1}'""", '{"a": 1}'),
        "y": ("YEAR", pa.int32(), "2026", 2026),
        "da": ("DATE", pa.date32(), "'2026-11-20'", 20777),
        "dt": ("DATETIME", pa.timestamp("ms"), "'2026-11-20 12:34:56'", 1795178096000),
        "dt6": ("DATETIME(6)", US, "'1969-12-31 23:59:59.999999'", -1),
        "ts": ("TIMESTAMP(6) NULL", pa.timestamp("us", "UTC"), "'2026-11-20 12:34:56.5'", 1795178096500000),
        "tm": ("TIME", pa.string(), "'24:00:00'", "24:00:00.000000"),
        "tm6": ("TIME(6)", pa.string(), "'-838:59:59.999999'", "-838:59:59.999999"),
    }
    check_texts(mysql, tmp_path, columns, "SET time_zone = '+00:00'")


@pytest.fixture(scope="module")
def filled_postgres(postgres: str) -> Iterator[str]:
    """20,000 rows with a key of two columns, behind five ranges."""
    with new_database(postgres) as url:
        execute(
            url,
            "CREATE TABLE pairs (b text, a bigint, v int, t text, PRIMARY KEY (b, a))",
            "INSERT INTO pairs SELECT 'x' || (i % 7), i, i, 't' || i FROM generate_series(0, 19999) i",
        )
        yield url


def pairs(numbers: range) -> pa.Table:
    return pa.table(
        {
            "b": [f"x{number % 7}" for number in numbers],
            "a": pa.array(numbers, pa.int64()),
            "v": pa.array(numbers, pa.int32()),
            "t": [f"t{number}" for number in numbers],
        }
    )


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(3))
def test_planted_differences_are_found_and_no_others(seed: int, filled_postgres: str, tmp_path: Path) -> None:
    """k keys are changed, removed or added: exactly these are found, with their rows."""
    chance = random.Random(seed)
    table = Catalog(str(tmp_path)).create_table("shop.pairs", pairs(range(1)).schema, primary_key=["b", "a"])
    table.write(pairs(range(20_000)))
    assert compare(filled_postgres, "pairs", table).is_equal
    changed, removed = chance.sample(range(10_000), 3 + seed), chance.sample(range(10_000, 20_000), 2)
    added = [20_000 + number for number in range(seed)]
    rows = pa.concat_tables([pairs(range(number, number + 1)) for number in (*changed, *removed, *added)])
    values = [
        None if number in changed[:1] else -1 if number in changed else number for number in rows["a"].to_pylist()
    ]
    kinds = pa.array(["-D" if number in removed else "+U" for number in rows["a"].to_pylist()])
    table.write(rows.set_column(2, "v", pa.array(values, pa.int32())).append_column("_row_kind", kinds))
    found = compare(filled_postgres, "pairs", table, max_rows=5000)
    assert found.range_count == 4
    keys = {int(each.key["a"] or "") for each in found.differences}
    assert keys == {*changed, *removed, *added}
    assert len(found.differences) == len(keys)
    assert found.is_complete
    for each in found.differences:
        number = int(each.key["a"] or "")
        row = (f"x{number % 7}", str(number), str(number), f"t{number}")
        ours = (*row[:2], None if number in changed[:1] else "-1", row[3]) if number in changed else row
        assert each.source == (() if number in added else (row,))
        assert each.table == (() if number in removed else (ours,))


def test_no_more_than_the_limit_is_looked_for(filled_postgres: str, tmp_path: Path) -> None:
    """An empty table differs in every row: memory holds what is asked for."""
    table = Catalog(str(tmp_path)).create_table("shop.pairs", pairs(range(1)).schema, primary_key=["b", "a"])
    found = compare(filled_postgres, "pairs", table, limit=10, max_rows=5000)
    assert (len(found.differences), found.is_complete, found.source_rows, found.table_rows) == (10, False, 20_000, 0)


@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_tables_without_rows_are_found(kind: str, request: pytest.FixtureRequest) -> None:
    """Also of a name in quotes; one that cannot be read counts as one that has rows."""
    quote = '"' if kind == "postgres" else "`"
    with new_database(request.getfixturevalue(kind)) as url:
        execute(
            url, f"CREATE TABLE {quote}a none{quote} (id int PRIMARY KEY)", "CREATE TABLE b_some (id int PRIMARY KEY)"
        )
        execute(url, "INSERT INTO b_some VALUES (1)")
        with SourceDatabase.reading(url) as database:
            none, some = (SourceTable(each.schema, each.name) for each in database.tables())
            assert (none.name, some.name) == ("a none", "b_some")
            assert database.empties([some, SourceTable(none.schema, "gone"), none]) == {none}
            assert database.count(f"{quote}{some.schema}{quote}.b_some") == 1, "the transaction continues"


def test_rows_without_a_key_are_counted(postgres: str, tmp_path: Path) -> None:
    """Two equal rows are not one: without a key, a row and how often it is there are compared."""
    schema = pa.schema([("v", pa.int32()), ("t", pa.string())])
    with new_database(postgres) as url:
        execute(url, "CREATE TABLE nokey (v int, t text)", "INSERT INTO nokey VALUES (1, 'a'), (1, 'a'), (2, NULL)")
        table = Catalog(str(tmp_path)).create_table("shop.nokey", schema)
        table.write(pa.table({"v": [1, 2], "t": ["a", None]}, schema=schema))
        (only,) = compare(url, "nokey", table).differences
        assert (only.key, len(only.source), len(only.table)) == ({"v": "1", "t": "a"}, 2, 1)
        table.write(pa.table({"v": [1], "t": ["a"]}, schema=schema))
        assert compare(url, "nokey", table).is_equal


def test_zeros_behind_the_last_digit_of_a_number_mean_nothing() -> None:
    """Debezium leaves them out of a numeric without bounds: verify reported each such row."""
    numbers = pa.array(["1.50", "100", "0.00", "-1.010", "NaN", None, "10.0"])
    assert _bare(numbers).to_pylist() == ["1.5", "100", "0", "-1.01", "NaN", None, "10"]
    lists = pa.array([["9.0"], ["1.50", None], None, []], pa.list_(pa.string()))
    assert _bare(lists.slice(1)).to_pylist() == [["1.5", None], None, []]
    assert _bare(lists).to_pylist() == [["9"], ["1.5", None], None, []]
