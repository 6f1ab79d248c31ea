"""Operations on tables besides reading and writing: declared once, called from Python, SQL and the shell.

A procedure is a function of a table (or a catalog) with a docstring. Its signature and docstring define the arguments
and their documentation, and its result is an Arrow table with one row per action.
"""

import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Final, Generic, Literal, ParamSpec, Protocol, Union, get_args, get_origin, get_type_hints

import pyarrow as pa

from engine.catalog import Catalog
from engine.table import Table
from filestore.options.parsing import boolean
from lsm.errors import InvalidInputError
from lsm.nearest_names import close_names

P = ParamSpec("P")
DRY_RUN: Final = "dry_run"
TABLE_ARGUMENT: Final = "table"


class Progress(Protocol):
    """Called periodically with the progress of a procedure."""

    def __call__(self, done: int, of: int | None) -> None:
        """``of`` None: the total is unknown."""


def silent(done: int, of: int | None) -> None:
    """Ignores progress."""


class ParameterKind(Enum):
    """The type of an argument."""

    TEXT = "text"
    INTEGER = "integer"
    BOOLEAN = "boolean"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """An argument of a procedure."""

    name: str
    kind: ParameterKind
    doc: str
    is_required: bool
    default: str | int | bool | None = None
    choices: tuple[str, ...] = ()  # of a text; () is any
    takes_integer: bool = False  # a text that may be written as a number: times, durations
    aliases: tuple[str, ...] = ()  # alternative names

    def accepted(self, value: object) -> object:
        """Convert a value for the procedure: a literal from SQL, or text from the shell.

        Raises: InvalidInputError naming the parameter, the value and the allowed values.
        """
        if value is None and not self.is_required and self.default is None:
            return None
        if self.kind is ParameterKind.BOOLEAN:
            with suppress(ValueError):
                return boolean(str(value))
        if self.kind is ParameterKind.INTEGER and not isinstance(value, bool) and re.fullmatch(r"-?\d+", str(value)):
            return int(str(value))
        if self.kind is ParameterKind.TEXT and self._is_text(value):
            text = str(value)
            if not self.choices or text in self.choices:
                return text
        expected = " | ".join(self.choices) if self.choices else self.kind.value
        raise InvalidInputError(
            f"not a value of the argument: argument={self.name} value={value!r} expected={expected}"
        )

    def of_program(self, value: object) -> object:
        """Convert a value from Python, where other objects than ``str`` may stand for a text, such as paths.

        Raises: InvalidInputError, as ``accepted``.
        """
        is_plain = value is None or isinstance(value, str | int | float)
        return self.accepted(value) if is_plain or self.kind is not ParameterKind.TEXT else value

    def _is_text(self, value: object) -> bool:
        return isinstance(value, str) or (self.takes_integer and type(value) is int)


