"""The file with the key of a log: who may read it can write for the table."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from filestore.io.file_io import LocalFileIO
from filestore.layout.log_key import LogKeyPlace, make_log_key, note_places, read_log_key, remove_log_key
from lsm.errors import UnavailableError
from tests.support.faults import MemoryFileIO


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_only_its_maker_may_read_a_key(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        name = make_log_key(LocalFileIO(), str(tmp_path / "t"))
    finally:
        os.umask(before)
    assert (tmp_path / "t/log-key" / name).stat().st_mode & 0o777 == 0o600
    assert read_log_key(LocalFileIO(), str(tmp_path / "t"), name) is not None


def test_a_store_without_modes_keeps_a_key_as_any_file() -> None:
    disk = MemoryFileIO()
    name = make_log_key(disk, "/t")
    assert read_log_key(disk, "/t", name) is not None


@pytest.mark.parametrize(("cause", "is_closed"), [(PermissionError(13, "no"), True), (OSError(5, "broken"), False)])
def test_a_reader_without_the_right_to_it_has_no_key_and_reads_on(cause: OSError, *, is_closed: bool) -> None:
    class Closed(MemoryFileIO):
        def read_bytes(self, path: str) -> bytes:
            raise UnavailableError(f"file system error: path={path}") from cause

    if is_closed:
        assert read_log_key(Closed(), "/t", "k") is None
        return
    with pytest.raises(UnavailableError):
        read_log_key(Closed(), "/t", "k")


def copied_away(there: Path) -> Path:
    return Path(shutil.copytree(there, there.with_name("copy")))


def restored_over(there: Path) -> Path:
    shutil.move(copied_away(there), there.with_name("backup"))
    shutil.rmtree(there)
    return Path(shutil.copytree(there.with_name("backup"), there))


def linked(there: Path) -> Path:
    there.with_name("link").symlink_to(there)
    return there.with_name("link")


def moved(there: Path) -> Path:
    return Path(shutil.move(there, there.with_name("moved")))


def restored_elsewhere(there: Path) -> Path:
    backup = copied_away(there)
    shutil.rmtree(there)
    return backup


def moved_twice_with_another_in_its_place(there: Path) -> Path:
    now = moved(there)
    LogKeyPlace(io=LocalFileIO(), root=str(now), name=key_in(now)).original()
    shutil.copytree(now, there)
    return now


def key_in(root: Path) -> str:
    return next(each.name for each in (root / "log-key").iterdir() if not each.suffix)


@pytest.mark.parametrize(
    ("change", "is_copy"),
    [
        (lambda there: there, False),
        (copied_away, True),
        (restored_over, False),
        (linked, False),
        (moved, False),
        (restored_elsewhere, True),
        (moved_twice_with_another_in_its_place, False),
    ],
)
def test_a_copy_of_a_directory_is_known_by_its_key(
    change: Callable[[Path], Path], is_copy: bool, tmp_path: Path
) -> None:
    make_log_key(LocalFileIO(), str(tmp_path / "t"))
    root = change(tmp_path / "t")
    place = LogKeyPlace(io=LocalFileIO(), root=str(root), name=key_in(root))
    for _ in range(2):
        assert place.original() == (str(tmp_path / "t") if is_copy else None)
    note_places(LocalFileIO(), str(root))
    assert place.original() is None
    remove_log_key(LocalFileIO(), str(root), place.name)
    assert not (root / "log-key").exists()


def test_where_files_have_no_numbers_a_directory_is_its_address() -> None:
    """Also with the other words for s3; what nothing is noted of, or is broken, is noted again."""
    io = MemoryFileIO()
    name = make_log_key(io, "s3a://b/lake/t")
    assert LogKeyPlace(io=io, root="s3://b/lake/t/", name=name).original() is None
    body = io.read_bytes(f"s3a://b/lake/t/log-key/{name}.place")
    assert json.loads(body) == {"version": 1, "place": "s3://b/lake/t"}
    io.write_new(f"s3://b/copy/t/log-key/{name}.place", body)
    place = LogKeyPlace(io=io, root="s3://b/copy/t", name=name)
    assert place.original() == "s3://b/lake/t"
    for broken in (b"", b"{}", b"7"):
        io.replace(f"s3://b/copy/t/log-key/{name}.place", broken)
        assert place.original() is None


def test_what_is_asked_of_a_dropped_table_does_not_bring_its_directory_back(tmp_path: Path) -> None:
    assert LogKeyPlace(io=LocalFileIO(), root=str(tmp_path / "t"), name="0" * 32).original() is None
    assert list(tmp_path.iterdir()) == []
