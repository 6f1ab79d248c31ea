"""A table with every kind of file that names others, and all that can be done with it: for edits of those names."""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa

from filestore.branch.branches import create_branch, delete_branch, list_branches
from filestore.branch.main_replacement import replace_main
from filestore.branch.merge import merge_branch
from filestore.diff.table_diff import open_diff
from filestore.maintenance.orphans import delete_orphans, find_orphans
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.maintenance.row_verification import verify_rows
from filestore.maintenance.verification import verify_files
from filestore.manifest.entries import ManifestEntry
from filestore.refs.savepoint_files import SavedCheckpoint
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from filestore.tag.savepoints import create_savepoint, delete_savepoint
from filestore.tag.tags import create_tag, delete_tag, list_tags
from lsm.errors import FluvialError
from tests.support.faults import MemoryFileIO
from tests.support.hostile import VICTIM, WatchedFileIO
from tests.support.tables import expire_all_but, key_table, reopened

SCHEMA = pa.schema([("p", pa.string()), ("id", pa.int64()), ("v", pa.string())])
FAR = 10**15


def some(start: int, count: int, value: str = "v") -> pa.Table:
    """Rows with these ids."""
    return pa.table({"p": ["a"] * count, "id": range(start, start + count), "v": [value] * count}, schema=SCHEMA)


def saved(snapshot: Snapshot) -> list[SavedCheckpoint]:
    """What a savepoint of a snapshot keeps of a checkpoint."""
    return [
        SavedCheckpoint(
            query_id="q", commit_user=snapshot.commit_user, batch_id=1, location="/checkpoints/q",
            directory="checkpoint-1-q", files=("offsets/1", "metadata"), sources=(),
        )
    ]  # fmt: skip


@cache
def whole() -> FileTable:
    """A table with every kind of file that names others."""
    table = key_table(
        schema=SCHEMA,
        primary_key=("p", "id"),
        partition_by=("p",),
        **{
            "bucket": "1",
            "manifest.compression": "none",
            "file.compression": "none",
            "deletion-vectors.enabled": "true",
            "changelog-producer": "lookup",
            "num-sorted-run.compaction-trigger": "3",
            "file-index.bloom-filter.columns": "v",
            "file-index.in-manifest-threshold": "1 b",
        },
    )
    for start in range(5):
        table.write(some(start * 3, 6, f"v{start}"))
        table.compact()
    create_tag(table.store, "kept")
    create_branch(table.store, "dev", tag="kept")
    table.on_branch("dev").write(some(90, 2))
    create_savepoint(table.store, keep_checkpoints=saved)
    table.write(some(4, 2, "x"))
    files = table.store.io.files  # type: ignore[attr-defined]
    for name in ("offsets/1", "metadata"):
        files[f"{table.store.paths.savepoint_dir}/checkpoint-1-q/{name}"] = b"{}"
    newest = table.store.snapshots.latest()
    assert newest is not None
    path = table.store.paths.snapshot(newest.id)
    files[path] = orjson.dumps({**orjson.loads(files[path]), "statistics": "stat-1"})
    files[table.store.paths.statistics("stat-1")] = orjson.dumps({"snapshotId": newest.id, "schemaId": 0})
    files[VICTIM] = b"of another one"
    return table


def metadata(table: FileTable) -> Iterator[str]:
    """Paths of the files that are decoded: not those with rows."""
    for path in sorted(table.store.io.files):  # type: ignore[attr-defined]
        inner = path.removeprefix(f"{table.store.paths.root}/")
        if inner != path and not inner.startswith(("p=", "index/")) and "/checkpoint-" not in inner:
            yield path


def one_of_a_kind(table: FileTable) -> list[str]:
    """The newest of the files whose names differ by numbers only."""
    paths = sorted(metadata(table), key=lambda path: (len(path), path))
    kinds = {re.sub(r"\d+", "0", re.sub(r"[0-9a-f]{8}-[-0-9a-f]+", "", path)): path for path in paths}
    return list(kinds.values())


