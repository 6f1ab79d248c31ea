"""The command ``fluvial config``: every option, its effective value and origin."""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import click

from engine.cli.output import console, json_option, print_json, print_table
from engine.cli.place import TABLE_NAME, WarehousePlace, with_place
from engine.kafka.options import SOURCE_CLIENT_PREFIX, SourceValues
from engine.lineage.settings import options_in_force
from engine.request.option_check import CLIENT_PREFIX, REGISTRY_PREFIX
from engine.request.place_options import PlaceOptions, RowOptions
from engine.request.writer_options import WriterOptions
from filestore.options.catalog_options import CATALOG_ALIASES, STORE_PREFIX, TABLE_DEFAULT_PREFIX, CatalogOptions
from filestore.options.effective import (
    EffectiveOption,
    Layer,
    OptionOrigin,
    default_text,
    effective_catalog_options,
    effective_defaults,
    effective_table_options,
)
from filestore.options.not_built import NOT_BUILT
from filestore.options.option import At, Option, OptionValues
from filestore.options.rules import ALIASES
from filestore.options.table.columns import FieldOptions
from filestore.options.table_options import SESSION_PREFIX, TableOptions


def _print_reference(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        click.echo(reference(), nl=False)
        context.exit()


def _print_promises(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted:
        from engine.cli.promises import promises  # which imports all commands

        root = context.find_root().command
        assert isinstance(root, click.Group)
        click.echo(promises(root), nl=False)
        context.exit()


@click.command()
@click.argument("table", type=TABLE_NAME, required=False)
@click.option(
    "--promises",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_promises,
    help="Print all public names, each with its class (stable, experimental) and its first release, and stop.",
)
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


# ---- The option reference, a page that is made of the declarations: ``fluvial config --reference > docs/options.md``


COMMAND: Final = "fluvial config --reference > docs/options.md"
"""Writes the page."""
_INTRODUCTION: Final = f"""\
# Options

Made from the declarations in the code by `{COMMAND}`: change them there.

Of values: *boolean* is `true` or `false`; *size* is `128 mb`, `1 gb`, `4096`; *duration* is `10 ms`, `5 min`, `7 d`
(a bare number is milliseconds, and refused below 1000); *names* are separated by commas. Case and blanks around these
do not matter.
Of places: *batch read*, *stream read*, *batch write* and *stream write* may be given the option too, and it then comes
before the table's; *fixed* does not change once the table has rows, or the catalog is made; *secret* is never shown.
Of what it decides: *rows* that the table has or a read returns; *changes* that logs, changelogs and streams deliver,
from where on, and in which batches; *storage* is files and older states, of the same rows. Nothing: addresses, waiting,
memory, permissions.

An unknown key is refused with the nearest known one, and an option of other places with where it belongs. A property of
a table that begins like no option and is spelt like none, such as `owner.team`, is a note of its users. Options of a
session have the prefix `{SESSION_PREFIX}`. `fluvial config` shows which values are in force, and where each comes from.
"""
_OF_OTHERS: Final = """\
Giving one of these is refused. A table of another engine that has one is read and written, and the doctor names it; or
it cannot be read or written, as the line says. An unknown option that begins like those that decide about rows
(`fields.`, `merge-`, `sequence.`, `scan.`, `changelog`, ...) closes a table likewise. Any other unknown one is kept.
"""
_PLACES: Final = (
    (At.BATCH_READ, "batch read"),
    (At.STREAM_READ, "stream read"),
    (At.BATCH_WRITE, "batch write"),
    (At.STREAM_WRITE, "stream write"),
)


def reference() -> str:
    """The page, in Markdown."""
    return "\n".join([_INTRODUCTION, *_tables(), *_others()])


def _tables() -> Iterator[str]:
    yield "## Tables\n"
    for group in (base for base in TableOptions.__mro__ if base.__bases__ == (OptionValues,)):
        yield f"### {_title(group)}\n"
        yield from _rows(each for each in vars(group).values() if isinstance(each, Option))
    yield f"### {_title(FieldOptions)}\n"
    yield from _rows(FieldOptions.declared.values(), prefix="fields.<column>.")
    yield "### Free keys\n"
    yield from (
        f"- `{key}`: {doc}"
        for key, doc in (
            ("log.kafka.*", "properties of the Kafka clients that write and read the log."),
            ("file-index.bloom-filter.columns", "columns that get a bloom filter in every file."),
            ("file-index.bloom-filter.<column>.fpp, .items", "its rate of false positives, and its distinct values."),
            ("computed-column.<n>, computed-column-comment.<n>", "`name AS expression`: a column that SQL computes."),
            ("check.<name>", "a condition that every row meets (CHECK): it decides which rows writers take."),
            ("pipelines.<...>", "what Spark's declarative pipelines keep with a table."),
        )
    )
    yield "\n### Other spellings\n"
    yield from (f"- `{old}`: `{new}`" for old, new in sorted(ALIASES.items()))
    yield "\n### Paimon's, without effect\n"
    yield _OF_OTHERS
    yield from _without_effect()
    yield ""


def _without_effect() -> Iterator[str]:
    """A line for each reason, with the options that are not declared."""
    found: dict[tuple[str, str], list[str]] = {}
    for key, known in NOT_BUILT.items():
        if key not in TableOptions.declared:
            found.setdefault((_closed(known.closed), known.instead), []).append(f"`{key}`")
    yield from (f"- {closed}{why}: {', '.join(keys)}." for (closed, why), keys in sorted(found.items()))


def _closed(at: At) -> str:
    verbs = ("read" if at & At.READ == At.READ else "read in batch" if at & At.BATCH_READ else
             "streamed" if at & At.STREAM_READ else "", "written" if at & At.WRITE else "")  # fmt: skip
    found = " or ".join(filter(None, verbs))
    return f"cannot be {found}, " if found else ""


def _others() -> Iterator[str]:
    yield "## Catalogs\n"
    yield f"Any other option is a default of the tables that are made, with or without `{TABLE_DEFAULT_PREFIX}`.\n"
    yield from _rows(CatalogOptions.declared.values())
    yield f"- `{STORE_PREFIX}*`: options of a store of lineage that a package brings."
    yield from (f"- `{old}`: `{new}`" for old, new in sorted(CATALOG_ALIASES.items()))
    yield "\n## Writers\n"
    yield 'Of `sink(table, {...})`, `Table.write`, `append` and `overwrite`, SQL, and `format("fluvial")`.\n'
    yield from _rows(WriterOptions.declared.values())
    yield f"- `{CLIENT_PREFIX}*`, `{REGISTRY_PREFIX}*`: properties of the clients of this reader or writer.\n"
    yield '## Readers and writers of `format("fluvial")`\n'
    yield "Options of the catalog are given beside these.\n"
    yield from _rows([*PlaceOptions.declared.values(), *RowOptions.declared.values()])
    yield '## The source `format("fluvial-kafka")`\n'
    yield from _rows(SourceValues.declared.values())
    yield f"- `{SOURCE_CLIENT_PREFIX}*`: properties of the Kafka client.\n"


def _title(group: type) -> str:
    return (group.__doc__ or "").splitlines()[0].rstrip(".").replace("``", "`")


def _rows(options: Iterable[Option[Any]], prefix: str = "") -> Iterator[str]:
    yield "| option | value | default | where | decides | |"
    yield "|---|---|---|---|---|---|"
    for option in options:
        default = default_text(option)
        cells = (
            f"`{prefix}{option.key}`",
            option.parse.kind,
            "" if default is None else f"`{default}`",
            ", ".join(_places(option)),
            ", ".join(str(each.name).lower() for each in option.decides),
            _line(option),
        )
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _line(option: Option[Any]) -> str:
    known = NOT_BUILT.get(option.key)
    if known is None:
        return option.doc
    return f"{option.doc} {'Refused' if known.closed else 'No effect'}: {known.instead}."


def _places(option: Option[Any]) -> Iterator[str]:
    yield from (word for at, word in _PLACES if option.at & at)
    if option.is_immutable:
        yield "fixed"
    if option.is_secret:
        yield "secret"
