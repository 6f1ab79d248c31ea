"""The command ``fluvial cdc verify``: whether tables equal the database that they follow."""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import click

from engine.catalog import Catalog
from engine.cdc.verify.database import LiveTable
from engine.cdc.verify.expressions import POSTGRES
from engine.cdc.verify.report import DIFFERENT, MISSING, shown_differences, verified_json
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
