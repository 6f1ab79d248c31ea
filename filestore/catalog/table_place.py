"""The path of a table outside the directory of its name, below the directories that its opener allows.

A new table is given one by ``path``, its own directory, or by ``file.path``, a root as a warehouse is one: the table is
``<root>/<database>.db/<table>`` there. Its catalog notes the place; its schema does not.
"""

import logging
import posixpath
from collections.abc import Iterator, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from filestore.catalog.table_names import DATABASE_SUFFIX, TableNames, TablePlace, check_name
from filestore.catalog.warehouse import warehouse_path
from filestore.io.file_io import FileIO
from filestore.io.places import allowed_roots, is_below, is_inside, local_path
from filestore.layout.branch_state import main_branch
from filestore.layout.file_names import EXTERNAL_OPTIONS
from filestore.layout.links import LinksOut
from filestore.layout.paths import BRANCH_PREFIX, MAIN_BRANCH, TablePaths, escape_path
from filestore.manifest.new_file_paths import own_directories
from filestore.options.catalog_options import CatalogOptions
from filestore.options.table.places import external_places
from filestore.options.table_options import canonical_options
from filestore.schema.schema_store import ROOT_KEYS, SchemaStore
from filestore.schema.table_schema import FIRST_SCHEMA_ID, TableSchema, uuid_of
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError
from lsm.secret_names import shown_address

logger = logging.getLogger("fluvial.catalog")
_ALLOWED: Final = CatalogOptions.external_paths_allowed.key


