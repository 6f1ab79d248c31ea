"""What becomes of each type of PostgreSQL and of MariaDB, by settings of the connector and by position, as measured.

A cell is *exact* (the table has the database's value, as ``fluvial cdc verify`` compares it), *lossy* (``plan`` says
what is lost), *refused* (no column, and ``plan`` says so), *none* (the connector publishes no such column), or
*converted* (nothing is lost, in a form that has no common text with the database's). A value that differs without a
word of ``plan`` is an error. ¹: of an update that leaves a large value alone the record has null.

``python -m tests.stores.type_model`` writes the tables into docs/cdc-types.md.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from engine.broker.broker import Broker
from engine.cdc.records.scan import split_of
from engine.cdc.samples import samples
from engine.cdc.survey import SurveyedTable, survey
from engine.cdc.verify.verification import Verified
from logstore.format.connect_types import LEFT_OUT, LEFT_OUT_IN_TEXT
from tests.stores.debezium import ChangeSource, MariaDbSource, PostgresSource
from tests.stores.following import Follower
from tests.stores.kafka_connect import KafkaConnect
from tests.stores.mariadb import MariaDb
from tests.stores.postgres import Postgres

PAGE: Final = Path(__file__).parents[2] / "docs" / "cdc-types.md"
BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
TYPES: Final[Mapping[str, tuple[str, str]]] = {
    "boolean": ("true", "false"),
    "smallint": ("-32768", "32767"),
    "integer": ("-2147483648", "2147483647"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "oid": ("0", "4294967295"),
    "real": ("1.5", "-0.1"),
    "double precision": ("-0.1", "1e300"),
    "numeric(10,2)": ("-12345678.90", "0.01"),
    "numeric(38,10)": ("1234567890123456789012345678.0123456789", "-0.0000000001"),
    "numeric(50,4)": ("1234567890123456789012345678901234567890123456.7891", "1.0000"),
    "numeric": ("123456789012345678901234567890.123456789", "1.50"),
    "money": ("-1234.56", "92233720368547758.07"),
    "text": ('a "q" é', ""),
    "varchar(20)": ("varying", "x y"),
    "char(5)": ("ab", "abcde"),
    "name": ("a", "b"),
    "uuid": ("123e4567-e89b-12d3-a456-426614174000", "00000000-0000-0000-0000-000000000000"),
    "mood": ("sad", "happy"),
    "json": ('{"a" : 1}', "[]"),
    "jsonb": ('{"b": [1, null]}', "{}"),
    "bytea": ("\\x00ff10", "\\x"),
    "bit(1)": ("1", "0"),
    "bit(8)": ("10000001", "00000001"),
    "varbit(12)": ("101", "000000000001"),
    "inet": ("10.0.0.1/24", "::1"),
    "cidr": ("10.0.0.0/8", "2001:db8::/32"),
    "macaddr": ("08:00:2b:01:02:03", "00:00:00:00:00:00"),
    "macaddr8": ("08:00:2b:01:02:03:04:05", "00:00:00:00:00:00:00:01"),
    "int4range": ("[1,5)", "empty"),
    "int8range": ("[1,5)", "(,5)"),
    "numrange": ("[1.5,2.5]", "empty"),
    "tsrange": ("[2026-01-01 00:00:00,2026-01-02 00:00:00)", "empty"),
    "tstzrange": ("[2026-01-01 00:00:00+00,2026-01-02 00:00:00+00)", "empty"),
    "daterange": ("[2026-01-01,2026-01-05)", "empty"),
    "int4multirange": ("{[1,3),[5,7)}", "{}"),
    "date": ("2026-11-20", "1969-12-31"),
    "time": ("12:34:56.123456", "24:00:00"),
    "time(3)": ("12:34:56.789", "00:00:00"),
    "timetz": ("12:34:56.123456+02", "00:00:00+00"),
    "timestamp": ("2026-11-20 12:34:56.123456", "1969-12-31 23:59:59.999999"),
    "timestamp(3)": ("2026-11-20 12:34:56.789", "1969-12-31 23:59:59.999"),
    "timestamptz": ("2026-11-20 12:34:56.123456+02", "1969-12-31 23:59:59.999999+00"),
    "interval": ("1 year 2 months 3 days 04:05:06.789", "-1 days"),
    "point": ("(1.5,-2)", "(0,0)"),
    "line": ("{1,-1,0}", "{1,2,3}"),
    "lseg": ("[(0,0),(1,1)]", "[(0,0),(2,1)]"),
    "box": ("(1,1),(0,0)", "(2,2),(0,0)"),
    "path": ("((0,0),(1,1))", "[(0,0),(1,1)]"),
    "polygon": ("((0,0),(1,1),(1,0))", "((0,0),(2,1),(1,0))"),
    "circle": ("<(0,0),1>", "<(0,0),2>"),
    "pg_lsn": ("16/B374D848", "0/0"),
    "xid8": ("1", "18446744073709551615"),
    "tsvector": ("'a':1 'b':2", ""),
    "tsquery": ("'a' & 'b'", "'a'"),
    "jsonpath": ('$."a"', "$"),
    "pair": ("(1,a)", "(2,b)"),
    "date before 1582": ("0001-01-01", "1500-03-01"),
    "timestamp before 1582": ("0001-01-01 00:00:00", "1500-03-01 12:34:56.123456"),
    "timestamptz before 1582": ("0001-01-01 00:00:00+00", "1500-03-01 12:34:56.123456+00"),
}
"""Two values of each; ``mood`` is an enum, ``pair`` a composite."""
KEYS: Final = tuple(
    each for each in TYPES
    if each not in ("json", "jsonpath", "point", "line", "lseg", "box", "path", "polygon", "circle")
)  # fmt: skip
SETTINGS: Final[tuple[Mapping[str, str], ...]] = (
    {},
    {
        "decimal.handling.mode": "string", "time.precision.mode": "connect",
        "interval.handling.mode": "string", "binary.handling.mode": "base64",
    },
    {"time.precision.mode": "microseconds"},
    {"time.precision.mode": "nanoseconds"},
    {"decimal.handling.mode": "double", "time.precision.mode": "isostring", "binary.handling.mode": "hex"},
)  # fmt: skip
"""Of the connector; those of one run touch different types."""
_MOMENTS: Final = ("date", "timestamp", "timestamptz")
_OF_TYPES: Final = {
    "decimal": ("numeric(10,2)", "numeric(38,10)", "numeric(50,4)", "numeric", "money"),
    "time": (
        "date", "time", "time(3)", "timetz", "timestamp", "timestamp(3)", "timestamptz",
        *(f"{each} before 1582" for each in _MOMENTS),
    ),
    "interval": ("interval",),
    "binary": ("bytea",),
}  # fmt: skip
MARIADB_TYPES: Final[Mapping[str, tuple[str, str]]] = {
    "tinyint(1)": ("1", "0"),
    "tinyint": ("-128", "127"),
    "tinyint unsigned": ("0", "255"),
    "smallint": ("-32768", "32767"),
    "smallint unsigned": ("0", "65535"),
    "mediumint": ("-8388608", "8388607"),
    "mediumint unsigned": ("0", "16777215"),
    "int": ("-2147483648", "2147483647"),
    "int unsigned": ("0", "4294967295"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "bigint unsigned": ("0", "18446744073709551615"),
    "float": ("1.5", "-0.25"),
    "double": ("-0.1", "1e300"),
    "decimal(10,2)": ("-12345678.90", "0.01"),
    "decimal(65,30)": ("1234567890.123456789012345678901234567890", "-1"),
    "bit(1)": ("b'1'", "b'0'"),
    "bit(9)": ("b'100000001'", "b'1'"),
    "char(5)": ("'ab'", "'abcde'"),
    "varchar(20)": ("'é 😀'", "''"),
    "text": ("'a \"q\" é'", "''"),
    "binary(4)": ("x'00ff10aa'", "x'01020300'"),
    "varbinary(8)": ("x'00ff10'", "x''"),
    "blob": ("x'00ff10'", "x''"),
    "enum('a','c,d')": ("'a'", "'c,d'"),
    "set('x','y','z')": ("'x,z'", "''"),
    "json": ("'{\"a\": 1}'", "'[]'"),
    "year": ("2026", "1901"),
    "date": ("'2026-11-20'", "'1969-12-31'"),
    "datetime": ("'2026-11-20 12:34:56'", "'1969-12-31 23:59:59'"),
    "datetime(6)": ("'2026-11-20 12:34:56.123456'", "'1969-12-31 23:59:59.999999'"),
    "timestamp": ("'2026-11-20 12:34:56'", "'1971-01-01 00:00:01'"),
    "timestamp(6)": ("'2026-11-20 12:34:56.123456'", "'1971-01-01 00:00:01.000001'"),
    "time": ("'12:34:56'", "'-838:59:59'"),
    "time(6)": ("'12:34:56.123456'", "'838:59:59.999999'"),
    "date before 1582": ("'0101-01-01'", "'1500-03-01'"),
    "datetime(6) before 1582": ("'0101-01-01 00:00:00'", "'1500-03-01 12:34:56.123456'"),
}
"""Two literals of each."""
_NO_KEYS: Final = ("text", "blob", "json")
MARIADB_SETTINGS: Final[tuple[Mapping[str, str], ...]] = (
    {},
    {"bigint.unsigned.handling.mode": "precise", "decimal.handling.mode": "string"},
    {"decimal.handling.mode": "double", "binary.handling.mode": "base64"},
)
_OF_MARIADB: Final = {
    "bigint": ("bigint unsigned",),
    "decimal": ("decimal(10,2)", "decimal(65,30)"),
    "binary": ("binary(4)", "varbinary(8)", "blob"),
}
_MANY, _SOME = 3000, 300  # elements of a large array, within the size of a record
_SMALL: Final = ("boolean", "smallint", "date")
_NULL: Final = "publishes null"
LARGE: Final = {
    "text": "repeat('x', 9000)",
    "varchar": "repeat('x', 9000)",
    "bytea": "decode(repeat('ab', 9000), 'hex')",
    "json": "to_json(repeat('x', 9000))",
    "jsonb": "to_jsonb(repeat('x', 9000))",
    "varbit": "repeat('1001', 9000)::varbit",
    "numrange": "numrange(repeat('7', 9000)::numeric, NULL)",
    "tsvector": "(SELECT string_agg('w' || i, ' ') FROM generate_series(1, 3000) i)::tsvector",
}
"""Values that are stored apart, by type."""
POSITIONS: Final = ("column", "array", "key")
SILENT: Final = "a silent loss"
Cells = dict[tuple[str, str], str]
"""By type and position."""


@dataclass(frozen=True, slots=True)
class Model:
    """The types of a database."""

    types: Mapping[str, tuple[str, str]]  # two values of each
    keys: tuple[str, ...]  # types that can be one
    settings: tuple[Mapping[str, str], ...]  # of the connector, by run
    touched: Mapping[str, tuple[str, ...]]  # types by the first word of a setting
    literal: Callable[[str, str], str]  # SQL of a value of a type
    positions: tuple[str, ...]
    before: tuple[str, ...] = ()

    def chosen(self, settings: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """The types that settings touch; without any, all."""
        names = {each for name in settings for each in self.touched[name.partition(".")[0]]} or set(self.types)
        return {name: values for name, values in self.types.items() if name in names}


def _literal(value: str, kind: str) -> str:
    return "'" + value.replace("'", "''") + f"'::{sql_of(kind)}"


def sql_of(kind: str) -> str:
    """The type in SQL."""
    return kind.removesuffix(" before 1582")


POSTGRES_MODEL: Final = Model(
    types=TYPES, keys=KEYS, settings=SETTINGS, touched=_OF_TYPES, literal=_literal, positions=POSITIONS,
    before=("CREATE TYPE mood AS ENUM ('sad', 'happy')", "CREATE TYPE pair AS (a int, b text)"),
)  # fmt: skip
MARIADB_MODEL: Final = Model(
    types=MARIADB_TYPES, keys=tuple(each for each in MARIADB_TYPES if each not in _NO_KEYS), settings=MARIADB_SETTINGS,
    touched=_OF_MARIADB, literal=lambda value, kind: value, positions=("column", "key"),
)  # fmt: skip


def measured(model: Model, source: ChangeSource, directory: Path, settings: Mapping[str, str]) -> Cells:
    """The cells of one run of a connector, whose types are those that its settings touch; without settings, all."""
    types = model.chosen(settings)
    cells: Cells = {}
    has_large = "array" in model.positions
    if "nanoseconds" in settings.values():  # 64 bits of them begin in 1677: what is before is never read as a moment
        beyond = [each for each in types if each.startswith("timestamp before")]
        cells = {(each, position): "refused" for each in beyond for position in model.positions}
        types = {name: values for name, values in types.items() if name not in beyond}
    names = {f"c{number}": name for number, name in enumerate(types)}
    source.execute(*model.before)
    tables = {"plain": "column", **({"arrays": "array"} if "array" in model.positions else {})}
    for table in tables:
        suffix = "[]" if table == "arrays" else ""
        nulls = "" if suffix else " NULL"
        columns = ", ".join(f"{column} {sql_of(kind)}{suffix}{nulls}" for column, kind in names.items())
        source.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, {columns})")
    keyed = {column: kind for column, kind in names.items() if kind in model.keys}
    source.execute(
        *(f"CREATE TABLE k_{column} (k {sql_of(kind)} PRIMARY KEY, v int)" for column, kind in keyed.items())
    )
    if has_large:
        source.execute(*_large_table(names))
    source.execute(*_inserts(model, types, tables, 1), *(f"INSERT INTO {table} (id) VALUES (9)" for table in tables))
    source.execute(
        *(f"INSERT INTO k_{column} VALUES ({model.literal(types[kind][0], kind)}, 1)" for column, kind in keyed.items())
    )
    source.start({"column.propagate.source.type": ".*", **settings})
    follower = Follower(source, directory, dead_letters=None, connector=settings)
    follower.catch_up()
    source.execute(*_inserts(model, types, tables, 2))
    if has_large:
        source.execute(_large_row(model, names, types), "UPDATE large SET v = 2")
    for column, kind in keyed.items():
        one, two = (model.literal(each, kind) for each in types[kind])
        source.execute(f"INSERT INTO k_{column} VALUES ({two}, 2)", f"UPDATE k_{column} SET v = 3 WHERE k = {one}")
        source.execute(f"DELETE FROM k_{column} WHERE k = {two}", f"INSERT INTO k_{column} VALUES ({two}, 4)")
    report = follower.catch_up()
    found = survey(samples(follower.settings, count=50), follower.settings, split_of(follower.settings))
    planned = {each.source.name: each for each in found.tables}
    parked = {name: each.parked for name, each in report.tables.items() if each.parked is not None}
    results = follower.verified()
    if has_large:
        assert "large" not in parked, parked
        _check_left_out(follower, planned["large"], results["large"])
    for table, position in tables.items():
        assert table not in parked, parked
        comparison = results[table].comparison
        assert comparison is not None, results[table].problem
        differing = {
            column.source: (one, other)
            for each in comparison.differences
            for column, one, other in zip(comparison.pair.columns, each.source[0], each.table[0], strict=True)
            if one != other
        }
        for column, kind in names.items():
            cells[kind, position] = _cell(
                planned[table], column, differs=differing.get(column), compared=column not in comparison.pair.left_out
            )
    for column, kind in keyed.items():
        table = f"k_{column}"
        if table not in planned or table in parked or planned[table].problems:
            cells[kind, "key"] = "refused"
            continue
        result = results[table].comparison
        differs = None if result is None or result.is_equal else result.differences
        cells[kind, "key"] = _cell(planned[table], "k", differs=differs, compared=result is not None)
    wrong = [(at, each) for at, each in cells.items() if each.startswith(SILENT)]
    assert not wrong, wrong
    return cells


def _large_table(names: Mapping[str, str]) -> Iterator[str]:
    arrays = [f"{column} {sql_of(kind)}[]" for column, kind in names.items()]
    values = [f"s{number} {kind}" for number, kind in enumerate(LARGE) if _base(kind) in names.values()]
    yield f"CREATE TABLE large (id int PRIMARY KEY, v int, {', '.join([*arrays, *values])})"
    for each in [*arrays, *values]:
        yield f"ALTER TABLE large ALTER COLUMN {each.partition(' ')[0]} SET STORAGE EXTERNAL"


def _large_row(model: Model, names: Mapping[str, str], types: Mapping[str, tuple[str, str]]) -> str:
    """A row without large values, and one of values that are stored apart."""
    arrays = [
        f"array_fill({model.literal(types[kind][0], kind)}, ARRAY[{_MANY if sql_of(kind) in _SMALL else _SOME}])"
        for kind in names.values()
    ]
    values = [value for kind, value in LARGE.items() if _base(kind) in names.values()]
    return f"INSERT INTO large SELECT 1, 1, {', '.join([*arrays, *values])}"


def _base(kind: str) -> str:
    return {"varchar": "varchar(20)", "varbit": "varbit(12)"}.get(kind, kind)


def _check_left_out(follower: Follower, planned: SurveyedTable, found: Verified) -> None:
    """Of an update that left all large values alone, each is there, or ``plan`` says that it is null."""
    (row,) = follower.catalog.table("shop.large").read().to_arrow().to_pylist()
    assert (row["v"], found.comparison is not None) == (2, True)
    said = {each.name: each.note for each in planned.columns if each.type}
    is_said = {name: LEFT_OUT in note or LEFT_OUT_IN_TEXT in note or _NULL in note for name, note in said.items()}
    wrong = {name: said[name] for name in is_said if (row[name] is None) != is_said[name]}
    assert not wrong, [
        (each.source.name, each.source.source_type, each.note) for each in planned.columns if each.name in wrong
    ]
    differing = {
        column.source
        for each in (found.comparison.differences if found.comparison else ())
        for column, one, other in zip(found.comparison.pair.columns, each.source[0], each.table[0], strict=True)
        if one != other
    }
    silent = {name for name in differing if not said[name]}
    assert not silent, silent


def _cell(table: SurveyedTable, column: str, *, differs: object, compared: bool) -> str:
    found = next((each for each in table.columns if each.source.name == column), None)
    if found is None:
        return "none"
    if not found.type:
        return "refused"
    if found.note and found.note != LEFT_OUT:
        return "lossy"
    if differs is not None:
        return f"{SILENT}: {table.source} {column} {found.source.source_type} as {found.type}: {differs}"
    word = "exact" if compared else "converted"
    return f"{word} ¹" if found.note else word


def _inserts(
    model: Model, types: Mapping[str, tuple[str, str]], tables: Mapping[str, str], number: int
) -> Iterator[str]:
    literals = {kind: [model.literal(each, kind) for each in values] for kind, values in types.items()}
    yield f"INSERT INTO plain VALUES ({number}, {', '.join(each[number - 1] for each in literals.values())})"
    if "arrays" in tables:
        arrays = [f"ARRAY[{one}, NULL, {two}]" for one, two in literals.values()]
        yield f"INSERT INTO arrays VALUES ({number}, {', '.join(arrays)})"


_IN_A_LINE: Final = 4
_SHOWN: Final = {"mood": "an enum", "pair": "a composite"}


def _shown(kind: str) -> str:
    name, before, _ = kind.partition(" before 1582")
    return _SHOWN.get(kind) or f"`{name}`" + (" before 1582 ²" if before else "")


def page_tables(runs: Mapping[str, Mapping[int, Cells]]) -> str:
    """The tables of the page: all types without settings, and what each setting makes of the types that it touches."""
    lines: list[str] = []
    for heading, model in MODELS.items():
        shown = [each.replace("array", "in an array") for each in model.positions]
        rule = "|---" * (len(shown) + 1) + "|"
        lines += [f"| {heading} | {' | '.join(shown)} |", rule]
        default = runs[heading][0]
        for kind in model.types:
            lines.append(
                f"| {_shown(kind)} | {' | '.join(default.get((kind, each), '') for each in model.positions)} |"
            )
        lines += ["", f"| setting of the connector | {heading} | {' | '.join(shown)} |", "|---" + rule]
        for number, settings in enumerate(model.settings):
            for name, word in settings.items():
                groups: dict[tuple[str, ...], list[str]] = {}
                for kind in model.touched[name.partition(".")[0]]:
                    cells = tuple(runs[heading][number].get((kind, each), "") for each in model.positions)
                    groups.setdefault(cells, []).append(_shown(kind))
                lines += [
                    f"| `{name}={word}` | {', '.join(kinds[at : at + _IN_A_LINE])} | {' | '.join(row)} |"
                    for row, kinds in groups.items()
                    for at in range(0, len(kinds), _IN_A_LINE)
                ]
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


MODELS: Final = {"PostgreSQL": POSTGRES_MODEL, "MariaDB": MARIADB_MODEL}


def on_page() -> str:
    """The tables as the page has them."""
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)]


def all_runs(
    connect: KafkaConnect, brokers: str, postgres: str, mariadb: str, directory: Path
) -> dict[str, dict[int, Cells]]:
    """Measure all, one connector after the other."""
    runs: dict[str, dict[int, Cells]] = {}
    for heading, model in MODELS.items():
        for number, settings in enumerate(model.settings):
            name = f"{heading.lower()}{number}"
            source = (
                PostgresSource(name, postgres, connect, brokers)
                if model is POSTGRES_MODEL
                else MariaDbSource(name, mariadb, connect, brokers, directory, 900 + number)
            )
            with closing(source):
                runs.setdefault(heading, {})[number] = measured(model, source, directory / name, settings)
    return runs


def main() -> None:
    """Measure, and write the page."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(Broker(directory / "broker"))
        (directory / "connect").mkdir()
        connect = stack.enter_context(KafkaConnect(directory / "connect", broker.bootstrap_servers))
        postgres, mariadb = stack.enter_context(Postgres()), stack.enter_context(MariaDb())
        runs = all_runs(connect, broker.bootstrap_servers, postgres, mariadb, directory)
    text = PAGE.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    PAGE.write_text(before + page_tables(runs) + after, encoding="utf-8")


if __name__ == "__main__":
    main()
