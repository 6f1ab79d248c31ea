"""Whether and where a catalog records lineage, from its file ``.fluvial/catalog.json``.

The file is created with the catalog's first database, or when an older catalog is opened with ``table-lineage`` or
``data-lineage``. Afterwards these two options are fixed. Other engines ignore the directory: a database is called
``*.db``. Source: PIP "Table and data lineage".
"""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import parse_qsl, urlsplit

import orjson

from filestore.io.file_io import FileIO, RandomNames
from filestore.io.object_store import is_remote_path, under_lock
from filestore.io.places import is_below
from filestore.layout.links import LinksOut
from filestore.options.catalog_options import FIXED_CATALOG_KEYS as FIXED_KEYS
from filestore.options.catalog_options import CatalogOptions
from filestore.options.parsing import boolean_of
from lsm.errors import CorruptDataError, InvalidInputError
from lsm.secret_names import shown_address

logger = logging.getLogger("fluvial.lineage")

PLACE_KEYS: Final = ("lineage-meta", "jdbc.url", "jdbc.database", "openlineage.url", "openlineage.namespace")
"""Stored too, so that every process finds the lineage; given options take precedence. Secrets are not stored."""
QUEUE: Final = "lineage-queue"
_SECRETS: Final = {"jdbc.url": ("jdbc.user", "jdbc.password"), "openlineage.url": ("openlineage.api-key",)}
"""By the option with an address: the secrets for it."""
_AMBIENT: Final = ("PGPASSWORD", "PGSERVICE", "MYSQL_PWD")
"""In the environment: what a database's client sends to any address."""
_LOGIN_FILES: Final = frozenset({"passfile", "service", "sslkey", "sslcert", "sslpassword", "requirepeer"})
_LOGIN_PREFIXES: Final = ("read_default_", "ssl_")
"""Parameters of a database's address that name files or logins of who opens it."""


class Storage(Enum):
    """The kind of storage of a warehouse."""

    LOCAL = "a local disk"
    SHARED = "a network file system, where SQLite does not work for several machines"
    OBJECTS = "an object store"


class OpenCatalog(Protocol):
    """The part of a catalog that lineage needs."""

    @property
    def warehouse(self) -> str:
        """Path or URL."""

    @property
    def options(self) -> Mapping[str, str]:
        """The options it was opened with, including secrets."""

    @property
    def file_io(self) -> FileIO:
        """File access to the warehouse."""

    def list_databases(self) -> list[str]:
        """Names of the databases."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineageSettings:
    """Settings that any process needs to write and read the lineage of a catalog. Picklable."""

    warehouse: str  # path or URL
    catalog_id: str | None  # unique
    has_tables: bool  # table-lineage
    has_snapshots: bool  # data-lineage
    options: Mapping[str, str] = field(repr=False)  # stored options, overridden by given ones; has secrets

    @property
    def queue_path(self) -> str:
        """Directory of records that wait for the store."""
        from engine.lineage.store.store import DIRECTORY

        return f"{self.warehouse}/{DIRECTORY}/{QUEUE}"

    @property
    def catalog_options(self) -> CatalogOptions:
        """The values in force of the catalog's options."""
        return CatalogOptions.parse(self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredOptions:
    """The content of the catalog's file."""

    catalog_id: str | None
    options: Mapping[str, str] = field(repr=False)


def read_stored_options(io: FileIO, warehouse: str) -> StoredOptions | None:
    """The content of the catalog's file; None when it is missing. Raises: CorruptDataError."""
    path = _path(warehouse)
    try:
        body = io.read_bytes(path)
    except FileNotFoundError:
        return None
    try:
        found = orjson.loads(body)
        options = {key: str(found["options"][key]) for key in (*FIXED_KEYS, *PLACE_KEYS) if key in found["options"]}
        return StoredOptions(catalog_id=found.get("id"), options=options)
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError) as error:
        raise CorruptDataError(f"options of the catalog cannot be read: path={path} error={error}") from error


def stored_options(catalog: OpenCatalog) -> Mapping[str, str]:
    """The options in the catalog's file; {} when it is missing. Raises: CorruptDataError."""
    found = read_stored_options(catalog.file_io, catalog.warehouse)
    return {} if found is None else found.options


def options_in_force(catalog: OpenCatalog) -> Mapping[str, str]:
    """The lineage options in force, or, without a database yet, those that its creation will fix.

    Raises:
        InvalidInputError: the options contradict the storage.
    """
    found = read_stored_options(catalog.file_io, catalog.warehouse)
    if found is None:
        choose = options_of_existing if catalog.list_databases() else options_of_new
        options: Mapping[str, str] = choose(CatalogOptions.parse(catalog.options).given, _storage(catalog))
    else:
        options = found.options
    return {key: options[key] for key in FIXED_KEYS if key in options}


