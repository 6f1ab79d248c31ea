"""Files with names that are not unique: what is deleted is what was looked at, wherever a process is paused."""

from collections.abc import Callable
from pathlib import Path

import pytest

from filestore.io.file_io import FileIO, LocalFileIO, MovesDirectories, RandomNames
from filestore.io.memory_files import MemoryFiles, MemoryObjects
from filestore.layout.own_files import GONE_PREFIX, delete_own
from filestore.maintenance.orphans import delete_orphans, find_orphans
from lsm.errors import UnavailableError
from tests.support.faults import Nth
from tests.support.tables import key_table

FILES: dict[str, Callable[[Path], tuple[FileIO, str]]] = {
    "disk": lambda path: (LocalFileIO(), str(path)),
    "disk in memory": lambda _: (MemoryFiles(), "/w"),
    "object store in memory": lambda _: (MemoryObjects(), "/w"),
}
STEPS = 6


def deleted(io: FileIO, root: str, body: bytes = b"old") -> None:
    delete_own(io, f"{root}/t", f"{root}/t/snapshot/snapshot-1", RandomNames(), is_own=lambda found: found == body)


def with_file(io: FileIO, root: str, body: bytes) -> None:
    io.write_new(f"{root}/t/snapshot/snapshot-1", body)


@pytest.mark.parametrize("kind", FILES)
def test_the_file_that_is_meant_is_deleted_and_nothing_is_left(kind: str, tmp_path: Path) -> None:
    io, root = FILES[kind](tmp_path)
    with_file(io, root, b"old")
    io.write_new(f"{root}/t/snapshot/snapshot-2", b"2")
    deleted(io, root, b"of another table")
    assert io.list_names(f"{root}/t/snapshot") == ["snapshot-1", "snapshot-2"]
    deleted(io, root)
    deleted(io, root)
    assert io.list_names(f"{root}/t/snapshot") == ["snapshot-2"]
    assert io.list_names(f"{root}/t") == ["snapshot"]
    deleted(io, f"{root}/nowhere")
    assert not io.exists(f"{root}/nowhere")


@pytest.mark.parametrize("kind", ["disk", "disk in memory"])
@pytest.mark.parametrize("nth", range(1, STEPS + 1))
def test_a_table_that_is_made_again_at_any_step_keeps_its_file(kind: str, nth: int, tmp_path: Path) -> None:
    """The name is the same, and the contents are not: the old table is moved away, and a new one is there."""
    io, root = FILES[kind](tmp_path)
    with_file(io, root, b"old")
    acted = []

    def act() -> None:
        assert isinstance(io, MovesDirectories)
        io.move_directory(f"{root}/t", f"{root}/dropped")
        with_file(io, root, b"new")
        acted.append(nth)

    deleted(Nth(io, nth, act), root)  # type: ignore[arg-type]
    assert bool(acted) == (nth < STEPS)
    if acted:
        assert io.read_bytes(f"{root}/t/snapshot/snapshot-1") == b"new"
        assert io.list_names(f"{root}/t") == ["snapshot"]


def test_orphan_cleaning_that_takes_the_directory_away_is_survived(tmp_path: Path) -> None:
    root, io = str(tmp_path), LocalFileIO()

    def clean() -> None:
        for name in io.list_names(f"{root}/t"):
            if name.startswith(GONE_PREFIX):
                io.delete_empty_directory(f"{root}/t/{name}")

    with_file(io, root, b"old")
    deleted(Nth(io, 1, clean, of=("move_into",)), root)  # type: ignore[arg-type]
    assert io.list_names(f"{root}/t/snapshot") == []

    class Cleaned(LocalFileIO):
        def move_into(self, source: str, directory: str) -> bool:
            clean()
            return super().move_into(source, directory)

    with_file(io, root, b"old")
    with pytest.raises(UnavailableError, match="others delete what is beside it"):
        deleted(Cleaned(), root)
    assert io.read_bytes(f"{root}/t/snapshot/snapshot-1") == b"old"


def test_what_a_process_leaves_that_dies_is_an_orphan() -> None:
    store = key_table().store
    for name, files in (("full", ["snapshot-1"]), ("empty", [])):
        store.io.make_directory(f"{store.paths.root}/{GONE_PREFIX}{name}")
        for each in files:
            store.io.write_new(f"{store.paths.root}/{GONE_PREFIX}{name}/{each}", b"old")
    orphans = find_orphans(store, before_ms=1 << 60)
    assert [each.path.removeprefix(store.paths.root) for each in orphans] == [f"/{GONE_PREFIX}full/snapshot-1"]
    delete_orphans(store, orphans, progress=lambda done, of: None)
    assert [name for name in store.io.list_names(store.paths.root) if name.startswith(GONE_PREFIX)] == []
