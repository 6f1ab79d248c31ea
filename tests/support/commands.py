"""Command lines that documents and deploy files show, parsed by the real command line without being run."""

import re
import shlex
from collections.abc import Sequence

import click

from engine.cli.app import cli

_SHOWN = re.compile(r"^\$ (fluvial (?:.*\\\n)*.*)$", re.MULTILINE)


def shown_commands(text: str) -> list[list[str]]:
    """The words of every command line of Fluvial that a page shows behind a prompt, the program's name left out."""
    return [shlex.split(match[1].replace("\\\n", " "), comments=True)[1:] for match in _SHOWN.finditer(text)]


def parse_command(words: Sequence[str]) -> list[str]:
    """The names of the commands that words lead to.

    Raises:
        click.UsageError: a command, an option or an argument that does not exist, a value that is not among an
            option's choices, or a required one that is missing.
    """
    command: click.Command = cli
    # with the group's settings: a command keeps the help option that its first context asked for
    context = click.Context(cli, info_name="fluvial", **cli.context_settings)
    rest = list(words)
    names: list[str] = []
    while True:
        values, rest, _ = command.make_parser(context).parse_args(list(rest))
        for parameter in command.params:
            _check(parameter, values.get(parameter.name or ""), context)
        if not isinstance(command, click.Group):
            if rest:
                raise click.UsageError(f"unexpected arguments: {rest}", context)
            return names
        name, found, rest = command.resolve_command(context, rest)
        assert found is not None
        command, context = found, click.Context(found, parent=context, info_name=name)
        names.append(name or "")


def _check(parameter: click.Parameter, value: object, context: click.Context) -> None:
    given = value not in (None, (), []) and type(value).__name__ != "Sentinel"
    if parameter.required and not given:
        raise click.MissingParameter(ctx=context, param=parameter)
    if given and isinstance(parameter.type, click.Choice):
        for each in value if isinstance(value, (list, tuple)) else [value]:
            parameter.type.convert(each, parameter, context)
