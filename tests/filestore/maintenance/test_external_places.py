"""Data files at external places: written by each strategy, read, compacted, expired, cleaned up and dropped."""

import random
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from filestore.branch.branches import create_branch, delete_branch
from filestore.branch.merge import merge_branch
from filestore.catalog.catalog import FileCatalog
from filestore.commit.committable import discard
from filestore.evolution.schema_change import SetOption
from filestore.iceberg.entries import CommitId
from filestore.iceberg.visible_files import VisibleFiles
from filestore.io.file_io import RandomNames
from filestore.maintenance.orphans import delete_orphans, find_orphans
from filestore.maintenance.snapshot_expiry import Retention, expire_snapshots
from filestore.maintenance.verification import verify_files
from filestore.options.catalog_options import CatalogOptions
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable
from filestore.tag.savepoints import create_savepoint
from filestore.tag.tags import create_tag, delete_tag
from filestore.write.row_deletion import delete_rows
from lsm.errors import FluvialError, InvalidInputError
from tests.support.faults import CountedNames, FaultyFileIO, ManualClock, MemoryFileIO

ALLOWED = CatalogOptions.external_paths_allowed.key
PLACES = "data-file.external-paths"
STRATEGY = f"{PLACES}.strategy"
SCHEMA = pa.schema([("p", pa.string()), ("id", pa.int64()), ("s", pa.string())])
ONE = Retention(min_count=1, max_count=1, age_ms=10**15, limit=1000)
ROOTS = {
    "round-robin": {PLACES: "file:///x/a,file:///x/b"},
    "specific-fs": {PLACES: "s3://else,file:///x/a/", f"{PLACES}.specific-fs": "FILE"},
    "entropy-inject": {PLACES: "file:///x/a,file:///x/b"},
    "weight-robin": {PLACES: "file:///x/a,file:///x/b", f"{PLACES}.weights": "1,3"},
}
KINDS: Mapping[str, Mapping[str, str]] = {
    "keyed": {"bucket": "2", "changelog-producer": "input"},
    "looked up": {"bucket": "1", "changelog-producer": "lookup", "target-file-row-num": "5"},
    "marked": {"bucket": "1", "deletion-vectors.enabled": "true", "index-file-in-data-file-dir": "true"},
    "unkeyed": {"bucket": "-1", "file-index.bloom-filter.columns": "s", "file-index.in-manifest-threshold": "1 b"},
    "unkeyed, marked": {"bucket": "-1", "deletion-vectors.enabled": "true", "target-file-row-num": "5"},
    "dynamic": {"bucket": "-1", "dynamic-bucket.target-row-num": "10", "data-file.path-directory": "in/side"},
}


def catalog_of_places(io: MemoryFileIO, *, allowed: str | None = "/x", clock: ManualClock | None = None) -> FileCatalog:
    options = {} if allowed is None else {ALLOWED: allowed}
    return FileCatalog("/w", options, io=io, clock=clock or ManualClock(), names=CountedNames())


def made_outside(catalog: FileCatalog, kind: str, strategy: str, **more: str) -> FileTable:
    key = [] if kind.startswith("unkeyed") else ["p", "id"]
    options = {**KINDS[kind], STRATEGY: strategy, **ROOTS[strategy], **more}
    return catalog.create_table("db.t", SCHEMA, primary_key=key, partition_by=["p"], options=options)


def some_ids(first: int, count: int = 8) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"p": [f"p{i % 2}" for i in ids], "id": list(ids), "s": [f"{first}-{i}" for i in ids]}, SCHEMA)


def sorted_rows(table: FileTable) -> list[tuple[object, ...]]:
    return sorted(tuple(row.values()) for row in table.read().to_arrow().to_pylist())


def live_paths(table: FileTable) -> set[str]:
    live = LiveFiles.latest(table.store)
    found = ((key, file) for key in live.all_buckets() for file in live.files(key))
    return {path for key, file in found for path in table.store.file_paths(key.partition, key.bucket, file)}


class Oracle:
    """The rows of a table as a list or a dictionary of Python."""

    def __init__(self, *, keyed: bool) -> None:
        self.keyed = keyed
        self.rows: list[tuple[object, ...]] = []

    def write(self, rows: pa.Table) -> None:
        for row in map(tuple, (each.values() for each in rows.to_pylist())):
            if self.keyed:
                self.rows = [each for each in self.rows if each[:2] != row[:2]]
            self.rows.append(row)

    def delete(self, key: int) -> None:
        self.rows = [each for each in self.rows if each[1] != key]


def files_in(io: MemoryFileIO, root: str) -> set[str]:
    return {path for path in io.files if path.startswith(root)}


