"""What becomes of each type of PostgreSQL, by settings of the connector and by position: measured, never written down.

A cell is *exact* (the table has the database's value, as ``fluvial cdc verify`` compares it), *lossy* (``plan`` says
what is lost), *refused* (no column, and ``plan`` says so), *none* (the connector publishes no such column), or
*converted* (nothing is lost, in a form that has no common text with the database's). A value that differs without a
word of ``plan`` is an error. ¹: of an update that leaves a large value alone the record has null.

``python -m tests.stores.type_model`` writes the tables into docs/cdc-types.md.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Final

from engine.broker.broker import Broker
from engine.cdc.records.scan import split_of
from engine.cdc.survey.findings import SurveyedTable, survey
from engine.cdc.survey.samples import samples
from logstore.format.connect_types import LEFT_OUT
from tests.stores.debezium import PostgresSource
from tests.stores.following import Follower
from tests.stores.kafka_connect import KafkaConnect
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
)  # fmt: skip
"""Of the connector; those of one run touch different types."""
_OF_TYPES: Final = {
    "decimal": ("numeric(10,2)", "numeric(38,10)", "numeric(50,4)", "numeric", "money"),
    "time": ("date", "time", "time(3)", "timetz", "timestamp", "timestamp(3)", "timestamptz"),
    "interval": ("interval",),
    "binary": ("bytea",),
}
POSITIONS: Final = ("column", "array", "key")
SILENT: Final = "a silent loss"
Cells = dict[tuple[str, str], str]
"""By type and position."""


def measured(source: PostgresSource, directory: Path, settings: Mapping[str, str]) -> Cells:
    """The cells of one run of a connector, whose types are those that its settings touch; without settings, all."""
    chosen = {each for name in settings for each in _OF_TYPES[name.partition(".")[0]]} or set(TYPES)
    types = {name: values for name, values in TYPES.items() if name in chosen}
    names = {f"c{number}": name for number, name in enumerate(types)}
    source.execute("CREATE TYPE mood AS ENUM ('sad', 'happy')", "CREATE TYPE pair AS (a int, b text)")
    columns = ", ".join(f"{column} {kind}" for column, kind in names.items())
    arrays = ", ".join(f"{column} {kind}[]" for column, kind in names.items())
    keyed = {column: kind for column, kind in names.items() if kind in KEYS}
    source.execute(f"CREATE TABLE plain (id int PRIMARY KEY, {columns})")
    source.execute(f"CREATE TABLE arrays (id int PRIMARY KEY, {arrays})")
    source.execute(*(f"CREATE TABLE k_{column} (k {kind} PRIMARY KEY, v int)" for column, kind in keyed.items()))
    source.execute(*_inserts(types, names, 1), "INSERT INTO plain VALUES (9)", "INSERT INTO arrays VALUES (9)")
    source.execute(
        *(f"INSERT INTO k_{column} VALUES ({_literal(types[kind][0])}, 1)" for column, kind in keyed.items())
    )
    source.start({"column.propagate.source.type": ".*", **settings})
    follower = Follower(source, directory, dead_letters=None)
    follower.catch_up()
    source.execute(*_inserts(types, names, 2))
    for column, kind in keyed.items():
        one, two = (f"{_literal(each)}::{kind}" for each in types[kind])
        source.execute(f"INSERT INTO k_{column} VALUES ({two}, 2)", f"UPDATE k_{column} SET v = 3 WHERE k = {one}")
        source.execute(f"DELETE FROM k_{column} WHERE k = {two}", f"INSERT INTO k_{column} VALUES ({two}, 4)")
    report = follower.catch_up()
    found = survey(samples(follower.settings, count=50), follower.settings, split_of(follower.settings))
    planned = {each.source.name: each for each in found.tables}
    parked = {name: each.parked for name, each in report.tables.items() if each.parked is not None}
    results = follower.verified()
    cells: Cells = {}
    for table, position in (("plain", "column"), ("arrays", "array")):
        assert table not in parked, parked
        comparison = results[table].comparison
        assert comparison is not None
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
    wrong = [each for each in cells.values() if each.startswith(SILENT)]
    assert not wrong, wrong
    return cells


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


def _inserts(types: Mapping[str, tuple[str, str]], names: Mapping[str, str], number: int) -> Iterator[str]:
    values = [types[kind][number - 1] for kind in names.values()]
    yield f"INSERT INTO plain VALUES ({number}, {', '.join(map(_literal, values))})"
    pairs = [types[kind] for kind in names.values()]
    arrays = [
        f"ARRAY[{_literal(one)}, NULL, {_literal(two)}]::{kind}[]"
        for (one, two), kind in zip(pairs, names.values(), strict=True)
    ]
    yield f"INSERT INTO arrays VALUES ({number}, {', '.join(arrays)})"


def _literal(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def page_tables(runs: Mapping[int, Cells]) -> str:
    """The tables of the page: all types without settings, and what each setting makes of the types that it touches."""
    lines = ["| PostgreSQL | column | in an array | key |", "|---|---|---|---|"]
    default = runs[0]
    for kind in TYPES:
        shown = f"`{kind}`" if kind not in ("mood", "pair") else {"mood": "an enum", "pair": "a composite"}[kind]
        lines.append(f"| {shown} | {' | '.join(default.get((kind, each), '') for each in POSITIONS)} |")
    lines += ["", "| setting of the connector | PostgreSQL | column | in an array | key |", "|---|---|---|---|---|"]
    for number, settings in enumerate(SETTINGS):
        for name, word in settings.items():
            groups: dict[tuple[str, ...], list[str]] = {}
            for kind in _OF_TYPES[name.partition(".")[0]]:
                cells = tuple(runs[number].get((kind, each), "") for each in POSITIONS)
                groups.setdefault(cells, []).append(f"`{kind}`")
            lines += [f"| `{name}={word}` | {', '.join(k)} | {' | '.join(cells)} |" for cells, k in groups.items()]
    return "\n".join(lines) + "\n"


def on_page() -> str:
    """The tables as the page has them."""
    text = PAGE.read_text(encoding="utf-8")
    return text[text.index(BEGIN) + len(BEGIN) : text.index(END)]


@contextmanager
def _sources() -> Iterator[Callable[[], PostgresSource]]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(Broker(directory / "broker"))
        (directory / "connect").mkdir()
        connect = stack.enter_context(KafkaConnect(directory / "connect", broker.bootstrap_servers))
        server = stack.enter_context(Postgres())
        names = iter(f"types{number}" for number in range(len(SETTINGS)))
        yield lambda: PostgresSource(next(names), server, connect, broker.bootstrap_servers)


def main() -> None:
    """Measure, and write the page."""
    runs = {}
    with _sources() as new, tempfile.TemporaryDirectory() as directory:
        for number, settings in enumerate(SETTINGS):
            with closing(new()) as source:
                print(settings, flush=True)
                runs[number] = measured(source, Path(directory) / str(number), settings)
    text = PAGE.read_text(encoding="utf-8")
    before, after = text[: text.index(BEGIN) + len(BEGIN)], text[text.index(END) :]
    PAGE.write_text(before + page_tables(runs) + after, encoding="utf-8")


if __name__ == "__main__":
    main()