def settings_of(catalog: OpenCatalog) -> LineageSettings | None:
    """The settings of a catalog; None when it records no lineage.

    Raises: InvalidInputError: its file or a link in it leads elsewhere than its opener allows.
    """
    from engine.lineage.store.store import DIRECTORY, SQLITE_FILE

    found = read_stored_options(catalog.file_io, catalog.warehouse)
    if found is None:
        return None
    kept = CatalogOptions.parse({key: found.options[key] for key in FIXED_KEYS if key in found.options})
    if not (kept.table_lineage or kept.data_lineage):
        return None
    fixed = {key: found.options[key] for key in FIXED_KEYS if key in found.options}
    given = CatalogOptions.parse(catalog.options).given
    links = LinksOut(catalog.file_io, catalog.warehouse, given.get(CatalogOptions.external_paths_allowed.key))
    for name in (SQLITE_FILE, QUEUE):
        links.check(f"{catalog.warehouse}/{DIRECTORY}/{name}")
    trusted = _trusted(given, found.options, catalog.warehouse)
    return LineageSettings(
        warehouse=catalog.warehouse,
        catalog_id=found.catalog_id,
        has_tables=bool(kept.table_lineage),
        has_snapshots=bool(kept.data_lineage),
        options={**trusted, **given, **fixed},
    )


def settle_when_opened(catalog: OpenCatalog) -> None:
    """Check the given options against the fixed ones; store them for an existing catalog without a file.

    Raises:
        InvalidInputError: ``table-lineage`` or ``data-lineage`` differs from its fixed value, or is not possible.
    """
    given = CatalogOptions.parse(catalog.options).given
    if not {*FIXED_KEYS} & given.keys():
        return
    found = read_stored_options(catalog.file_io, catalog.warehouse)
    if found is not None:
        check_given(given, found.options, catalog.warehouse)
    elif catalog.list_databases():
        _store(catalog, options_of_existing(given, _storage(catalog)))
    else:
        options_of_new(given, _storage(catalog))  # refuse impossible options now


def settle_before_first_database(catalog: OpenCatalog) -> None:
    """Store the options of a new catalog. An existing catalog without the file records no lineage.

    Raises:
        InvalidInputError: the options are not possible, or another process has just stored different ones.
    """
    given, found = CatalogOptions.parse(catalog.options).given, read_stored_options(catalog.file_io, catalog.warehouse)
    if found is not None:
        check_given(given, found.options, catalog.warehouse)  # the file may be newer than the catalog object
    if found is not None or catalog.list_databases():
        return
    storage = _storage(catalog)
    options = options_of_new(given, storage)
    if "true" in options.values() or storage is Storage.LOCAL:  # elsewhere it can still be enabled later
        _store(catalog, options)


def options_of_new(given: Mapping[str, str], storage: Storage) -> dict[str, str]:
    """The stored options of a new catalog: lineage is on where the storage can keep it.

    Raises: InvalidInputError when it is requested and the storage cannot keep it.
    """
    return _options(given, storage, default=storage is Storage.LOCAL or names_place(given))


def options_of_existing(given: Mapping[str, str], storage: Storage) -> dict[str, str]:
    """The stored options of an existing catalog without the file: lineage is off unless requested.

    Raises: InvalidInputError when it is requested and the storage cannot keep it.
    """
    return _options(given, storage, default=False)


def check_given(given: Mapping[str, str], stored: Mapping[str, str], warehouse: str) -> None:
    """Raises: InvalidInputError when a fixed option is given with another value."""
    for key in FIXED_KEYS:
        fixed = stored.get(key, "false")
        if key in given and boolean_of(key, given[key]) != boolean_of(key, fixed):
            raise InvalidInputError(
                f"the option of a catalog cannot be changed: option={key} given={given[key]} stored={fixed} "
                f"path={_path(warehouse)} fix='open it with {key}={fixed}, or without the option'"
            )


def _trusted(given: Mapping[str, str], stored: Mapping[str, str], warehouse: str) -> dict[str, str]:
    """What the catalog's file may decide for who opens it: others may write that file.

    Events go to no file outside of the warehouse that the file alone names, which a warning says.

    Raises: InvalidInputError: a secret is given without the address that it is for, or the file names a database
        outside of the warehouse.
    """
    trusted = dict(stored)
    for key, secrets in _SECRETS.items():
        address = stored.get(key)
        if address is None or key in given:
            continue
        path, secret = _path_in(key, address), next((each for each in secrets if each in given), None)
        if path is None and key == "jdbc.url":
            names = [name for name, _ in parse_qsl(urlsplit(address).query, keep_blank_values=True)]
            secret = secret or next((each for each in _AMBIENT if os.environ.get(each)), None)
            secret = secret or next((each for each in names if _is_of_opener(each.lower())), None)
        if path is not None and not _is_really_below(path, warehouse):
            problem = (
                f"a path outside of the warehouse is in the catalog's file: option={key} "
                f"value={shown_address(address)} path={_path(warehouse)} fix='give the catalog {key} if you trust it'"
            )
            if key == "jdbc.url":
                raise InvalidInputError(problem)
            logger.warning("no events are written: %s", problem)
            del trusted[key]
        if path is None and secret is not None:
            raise InvalidInputError(
                f"a secret is given without the address that it is for: option={secret} "
                f"address={shown_address(address)} path={_path(warehouse)} fix='give the catalog {key} beside it'"
            )
    return trusted


