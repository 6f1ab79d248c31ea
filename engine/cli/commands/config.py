"""The command ``fluvial config``: every option, its effective value and origin."""

import os
from collections.abc import Sequence
from dataclasses import asdict, replace

import click

from engine.cli.output import console, json_option, print_json, print_table
from engine.cli.place import TABLE_NAME, WarehousePlace, with_place
from engine.lineage.settings import options_in_force
from filestore.options.effective import (
    EffectiveOption,
    Layer,
    OptionOrigin,
    effective_catalog_options,
    effective_defaults,
    effective_table_options,
)


def _print_reference(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        from engine.cli.option_reference import reference  # which imports pyspark

        click.echo(reference(), nl=False)
        context.exit()


@click.command()
@click.argument("table", type=TABLE_NAME, required=False)
@click.option(
    "--reference",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_reference,
    help="Print the page with all options, docs/options.md, and stop.",
)
@click.option("--all", "is_all", is_flag=True, help="Include options with their defaults; JSON always does.")
@json_option
@with_place
def config(place: WarehousePlace, table: str | None, is_all: bool, as_json: bool) -> None:
    """Show the options of the catalog, and of a table or of new tables, with the origin of each value.

    Weakest first, a value is the default, derived from other options, of the environment, of the configuration file, of
    the command line, of the catalog, of the table. Of lineage it is what is fixed, or will be with the first database.
    What a table's files say and only who opens it may say has no effect, with the reason.
    """
    options = effective_defaults(place.layers)
    if table is not None:
        from engine.log.table_log import ignored_options  # which imports Kafka's client

        opened = place.described(table)
        ignored = {key: f"has no effect: {reason}" for key, reason in ignored_options(opened.store).items()}
        options = [
            replace(each, doc=ignored.get(each.key, each.doc))
            for each in effective_table_options(opened.schema.options, primary_key=opened.schema.primary_keys)
        ]
    in_force = Layer(origin=OptionOrigin.CATALOG, options=options_in_force(place.catalog))
    catalog = effective_catalog_options([*place.layers, in_force], os.environ)
    if as_json:
        sections = {"catalog": [asdict(each) for each in catalog], "options": [asdict(each) for each in options]}
        print_json({"warehouse": place.warehouse, "table": table, **sections})
        return
    _print_section(f"catalog {place.warehouse}", catalog, is_all=is_all)
    _print_section(table or "new tables", options, is_all=is_all)


def _print_section(name: str, options: Sequence[EffectiveOption], *, is_all: bool) -> None:
    shown = [each for each in options if is_all or each.origin is not OptionOrigin.DEFAULT]
    rows = [(each.key, each.value, each.origin.value, each.doc) for each in shown]
    print_table(name, ("option", "value", "from", ""), rows)
    if len(shown) < len(options):
        console().print(f"{len(options) - len(shown)} more have their defaults, see --all")
