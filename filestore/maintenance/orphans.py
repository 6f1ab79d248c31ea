"""Orphans: files in a table's directories that are not part of it, left by a crashed writer or a lost response.

Candidates are listed first and live references are read afterwards, so that a file committed in between counts as
used. Files younger than a given age may belong to running writers and are ignored.
Unknown files outside the directories of the layout are ignored, and symbolic links are not followed: what is behind
them need not be the table's. Source: Paimon OrphanFilesClean.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from typing import Final

import orjson

from filestore.iceberg.places import METADATA_SUFFIX, hinted_version, metadata_directory, path_here, publishes
from filestore.io.places import local_path
from filestore.layout.own_files import GONE_PREFIX
from filestore.layout.paths import MAIN_BRANCH, escape_path
from filestore.manifest.record_files import decoded_records
from filestore.refs.file_references import FileReferences
from filestore.refs.live_references import LiveReference, ReferenceKind, all_references, branch_names, on_branch
from filestore.refs.pending_tags import pending_path
from filestore.refs.savepoint_files import CHECKPOINT_PREFIX
from filestore.table_store import TableStore
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError

_BUCKET = "bucket-"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanFile:
    """A file that nothing refers to."""

    path: str
    size_bytes: int
    modified_ms: int  # epoch


def find_orphans(
    store: TableStore,
    *,
    before_ms: int,
    private_directories: Collection[str] = (),
    spared: Callable[[], Collection[str]] = tuple,
) -> list[OrphanFile]:
    """The orphans, sorted by path.

    Args:
        store: the table; all its branches are considered.
        before_ms: epoch milliseconds; only files last modified before are orphans.
        private_directories: paths of Fluvial's own directories, where every old file is an orphan unless spared.
        spared: called after candidates are listed: paths of files that are yet to be committed.

    Raises:
        CorruptDataError: a live reference has missing files, so the files it uses are unknown.
        UnavailableError: a file system error.
    """
    outside = set(_outside(store))
    candidates = [
        file
        for path in chain(_candidates(store, private_directories), written_files(store), outside)
        if (file := _old_file(store, path, before_ms)) is not None
    ]
    if not candidates:
        return []
    kept = set(spared())
    abandoned = {file.path for file in candidates}
    references = FileReferences(store)
    for _ in range(2):  # what is committed while the others are read is found behind them
        kept |= references.all_used(lambda: _without(store, all_references(store), abandoned))
        kept |= used_files(store)
    names = {path.rpartition("/")[2] for path in kept} if outside else set()  # a place may be spelled in several ways
    return sorted(
        (
            file
            for file in candidates
            if file.path not in kept and not (file.path in outside and file.path.rpartition("/")[2] in names)
        ),
        key=lambda file: file.path,
    )


def delete_orphans(store: TableStore, orphans: Collection[OrphanFile], *, progress: Callable[[int, int], None]) -> None:
    """Delete orphans, reporting progress as (done, total)."""
    for done, orphan in enumerate(orphans):
        progress(done, len(orphans))
        store.delete_file(orphan.path)
    progress(len(orphans), len(orphans))
    for directory in _of_deletions(store):
        store.io.delete_empty_directory(directory)


def _without(store: TableStore, references: Collection[LiveReference], abandoned: set[str]) -> set[LiveReference]:
    """The references without pending tags that are orphans themselves."""
    return {
        each
        for each in references
        if each.kind is not ReferenceKind.PENDING
        or pending_path(on_branch(store, each.branch).paths, each.name) not in abandoned
    }


def _old_file(store: TableStore, path: str, before_ms: int) -> OrphanFile | None:
    try:
        modified_ms = store.io.modified_ms(path)
        if modified_ms >= before_ms:
            return None
        return OrphanFile(path=path, size_bytes=store.io.size_bytes(path), modified_ms=modified_ms)
    except FileNotFoundError:
        return None


def _candidates(store: TableStore, private_directories: Collection[str]) -> Iterator[str]:
    paths = store.paths
    for directory in (paths.manifest_dir, paths.index_dir, paths.statistics_dir):
        yield from _files(store, directory)
    for branch in branch_names(store):
        there = on_branch(store, branch).paths
        for directory in (
            there.snapshot_dir, there.schema_dir, there.tag_dir, there.changelog_dir, there.consumer_dir,
            there.savepoint_dir, *([] if branch == MAIN_BRANCH else [there.branch_root]),
        ):  # fmt: skip
            # files in these directories are live by themselves; only temporary files are orphans
            yield from (path for path in _files(store, directory) if _is_temporary(path))
        for name in store.io.list_names(there.savepoint_dir):
            if name.startswith(CHECKPOINT_PREFIX):  # its files are listed in the savepoint
                yield from _tree(store, f"{there.savepoint_dir}/{name}")
    for directory in (*private_directories, *_of_deletions(store)):
        yield from _tree(store, directory)
    inner = store.options.data_file_directory
    data_root = f"{paths.root}/{inner.strip('/')}" if inner else paths.root
    yield from _bucket_files(store, data_root, store.schema.partition_keys)


def _outside(store: TableStore) -> Iterator[str]:
    """The files in the table's own directories at the external places that it has or had on any branch."""
    places: set[str] = set()
    for branch in branch_names(store):
        for schema in on_branch(store, branch).schema_versions():
            with suppress(InvalidInputError):  # a place that its opener does not allow
                places.update(map(local_path, store.places_of(schema.table_options)))
    for place in sorted(places):
        yield from _tree(store, place)


def _of_deletions(store: TableStore) -> list[str]:
    """The directories into which files are moved that are being deleted; perhaps by processes that died."""
    roots = [on_branch(store, branch).paths.branch_root for branch in branch_names(store)]
    return [f"{root}/{name}" for root in roots for name in store.io.list_names(root) if name.startswith(GONE_PREFIX)]


def _bucket_files(store: TableStore, directory: str, keys: Sequence[str]) -> Iterator[str]:
    start = f"{escape_path(keys[0])}=" if keys else _BUCKET
    for path in _entries(store, directory):
        if path.rpartition("/")[2].startswith(start):
            yield from _bucket_files(store, path, keys[1:]) if keys else _files(store, path)


def _entries(store: TableStore, directory: str) -> Iterator[str]:
    """Paths in a directory of the table, links left out."""
    if not store.io.is_link(directory):
        paths = (f"{directory}/{name}" for name in store.io.list_names(directory))
        yield from (path for path in paths if not store.io.is_link(path))


def _files(store: TableStore, directory: str) -> Iterator[str]:
    yield from (path for path in _entries(store, directory) if not store.io.is_directory(path))


def _tree(store: TableStore, directory: str) -> Iterator[str]:
    for path in _entries(store, directory):
        if store.io.is_directory(path):
            yield from _tree(store, path)
        else:
            yield path


def _is_temporary(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith(".") and name.endswith(".tmp")


# ---- Which files of the Iceberg metadata its versions refer to; what is left over is of writers that died
#
# Nothing here needs pyiceberg.


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