def without_place(options: Mapping[str, str] | None) -> dict[str, str]:
    """Options by today's keys, without those that say where a table lies."""
    return {key: text for key, text in canonical_options(options or {}).items() if key not in ROOT_KEYS}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacesOutside:
    """What of a table lies outside of its directory, as its schemas say before it is dropped."""

    table: str  # db.table
    named: tuple[tuple[str, str], ...]  # options that name places, key and value
    own: tuple[str, ...]  # the table's own directories, all that its opener allows
    ids: frozenset[str]  # the names of these directories


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePlaces:
    """The directories of a catalog's tables, with what its opener allows."""

    names: TableNames
    io: FileIO
    options: CatalogOptions
    warehouse: str

    def __post_init__(self) -> None:
        """Raises: InvalidInputError: a root for new tables that the opener does not allow."""
        root_for_all(self.options, warehouse=self.warehouse)

    def find(self, name: str) -> TablePlace:
        """The directory of a table, whether it exists or not.

        Raises: InvalidInputError: the name cannot be one, or a file or link of the warehouse names a place that the
            opener does not allow.
        """
        if len(parts := name.split(".")) != 2:
            raise InvalidInputError(f"a table is named database.table: name={name!r}")
        check_name("table", parts[1])
        check_name("database", parts[0])
        place, allowed = self.names.place(*parts), self.options.external_paths_allowed
        LinksOut(self.io, self.warehouse, allowed).check(place.path)
        if not self.names.is_trusted:
            self.check_is_allowed(name, place)
        return place

    def is_of_opener(self, place: TablePlace) -> bool:
        """Whether the opener has said that tables may be in a place: by the warehouse, or by an option.

        Trusted names name places to read and write, and no directory to delete.
        """
        is_usual = not place.is_own and (self.warehouse == "/" or is_below(place.path, [self.warehouse]))
        return is_usual or is_allowed(place.path, self.options.external_paths_allowed)

    def check_is_allowed(self, name: str, place: TablePlace) -> None:
        """Refuse a place of a table that its opener does not allow. Raises: InvalidInputError naming the option."""
        if self.is_of_opener(place):
            return
        raise InvalidInputError(
            f"the table lies outside of the warehouse, where its opener allows no files: table={name} "
            f"path={place.path} option={_ALLOWED} allowed={self.options.external_paths_allowed} "
            f"fix='open it by a catalog with {_ALLOWED}={place.path}, if you trust the place'"
        )

    def of_new(self, name: str, options: Mapping[str, str] | None) -> TablePlace:
        """The path of a new table, by its options or the catalog's; of an existing table, its path.

        Raises: InvalidInputError: a place that is not allowed, is another table's, or contradicts an interrupted act.
        """
        there = self.find(name)
        if self.names.has_table(*name.split(".")) and self.has_table(there.path):
            return there
        wanted = wanted_place(
            name,
            options,
            catalog=self.options,
            warehouse=self.warehouse,
            usual=self._usual(name) if there.is_own else there.path,
        )
        if there.is_own and there.path != wanted:
            raise InvalidInputError(
                f"the name is noted for a place without a table, as an interrupted CREATE or DROP leaves it: "
                f"table={name} path={there.path} fix='DROP TABLE {name}, which forgets it, or give it that path again'"
            )
        if wanted is None or there.is_own:
            return there
        if (around := self._table_around(wanted)) is not None:
            raise self.taken(name, around)
        return TablePlace(path=wanted, is_own=True)

    def check_noted(self, name: str, root: str, *, made: str | None = None) -> TablePlace:
        """The place of a new table, which others have not given to another one meanwhile.

        Args:
            name: of the table.
            root: its directory.
            made: the schema that makes it the table; deleted when the name is another one's.

        Raises: ConflictError.
        """
        place = self.find(name)
        if place.path == root and not (place.is_own and self.has_table(self._usual(name))):
            return place
        if made is not None:
            self.io.delete(made)
        if place.path == root:
            database, table = name.split(".")
            self.names.remove_table(database, table, root)
        raise ConflictError(f"others changed names of tables at this moment: table={name} fix='try again'")

    def has_table(self, root: str) -> bool:
        """Whether a directory is a table: whether its main branch has a schema."""
        return self._schemas(root) is not None

    def has_noted(self, place: TablePlace) -> bool:
        """Whether the table that is noted is in its place: another one there is not meant."""
        found = self._schemas(place.path)
        return found is not None and place.table_uuid in (None, uuid_of(found.find(FIRST_SCHEMA_ID)))

    def outside(self, name: str, root: str) -> PlacesOutside:
        """Where files of a table lie outside of its directory; a schema that cannot be decoded says nothing."""
        named: dict[tuple[str, str], None] = {}
        own: dict[str, None] = {}
        ids: set[str] = set()
        for schema in self._all_schemas(TablePaths(root)):
            named |= dict.fromkeys((key, text) for key in EXTERNAL_OPTIONS if (text := schema.options.get(key)))
            with suppress(InvalidInputError):
                places, made = external_places(schema.table_options), uuid_of(schema)
                if places is not None and made:
                    ids.add(escape_path(made))
                    found = map(local_path, own_directories(places, table=name, table_id=made))
                    own |= dict.fromkeys(each for each in found if self._is_allowed_beside(each, root))
        return PlacesOutside(table=name, named=tuple(named), own=tuple(own), ids=frozenset(ids))

    def remove_outside(self, found: PlacesOutside) -> None:
        """After a drop: delete the table's own directories, and say where other engines may have left files of it."""
        for directory in found.own:
            parent = directory.rpartition("/")[0]
            if not self.io.exists(TablePaths(parent).schema_dir):  # else the place is a table of another warehouse
                self.io.delete_tree(directory)
                for each in (parent, parent.rpartition("/")[0]):
                    self.io.delete_empty_directory(each)
        left = [
            f"{key}={text}"
            for key, text in found.named
            if any(self._may_have_files(each, found.ids) for each in allowed_roots(text))
        ]
        if left:
            logger.warning(
                "files of the table outside of its directory stay: table=%s places='%s' "
                "fix='delete them there, if they are of this table alone'", found.table, " ".join(left),
            )  # fmt: skip

    def _all_schemas(self, paths: TablePaths) -> Iterator[TableSchema]:
        """The versions of all branches that can be decoded."""
        names = (each for each in self.io.list_names(paths.branch_dir) if each.startswith(BRANCH_PREFIX))
        for branch in (MAIN_BRANCH, *(each.removeprefix(BRANCH_PREFIX) for each in names)):
            schemas = SchemaStore(self.io, paths.with_branch(branch))
            for schema_id in schemas.ids():
                with suppress(CorruptDataError, InvalidInputError):
                    yield schemas.read(schema_id)

    def _may_have_files(self, place: str, ids: Set[str]) -> bool:
        """Whether files of a dropped table may be left at a place: of other engines, or of its former name."""
        if not is_inside(place, allowed_roots(self.options.external_paths_allowed)):
            return True
        place, names = local_path(place), self.io.list_names(local_path(place))
        databases = [f"{place}/{each}" for each in names if each.endswith(DATABASE_SUFFIX)]
        tables = (f"{database}/{each}" for database in databases for each in self.io.list_names(database))
        return len(databases) < len(names) or any(self.io.is_directory(f"{t}/{each}") for t in tables for each in ids)

    def _is_allowed_beside(self, directory: str, root: str) -> bool:
        """Whether a directory outside of a table is where the opener allows it, in the same store."""
        is_same = urlsplit(directory).scheme == urlsplit(root).scheme
        return is_same and is_inside(directory, allowed_roots(self.options.external_paths_allowed))

    def _schemas(self, root: str) -> SchemaStore | None:
        """The schemas of the main branch; None: the directory is no table."""
        paths = TablePaths(root)
        if (found := SchemaStore(self.io, paths)).has_table():
            return found
        found = SchemaStore(self.io, paths.with_branch(main := main_branch(self.io, root)))
        return found if main != MAIN_BRANCH and found.has_table() else None

    def is_listed(self, database: str, path: str) -> bool:
        """Whether a noted directory is a table; one outside that the opener does not allow is not looked at."""
        is_fenced = not self.names.is_trusted and not is_inside(path, [self.names.database_path(database)])
        return (is_fenced and not is_allowed(path, self.options.external_paths_allowed)) or self.has_table(path)

    def taken(self, name: str, root: str) -> InvalidInputError:
        """The error: files are where a table of a new name would be; engines delete there what they drop by it."""
        database = name.split(".")[0]
        owner = next((each for each, path in self.names.table_paths(database).items() if path == root), None)
        known = "fix='remove them, or choose" if owner is None else f"is_of={database}.{owner} fix='choose"
        return InvalidInputError(f"place has files of another table: table={name} path={root} {known} another name'")

    def _usual(self, name: str) -> str:
        database, table = name.split(".")
        return f"{self.names.database_path(database)}/{table}"

    def _table_around(self, path: str) -> str | None:
        """A directory around a place that is a table, up to the one that the opener allows; None: there is none."""
        parent = posixpath.dirname(path)
        while is_allowed(parent, self.options.external_paths_allowed):
            if self.io.list_names(f"{parent}/schema"):
                return parent
            parent = posixpath.dirname(parent)
        return None