def check_outside(io: MemoryFileIO, table: FileTable, oracle: Oracle) -> None:
    """The rows are right, nothing is missing, and no data file is in the table's directory."""
    assert sorted_rows(table) == sorted(oracle.rows)
    assert list(verify_files(table.store, progress=lambda done, of: None)) == []
    assert live_paths(table) <= files_in(io, "/x/")
    assert not [path for path in files_in(io, "/w/") if path.endswith((".parquet", ".orc", ".avro", ".index"))]


def delete_id(table: FileTable, oracle: Oracle, key: int) -> None:
    """Delete the rows of an id, where rows can be deleted."""
    if table.store.has_key:
        table.write(some_ids(key, 1), pa.array([3], pa.int8()))
    elif table.options.deletion_vectors_enabled:
        delete_rows(table.store, f"id = {key}")
    else:
        return
    oracle.delete(key)


def clean_up(table: FileTable) -> list[str]:
    orphans = find_orphans(table.store, before_ms=2**62)
    delete_orphans(table.store, orphans, progress=lambda done, of: None)
    return [each.path for each in orphans]


def expire_to_one(table: FileTable) -> None:
    list(expire_snapshots(table.store, ONE))


@pytest.mark.sampled(12)
@pytest.mark.sweep
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("strategy", ROOTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_life_outside(kind: str, strategy: str, file_format: str) -> None:
    """Writes, deletes, compactions and expiry in a random order, against rows in Python; then a drop."""
    io = MemoryFileIO()
    catalog = catalog_of_places(io)
    table = made_outside(catalog, kind, strategy, **{"file.format": file_format})
    oracle, seeded = Oracle(keyed=not kind.startswith("unkeyed")), random.Random(f"{kind} {strategy} {file_format}")
    for step in range(9):
        match seeded.choice(["write", "write", "delete", "compact", "expire"]) if step else "write":
            case "write":
                rows = some_ids(first := seeded.randrange(20), seeded.randrange(1, 15))
                oracle.write(rows)
                table.write(rows)
            case "delete":
                delete_id(table, oracle, first)
            case "compact":
                table.compact(full=True)
            case "expire":
                expire_to_one(table)
        check_outside(io, table, oracle)
    table.compact(full=True)
    table.compact(full=True)
    expire_to_one(table)
    check_outside(io, table, oracle)
    assert clean_up(table) == []
    assert all("/changelog-" in path for path in files_in(io, "/x/") - live_paths(table))
    roots = {path.split("/db.db/")[0] for path in files_in(io, "/x/")}
    assert roots <= ({"/x/a"} if strategy == "specific-fs" else {"/x/a", "/x/b"})
    catalog.drop_table("db.t")
    assert set(io.files) == files_in(io, "/w/db.db/") == set()


def test_a_whole_path_is_in_the_manifest_with_the_roots_own_words() -> None:
    table = made_outside(catalog_of_places(MemoryFileIO()), "keyed", "round-robin")
    table.write(some_ids(0))
    live = LiveFiles.latest(table.store)
    paths = [str(file.external_path) for key in live.all_buckets() for file in live.files(key)]
    inner = f"/db.db/t/{table.store.table_uuid}/p=p"
    assert all(path.startswith((f"file:///x/a{inner}", f"file:///x/b{inner}")) for path in paths)
    assert all("/bucket-" in path for path in paths)


@pytest.mark.parametrize("allowed", [None, "/y", "/x/a", "file:///x/b", "s3://x"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_root_that_the_opener_does_not_allow_is_refused_before_any_file(kind: str, allowed: str | None) -> None:
    io = MemoryFileIO()
    made_outside(catalog_of_places(io), kind, "round-robin")
    before = dict(io.files)
    says = rf"table=db.t option={PLACES} value=file:///x/[ab] {ALLOWED}=.* fix='.*{ALLOWED}=file:///x/[ab] if"
    with pytest.raises(InvalidInputError, match=says):
        catalog_of_places(io, allowed=allowed).table("db.t").write(some_ids(0))
    assert io.files == before
    catalog_of_places(io, allowed="file:///x/a,/x/b/").table("db.t").write(some_ids(0))
    before = dict(io.files)
    with pytest.raises(InvalidInputError, match=rf"{ALLOWED}.* fix="):
        catalog_of_places(io, allowed=allowed).table("db.t").write(some_ids(0))
    assert io.files == before


def test_a_root_in_another_store_is_refused_before_any_file() -> None:
    io = MemoryFileIO()
    catalog = catalog_of_places(io, allowed="/x,s3://b")
    table = made_outside(catalog, "keyed", "round-robin", **{PLACES: "file:///x/a,s3://b/c"})
    before = set(io.files)
    with pytest.raises(InvalidInputError, match=rf"another store .*option={PLACES} value=s3://b/c"):
        table.write(some_ids(0))
    assert set(io.files) == before


def test_without_a_strategy_files_are_in_the_table_as_in_java() -> None:
    io = MemoryFileIO()
    table = made_outside(catalog_of_places(io, allowed=None), "keyed", "round-robin", **{STRATEGY: "none"})
    table.write(some_ids(0))
    assert (len(sorted_rows(table)), files_in(io, "/x/")) == (8, set())


def test_places_that_move_are_all_read_cleaned_and_dropped() -> None:
    """The strategy and the roots change between writes, also back to the table itself."""
    io = MemoryFileIO()
    catalog, oracle = catalog_of_places(io), Oracle(keyed=True)
    made_outside(catalog, "keyed", "round-robin")
    for first, place in enumerate(["file:///x/c", "file:/x/d", "", "file:///x/a"]):
        how = {PLACES: place, STRATEGY: "round-robin"} if place else {STRATEGY: "none"}
        catalog.alter_table("db.t", [SetOption(key, text) for key, text in how.items()])
        table = catalog.table("db.t")
        oracle.write(rows := some_ids(10 * first))
        table.write(rows)
        assert sorted_rows(table) == sorted(oracle.rows)
    assert {path.split("/")[2] for path in files_in(io, "/x/")} == {"a", "c", "d"}
    table.compact(full=True)
    expire_to_one(table)
    assert clean_up(table) == []
    assert (sorted_rows(table), {path.split("/")[2] for path in live_paths(table)}) == (sorted(oracle.rows), {"a"})
    catalog.drop_table("db.t")
    assert not io.files


@pytest.mark.parametrize("strategy", ROOTS)
@pytest.mark.parametrize("kind", ["keyed", "unkeyed"])
def test_a_writer_that_is_killed_leaves_orphans_that_are_found(kind: str, strategy: str) -> None:
    """Files that it wrote before are never among them; one that gives up leaves none."""
    io = MemoryFileIO()
    table = made_outside(catalog_of_places(io), kind, strategy)
    table.write(some_ids(0))
    rows, before = sorted_rows(table), files_in(io, "/x/")
    write = table.new_write(max_sequence_numbers=lambda partition, bucket: 100)
    write.write(some_ids(50))
    write.prepare_commit()
    left = files_in(io, "/x/") - before
    assert left
    assert set(clean_up(table)) == left
    write = table.new_write(max_sequence_numbers=lambda partition, bucket: 100)
    write.write(some_ids(70))
    write.abort()
    write.write(some_ids(70))
    discard(table.store, write.prepare_commit())
    assert (files_in(io, "/x/"), clean_up(table), sorted_rows(table)) == (before, [], rows)


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["keyed", "unkeyed", "marked"])
def test_a_write_that_fails_at_any_step_leaves_nothing_that_is_not_found(kind: str) -> None:
    empty = MemoryFileIO()
    made_outside(catalog_of_places(empty), kind, "entropy-inject").write(some_ids(0))
    for step in range(1, 60):
        io = empty.copied()
        faulty = FaultyFileIO(io)
        table = FileCatalog("/w", {ALLOWED: "/x"}, io=faulty, clock=ManualClock(), names=RandomNames()).table("db.t")  # type: ignore[arg-type]
        faulty.fail_at = faulty.calls + step
        with suppress(FluvialError, OSError):
            table.write(some_ids(50))
            table.compact(full=True)
        table = catalog_of_places(io).table("db.t")
        clean_up(table)
        assert len(sorted_rows(table)) in (8, 16)
        assert live_paths(table) <= files_in(io, "/x/")


@pytest.mark.parametrize("kind", KINDS)
def test_tags_savepoints_and_branches_keep_what_they_need(kind: str) -> None:
    io = MemoryFileIO()
    catalog, oracle = catalog_of_places(io), Oracle(keyed=not kind.startswith("unkeyed"))
    table = made_outside(catalog, kind, "entropy-inject")
    oracle.write(some_ids(0))
    table.write(some_ids(0))
    create_tag(table.store, "one")
    create_branch(table.store, "b", tag="one")
    branch = catalog.table("db.t$branch_b")
    oracle_of_branch = Oracle(keyed=oracle.keyed)
    for rows in (some_ids(0), some_ids(30)):
        oracle_of_branch.write(rows)
    branch.write(some_ids(30))
    oracle.write(some_ids(4))
    table.write(some_ids(4))
    create_savepoint(table.store, compact=oracle.keyed)
    if oracle.keyed:  # buckets without a key are merged by what happened in them
        table.compact(full=True)
        expire_to_one(table)
    assert clean_up(table) == []
    check_outside(io, table, oracle)
    check_outside(io, branch, oracle_of_branch)
    oracle.write(some_ids(30))
    merge_branch(table.store, "b")
    check_outside(io, catalog.table("db.t"), oracle)
    delete_branch(table.store, "b")
    delete_tag(table.store, "one")
    expire_to_one(catalog.table("db.t"))
    check_outside(io, catalog.table("db.t"), oracle)
    assert clean_up(table) == []
    catalog.drop_table("db.t")
    assert not files_in(io, "/x/")


def test_tables_share_a_root_and_none_touches_another(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also one that gets the name of another that was renamed, and one of another warehouse."""
    roots = {PLACES: f"file://{tmp_path}/x/a,file://{tmp_path}/x/b"}
    catalog, elsewhere = (FileCatalog(str(tmp_path / each), {ALLOWED: str(tmp_path / "x")}) for each in "wv")
    made_outside(catalog, "keyed", "round-robin", **roots).write(some_ids(0))
    catalog.rename_table("db.t", "db.u")
    tables = [
        catalog.table("db.u"), made_outside(catalog, "keyed", "round-robin", **roots),
        made_outside(elsewhere, "keyed", "round-robin", **roots),
    ]  # fmt: skip
    for first, each in enumerate(tables):
        each.write(some_ids(first))
    for each in tables:
        each.compact(full=True)
        expire_to_one(each)
        assert clean_up(each) == []
    assert [len(sorted_rows(each)) for each in tables] == [8, 8, 8]
    catalog.drop_table("db.t")
    elsewhere.drop_table("db.t")
    assert len(sorted_rows(tables[0])) == 8
    assert "outside of its directory stay" not in caplog.text
    catalog.drop_table("db.u")
    assert f"outside of its directory stay: table=db.u places='{PLACES}=file://{tmp_path}/x/a" in caplog.text


@pytest.mark.parametrize("made", ["", ".", "..", "../u", "../../private"])
def test_an_id_in_a_schema_leads_nowhere(made: str) -> None:
    io = MemoryFileIO()
    catalog = catalog_of_places(io)
    table = made_outside(catalog, "keyed", "round-robin")
    table.write(some_ids(0))
    path = table.store.paths.schema(0)
    body = io.files[path].decode()
    others = {f"/x/a/{each}/f": b"kept" for each in ("db.db/t/other", "db.db/u", "private", "db.db/private")}
    io.files = {**io.files, **others, path: body.replace(str(table.store.table_uuid), made).encode()}
    forged = catalog_of_places(io).table("db.t")
    with suppress(InvalidInputError):
        forged.write(some_ids(0))
    clean_up(forged)
    catalog_of_places(io).drop_table("db.t")
    assert others.items() <= io.files.items()


def test_a_table_of_another_warehouse_is_no_place() -> None:
    """A directory of the table's name that is itself a table keeps its files, also those that this one names."""
    io = MemoryFileIO()
    catalog = catalog_of_places(io, allowed="/x")
    table = made_outside(catalog, "keyed", "round-robin")
    table.write(some_ids(0))
    victim = FileCatalog("/x/v", io=io, clock=ManualClock(), names=CountedNames())
    made_outside(victim, "keyed", "round-robin", **{STRATEGY: "none"}).write(some_ids(0))
    for path in files_in(io, "/x/v/"):
        assert not catalog.table("db.t").store.is_own(path)
    assert all(map(catalog.table("db.t").store.is_own, live_paths(table)))


def test_iceberg_metadata_with_vectors_of_such_files_is_refused() -> None:
    """Its vectors have whole paths, and ours have names; without vectors the paths are the files' own."""
    for is_marked in (True, False):
        marked = {"deletion-vectors.enabled": "true", "deletion-vectors.bitmap64": "true"} if is_marked else {}
        io = MemoryFileIO()
        table = made_outside(catalog_of_places(io), "unkeyed", "round-robin", **marked)
        table.write(some_ids(0))
        visible, snapshot = VisibleFiles(table.store, table.schema, 3), table.store.snapshots.latest()
        assert snapshot is not None
        if is_marked:
            with pytest.raises(InvalidInputError, match=rf"path=/x/.* option={STRATEGY} fix="):
                visible.all_of(snapshot, CommitId(1, 1))
        else:
            assert visible.all_of(snapshot, CommitId(1, 1)).data
