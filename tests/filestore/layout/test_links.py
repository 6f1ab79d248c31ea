"""Files of a table that are links: who may write in its directory could name any file of those who read it."""

import os
import re
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.io.commit_lock import LOCK_FILE_NAME
from filestore.io.file_io import LocalFileIO
from filestore.options.catalog_options import CatalogOptions
from lsm.errors import ConflictError, FluvialError, InvalidInputError
from tests.support.hostile_table import OPERATIONS, kinds_of_files, on_disk

ALLOWED = CatalogOptions.external_paths_allowed.key
IDS = pa.schema([("id", pa.int64())])
SAID = rf"a link leads out of the table .* path={{path}} target={{target}} option={ALLOWED} .* fix=.*{ALLOWED}="


def linked_out(path: Path, outside: Path) -> Path:
    """Move a file out of the table, and leave a link to it."""
    outside.mkdir(exist_ok=True)
    target = outside / path.name
    path.rename(target)
    path.symlink_to(target)
    return target


@pytest.mark.sampled(4)
@pytest.mark.sweep
@pytest.mark.parametrize("kind", kinds_of_files())
def test_a_file_that_is_a_link_out_of_the_table_is_refused_by_name(kind: str, tmp_path: Path) -> None:
    """Every kind of file of metadata, whichever operation reads it; who opens the table may allow the place."""
    path = on_disk(tmp_path / "w") / kind
    target = linked_out(path, tmp_path / "outside")
    before, said = target.read_bytes(), []
    for operation in OPERATIONS.values():
        with suppress(ConflictError):
            try:
                operation(FileCatalog(str(tmp_path / "w")).table("db.t"))
            except InvalidInputError as error:
                said.append(re.search(SAID.format(path=path, target=target), str(error)) is not None)
    assert any(said)
    assert target.read_bytes() == before
    if path.is_symlink():
        allowing = FileCatalog(str(tmp_path / "w"), {ALLOWED: f"/else, file:{target.parent}"})
        assert allowing.table("db.t").read().to_arrow().num_rows


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["index/*", "p=a/bucket-0/*"])
def test_nor_is_a_file_read_that_has_rows(kind: str, tmp_path: Path) -> None:
    for path in [*on_disk(tmp_path / "w").glob(kind)]:
        linked_out(path, tmp_path / "outside")
    with pytest.raises(InvalidInputError, match=SAID.format(path=".*", target=f"{tmp_path}/outside/.*")):
        FileCatalog(str(tmp_path / "w")).table("db.t").read().to_arrow()


def test_one_table_of_a_stranger_does_not_hide_the_others(tmp_path: Path) -> None:
    linked_out(on_disk(tmp_path / "w") / "schema" / "schema-0", tmp_path / "outside")
    catalog = FileCatalog(str(tmp_path / "w"))
    catalog.create_table("db.mine", IDS)
    assert "mine" in catalog.list_tables("db")
    assert catalog.table("db.mine").read().to_arrow().num_rows == 0


@pytest.mark.parametrize("link", ["snapshot-2", "./snapshot-2", "..data/snapshot-2"])
def test_a_link_within_its_directory_is_a_file_like_others(link: str, tmp_path: Path) -> None:
    (tmp_path / "snapshot" / "..data").mkdir(parents=True)
    path, target = tmp_path / "snapshot" / "snapshot-1", tmp_path / "snapshot" / link
    target.write_bytes(b"{}")
    path.symlink_to(link)
    assert LocalFileIO().read_bytes(str(path)) == b"{}"
    assert LocalFileIO().open_input(str(path)).read() == b"{}"


@pytest.mark.parametrize("target", ["snapshot-1", "snapshot-9", "../snapshot/snapshot-9", "../../elsewhere", "/", "."])
@pytest.mark.parametrize("allowed", [(), ("/",)])
def test_a_link_to_nothing_or_to_itself_is_an_error_of_ours(
    target: str, allowed: tuple[str, ...], tmp_path: Path
) -> None:
    """And the root directory is no place that an opener allows."""
    path = tmp_path / "t" / "snapshot" / "snapshot-1"
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    files = LocalFileIO(allowed=allowed)
    for read in (files.read_bytes, files.open_input):
        with pytest.raises((FluvialError, FileNotFoundError)):
            read(str(path))


def test_a_link_in_place_of_a_lock_makes_no_file_elsewhere(tmp_path: Path) -> None:
    table = FileCatalog(str(tmp_path / "w")).create_table("db.t", IDS, options={"commit.lock": "file"})
    lock, victim = Path(table.store.paths.root) / LOCK_FILE_NAME, tmp_path / "victim"
    lock.unlink(missing_ok=True)
    lock.symlink_to(victim)
    with pytest.raises(InvalidInputError, match=f"is a link.* file={lock} option=commit.lock value=file fix="):
        table.write(pa.table({"id": [1]}, IDS))
    assert not victim.exists()


def test_links_cost_no_call_for_a_file_of_metadata_and_one_for_a_file_of_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system itself refuses a link where a file of metadata is opened."""
    table = FileCatalog(str(tmp_path)).create_table("db.t", IDS, options={"bucket": "-1", "write-only": "true"})
    for number in range(4):
        table.write(pa.table({"id": [number]}, IDS))
    asked: Counter[str] = Counter()
    real = os.lstat

    def counted(path: str, **given: int) -> os.stat_result:
        asked[os.path.basename(path)] += 1
        return real(path, **given)

    monkeypatch.setattr(os, "lstat", counted)
    assert FileCatalog(str(tmp_path)).table("db.t").read().to_arrow().num_rows == 4
    files = {name: count for name, count in asked.items() if name.startswith("data-")}
    assert len(files) == 4
    assert {*files.values()} == {2}  # as it is planned, and as it is opened
    assert not [name for name in asked if name.startswith(("snapshot-", "schema-", "manifest-", "LATEST"))]