def root_for_all(options: CatalogOptions, *, warehouse: str) -> str | None:
    """The root that a catalog gives its new tables, ``file.path``; None: its warehouse.

    Raises: InvalidInputError: the opener does not allow it, or ``path`` names a directory for all tables.
    """
    given = canonical_options(options.table_defaults)
    path, root = (given.get(key) for key in ROOT_KEYS)
    if path is not None and warehouse_path(path, what="path") != warehouse:
        raise InvalidInputError(
            f"tables lie in the warehouse of their catalog, and one directory is not for all: option=path value={path} "
            f"warehouse={warehouse} fix='leave it out, use a catalog of that directory, or give a root, file.path'"
        )
    if root is None or (found := warehouse_path(root, what="file.path")) == warehouse:
        return None
    return _checked("file.path", root, found, warehouse, options.external_paths_allowed)


def wanted_place(
    name: str, options: Mapping[str, str] | None, *, catalog: CatalogOptions, warehouse: str, usual: str
) -> str | None:
    """The path of a new table by its options, or by its catalog's; None: the directory of its name.

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
    below = f"/{database}{DATABASE_SUFFIX}/{table}"
    places = {key: warehouse_path(text, what=key) for key, text in given.items()} or {"file.path": str(root)}
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
    if inside.endswith(DATABASE_SUFFIX) or inside.startswith("."):
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
