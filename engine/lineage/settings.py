"""Whether a catalog keeps lineage and where, as its file ``.fluvial/catalog.json`` says.

The file is made with the first database of a catalog, and by opening an older one with ``table-lineage`` or
``data-lineage``. Afterwards these two stand. Other engines ignore the directory: a database is called ``*.db``.
Source: PIP "Table and data lineage".
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

import orjson

from engine.lineage.store.disks import is_on_shared_disk
from engine.lineage.store.store import DIRECTORY
from filestore.io.file_io import FileIO, RandomNames
from filestore.io.object_store import is_object_path, under_lock
from filestore.options.catalog_options import FIXED_CATALOG_KEYS as FIXED_KEYS
from filestore.options.catalog_options import CatalogOptions
from filestore.options.parsing import boolean_of
from lsm.errors import CorruptDataError, InvalidInputError

PLACE_KEYS: Final = ("lineage-meta", "jdbc.url", "jdbc.database", "openlineage.url", "openlineage.namespace")
"""Noted too, so that whoever opens the catalog finds its lineage; given ones win. Secrets are not noted."""
QUEUE: Final = "lineage-queue"


class Ground(Enum):
    """What a warehouse is on."""

    LOCAL = "a disk of this machine"
    SHARED = "a network file system, where SQLite does not work for several machines"
    OBJECTS = "an object store"


class OpenCatalog(Protocol):
    """What is asked of a catalog."""

    @property
    def warehouse(self) -> str:
        """Path or address."""

    @property
    def options(self) -> Mapping[str, str]:
        """What it was opened with, secrets too."""

    @property
    def file_io(self) -> FileIO:
        """Where the warehouse is."""

    def list_databases(self) -> list[str]:
        """Names of the databases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageSettings:
    """What any process needs to write and read the lineage of a catalog. It can be pickled."""

    warehouse: str  # path or address
    catalog_id: str | None  # of this catalog and no other
    has_tables: bool  # table-lineage
    has_snapshots: bool  # data-lineage
    options: Mapping[str, str] = field(repr=False)  # of the catalog: noted ones under given ones; holds secrets

    @property
    def queue_path(self) -> str:
        """Directory of what waits for the store."""
        return f"{self.warehouse}/{DIRECTORY}/{QUEUE}"

    @property
    def catalog_options(self) -> CatalogOptions:
        """The values in force of the catalog's options."""
        return CatalogOptions.parse(self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class Noted:
    """What the catalog's file says."""

    catalog_id: str | None
    options: Mapping[str, str]


def noted(io: FileIO, warehouse: str) -> Noted | None:
    """What the catalog's file says; None when there is no file. Raises: CorruptDataError."""
    path = _path(warehouse)
    try:
        body = io.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        found = orjson.loads(body)
        options = {key: str(found["options"][key]) for key in (*FIXED_KEYS, *PLACE_KEYS) if key in found["options"]}
        return Noted(catalog_id=found.get("id"), options=options)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise CorruptDataError(f"options of the catalog cannot be read: path={path} error={error}") from error


def noted_options(catalog: OpenCatalog) -> Mapping[str, str]:
    """The options that stand for a catalog; {} when none do. Raises: CorruptDataError."""
    found = noted(catalog.file_io, catalog.warehouse)
    return {} if found is None else found.options


def options_in_force(catalog: OpenCatalog) -> Mapping[str, str]:
    """Whether lineage is kept: as it stands, or as it will once the first database is made.

    Raises:
        InvalidInputError: options that cannot be.
    """
    found = noted(catalog.file_io, catalog.warehouse)
    if found is None:
        choose = options_of_old if catalog.list_databases() else options_of_new
        options: Mapping[str, str] = choose(CatalogOptions.parse(catalog.options).given, _ground(catalog))
    else:
        options = found.options
    return {key: options[key] for key in FIXED_KEYS if key in options}


def settings_of(catalog: OpenCatalog) -> LineageSettings | None:
    """What is in force for a catalog; None when it keeps no lineage."""
    found = noted(catalog.file_io, catalog.warehouse)
    if found is None:
        return None
    kept = CatalogOptions.parse({key: found.options[key] for key in FIXED_KEYS if key in found.options})
    if not (kept.table_lineage or kept.data_lineage):
        return None
    stands = {key: found.options[key] for key in FIXED_KEYS if key in found.options}
    return LineageSettings(
        warehouse=catalog.warehouse,
        catalog_id=found.catalog_id,
        has_tables=bool(kept.table_lineage),
        has_snapshots=bool(kept.data_lineage),
        options={**found.options, **CatalogOptions.parse(catalog.options).given, **stands},
    )


def settle_when_opened(catalog: OpenCatalog) -> None:
    """Hold what a catalog is opened with against what stands; note it for an older catalog that has no file yet.

    Raises:
        InvalidInputError: ``table-lineage`` or ``data-lineage`` is given and stands otherwise, or cannot be.
    """
    given = CatalogOptions.parse(catalog.options).given
    if not {*FIXED_KEYS} & given.keys():
        return
    found = noted(catalog.file_io, catalog.warehouse)
    if found is not None:
        check_given(given, found.options, catalog.warehouse)
    elif catalog.list_databases():
        _note(catalog, options_of_old(given, _ground(catalog)))
    else:
        options_of_new(given, _ground(catalog))  # refuse now what could not be


def settle_before_first_database(catalog: OpenCatalog) -> None:
    """Note what is in force for a new catalog. A catalog that has databases and no file is an older one: no lineage.

    Raises:
        InvalidInputError: options that cannot be, or that somebody else has noted otherwise at this moment.
    """
    given, found = CatalogOptions.parse(catalog.options).given, noted(catalog.file_io, catalog.warehouse)
    if found is not None:
        check_given(given, found.options, catalog.warehouse)  # it may be there since the catalog was opened
    if found is not None or catalog.list_databases():
        return
    ground = _ground(catalog)
    options = options_of_new(given, ground)
    if "true" in options.values() or ground is Ground.LOCAL:  # elsewhere nothing is noted that may be said later
        _note(catalog, options)


def options_of_new(given: Mapping[str, str], ground: Ground) -> dict[str, str]:
    """What is noted of a new catalog: lineage is on wherever there is a place for it.

    Raises: InvalidInputError when it is asked for and there is none.
    """
    return _options(given, ground, default=ground is Ground.LOCAL or _names_place(given))


def options_of_old(given: Mapping[str, str], ground: Ground) -> dict[str, str]:
    """What is noted of a catalog that was made without the file: lineage is off unless asked for.

    Raises: InvalidInputError when it is asked for and there is no place for it.
    """
    return _options(given, ground, default=False)


def check_given(given: Mapping[str, str], noted: Mapping[str, str], warehouse: str) -> None:
    """Raises: InvalidInputError when an option that stands is given with another value."""
    for key in FIXED_KEYS:
        stands = noted.get(key, "false")
        if key in given and boolean_of(key, given[key]) != boolean_of(key, stands):
            raise InvalidInputError(
                f"option of a catalog stands once it is made: option={key} given={given[key]} stored={stands} "
                f"path={_path(warehouse)} fix='open it with {key}={stands}, or without the option'"
            )


def _options(given: Mapping[str, str], ground: Ground, *, default: bool) -> dict[str, str]:
    kept = {key: boolean_of(key, given[key]) if key in given else default for key in FIXED_KEYS}
    fixed = {key: str(is_kept).lower() for key, is_kept in kept.items()}
    asked = [key for key, is_kept in kept.items() if is_kept]
    if asked and ground is Ground.OBJECTS and not _names_place(given):
        raise InvalidInputError(
            f"lineage of a warehouse in an object store needs a database: option={asked[0]} value=true "
            "fix='set jdbc.url=postgresql://host/database'"
        )
    return fixed | ({key: given[key] for key in PLACE_KEYS if key in given} if asked else {})


def _names_place(given: Mapping[str, str]) -> bool:
    return "jdbc.url" in given or given.get("lineage-meta", "jdbc") != "jdbc"


def _ground(catalog: OpenCatalog) -> Ground:
    if is_object_path(catalog.warehouse):
        return Ground.OBJECTS
    return Ground.SHARED if is_on_shared_disk(catalog.warehouse) else Ground.LOCAL


def _note(catalog: OpenCatalog, options: Mapping[str, str]) -> None:
    content = {"version": 1, "id": RandomNames().uuid(), "options": _without_passwords(options)}
    body = orjson.dumps(content, option=orjson.OPT_INDENT_2)
    if not under_lock(catalog.file_io).create_exclusive(_path(catalog.warehouse), body):
        check_given(CatalogOptions.parse(catalog.options).given, noted_options(catalog), catalog.warehouse)


def _without_passwords(options: Mapping[str, str]) -> dict[str, str]:
    """The same options, with addresses as they may be written to a file."""
    from filestore.catalog.sql_database import without_password  # SQLAlchemy takes its time to import

    return {key: without_password(value) if key == "jdbc.url" else value for key, value in options.items()}


def _path(warehouse: str) -> str:
    return f"{warehouse}/{DIRECTORY}/catalog.json"
