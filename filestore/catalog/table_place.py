"""Where a table lies that is not in the directory of its name: a place of its own, below what its opener allows.

A new table is given one by ``path``, its own directory, or by ``file.path``, a root as a warehouse is one: the table is
``<root>/<database>.db/<table>`` there. Its catalog notes the place; its schema does not.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from filestore.catalog.warehouse import warehouse_path
from filestore.layout.file_names import allowed_roots, is_inside
from filestore.options.catalog_options import CatalogOptions
from filestore.options.table_options import canonical_options
from filestore.schema.schema_store import ROOT_KEYS
from lsm.errors import CorruptDataError, InvalidInputError
from lsm.secret_names import shown_address

_DATABASE_SUFFIX: Final = ".db"
_FORBIDDEN: Final = frozenset("/\\$#:*?\"<>|'`\0")
_VERSION: Final = 1
_ALLOWED: Final = CatalogOptions.external_paths_allowed.key


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlace:
    """The directory of a table."""

    path: str
    is_own: bool = False  # outside the directory of its database
    table_uuid: str | None = None  # of the only table that is meant; None: whichever is there

    def to_json(self) -> bytes:
        """The note of a catalog of directories."""
        noted = {"version": _VERSION, "path": self.path, "table-uuid": self.table_uuid}
        return json.dumps(noted, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, body: bytes, *, source: str) -> "TablePlace":
        """Read ``to_json``. Raises: CorruptDataError naming ``source``."""
        try:
            noted = json.loads(body)
            version, path, table_uuid = noted["version"], noted["path"], noted["table-uuid"]
            is_readable = version == _VERSION and isinstance(path, str) and isinstance(table_uuid, str)
            return cls(path=warehouse_path(path if is_readable else ""), is_own=True, table_uuid=table_uuid)
        except (ValueError, KeyError, TypeError, InvalidInputError, RecursionError) as error:
            raise CorruptDataError(f"the note of a table's place cannot be read: file={source} {error}") from error


def check_name(kind: str, name: str) -> None:
    """Raises: InvalidInputError for a name that a database or table, as the kind says, cannot have."""
    bad = sorted({char for char in name if char in _FORBIDDEN or not char.isprintable()})
    if not name.strip() or name != name.strip() or name.startswith(".") or bad:
        raise InvalidInputError(
            f"name cannot be that of a {kind}: name={name!r} forbidden={bad} fix='use letters, digits, _ and -'"
        )


def without_place(options: Mapping[str, str] | None) -> dict[str, str]:
    """Options by today's keys, without those that say where a table lies."""
    return {key: text for key, text in canonical_options(options or {}).items() if key not in ROOT_KEYS}


def root_for_all(options: CatalogOptions, *, warehouse: str) -> str | None:
    """The root that a catalog gives its new tables, ``file.path``; None: its warehouse.

    Raises: InvalidInputError: the opener does not allow it, or ``path`` names a directory for all tables.
    """
    given = canonical_options(options.table_defaults)
    path, root = (given.get(key) for key in ROOT_KEYS)
    if path is not None and warehouse_path(path) != warehouse:
        raise InvalidInputError(
            f"tables lie in the warehouse of their catalog, and one directory is not for all: option=path value={path} "
            f"warehouse={warehouse} fix='leave it out, use a catalog of that directory, or give a root, file.path'"
        )
    if root is None or warehouse_path(root) == warehouse:
        return None
    return _checked("file.path", root, warehouse_path(root), warehouse, options.external_paths_allowed)


def wanted_place(
    name: str, options: Mapping[str, str] | None, *, catalog: CatalogOptions, warehouse: str, usual: str
) -> str | None:
    """Where a new table is to lie by its options, or by its catalog's; None: in the directory of its name.

    Args:
        name: ``database.table``.
        options: of the table; they win.
        catalog: options of the catalog, with the places that its opener allows.
        warehouse: of the catalog.
        usual: the directory of the name.

    Raises: InvalidInputError: the options contradict each other, or a place is not allowed or is another table's.
    """
    texts = canonical_options(options or {})
    given = {key: texts[key] for key in ROOT_KEYS if key in texts}
    root = root_for_all(catalog, warehouse=warehouse)
    if not given and root is None:
        return None
    database, table = name.split(".")
    below = f"/{database}{_DATABASE_SUFFIX}/{table}"
    places = {key: warehouse_path(text) for key, text in given.items()} or {"file.path": str(root)}
    meant = {
        key: path if key == "path" or path == usual else f"{path.rstrip('/')}{below}" for key, path in places.items()
    }
    meant = {key: usual if places[key] == warehouse else path for key, path in meant.items()}
    if len({*meant.values()}) > 1:
        raise InvalidInputError(f"a table has one place: table={name} {meant} fix='give path or file.path'")
    ((key, path), *_) = meant.items()
    if path == usual:
        return None
    inside = path.removeprefix(f"{warehouse}/").partition("/")[0] if path.startswith(f"{warehouse}/") else ""
    if inside.endswith(_DATABASE_SUFFIX) or inside.startswith("."):
        raise InvalidInputError(
            f"the place is that of another name in the warehouse: table={name} option={key} path={path} "
            f"fix='leave the option out, or name the table after it'"
        )
    return _checked(key, given.get(key, str(root)), path, warehouse, catalog.external_paths_allowed)


def check_is_noted(name: str, place: TablePlace, table_uuid: str | None) -> None:
    """Refuse another table in a place than the one that is noted. Raises: InvalidInputError."""
    if place.table_uuid not in (None, table_uuid):
        raise InvalidInputError(
            f"the place has another table by now: table={name} path={place.path} noted={place.table_uuid} "
            f"found={table_uuid} fix='DROP TABLE {name}, which forgets the name and leaves the files'"
        )


def is_allowed(path: str, allowed: str | None) -> bool:
    """Whether a directory is one of those that an opener allows, or below one."""
    return is_inside(path, allowed_roots(allowed))


def _checked(key: str, given: str, path: str, warehouse: str, allowed: str | None) -> str:
    here, there = (urlsplit(each) for each in (warehouse, path))
    if (here.scheme, here.netloc) != (there.scheme, there.netloc):
        raise InvalidInputError(
            f"a table lies in the store of its catalog: option={key} value={shown_address(given)} "
            f"warehouse={warehouse} fix='use a catalog of that store'"
        )
    if not is_allowed(path, allowed):
        raise InvalidInputError(
            f"tables lie in the warehouse of their catalog, or where its opener allows it: option={key} "
            f"value={shown_address(given)} path={path} warehouse={warehouse} {_ALLOWED}={allowed} "
            f"fix='give the catalog {_ALLOWED}={path}, leave the option out, or use a catalog of that directory'"
        )
    return path
