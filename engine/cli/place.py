"""The options that locate the tables, for every command that needs them."""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from click.shell_completion import CompletionItem

from engine.catalog import Catalog
from engine.table import Table
from filestore.catalog.table_names import all_tables
from filestore.io.object_store import is_remote_path
from filestore.refs.live_references import branch_names
from filestore.refs.savepoint_files import savepoint_ids
from lsm.errors import InvalidInputError
from lsm.secret_names import without_value

if TYPE_CHECKING:
    from filestore.options.effective import Layer

_WAREHOUSE: Final = "FLUVIAL_WAREHOUSE"
_PATIENCE_S: Final = 1.5  # of who types and asks for completion
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

    def check_exists(self) -> None:
        """Refuse a local directory that is not there, which would look like a warehouse without tables.

        Raises: InvalidInputError.
        """
        catalog = self.catalog
        if is_remote_path(catalog.warehouse) or os.path.isdir(catalog.warehouse) or catalog.list_databases():
            return
        raise InvalidInputError(
            f"no such directory: warehouse={self.warehouse} fix='correct it; the first CREATE TABLE makes a new one'"
        )

    def table(self, name: str) -> Table:
        """Open ``database.table``."""
        return self.catalog.table(name)

    def described(self, name: str) -> Table:
        """Open ``database.table`` to say what it is, also one that cannot be read."""
        return self.catalog.described(name)


class _Completed(click.ParamType[str]):
    """The name of something in a warehouse, which shells complete with what is there."""

    name = "text"

    def __init__(self, names: Callable[[Catalog, click.Context, str], Iterable[str]]) -> None:
        """``names``: by the catalog, the command with its other arguments, and the beginning of the name."""
        self._names = names

    def shell_complete(
        self, context: click.Context, parameter: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Names that begin so, in the warehouse of the command line or of FLUVIAL_WAREHOUSE."""
        given = context.params

        def find() -> list[str]:
            warehouse = given.get("warehouse") or os.environ.get(_WAREHOUSE)
            place = _place(warehouse, given.get("config"), given.get("catalog_option") or ())
            names = self._names(place.catalog, context, incomplete)
            return sorted({each for each in names if each.startswith(incomplete)})

        return [CompletionItem(each) for each in _found_quickly(find)]


def _found_quickly(find: Callable[[], list[str]]) -> list[str]:
    """What is found before the one who types has to wait; nothing after an error, for which a shell has no place."""
    found: list[str] = []

    def run() -> None:
        with suppress(Exception):
            found.extend(find())

    logging.disable()
    try:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(_PATIENCE_S)
        return [] if thread.is_alive() else found
    finally:
        logging.disable(logging.NOTSET)


def _table_of(catalog: Catalog, context: click.Context) -> Table:
    """The table that a command's other arguments name. Raises: InvalidInputError."""
    given = context.params
    # behind an option without its value, which is the one to be completed, click has not come to the arguments
    name = str(given.get("table_name") or given.get("table") or next(iter(context.args), ""))
    return catalog.table(name if "." in name else f"{given.get('database')}.{name}")


def _versions(table: Table) -> list[str]:
    """Versions with a name: tags and savepoints."""
    savepoints = [f"savepoint.{each}" for each in savepoint_ids(table.store)]
    return [*table.store.snapshots.tag_names(), *savepoints, "latest"]


TABLE_NAME: Final = _Completed(lambda catalog, _, start: table_names(catalog, start))
"""Type of an argument that names a table as ``database.table``."""

VERSION_NAME: Final = _Completed(lambda catalog, context, _: _versions(_table_of(catalog, context)))
"""Type of an argument that is a version of the command's table."""

TAG_NAME: Final = _Completed(lambda catalog, context, _: _table_of(catalog, context).store.snapshots.tag_names())
"""Type of an argument that names a tag of the command's table."""

BRANCH_NAME: Final = _Completed(lambda catalog, context, _: branch_names(_table_of(catalog, context).store))
"""Type of an argument that names a branch of the command's table."""


def table_names(catalog: Catalog, start: str) -> list[str]:
    """Names of tables, with their databases, that begin with a text; only databases that can match are listed."""
    database, dot, _ = start.partition(".")
    databases = [each for each in catalog.list_databases() if (each == database if dot else each.startswith(database))]
    names = [f"{each}.{table}" for each, table in all_tables(catalog, {}, databases)]
    return [each for each in names if each.startswith(start)]


def at_option(command: _Function) -> _Function:
    """Adds the option that says which state a command is about: one word, the same for every command."""
    return click.option(
        "--at",
        type=VERSION_NAME,
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


def given_options(given: Sequence[str], what: str) -> dict[str, str]:
    """Options that are written ``key=value``. Raises: InvalidInputError: one is not; ``what`` it is, in words."""
    found = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals:
            raise InvalidInputError(f"{what} is written key=value: given={without_value(each)}")
        found[key] = value
    return found


def _place(warehouse: str | None, config: str | None, catalog_options: Sequence[str]) -> WarehousePlace:
    from filestore.options.effective import Layer, OptionOrigin

    from_file: Mapping[str, str] = {}
    if config is not None:
        from engine.deploy.config.job_config import load_job  # slower to import than most commands run

        job = load_job(config, environment=os.environ)
        warehouse = warehouse or job.warehouse
        from_file = job.catalog_options
    from_command_line = given_options(catalog_options, "a catalog option")
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
