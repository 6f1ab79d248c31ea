"""The options that locate the tables, for every command that needs them."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from engine.catalog import Catalog
from engine.table import Table
from lsm.errors import FluvialError, InvalidInputError
from lsm.secret_names import without_value

if TYPE_CHECKING:
    from filestore.options.effective import Layer

_WAREHOUSE: Final = "FLUVIAL_WAREHOUSE"
Command = Callable[..., Any]
_Function = TypeVar("_Function", bound="Command | click.Command")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarehousePlace:
    """The warehouse and the options of its catalog."""

    warehouse: str
    options: Mapping[str, str] = field(repr=False)
    layers: "tuple[Layer, ...]" = ()  # the options by origin, lowest precedence first

    @property
    def catalog(self) -> Catalog:
        """The catalog of the warehouse."""
        return Catalog(self.warehouse, options=self.options)

    def table(self, name: str) -> Table:
        """Open ``database.table``."""
        return self.catalog.table(name)

    def described(self, name: str) -> Table:
        """Open ``database.table`` to say what it is, also one that cannot be read."""
        return self.catalog.described(name)


class _TableName(click.ParamType[str]):
    """``database.table``, which shells complete with what is in the warehouse."""

    name = "text"

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Tables with names that begin so, in the warehouse of the command line or of FLUVIAL_WAREHOUSE."""
        given = context.params
        warehouse = given.get("warehouse") or os.environ.get(_WAREHOUSE)
        with suppress(FluvialError):
            place = _place(warehouse, given.get("config"), given.get("catalog_option") or ())
            return [CompletionItem(each) for each in table_names(place.catalog, incomplete)]
        return []


TABLE_NAME: Final = _TableName()
"""Type of an argument that names a table."""


def table_names(catalog: Catalog, start: str) -> list[str]:
    """Names of tables, with their databases, that begin with a text; only databases that can match are listed."""
    database, dot, _ = start.partition(".")
    databases = [each for each in catalog.list_databases() if (each == database if dot else each.startswith(database))]
    names = [f"{each}.{table}" for each in databases for table in catalog.list_tables(each)]
    return [each for each in names if each.startswith(start)]


def at_option(command: _Function) -> _Function:
    """Adds the option that says which state a command is about: one word, the same for every command."""
    return click.option(
        "--at",
        metavar="VERSION",
        help="Another state: 5, eod, savepoint.3, timestamp.2026-01-31T12:00:00, watermark.N, dev.eod. "
        "[default: latest]",
    )(command)


def with_place(command: Command) -> Command:
    """Adds the options that locate the tables, and passes them as ``place``."""

    def run(warehouse: str | None, config: str | None, catalog_option: tuple[str, ...], **rest: Any) -> Any:
        return command(place=_place(warehouse, config, catalog_option), **rest)

    return _with_place_options(command, run, envvar=_WAREHOUSE)


def with_optional_place(command: Command) -> Command:
    """As ``with_place``; without ``--warehouse`` and ``--config`` the place is None, whatever the environment says."""

    def run(warehouse: str | None, config: str | None, catalog_option: tuple[str, ...], **rest: Any) -> Any:
        is_given = warehouse is not None or config is not None
        return command(place=_place(warehouse, config, catalog_option) if is_given else None, **rest)

    return _with_place_options(command, run, envvar=None)


def _with_place_options(command: Command, run: Command, *, envvar: str | None) -> Command:
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__click_params__ = getattr(command, "__click_params__", [])  # type: ignore[attr-defined]
    for option in (
        click.option("--catalog-option", metavar="KEY=VALUE", multiple=True, help="Catalog option; repeatable."),
        click.option("--config", metavar="FILE", help="Job file with warehouse and catalog options."),
        click.option(
            "--warehouse",
            metavar="DIR",
            envvar=envvar,
            show_envvar=envvar is not None,
            help="Directory or URL of the tables.",
        ),
    ):
        run = option(run)
    return run


def _place(warehouse: str | None, config: str | None, catalog_options: Sequence[str]) -> WarehousePlace:
    from filestore.options.effective import Layer, OptionOrigin

    from_file: Mapping[str, str] = {}
    if config is not None:
        from engine.deploy.config.job_config import load_job  # slower to import than most commands run

        job = load_job(config, environment=os.environ)
        warehouse = warehouse or job.warehouse
        from_file = job.catalog_options
    from_command_line: dict[str, str] = {}
    for given in catalog_options:
        key, equals, value = given.partition("=")
        if not equals:
            raise InvalidInputError(f"a catalog option is written key=value: given={without_value(given)}")
        from_command_line[key] = value
    if not warehouse:
        raise InvalidInputError("no warehouse: fix=give --warehouse DIR or --config FILE, or set FLUVIAL_WAREHOUSE")
    return WarehousePlace(
        warehouse=warehouse,
        options={**from_file, **from_command_line},
        layers=(
            Layer(origin=OptionOrigin.CONFIG_FILE, options=from_file),
            Layer(origin=OptionOrigin.COMMAND_LINE, options=from_command_line),
        ),
    )