def kinds_of_files() -> list[str]:
    """Paths of ``one_of_a_kind`` in the table's directory."""
    return [path.removeprefix(f"{whole().store.paths.root}/") for path in one_of_a_kind(whole())]


def on_disk(warehouse: Path) -> Path:
    """The table with every kind of file as ``db.t`` of a warehouse: its directory."""
    root = warehouse / "db.db" / "t"
    for path, body in whole().store.io.files.items():  # type: ignore[attr-defined]
        if path.startswith(f"{whole().store.paths.root}/"):
            there = root / path.removeprefix(f"{whole().store.paths.root}/")
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(body)
    return root


def _all(found: Any) -> list[Any]:
    return list(found)


def _roll_back(table: FileTable) -> None:
    target = table.store.snapshots.read(table.store.snapshots.ids()[0])
    roll_back(table.store, plan_rollback(table.store, target))


def _clean(table: FileTable) -> None:
    delete_orphans(table.store, find_orphans(table.store, before_ms=FAR), progress=lambda done, of: None)


def _delete_all(table: FileTable) -> None:
    for branch in list_branches(table.store):
        delete_branch(table.store, branch.name)
    for tag in list_tags(table.store):
        if not tag.name.startswith("savepoint"):
            delete_tag(table.store, tag.name)


OPERATIONS: dict[str, Callable[[FileTable], object]] = {
    "read": lambda table: table.read().to_arrow(),
    "read a tag": lambda table: table.read(tag="kept").to_arrow(),
    "read a branch": lambda table: table.on_branch("dev").read().to_arrow(),
    "compare": lambda table: open_diff(table, "kept", "latest").changes(),
    "write": lambda table: table.write(some(1, 3)),
    "verify": lambda table: _all(verify_files(table.store, progress=lambda done, of: None)),
    "verify rows": lambda table: _all(verify_rows(table.store, progress=lambda done, of: None)),
    "compact": lambda table: table.compact(full=True),
    "merge": lambda table: merge_branch(table.store, "dev"),
    "delete a savepoint": lambda table: delete_savepoint(table.store, 1),
    "expire": lambda table: expire_all_but(table, 1),
    "clean": _clean,
    "roll back": _roll_back,
    "replace main": lambda table: replace_main(table.store, "dev", force=True),
    "delete tags and branches": _delete_all,
}
ORDERS = [list(OPERATIONS), list(reversed(OPERATIONS)), ["expire", "clean", "delete a savepoint", "read"]]


def survives(
    table: FileTable, body: bytes, path: str, order: list[str], observe: Callable[[str, bool], object] = lambda *_: None
) -> list[str]:
    """What one edited file led to outside of the table. Errors other than those of Fluvial fail the test.

    ``observe(operation, is_refused)`` is called for each.
    """
    inner = MemoryFileIO(table.store.io.files)  # type: ignore[attr-defined]
    inner.files[path] = body
    watched = WatchedFileIO(inner, [table.store.paths.root])
    for name in order:
        is_refused = True
        with suppress(FluvialError):  # and nothing else
            OPERATIONS[name](reopened(table, watched))  # type: ignore[arg-type]
            is_refused = False
        observe(name, is_refused)
    complaints = watched.outside
    if inner.files.get(VICTIM) != b"of another one":
        complaints.append("the victim is gone")
    return complaints


def forge(table: FileTable, change: Callable[[ManifestEntry], ManifestEntry]) -> None:
    """Rewrite all manifests of a table as who may write its files can."""
    manifests = table.store.manifests
    for snapshot_id in table.store.snapshots.ids():
        path = Path(table.store.paths.snapshot(snapshot_id))
        body = orjson.loads(path.read_bytes())
        for kind in ("base", "delta"):
            metas = manifests.read_list(body[f"{kind}ManifestList"], body[f"{kind}ManifestListSize"])
            forged = [manifests.write_manifest(list(map(change, manifests.read_manifest(each)))) for each in metas]
            body[f"{kind}ManifestList"], body[f"{kind}ManifestListSize"] = manifests.write_list(forged)
        path.write_bytes(orjson.dumps(body))
