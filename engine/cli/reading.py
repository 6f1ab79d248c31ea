"""The commands ``fluvial ls``, ``fluvial describe`` and ``fluvial read``."""

from typing import Any, Final

import click

from engine.catalog import Catalog
from engine.cli.output import RowCount, first_rows, json_option, notes, print_json, print_rows, print_table
from engine.cli.place import TABLE_NAME, WarehousePlace, at_option, with_place
from engine.read.batch_read import BatchRead
from engine.system_tables.names import is_system_table
from filestore.catalog.table_names import all_tables
from filestore.layout.paths import MAIN_BRANCH
from filestore.options.secrets import without_secrets
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import arrow_schema
from lsm.errors import FluvialError, InvalidInputError
from lsm.nearest_names import close_names

_SHOWN_ROWS: Final = 20
_NOTHING_KNOWN: Final[dict[str, Any]] = {
    "table": None,
    "primary_key": [],
    "topic": None,
    "snapshot_id": None,
    "problem": None,
}


@click.command()
@click.argument("database", required=False)
@json_option
@with_place
def ls(place: WarehousePlace, database: str | None, as_json: bool) -> None:
    """List the tables of a database, or of all.

    Each with its key, the topic of its log, its newest snapshot, and what is wrong with it.
    """
    catalog = place.catalog
    known = catalog.list_databases()
    place.check_exists()
    if database is not None and database not in known:
        raise InvalidInputError(
            f"no such database: database={database} did_you_mean={close_names(database, known, 3)} databases={known}"
        )
    found = listed_tables(catalog, *([] if database is None else [database]))
    if as_json:
        print_json(found)
        return
    rows = [
        (each["table"], ", ".join(each["primary_key"]), each["topic"], each["snapshot_id"], each["problem"])
        for each in found
    ]
    print_table(f"{place.warehouse}", ("table", "key", "topic", "snapshot", "problem"), rows)


def listed_tables(catalog: Catalog, *databases: str) -> list[dict[str, Any]]:
    """One dict for each table of some databases, or of all: a row of ``fluvial ls``.

    So is a database that cannot be listed, as the name of a table with a problem.
    """
    problems: dict[str, str] = {}
    rows = [_listed(catalog, f"{each}.{name}") for each, name in all_tables(catalog, problems, databases or None)]
    return rows + [_NOTHING_KNOWN | {"table": each, "problem": problem} for each, problem in problems.items()]


def _listed(catalog: Catalog, name: str) -> dict[str, Any]:
    facts = _NOTHING_KNOWN | {"table": name}
    try:
        table = catalog.table(name)
        newest = table.latest_snapshot()
        return facts | {
            "primary_key": list(table.schema.primary_keys),
            "topic": table.options.log_topic if table.store.has_log else None,
            "snapshot_id": None if newest is None else newest.id,
        }
    except (FluvialError, OSError) as error:
        return facts | {"problem": str(error)}


@click.command()
@click.argument("table", type=TABLE_NAME)
@at_option
@json_option
@with_place
def describe(place: WarehousePlace, table: str, at: str | None, as_json: bool) -> None:
    """Show columns, keys and options of a table (named database.table), newest or as of a version."""
    found = place.described(table)
    schema = found.schema
    if at is not None:
        state = found.read(version=at)
        assert state.snapshot is not None
        schema = state.table.store.schema_of(state.snapshot.schema_id)
    columns = [
        {
            "name": field.name,
            "type": str(field.type),
            "key": field.name in schema.primary_keys,
            "partition": field.name in schema.partition_keys,
            "comment": field.description,
        }
        for field in schema.fields
    ]
    if as_json:
        print_json(
            {
                "table": found.name, "branch": found.branch, "main_branch": found.main_branch,
                "comment": schema.comment, "columns": columns, "options": dict(schema.options),
                "problem": found.closed,
            }
        )  # fmt: skip
        return
    rows = [
        (each["name"], each["type"], "key" if each["key"] else "", "yes" if each["partition"] else "", each["comment"])
        for each in columns
    ]
    main = "" if found.main_branch == MAIN_BRANCH else f" (main branch: {found.main_branch})"
    title = f"{found.name}{main}{': ' + schema.comment if schema.comment else ''}"
    print_table(title, ("column", "type", "key", "partition", "comment"), rows)
    print_table("options", ("option", "value"), without_secrets(schema.options).items())
    if found.closed is not None:
        notes().print(found.closed, markup=False)


@click.command()
@click.argument("table", type=TABLE_NAME)
@click.option("--columns", metavar="A,B", help="[default: all]")
@click.option(
    "--filter", "filter_text", metavar="CONDITION", help="As in SQL's WHERE: \"amount > 10 AND dt = '2020-08-08'\"."
)
@click.option(
    "--limit", type=click.IntRange(0), help=f"Maximum number of rows. [default: {_SHOWN_ROWS} for a table, else all]"
)
@at_option
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="table", show_default=True)
@json_option
@with_place
def read(
    place: WarehousePlace,
    table: str,
    columns: str | None,
    filter_text: str | None,
    limit: int | None,
    at: str | None,
    form: str,
    as_json: bool,
) -> None:
    """Print rows of a table, newest or as of a version, or of a system table ('db.t$files', sys.tables).

    JSON is one object per line; --json is short for --format json.
    """
    form = "json" if as_json else form
    shown = limit if limit is not None else _SHOWN_ROWS if form == "table" else None
    if is_system_table(place.catalog, table):
        if at is not None:
            raise InvalidInputError(
                f"a system table has no other states: table={table} at={at} fix='leave out --at, or read the table'"
            )
        system = place.catalog.system_table(table)
        schema, names = system.table_schema, _names(columns, system.table_schema)
        rows, total = system.to_batches(names, filter_text, None if shown is None else shown + 1), "more"
    else:
        state = place.table(table).read(version=at)
        schema = state.table.schema
        names = _names(columns, schema)
        rows = state.to_batches(columns=names, filter=filter_text)
        total = _total(state, filter_text)
    counted = RowCount(first_rows(rows, None if shown is None else shown + 1))
    print_rows(first_rows(counted.batches(), shown), arrow_schema(schema.fields_of(names)), form=form)
    if shown is not None and limit is None and counted.rows > shown:
        notes().print(f"{shown} of {total} rows are shown: see --limit")


def _total(state: BatchRead, filter_text: str | None) -> str:
    """How many rows there are, as far as it is known without reading them."""
    pieces = state.plan(filter_text).pieces
    if any(piece.log_range is not None for piece in pieces):
        return "more"
    splits = [piece.own_split for piece in pieces]
    known = [split for split in splits if split is not None]
    if len(known) < len(splits):
        return "more"
    is_exact = filter_text is None and all(split.raw_convertible for split in known)
    count = sum(split.row_count for split in known)
    return f"{count:,}" if is_exact else f"at most {count:,}"


def _names(columns: str | None, schema: TableSchema) -> list[str]:
    return [name.strip() for name in columns.split(",")] if columns else list(schema.column_names)
