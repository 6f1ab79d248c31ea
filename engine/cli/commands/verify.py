"""The command ``fluvial cdc verify``: whether tables equal the database that they follow."""

import os
import re
import struct
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import click
import pyarrow as pa

from engine.catalog import Catalog
from engine.cdc.verify.comparison import ColumnPair, Comparison, KeyDifference, RowTexts
from engine.cdc.verify.database import LiveTable
from engine.cdc.verify.expressions import POSTGRES, quoted_name
from engine.cdc.verify.verification import Followed, Sources, Verified, followed_by, known_sources, verified
from engine.cli.exit_codes import EXIT_FAILED
from engine.cli.output import console, json_option, print_json, print_table
from engine.deploy.cdc_job import cdc_of, cdc_settings, cdc_state
from engine.deploy.config.job_config import load_job
from lsm.errors import InvalidInputError

FollowedBy = Callable[[LiveTable], Followed | None]
_PAUSE_S: Final = 2.0
_LIMIT: Final = 1000


@click.command()
@click.argument("config", required=False, metavar="[FILE]")
@click.option("--name", metavar="NAME", help="Which database of the job file. [default: its only one]")
@click.option(
    "--dsn", metavar="URL", envvar="FLUVIAL_CDC_DSN", show_envvar=True, help="The database. [default: source.dsn]"
)
@click.option("--database", metavar="NAME", help="Without a job file: database of the tables.")
@click.option("--warehouse", metavar="DIR", envvar="FLUVIAL_WAREHOUSE", help="Without a job file: their directory.")
@click.option(
    "--tables", metavar="REGEX", multiple=True, help="Source tables (schema.table); repeatable. [default: all]"
)
@click.option("--exclude", metavar="REGEX", multiple=True, help="Source tables to leave out; repeatable.")
@click.option("--at", "tag", metavar="TAG", help="State of the tables. [default: the newest]")
@click.option("--limit", type=click.IntRange(1), default=_LIMIT, show_default=True, help="Differences of a table.")
@click.option("--wait", "wait_s", type=click.FloatRange(0), default=0, help="Seconds to compare again what differs.")
@json_option
def verify(
    config: str | None,
    name: str | None,
    dsn: str | None,
    database: str | None,
    warehouse: str | None,
    tables: tuple[str, ...],
    exclude: tuple[str, ...],
    tag: str | None,
    limit: int,
    wait_s: float,
    as_json: bool,
) -> int:
    """Compare tables with the live database that they follow, value by value.

    The database hashes its rows by ranges of keys; only ranges that differ are looked at row by row. It should be
    quiet, or the changes of the last seconds are found as differences: --wait compares again.

    Exit codes: 0 all are equal; 1 at least one differs.
    """
    chosen, left_out = _patterns(tables or (".*",)), _patterns(exclude)
    if config is None:
        (catalog, followed), known = _of_flags(warehouse, database), list[Sources]()
    else:
        catalog, followed, known, named = _of_job(config, name)
        dsn = dsn or named
    if dsn is None:
        raise InvalidInputError("the database is not known: fix='give --dsn, or write source.dsn into the job file'")
    url = dsn

    def table_of(source: LiveTable) -> Followed | None:
        text = str(source)
        is_chosen = any(each.fullmatch(text) for each in chosen) and not any(each.fullmatch(text) for each in left_out)
        return followed(source) if is_chosen else None

    def once(of: Callable[[LiveTable], bool]) -> dict[LiveTable, Verified]:
        tables = verified(
            url, catalog, lambda each: table_of(each) if of(each) else None, known=known, tag=tag, limit=limit
        )
        return {each.source: each for each in tables}

    deadline = time.monotonic() + wait_s
    results = once(lambda _: True)
    if not results:
        raise InvalidInputError(f"no source table matches: tables={','.join(tables) or '.*'} fix=name others")
    unequal = _unequal(results)
    while unequal and time.monotonic() < deadline:
        time.sleep(_PAUSE_S)
        results |= once(unequal.__contains__)
        unequal = _unequal(results)
    _show(list(results.values()), url, as_json)
    return EXIT_FAILED if unequal else 0


def _of_job(config: str, name: str | None) -> tuple[Catalog, FollowedBy, list[Sources], str | None]:
    job = load_job(config, environment=os.environ)
    chosen = cdc_of(job, name)
    catalog = Catalog(job.warehouse, options=job.catalog_options)
    state = cdc_state(job, chosen)
    return catalog, followed_by(cdc_settings(job, chosen), state), known_sources(state), chosen.source.dsn


def _of_flags(warehouse: str | None, database: str | None) -> tuple[Catalog, FollowedBy]:
    if not warehouse or not database:
        raise InvalidInputError("tables are not known: fix='name a job file, or give --warehouse and --database'")
    return Catalog(warehouse), lambda source: Followed(name=f"{database}.{source.name}")


def _unequal(results: Mapping[LiveTable, Verified]) -> frozenset[LiveTable]:
    return frozenset(source for source, each in results.items() if not each.is_equal)