def _is_really_below(path: str, warehouse: str) -> bool:
    """By its text, and where links lead."""
    return is_below(path, [warehouse]) and is_below(os.path.realpath(path), [os.path.realpath(warehouse)])


def _is_of_opener(parameter: str) -> bool:
    return parameter in _LOGIN_FILES or parameter.startswith(_LOGIN_PREFIXES)


def _path_in(key: str, address: str) -> str | None:
    """The local path that an address is of; None: it is of another machine."""
    if key != "jdbc.url":
        parts = urlsplit(address)
        return parts.path if parts.scheme in ("", "file") else None
    from filestore.catalog.sql_database import sqlite_path  # SQLAlchemy is slow to import

    return sqlite_path(address)


def _options(given: Mapping[str, str], storage: Storage, *, default: bool) -> dict[str, str]:
    kept = {key: boolean_of(key, given[key]) if key in given else default for key in FIXED_KEYS}
    fixed = {key: str(is_kept).lower() for key, is_kept in kept.items()}
    enabled = [key for key, is_kept in kept.items() if is_kept]
    if enabled and storage is Storage.OBJECTS and not names_place(given):
        raise InvalidInputError(
            f"lineage of a warehouse in an object store needs a database: option={enabled[0]} value=true "
            "fix='set jdbc.url=postgresql://host/database'"
        )
    return fixed | ({key: given[key] for key in PLACE_KEYS if key in given} if enabled else {})


def names_place(given: Mapping[str, str]) -> bool:
    """Whether options say where lineage is kept, instead of leaving it to the warehouse."""
    return "jdbc.url" in given or given.get("lineage-meta", "jdbc") != "jdbc"


def _storage(catalog: OpenCatalog) -> Storage:

    if is_remote_path(catalog.warehouse):
        return Storage.OBJECTS
    return Storage.SHARED if is_on_shared_disk(catalog.warehouse) else Storage.LOCAL


def _store(catalog: OpenCatalog, options: Mapping[str, str]) -> None:
    content = {"version": 1, "id": RandomNames().uuid(), "options": _without_passwords(options)}
    body = orjson.dumps(content, option=orjson.OPT_INDENT_2)
    if not under_lock(catalog.file_io).create_exclusive(_path(catalog.warehouse), body):
        check_given(CatalogOptions.parse(catalog.options).given, stored_options(catalog), catalog.warehouse)


def _without_passwords(options: Mapping[str, str]) -> dict[str, str]:
    """The same options, with URLs that may be written to a file."""
    from filestore.catalog.sql_database import without_password  # SQLAlchemy is slow to import

    plain = {"jdbc.url": without_password, "openlineage.url": _without_login}
    return {key: plain[key](value) if key in plain else value for key, value in options.items()}


def _without_login(url: str) -> str:
    """An address of HTTP without user, password and query, which may hold a key."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        return url
    return parts._replace(netloc=parts.netloc.rpartition("@")[2], query="").geturl()


def _path(warehouse: str) -> str:
    from engine.lineage.store.store import DIRECTORY

    return f"{warehouse}/{DIRECTORY}/catalog.json"


# ---- Whether a directory is on a local disk: SQLite's write-ahead log needs shared memory


_MOUNTS: Final = Path("/proc/self/mounts")
_NETWORK: Final = frozenset({"afs", "beegfs", "ceph", "cifs", "glusterfs", "gpfs", "lustre", "smb3", "smbfs"})
_BRIDGES: Final = ("blobfuse", "ceph", "gcsfuse", "gluster", "goofys", "juicefs", "mount", "rclone", "s3fs", "sshfs")


def is_on_shared_disk(path: str) -> bool:
    """Whether a path may be visible to other machines, too; False where the system has no mount table."""
    try:
        mounts = _MOUNTS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    kind, _, bridge = kind_of_disk(mounts, path).partition(".")
    return kind in _NETWORK or kind.startswith("nfs") or (kind == "fuse" and bridge.startswith(_BRIDGES))


def kind_of_disk(mounts: str, path: str) -> str:
    r"""The file system that a path is on.

    Args:
        mounts: lines of ``/proc/self/mounts``: device, directory (a space is ``\040``), type.
        path: absolute; it need not exist.

    Returns:
        "" when no line matches.
    """
    found = ("", "")
    for line in mounts.splitlines():
        _, place, kind, *_ = [*line.split(" "), "", "", ""]
        directory = place.replace("\\040", " ").rstrip("/")
        if f"{path}/".startswith(f"{directory}/") and len(directory) >= len(found[0]):
            found = (directory, kind)  # the later of two mounts at one directory is visible
    return found[1]
