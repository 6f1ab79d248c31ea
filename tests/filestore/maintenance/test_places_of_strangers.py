"""Where the files of a table are is said by its files, and how far that is believed by who opens it."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from filestore.branch.branches import create_branch, delete_branch
from filestore.catalog.catalog import FileCatalog
from filestore.io.places import is_below
from filestore.layout.file_names import external_roots
from filestore.maintenance.orphans import delete_orphans, find_orphans
from filestore.maintenance.snapshot_expiry import Retention, expire_snapshots
from filestore.manifest.entries import ManifestEntry
from filestore.options.catalog_options import CatalogOptions
from filestore.table import FileTable
from filestore.tag.tags import create_tag, delete_tag
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.hostile_table import forge
from tests.support.stored_login import store_options

ALLOWED = CatalogOptions.external_paths_allowed.key
ALL_BUT_ONE = Retention(min_count=1, max_count=1, age_ms=10**15, limit=1000)
SCHEMA = pa.schema([("id", pa.int64()), ("s", pa.string())])


def some_rows(first: int) -> pa.Table:
    return pa.table({"id": [first], "s": ["of this table"]}, schema=SCHEMA)


def made_table(warehouse: Path, name: str) -> FileTable:
    table = FileCatalog(str(warehouse)).create_table(name, SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for first in range(3):
        table.write(some_rows(first))
    table.compact(full=True)
    return table


def opened_table(warehouse: Path, allowed: str | None = None) -> FileTable:
    return FileCatalog(str(warehouse), {} if allowed is None else {ALLOWED: allowed}).table("db.t")


def elsewhere(path: Path) -> Callable[[ManifestEntry], ManifestEntry]:
    """A change: every file is at a path outside of the table, with an extra file beside it."""

    def change(entry: ManifestEntry) -> ManifestEntry:
        return replace(entry, file=replace(entry.file, external_path=str(path), extra_files=("extra.txt",)))

    return change


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A data file outside of the warehouse, beside another file."""
    other = made_table(tmp_path / "private", "db.o")
    other.write(pa.table({"id": [9], "s": ["secret"]}, schema=SCHEMA))
    (file, *_) = sorted(Path(other.store.paths.root).rglob("data-*.parquet"), key=lambda path: path.stat().st_mtime)[
        -1:
    ]
    (file.parent / "extra.txt").write_text("kept")
    return file


@pytest.mark.parametrize("root", ["file:///", "{victim}", "/", "{victim}/..", "file:{victim}"])
def test_a_place_outside_is_read_only_where_the_opener_allows_it(root: str, tmp_path: Path, victim: Path) -> None:
    table = made_table(tmp_path / "w", "db.t")
    forge(table, elsewhere(victim))
    named = root.format(victim=victim.parent)
    store_options(table.store.paths.schema(0), {"data-file.external-paths": named})
    for allowed in (None, str(tmp_path / "private" / "else"), f"{victim.parent}x"):
        with pytest.raises(InvalidInputError, match=rf"option={ALLOWED} .*fix='.*{ALLOWED}={victim.parent} if"):
            opened_table(tmp_path / "w", allowed).read().to_arrow()


@pytest.mark.parametrize("allowed", ["{}", "file:{}", "/else,{}/", "{}/.."])
def test_what_the_opener_allows_is_read_and_never_deleted(allowed: str, tmp_path: Path, victim: Path) -> None:
    table = made_table(tmp_path / "w", "db.t")
    forge(table, elsewhere(victim))
    store_options(table.store.paths.schema(0), {"data-file.external-paths": str(victim.parent)})
    table = opened_table(tmp_path / "w", allowed.format(victim.parent))
    if allowed.endswith(".."):
        with pytest.raises(InvalidInputError, match=ALLOWED):
            table.read().to_arrow()
        return
    assert table.read().to_arrow()["s"].to_pylist()[-1] == "secret"
    assert list(expire_snapshots(table.store, ALL_BUT_ONE))
    assert sorted(each.name for each in victim.parent.iterdir()) == sorted([*data_names(victim), "extra.txt"])


def data_names(victim: Path) -> list[str]:
    return [each.name for each in victim.parent.glob("data-*")]


