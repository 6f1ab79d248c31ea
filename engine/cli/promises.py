"""The list of the public names, on which programs may build: ``fluvial config --promises``.

Each name has its class and the release that it came with. Names are those of the package ``fluvial``, commands,
options, keys of job files, procedures, metrics and columns of system tables. The list is kept in a file, so that a
change of a name is seen in a diff, and a name keeps its release.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from importlib.resources import files
from typing import Any, Final

import click

from engine.cli.command_list import GROUPS
from engine.deploy.config.json_schema import job_schema
from engine.kafka.options import SourceValues
from engine.procedures import PROCEDURES
from engine.request.place_options import PlaceOptions, RowOptions
from engine.request.writer_options import WriterOptions
from engine.runtime.metrics import METRICS
from filestore.options.catalog_options import CatalogOptions
from filestore.options.option import OptionValues
from filestore.options.table.columns import FieldOptions
from filestore.options.table_options import TableOptions
from filestore.system_tables import SYSTEM_TABLES

FILE: Final = "promises.tsv"
STABLE, EXPERIMENTAL = "stable", "experimental"
"""A stable name stays for all releases of a major version; an experimental one may change with each release."""
_EXPERIMENTAL: Final = ("command ui", "command serve", "command simulate", "python Table.live")
_STARS: Final[Mapping[Any, str]] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
_OPTIONS: Final[Mapping[str, type[OptionValues]]] = {
    "table": TableOptions, "catalog": CatalogOptions, "writer": WriterOptions, "place": PlaceOptions,
    "reader": RowOptions, "fluvial-kafka": SourceValues,
}  # fmt: skip


def promises(commands: click.Group) -> str:
    """The list, one name a line: its kind, its name, its class and its first release, with tabs between.

    Args:
        commands: of the program.
    """
    known = dict(_known())
    now = version("fluvial")
    lines = []
    for kind, name in sorted({*_names(commands)}):
        is_young = any(f"{kind} {name}".startswith(each) for each in _EXPERIMENTAL)
        since = known.get((kind, name), now)
        lines.append("\t".join((kind, name, EXPERIMENTAL if is_young else STABLE, since)))
    return "\n".join(lines) + "\n"


def _known() -> Iterator[tuple[tuple[str, str], str]]:
    for line in files(__package__).joinpath(FILE).read_text().splitlines():
        kind, name, _, since = line.split("\t")
        yield (kind, name), since


def _names(commands: click.Group) -> Iterator[tuple[str, str]]:
    yield from _python()
    yield from _commands(commands, click.Context(commands), ())
    for place, declared in _OPTIONS.items():
        yield from (("option", f"{place} {key}") for key in declared.declared)
    yield from (("option", f"table fields.<column>.{key}") for key in FieldOptions.declared)
    yield from (("key", name) for name in _keys(job_schema()))
    for name, procedure in PROCEDURES.items():
        yield "procedure", f"{name}({', '.join(each.name for each in procedure.parameters)})"
        yield from (("procedure", f"{name} returns {column}") for column in procedure.result.names)
    for metric in METRICS.values():
        yield from (("metric", f"{each}{{{','.join(metric.labels)}}}") for each in metric.series)
    for name, table in SYSTEM_TABLES.items():
        yield from (("column", f"${name}.{column}") for column in table.schema.names)


def _python() -> Iterator[tuple[str, str]]:
    public = import_module("fluvial")
    for name in public.__all__:
        found = getattr(public, name)
        yield "python", name + _parameters(found)
        for member in sorted(vars(found)) if inspect.isclass(found) else ():
            if not member.startswith("_"):
                yield "python", f"{name}.{member}{_parameters(inspect.getattr_static(found, member))}"


def _parameters(found: Any) -> str:
    """The names of what a function or a class takes; "": it is neither."""
    if isinstance(found, staticmethod | classmethod):
        found = found.__func__
    if not callable(found):
        return ""
    try:
        given = inspect.signature(found).parameters
    except (ValueError, TypeError):
        return ""
    names = [f"{_STARS.get(each.kind, '')}{name}" for name, each in given.items()]
    return f"({', '.join(name for name in names if name not in ('self', 'cls'))})"


def _commands(group: click.Group, context: click.Context, path: Sequence[str]) -> Iterator[tuple[str, str]]:
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        words = " ".join((*path, name))
        yield "command", words
        if isinstance(command, click.Group):
            yield from _commands(command, click.Context(command, context), (*path, name))
        elif command is not None and (not path or path[0] not in GROUPS):  # else it is a short name of another one
            for each in command.params:
                if isinstance(each, click.Option) and not each.hidden:
                    yield from (("command", f"{words} {flag}") for flag in (*each.opts, *each.secondary_opts))


def _keys(schema: Mapping[str, Any]) -> Iterator[str]:
    """The keys of a job file's sections, each with the section that has it."""
    yield from schema["properties"]
    for section, described in schema["$defs"].items():
        if section.endswith(("Options", "Part")):  # listed as options; the same keys in a profile
            continue
        places = [described, *described.get("anyOf", ())]
        for name in (key for each in places for key in each.get("properties", ())):
            yield f"{section}.{name}"