def _show(results: Sequence[Verified], dsn: str, is_json: bool) -> None:
    dialect = POSTGRES if dsn.removeprefix("jdbc:").startswith("postgres") else "mysql"
    if is_json:
        print_json([verified_json(each, dialect) for each in results])
        return
    headings = ("source", "table", "rows in the database", "rows in the table", "result")
    rows = [(str(each.source), each.table, *_counts(each), _result(each)) for each in results]
    print_table("", headings, rows, numbers=headings[2:4])
    for each in results:
        found = each.comparison
        if found is None:
            continue
        for column, reason in found.pair.left_out.items():
            console().print(f"{each.source}.{column}: not compared: {reason}", soft_wrap=True, markup=False)
        for difference in shown_differences(found, dialect):
            key = ", ".join(f"{name}={value}" for name, value in difference.key.items())
            if difference.kind == DIFFERENT:
                for name, (source, table) in difference.columns.items():
                    line = f"{each.source} {key}: {name}: database {source!r}, table {table!r}"
                    console().print(line, soft_wrap=True, markup=False)
            else:
                side = "in the database only" if difference.kind == MISSING else "in the table only"
                line = f"{each.source} {key}: {side}"
                console().print(line, soft_wrap=True, markup=False)
            console().print(f"  {difference.sql}", soft_wrap=True, markup=False)


def _counts(result: Verified) -> tuple[int | None, int | None]:
    found = result.comparison
    return (None, None) if found is None else (found.source_rows, found.table_rows)


def _result(result: Verified) -> str:
    found = result.comparison
    if result.is_equal:
        return "equal" if found is not None else "equal: no rows, no table"
    if found is None:
        return result.problem
    return f"{'' if found.is_complete else 'more than '}{len(found.differences)} keys differ"


def _patterns(texts: Sequence[str]) -> list[re.Pattern[str]]:
    try:
        return [re.compile(each) for each in texts]
    except re.error as error:
        raise InvalidInputError(f"pattern of tables cannot be read: patterns={list(texts)} reason={error}") from error


MISSING, UNEXPECTED, DIFFERENT = "missing", "unexpected", "different"
"""Only the database has the row; only the table has it; both have it with other values."""


# ---- Differences for people and programs: key, column, both values, and SQL that shows the row in the database


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownDifference:
    """One key. RowTexts are written as people read them; None is null."""

    kind: str
    key: Mapping[str, str | None]
    columns: Mapping[str, tuple[str | None, str | None]]  # in the database, in the table; () unless both have the row
    counts: tuple[int, int]  # of rows
    sql: str

    def as_json(self) -> dict[str, Any]:
        """The difference as JSON values, as ``fluvial cdc verify --json`` prints it."""
        columns = {name: {"source": one, "table": other} for name, (one, other) in self.columns.items()}
        return {"kind": self.kind, "key": dict(self.key), "columns": columns, "rows": self.counts, "sql": self.sql}


def shown_differences(found: Comparison, dialect: str) -> Iterator[ShownDifference]:
    """The differences of a table."""
    for each in found.differences:
        kind = DIFFERENT if each.source and each.table else MISSING if each.source else UNEXPECTED
        if len(each.source) != len(each.table) and each.source and each.table:
            kind = MISSING if len(each.source) > len(each.table) else UNEXPECTED
        yield ShownDifference(
            kind=kind,
            key={name: shown_text_of(text, _column(found, name).type) for name, text in each.key.items()},
            columns=_columns(found, each.source[0], each.table[0]) if kind == DIFFERENT else {},
            counts=(len(each.source), len(each.table)),
            sql=_sql(found, each, dialect),
        )


def verified_json(result: Verified, dialect: str) -> dict[str, Any]:
    """One table for ``--json``."""
    shown: dict[str, Any] = {"source": str(result.source), "table": result.table, "equal": result.is_equal}
    found = result.comparison
    if found is None:
        return shown | {"problem": result.problem}
    return shown | {
        "source_rows": found.source_rows,
        "table_rows": found.table_rows,
        "ranges": found.range_count,
        "differing_ranges": found.differing_ranges,
        "complete": found.is_complete,
        "not_compared": dict(found.pair.left_out),
        "differences": [each.as_json() for each in shown_differences(found, dialect)],
    }


def shown_text_of(text: str | None, kind: pa.DataType) -> str | None:
    """A text of ``texts`` as people read it."""
    if text is None:
        return None
    if pa.types.is_decimal(kind) and text.lstrip("-").isdigit():
        return f"{Decimal(text).scaleb(-kind.scale):f}"
    if pa.types.is_floating(kind):
        return str(struct.unpack(">d", bytes.fromhex(text))[0])
    return text


def _column(found: Comparison, name: str) -> ColumnPair:
    return next(each for each in found.pair.columns if each.name == name)


def _columns(found: Comparison, source: RowTexts, table: RowTexts) -> dict[str, tuple[str | None, str | None]]:
    both = zip(found.pair.columns, source, table, strict=True)
    return {
        each.name: (shown_text_of(one, each.type), shown_text_of(other, each.type))
        for each, one, other in both
        if one != other
    }


def _sql(found: Comparison, difference: KeyDifference, dialect: str) -> str:
    terms = []
    for at in found.pair.key:
        column = found.pair.columns[at]
        name, text = quoted_name(dialect, column.source), shown_text_of(difference.key[column.name], column.type)
        terms.append(f"{name} IS NULL" if text is None else f"{name} = {_literal(text, column.type, dialect)}")
    return f"SELECT * FROM {found.pair.query.table} WHERE {' AND '.join(terms)}"


def _literal(text: str, kind: pa.DataType, dialect: str) -> str:
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return text
    if pa.types.is_boolean(kind):
        return text
    if pa.types.is_binary(kind):
        return f"'\\x{text}'" if dialect == POSTGRES else f"x'{text}'"
    plain = text.replace("'", "''")
    return f"'{plain}'" if dialect == POSTGRES else "'" + plain.replace("\\", "\\\\") + "'"