@dataclass(frozen=True, kw_only=True)
class Procedure(Generic[P]):
    """One procedure; calling it runs it."""

    name: str
    function: Callable[P, pa.Table]
    result: pa.Schema
    aliases: Mapping[str, str] = field(default_factory=dict)  # parameter names by alternative name
    fails_with_rows: bool = False  # rows of the result are problems: the command exits with an error
    for_all: Callable[..., pa.Table] | None = None
    """The same for all tables of a catalog, which it takes: ``--all`` and ``all => true`` in SQL."""

    def __call__(self, *arguments: P.args, **named: P.kwargs) -> pa.Table:
        """Run it on a table or a catalog; see the function's docstring. A number may be given as its text.

        Raises: InvalidInputError naming an argument that is of another type; or the opened table was dropped.
        """
        run: Callable[..., pa.Table] = self.function
        given = inspect.signature(run).bind_partial(*arguments, **named)
        if isinstance(table := given.arguments.get(TABLE_ARGUMENT), Table):
            table.store.as_opened.check_table(table.store.io)
        for each in self.parameters:
            if each.name in given.arguments:
                given.arguments[each.name] = each.of_program(given.arguments[each.name])
        return run(*given.args, **given.kwargs)

    def run(self, target: Table | Catalog, arguments: Mapping[str, object], progress: Progress = silent) -> pa.Table:
        """Run it with bound arguments, see ``bind``."""
        run: Callable[..., pa.Table] = self.function
        return run(target, **arguments, **({"progress": progress} if self.reports_progress else {}))

    @cached_property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (self.function.__doc__ or "").strip().splitlines()[0]

    @cached_property
    def description(self) -> str:
        """The docstring without its sections."""
        return inspect.cleandoc(self.function.__doc__ or "").partition("\n\nArgs:")[0]

    @cached_property
    def is_of_table(self) -> bool:
        """Whether it works on one table; else on a catalog."""
        return next(iter(inspect.signature(self.function).parameters)) == TABLE_ARGUMENT

    @cached_property
    def reports_progress(self) -> bool:
        """Whether it reports progress."""
        return "progress" in inspect.signature(self.function).parameters

    @cached_property
    def deletes(self) -> bool:
        """Whether it may delete files; then it has ``dry_run``."""
        return any(each.name == DRY_RUN for each in self.parameters)

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters besides the table, in the order of positional arguments."""
        hints, docs = get_type_hints(self.function), _argument_docs(self.function.__doc__ or "")
        signature = list(inspect.signature(self.function).parameters.values())[1:]
        return tuple(
            _parameter(
                each,
                hints[each.name],
                docs.get(each.name, ""),
                aliases=tuple(alias for alias, name in self.aliases.items() if name == each.name),
            )
            for each in signature
            if each.name != "progress"
        )


def procedure(
    result: pa.Schema,
    *,
    aliases: Mapping[str, str] | None = None,
    fails_with_rows: bool = False,
    for_all: Callable[..., pa.Table] | None = None,
) -> Callable[[Callable[P, pa.Table]], Procedure[P]]:
    """Declares a function as a procedure of the same name, see ``Procedure``."""

    def declare(function: Callable[P, pa.Table]) -> Procedure[P]:
        declared = Procedure(
            name=function.__name__,
            function=function,
            result=result,
            aliases=aliases or {},
            fails_with_rows=fails_with_rows,
            for_all=for_all,
        )
        # set for documentation tools, which a frozen dataclass would otherwise prevent
        object.__setattr__(declared, "__doc__", function.__doc__)
        return declared

    return declare


def bind(procedure: Procedure[Any], positional: Sequence[object], named: Mapping[str, object]) -> dict[str, object]:
    """The arguments of a call, by the procedure's own names.

    Args:
        procedure: the procedure to call.
        positional: values in the order of its parameters, without the table.
        named: values by name; case and underscores are ignored, so Paimon's ``consumerId`` is ``consumer_id``.

    Raises:
        InvalidInputError: both kinds of arguments, an unknown name (with the nearest known one), a duplicate, too many
            or too few arguments, or a value of the wrong type.
    """
    known = {_plain(name): each for each in procedure.parameters for name in (each.name, *each.aliases)}
    if positional and named:
        raise InvalidInputError(
            f"arguments are given by name or by position, not both: procedure={procedure.name} fix=name all of them"
        )
    if len(positional) > len(procedure.parameters):
        raise InvalidInputError(
            f"too many arguments: procedure={procedure.name} given={len(positional)} parameters={_names(procedure)}"
        )
    given = dict(zip((each.name for each in procedure.parameters), positional, strict=False))
    for name, value in named.items():
        parameter = known.get(_plain(name))
        if parameter is None:
            near = close_names(_plain(name), known, likeness=0.5)
            hint = f"did_you_mean={known[near[0]].name} " if near else ""
            raise InvalidInputError(
                f"unknown argument: procedure={procedure.name} argument={name} {hint}parameters={_names(procedure)}"
            )
        if parameter.name in given:
            raise InvalidInputError(f"argument is given twice: procedure={procedure.name} argument={parameter.name}")
        given[parameter.name] = value
    missing = [each.name for each in procedure.parameters if each.is_required and given.get(each.name) is None]
    if missing:
        raise InvalidInputError(f"argument is missing: procedure={procedure.name} argument={missing[0]}")
    by_name = {each.name: each for each in procedure.parameters}
    return {name: by_name[name].accepted(value) for name, value in given.items()}


def rows_table(schema: pa.Schema, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """The result of a procedure."""
    return pa.Table.from_pylist([dict(row) for row in rows], schema=schema)


def _names(procedure: Procedure[Any]) -> list[str]:
    return [each.name for each in procedure.parameters]


def _plain(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


def _parameter(given: inspect.Parameter, hint: Any, doc: str, *, aliases: tuple[str, ...]) -> Parameter:
    is_required = given.default is inspect.Parameter.empty
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    choices = tuple(text for each in members if get_origin(each) is Literal for text in get_args(each))
    plain = {each for each in members if each is not type(None) and get_origin(each) is not Literal}
    kind = ParameterKind.TEXT
    if plain == {bool}:
        kind = ParameterKind.BOOLEAN
    elif plain == {int}:
        kind = ParameterKind.INTEGER
    assert doc, f"argument without documentation: {given.name}"
    return Parameter(
        name=given.name,
        kind=kind,
        doc=doc,
        is_required=is_required,
        default=None if is_required else given.default,
        choices=choices,
        takes_integer=int in plain,
        aliases=aliases,
    )


def _argument_docs(docstring: str) -> Mapping[str, str]:
    """The arguments' descriptions in a Google-style docstring."""
    section = re.search(r"^Args:\n(?P<body>(?:(?: +.*)?\n)*)", inspect.cleandoc(docstring) + "\n", re.MULTILINE)
    found: dict[str, str] = {}
    name = ""
    for line in section["body"].splitlines() if section else ():
        start = re.fullmatch(r" {4}(?P<name>\w+): (?P<text>.*)", line)
        if start:
            name = start["name"]
            found[name] = start["text"]
        elif name and line.strip():
            found[name] += f" {line.strip()}"
    return found
