"""The command ``fluvial config``: every option, its effective value and origin."""

import os
from collections.abc import Sequence
from dataclasses import asdict

import click

from engine.cli.output import console, grid, json_option, print_json
from engine.cli.place import WarehousePlace, with_place
from engine.lineage.settings import options_in_force
from filestore.options.effective import (
    EffectiveOption,
    Layer,
    OptionOrigin,
    effective_catalog_options,
    effective_defaults,
    effective_table_options,
)


@click.command()
@click.argument("table", required=False)
@click.option("--all", "is_all", is_flag=True, help="Include options with their defaults; JSON always does.")
@json_option
@with_place
def config(place: WarehousePlace, table: str | None, is_all: bool, as_json: bool) -> None:
    """Show the options of the catalog, and of a table or of new tables, with the origin of each value.

    Origins, lowest precedence first: default, derived from other options, environment, configuration file, command
    line, catalog, table. For lineage options, the value shown is the effective one, or the future one without a
    database yet.
    """
    options = effective_defaults(place.layers)
    if table is not None:
        schema = place.table(table).schema
        options = effective_table_options(schema.options, primary_key=schema.primary_keys)
    in_force = Layer(origin=OptionOrigin.CATALOG, options=options_in_force(place.catalog))
    catalog = effective_catalog_options([*place.layers, in_force], os.environ)
    if as_json:
        body = {"catalog": [asdict(each) for each in catalog], "options": [asdict(each) for each in options]}
        print_json({"warehouse": place.warehouse, "table": table, **body})
        return
    _print_section(f"catalog {place.warehouse}", catalog, is_all=is_all)
    _print_section(table or "new tables", options, is_all=is_all)


def _print_section(name: str, options: Sequence[EffectiveOption], *, is_all: bool) -> None:
    shown = [each for each in options if is_all or each.origin is not OptionOrigin.DEFAULT]
    rows = [(each.key, each.value, each.origin.value, each.doc) for each in shown]
    console().print(grid(name, ("option", "value", "from", ""), rows))
    if len(shown) < len(options):
        console().print(f"{len(options) - len(shown)} more have their defaults, see --all")
