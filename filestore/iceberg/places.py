"""The path of Iceberg metadata, and its lag behind the table. Nothing here needs pyiceberg.

Source: Paimon IcebergCommitCallback.catalogDatabasePath; Iceberg HadoopTableOperations.
"""

from dataclasses import dataclass, replace
from typing import Final

import orjson

from filestore.io.file_io import FileIO
from filestore.io.places import allowed_roots, is_inside
from filestore.layout.branch_names import on_branch_name, split_branch
from filestore.layout.file_names import checked_name
from filestore.layout.locations import absolute_path
from filestore.layout.paths import MAIN_BRANCH
from filestore.options.table.iceberg import BUILT_STORAGE, DISABLED, HADOOP_CATALOG, REST_CATALOG, TABLE_LOCATION
from filestore.refs.live_references import on_branch
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError

METADATA_SUFFIX: Final = ".metadata.json"
HINT: Final = "version-hint.text"
"""Name of the file with the number of the newest version."""
BRANCH_NUMBER: Final = "fluvial.branch-snapshot"
"""Of the summary of a snapshot in the metadata: its number on its branch."""
_DATABASE_SUFFIX: Final = ".db"


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergState:
    """The state of a table, or of a branch, for Iceberg readers."""

    directory: str  # of the metadata
    shown: int | None  # id of the snapshot that they find; None: none
    newest: int | None  # id of the newest snapshot of the opened branch; None: it has none

    @property
    def behind(self) -> int:
        """Snapshots that they do not find yet."""
        return max(0, (self.newest or 0) - (self.shown or 0))

    def __str__(self) -> str:
        found = "nothing" if self.shown is None else f"snapshot {self.shown}"
        return f"{found} of {self.newest or 0}, {self.behind} behind, in {self.directory}"


def publishes(store: TableStore) -> bool:
    """Whether the opened branch has Iceberg metadata: the main one, when ``metadata.iceberg.storage`` is set."""
    return store.paths.branch == store.main_branch and _is_on(store)


def publishing_store(store: TableStore) -> TableStore | None:
    """The table on main, as that whose metadata shows the opened branch too; None: it has no Iceberg metadata."""
    if not _is_on(store):
        return None  # a branch that began before the option was set follows with main's next commit
    main = branch_store(store, store.main_branch)
    return main if main is not None and publishes(main) else None


def branch_store(store: TableStore, branch: str) -> TableStore | None:
    """The table on a branch, with the newest schema there; None: there is none."""
    if branch == store.paths.branch:
        return store
    there = on_branch(store, branch)
    newest = there.schemas.latest()
    if newest is None:
        return None
    name = on_branch_name(split_branch(store.name)[0], MAIN_BRANCH if branch == store.main_branch else branch)
    return replace(there, name=name, schema=newest).with_options({})


def _is_on(store: TableStore) -> bool:
    storage = store.options.iceberg_storage  # of another engine's table perhaps one that is not built
    return storage != DISABLED and storage in BUILT_STORAGE


def iceberg_state(store: TableStore) -> IcebergState | None:
    """How far the Iceberg metadata has come with the opened branch; None: the table has none.

    Raises: as ``metadata_directory``.
    """
    main = publishing_store(store)
    if main is None:
        return None
    directory = metadata_directory(main)
    shown = hinted_version(store.io, directory)
    if shown is not None and store.paths.branch != store.main_branch:
        shown = _shown_of_branch(store, f"{directory}/v{shown}{METADATA_SUFFIX}")
    return IcebergState(directory=directory, shown=shown, newest=store.snapshots.latest_id())


def _shown_of_branch(store: TableStore, path: str) -> int | None:
    try:
        body = orjson.loads(store.io.read_bytes(path))
        head = body["refs"][store.paths.branch]
        found = next(each for each in body["snapshots"] if each["snapshot-id"] == head["snapshot-id"])
        return int(found["summary"].get(BRANCH_NUMBER) or found["snapshot-id"]) if head["type"] == "branch" else None
    except (FileNotFoundError, ValueError, KeyError, TypeError, StopIteration):
        return None


def hinted_version(io: FileIO, directory: str) -> int | None:
    """The version that the hint names, which is the id of a snapshot; None: there is no hint."""
    try:
        text = io.read_bytes(f"{directory}/{HINT}").decode(errors="replace").strip()
    except FileNotFoundError:
        return None
    return int(text) if text.isdecimal() else None


def metadata_directory(store: TableStore) -> str:
    """The directory of a table's Iceberg metadata.

    Raises: InvalidInputError for a table outside of a database directory that is to be in a Hadoop catalog.
    """
    options = store.options
    storage = options.iceberg_storage_location or options.iceberg_storage
    root, outside = absolute_path(store.paths.root), allowed_roots(store.allowed_outside)
    if storage in (TABLE_LOCATION, REST_CATALOG):
        return f"{root}/metadata"
    database, _, name = root.rpartition("/")
    warehouse, _, directory = database.rpartition("/")
    if not directory.endswith(_DATABASE_SUFFIX) or is_inside(store.paths.root, outside):
        raise InvalidInputError(
            "a table outside of a warehouse has no place in a Hadoop catalog: "
            f"metadata.iceberg.storage={HADOOP_CATALOG} path={root} fix='set metadata.iceberg.storage={TABLE_LOCATION}'"
        )
    return f"{warehouse}/iceberg/{directory.removesuffix(_DATABASE_SUFFIX)}/{name}/metadata"


def path_here(path: object, directory: str) -> str:
    """The path of a manifest or list in a table's own metadata, however its writer spells the way to it.

    What metadata names is a stranger's word: nothing outside of the directory is read or deleted for it.

    Raises: ValueError: it ends in no name of a file.
    """
    return f"{directory}/{checked_name(str(path).rpartition('/')[2])}"