def test_an_expiry_deletes_replaced_files_inside_of_the_table_only(tmp_path: Path, victim: Path) -> None:
    """The files that a compaction replaced are at the victim's path, and its extra file is one of theirs."""
    table = made_table(tmp_path / "w", "db.t")
    change = elsewhere(victim)
    forge(table, lambda entry: change(entry) if entry.file.level == 0 else entry)
    store_options(table.store.paths.schema(0), {"data-file.external-paths": str(victim.parent)})
    table = opened_table(tmp_path / "w", str(victim.parent))
    expired = list(expire_snapshots(table.store, ALL_BUT_ONE))
    assert str(victim) in {file.path for step in expired for file in step.data}
    assert victim.exists()
    assert (victim.parent / "extra.txt").exists()


@pytest.mark.parametrize("inner", ["../other", "a/../../other", "..", "../../db.db/other"])
def test_a_directory_outside_of_the_table_is_refused_by_option_and_value(inner: str, tmp_path: Path) -> None:
    other = made_table(tmp_path, "db.other")
    table = made_table(tmp_path, "db.t")
    store_options(table.store.paths.schema(0), {"data-file.path-directory": inner})
    with pytest.raises(InvalidInputError, match=rf"option=data-file.path-directory value='{inner}' .*{ALLOWED}="):
        opened_table(tmp_path)
    there = opened_table(tmp_path, other.store.paths.root if inner != ".." else str(tmp_path / "db.db"))
    files = sorted(Path(other.store.paths.root).rglob("data-*"))
    forge(there, lambda entry: entry)
    assert list(expire_snapshots(there.store, ALL_BUT_ONE))
    assert sorted(Path(other.store.paths.root).rglob("data-*")) == files


def test_a_directory_inside_is_fine_without_a_word(tmp_path: Path) -> None:
    table = FileCatalog(str(tmp_path)).create_table("db.t", SCHEMA, options={"data-file.path-directory": "a/b"})
    table.write(some_rows(1))
    assert opened_table(tmp_path).read().to_arrow().num_rows == 1


@pytest.mark.parametrize(
    ("path", "allowed", "is_read"),
    [
        ("/a/f", None, False),
        ("/a/f", "/a", True),
        ("/a/b/f", "/a", True),
        ("/a/f", "/a/b", False),
        ("/ab/f", "/a", False),
        ("/a/f", "/", False),
        ("/a/f", "file:///", False),
        ("s3://x/y/f", "s3://x", True),
        ("file:///a/f", "/a", True),
        ("/a/f", "file:///a/", True),
        ("/b/f", "/c, /b", True),
        ("/a/../b/f", "/a", False),
    ],
)
def test_a_place_is_one_that_the_opener_allows(path: str, allowed: str | None, is_read: bool) -> None:
    assert is_below(path, external_roots(allowed)) == is_read


@pytest.mark.parametrize("named", [None, "/elsewhere", "file:///not/yet,s3://x/y"])
def test_files_stay_readable_where_the_table_names_other_places_by_now(
    named: str | None, tmp_path: Path, victim: Path
) -> None:
    """A place that was given up: new files go elsewhere, and old ones are only in manifests."""
    table = made_table(tmp_path / "w", "db.t")
    forge(table, elsewhere(victim))
    if named is not None:
        store_options(table.store.paths.schema(0), {"data-file.external-paths": named})
    assert opened_table(tmp_path / "w", str(victim.parent)).read().to_arrow()["s"].to_pylist()[-1] == "secret"
    with pytest.raises(InvalidInputError, match=rf"option={ALLOWED} value=None fix='.*{ALLOWED}={victim.parent} if"):
        opened_table(tmp_path / "w").read().to_arrow()


