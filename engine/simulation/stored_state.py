"""What the files of a catalog hold, read by the shortest way from their bytes, without the code that is examined.

Snapshots are JSON, manifests Avro, and rows are merged by keeping the highest sequence number of each key. For tables
of an integer key and an integer value, without partitions. What was parsed is remembered by its bytes: histories begin
with the same files.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

from engine.simulation.model import MAIN, Frozen, ModelTable
from filestore.io.file_io import FileIO
from filestore.manifest.record_files import decoded_records
from filestore.refs.live_references import FORK_TAG_PREFIX
from filestore.schema.table_schema import TABLE_UUID_KEY
from filestore.snapshot.snapshot import TABLE_KEY
from filestore.tag.automatic_tags import BATCH_PREFIX

T = TypeVar("T")

_OWN_TAGS: Final = ("branch-", "savepoint-", BATCH_PREFIX, FORK_TAG_PREFIX)
"""Prefixes of tags that no user makes, which the model leaves out."""
_GONE_KINDS: Final = (1, 3)  # -U and -D
_KNOWN: Final[dict[tuple[str, bytes], Any]] = {}
_MOST_KNOWN: Final = 20_000


@dataclass(frozen=True, slots=True)
class Root:
    """Something that keeps files: a snapshot, a tag or a savepoint."""

    kind: str
    branch: str
    name: str
    path: str
    snapshot: Mapping[str, Any] = field(hash=False, compare=False)

    def __str__(self) -> str:
        return f"{self.kind} {self.name} of {self.branch}"


@dataclass(slots=True)
class StoredTable:
    """One table as its files hold it."""

    files: FileIO
    root: str
    problems: list[str] = field(default_factory=list)

    @property
    def main(self) -> str:
        """Name of the main branch."""
        path = f"{self.root}/MAIN-BRANCH"
        return self.files.read_bytes(path).decode().split("\n")[0] if self.files.exists(path) else MAIN

    def branches(self) -> dict[str, str]:
        """Directories of branches by name, without empty ones; the table's own for ``main``."""
        names = [each for each in self.files.list_names(f"{self.root}/branch") if each.startswith("branch-")]
        others = {each.removeprefix("branch-"): f"{self.root}/branch/{each}" for each in names}
        return {MAIN: self.root, **{name: path for name, path in others.items() if any(files_below(self.files, path))}}

    def snapshots(self, branch: str) -> list[Root]:
        """The snapshots of a branch, oldest first."""
        return sorted(self._roots("snapshot", branch, "snapshot", "snapshot-"), key=lambda root: int(root.name))

    def roots(self) -> list[Root]:
        """Everything that keeps files."""
        found: list[Root] = []
        for branch in self.branches():
            found += self.snapshots(branch)
            found += self._roots("tag", branch, "tag", "tag-")
            found += self._roots("savepoint", branch, "savepoint", "savepoint-")
        return found

    def strays(self) -> list[Root]:
        """What names another table than this one: a handle published it that was opened before the table was made."""
        found = []
        for branch, path in self.branches().items():
            first = f"{path}/schema/schema-0"
            if not self.files.exists(first):
                continue  # main is another branch
            uuid = _parsed("json", self.files.read_bytes(first), orjson.loads).get(TABLE_UUID_KEY, "")
            own = [root for root in self.roots() if root.branch == branch]
            found += [root for root in own if root.snapshot.get("properties", {}).get(TABLE_KEY, uuid) != uuid]
        return found

    def live(self, snapshot: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """The data files of a snapshot. Raises: FileNotFoundError."""
        live: dict[Any, Mapping[str, Any]] = {}
        for name in (snapshot["baseManifestList"], snapshot["deltaManifestList"]):
            for manifest in self._records(name):
                for entry in self._records(manifest["_FILE_NAME"]):
                    key = (entry["_BUCKET"], entry["_FILE"]["_FILE_NAME"], entry["_FILE"]["_LEVEL"])
                    if entry["_KIND"] == 0:
                        live[key] = entry
                    else:
                        live.pop(key, None)
        return list(live.values())

    def rows(self, snapshot: Mapping[str, Any]) -> list[tuple[int, int]]:
        """Key and value of each row of a snapshot, by key; repeated rows too. Raises: FileNotFoundError."""
        best: dict[int, tuple[int, bool, int]] = {}
        plain: list[tuple[int, int]] = []
        for entry in self.live(snapshot):
            path = self._data_path(entry)
            rows = _parsed("rows", self.files.read_bytes(path), partial(_data_rows, path))
            for key, value, number, kind in rows:
                if number is None:
                    plain.append((key, value))
                elif key not in best or number > best[key][0]:
                    best[key] = (number, kind in _GONE_KINDS, value)
        return sorted([*plain, *((key, value) for key, (_, gone, value) in best.items() if not gone)])

    def used(self, root: Root) -> set[str]:
        """Paths of all files that a root needs. Raises: FileNotFoundError where a list is missing."""
        snapshot, manifest_dir = root.snapshot, f"{self.root}/manifest"
        found = set()
        lists = [snapshot["baseManifestList"], snapshot["deltaManifestList"]]
        changelog = snapshot.get("changelogManifestList")
        if root.kind == "snapshot" and changelog and self.files.exists(f"{manifest_dir}/{changelog}"):
            lists.append(changelog)
        for name in lists:
            found.add(f"{manifest_dir}/{name}")
            found |= {f"{manifest_dir}/{each['_FILE_NAME']}" for each in self._records(name)}
        for entry in self.live(snapshot):
            path = self._data_path(entry)
            directory = path.rpartition("/")[0]
            found |= {path, *(f"{directory}/{name}" for name in entry["_FILE"].get("_EXTRA_FILES") or ())}
        if len(lists) > 2:
            for manifest in self._records(lists[2]):
                found |= {self._data_path(each) for each in self._records(manifest["_FILE_NAME"])}
        if snapshot.get("indexManifest"):
            found.add(f"{manifest_dir}/{snapshot['indexManifest']}")
            found |= {f"{self.root}/index/{each['_FILE_NAME']}" for each in self._records(snapshot["indexManifest"])}
        return found

    def kept_files(self) -> set[str]:
        """Paths of all data, index and manifest files that are there."""
        inside = [path for path in files_below(self.files, self.root)]
        at = len(self.root) + 1
        return {path for path in inside if path[at:].startswith(("manifest/", "index/", "bucket-"))}

    def observed(self, rows_of: Callable[[Root], list[tuple[int, int]]]) -> ModelTable:
        """The table as the model sees it."""
        main, branches = self.main, []
        for branch in self.branches():
            if branch == MAIN and main != MAIN:
                continue
            snapshots = self.snapshots(branch)
            branches.append((branch, self._unique(snapshots[-1], rows_of) if snapshots else ()))
        own = [root for root in self.roots() if root.branch == main]
        tags = [
            (root.name, int(root.snapshot["id"]), self._unique(root, rows_of))
            for root in own
            if root.kind == "tag" and not root.name.startswith(_OWN_TAGS)
        ]
        savepoints = sorted(self._unique(root, rows_of) for root in own if root.kind == "savepoint")
        return ModelTable(
            main=main, branches=tuple(sorted(branches)), tags=tuple(sorted(tags)), savepoints=tuple(savepoints)
        )

    def _unique(self, root: Root, rows_of: Callable[[Root], list[tuple[int, int]]]) -> Frozen:
        rows = rows_of(root)
        if len({key for key, _ in rows}) < len(rows):
            self.problems.append(f"a row is there twice: {root} rows={rows}")
        return tuple(rows)

    def _roots(self, kind: str, branch: str, directory: str, prefix: str) -> Iterator[Root]:
        at = f"{self.branches()[branch]}/{directory}"
        for name in self.files.list_names(at):
            plain = name.removeprefix(prefix)
            if name.startswith(prefix) and not self.files.is_directory(f"{at}/{name}") and _is_root(kind, plain):
                body = _parsed("json", self.files.read_bytes(f"{at}/{name}"), orjson.loads)
                snapshot = body.get("snapshot", body) if kind == "savepoint" else body
                yield Root(kind, branch, plain, f"{at}/{name}", snapshot)

    def _records(self, name: str) -> list[dict[str, Any]]:
        return _parsed("avro", self.files.read_bytes(f"{self.root}/manifest/{name}"), _avro_records)

    def _data_path(self, entry: Mapping[str, Any]) -> str:
        return f"{self.root}/bucket-{max(entry['_BUCKET'], 0)}/{entry['_FILE']['_FILE_NAME']}"


def files_below(files: FileIO, directory: str) -> Iterator[str]:
    """Paths of all files below a directory."""
    for name in files.list_names(directory):
        path = f"{directory}/{name}"
        if files.is_directory(path):
            yield from files_below(files, path)
        else:
            yield path


def _is_root(kind: str, name: str) -> bool:
    return name.isdigit() if kind in ("snapshot", "savepoint") else not name.startswith(".")


def _parsed(kind: str, body: bytes, parse: Callable[[bytes], T]) -> T:
    known: T | None = _KNOWN.get((kind, body))
    if known is None:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        known = _KNOWN[kind, body] = parse(body)
    return known


def _avro_records(body: bytes) -> list[Any]:
    return list(decoded_records(body, source="file of a history", decode=dict))


def _data_rows(path: str, body: bytes) -> list[tuple[int, int, int | None, int]]:
    """Key, value, sequence number (None without one) and kind of each record."""
    if path.endswith(".avro"):
        records: Iterable[Mapping[str, Any]] = _avro_records(body)
    else:
        source = pa.BufferReader(body)
        table = pq.read_table(source, use_threads=False) if path.endswith(".parquet") else orc.read_table(source)
        records = table.to_pylist()
    return [(each["id"], each["v"], each.get("_SEQUENCE_NUMBER"), each.get("_VALUE_KIND", 0)) for each in records]
