"""Which files of the Iceberg metadata its versions refer to; what is left over is of writers that died.

Nothing here needs pyiceberg.
"""

from typing import Final

import orjson

from filestore.iceberg.places import METADATA_SUFFIX, hinted_version, metadata_directory, path_here, publishes
from filestore.manifest.record_files import decoded_records
from filestore.table_store import TableStore
from lsm.errors import ConflictError, CorruptDataError

_MANIFEST: Final = ".avro"
_MOST_ATTEMPTS: Final = 5


def written_files(store: TableStore) -> list[str]:
    """Paths of the manifests and lists that are there, used or not; empty: the opened branch has no metadata."""
    if not publishes(store):
        return []
    directory = metadata_directory(store)
    return [f"{directory}/{name}" for name in store.io.list_names(directory) if name.endswith(_MANIFEST)]


def used_files(store: TableStore) -> set[str]:
    """Paths of the manifests and lists that any version of the metadata refers to.

    Raises:
        ConflictError: versions kept coming: run it again.
        CorruptDataError: the version that readers find, or a list of it, cannot be read.
    """
    if not publishes(store):
        return set()
    directory = metadata_directory(store)
    for _ in range(_MOST_ATTEMPTS):
        names, hint = _versions(store, directory), hinted_version(store.io, directory)
        found = set().union(*(_of_version(store, directory, name, hint) for name in names))
        if _versions(store, directory) == names:  # else a version that was gone may have had what the next one keeps
            return found
    raise ConflictError(f"Iceberg metadata kept changing: table={store.name} directory={directory}: run it again")


def _versions(store: TableStore, directory: str) -> list[str]:
    return sorted(name for name in store.io.list_names(directory) if name.endswith(METADATA_SUFFIX))


def _of_version(store: TableStore, directory: str, name: str, hint: int | None) -> set[str]:
    """What a version refers to; of older ones lists may have gone with their snapshots."""
    path = f"{directory}/{name}"
    found: set[str] = set()
    try:
        for each in orjson.loads(store.io.read_bytes(path))["snapshots"]:
            at = path_here(each["manifest-list"], directory)
            lines = decoded_records(store.io.read_bytes(at), source=at, decode=dict)
            found |= {at, *(path_here(line["manifest_path"], directory) for line in lines)}
    except (CorruptDataError, FileNotFoundError, ValueError, KeyError, TypeError) as error:
        is_gone = isinstance(error, FileNotFoundError) and not store.io.exists(path)
        if not is_gone and (hint is None or name == f"v{hint}{METADATA_SUFFIX}"):
            raise CorruptDataError(
                f"Iceberg metadata refers to what cannot be read: table={store.name} file={path} error={error!r} "
                "fix='delete the directory: the next commit writes it again'"
            ) from error
    return found