@pytest.mark.parametrize("allowed", [None, "{}"])
def test_a_drop_says_what_stays_outside(
    allowed: str | None, tmp_path: Path, victim: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Who could name a place to a table that is dropped could have any file deleted."""
    table = made_table(tmp_path / "w", "db.t")
    forge(table, elsewhere(victim))
    store_options(table.store.paths.schema(0), {"data-file.external-paths": str(victim.parent)})
    given = {} if allowed is None else {ALLOWED: allowed.format(victim.parent)}
    FileCatalog(str(tmp_path / "w"), given).drop_table("db.t")
    assert victim.exists()
    (said,) = [each.getMessage() for each in caplog.records if "outside of its directory stay" in each.getMessage()]
    assert f"data-file.external-paths={victim.parent}" in said


LINKED = (
    "bucket-0",
    "manifest",
    "snapshot",
    "schema",
    "tag",
    "branch",
    "index",
    "branch/branch-dev",
    "p=1",
    "file",
    ".",
)


@pytest.mark.sampled(4)
@pytest.mark.sweep
@pytest.mark.parametrize("linked", LINKED)
def test_no_link_leads_reads_writes_or_deletions_out_of_the_table(linked: str, tmp_path: Path, victim: Path) -> None:
    """A directory, a data file or the table itself is moved to the victim's place, and a link is where it was.

    Its opener may allow the place: then rows are read, and still no data file there is deleted.
    """
    schema = SCHEMA.append(pa.field("p", pa.int64()))
    catalog = FileCatalog(str(tmp_path / "w"))
    table = catalog.create_table(
        "db.t", schema, primary_key=["p", "id"], partition_by=["p"], options={"bucket": "1", "file.format": "parquet"}
    )
    if linked == "bucket-0":
        table = catalog.create_table("db.u", schema, primary_key=["id"], options={"bucket": "1"})
    for first in range(3):
        table.write(some_rows(first).append_column("p", pa.array([1])))
    table.compact(full=True)
    create_tag(table.store, "kept")
    create_branch(table.store, "dev", tag="kept")
    root = Path(table.store.paths.root)
    place = max(root.rglob("data-*"), key=lambda path: path.stat().st_mtime) if linked == "file" else root / linked
    place = root if linked == "." else place
    place.parent.mkdir(exist_ok=True)
    if place.exists():
        place.rename(moved := victim.parent / "moved")
    else:
        (moved := victim.parent / "moved").mkdir()
    place.symlink_to(moved)
    before = state_of(victim.parent)
    name = table.store.name
    for _ in ("first", "again"):
        for deed in DEEDS:
            with suppress(InvalidInputError, CorruptDataError):
                deed(FileCatalog(str(tmp_path / "w")).table(name))
        assert state_of(victim.parent) == before
        with pytest.raises(InvalidInputError, match=rf"{ALLOWED}={moved}"):
            all_of(FileCatalog(str(tmp_path / "w")), name)
    allowing = FileCatalog(str(tmp_path / "w"), {ALLOWED: str(victim.parent)})
    assert {0, 1, 2} <= {*allowing.table(name).read().to_arrow()["id"].to_pylist()}
    list(expire_snapshots(allowing.table(name).store, ALL_BUT_ONE))
    kept = {path for path in before if "data-" in path}
    assert linked == "." or kept <= state_of(victim.parent).keys()


def all_of(catalog: FileCatalog, name: str) -> None:
    table = catalog.table(name)
    table.read().to_arrow()
    table.on_branch("dev").read().to_arrow()
    table.compact(full=True)


def state_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


DEEDS: tuple[Callable[[FileTable], object], ...] = (
    lambda table: table.write(some_rows(7).append_column("p", pa.array([1]))),
    lambda table: table.compact(full=True),
    lambda table: list(expire_snapshots(table.store, ALL_BUT_ONE)),
    lambda table: delete_orphans(table.store, find_orphans(table.store, before_ms=10**15), progress=lambda *_: None),
    lambda table: delete_branch(table.store, "dev"),
    lambda table: delete_tag(table.store, "kept"),
)


def test_a_warehouse_may_be_behind_a_link(tmp_path: Path) -> None:
    table = made_table(tmp_path / "real", "db.t")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    (Path(table.store.paths.root) / "bucket-0").rename(tmp_path / "real" / "db.db" / "t" / "bucket-1")
    (Path(table.store.paths.root) / "bucket-0").symlink_to(tmp_path / "link" / "db.db" / "t" / "bucket-1")
    assert FileCatalog(str(tmp_path / "link")).table("db.t").read().to_arrow().num_rows == 3
