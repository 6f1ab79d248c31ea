"""Publishing under a lock, where the file system cannot create a file exclusively."""

import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.io.commit_lock import LOCK_FILE_NAME, CatalogLockFactory, FileLock, FileLockFactory
from filestore.io.file_io import SystemClock
from filestore.table import FileTable
from lsm.errors import InvalidInputError, UnavailableError
from tests.support.faults import ManualClock, paused_before
from tests.support.overwriting import OverwritingFileIO, write_commits
from tests.support.races import race_of_processes
from tests.support.tables import KEY_SCHEMA, check_metadata, content, rows

T = TypeVar("T")
WRITERS, COMMITS = 4, 2


def locked_table(tmp_path: Path, **options: str) -> FileTable:
    texts = {key.replace("_", "."): value for key, value in options.items()}
    return FileCatalog(str(tmp_path)).create_table(
        "db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1", **texts}
    )


def in_threads(root: str, **parts: Any) -> None:
    with ThreadPoolExecutor(WRITERS) as pool:
        for done in [pool.submit(write_commits, root, writer, COMMITS, **parts) for writer in range(WRITERS)]:
            done.result()


def in_processes(root: str) -> None:
    race_of_processes(write_commits, [(root, writer, COMMITS) for writer in range(WRITERS)])


EVERYTHING = {writer * 1000 + number: number for writer in range(WRITERS) for number in range(COMMITS)}


@pytest.mark.sweep
@pytest.mark.parametrize("race", [in_threads, in_processes])
def test_under_the_lock_nothing_is_lost_though_files_can_be_overwritten(
    tmp_path: Path, race: Callable[[str], None]
) -> None:
    """FL-93: an object store has no rename that fails; a lock takes its place."""
    table = locked_table(tmp_path, commit_lock="file")
    race(table.store.paths.root)
    assert content(table) == EVERYTHING
    assert table.store.snapshots.ids() == list(range(1, WRITERS * COMMITS + 1))
    check_metadata(table)


@pytest.mark.sweep
@pytest.mark.parametrize(("commit_lock", "left"), [("file", {1: 1, 2: 2}), ("auto", {1: 1}), ("rename", {1: 1})])
def test_a_commit_overtaken_at_the_last_moment_is_lost_without_the_lock_and_waits_with_it(
    tmp_path: Path, commit_lock: str, left: dict[int, int]
) -> None:
    """FL-93: so the lock is what saves them."""
    root = locked_table(tmp_path, commit_lock=commit_lock).store.paths.root
    other = threading.Thread(target=lambda: FileTable.open("db.t", root, io=OverwritingFileIO()).write(rows((2, 2))))

    def overtake() -> None:
        other.start()
        other.join(1)  # done, or waiting for us

    with paused_before(OverwritingFileIO(), "create_exclusive", overtake) as late:
        FileTable.open("db.t", root, io=late).write(rows((1, 1)))
    other.join()
    assert content(FileTable.open("db.t", root)) == left


class Witness:
    """A lock of a catalog's own, that remembers how it was used."""

    def __init__(self, world: "WitnessFactory") -> None:
        self._world = world

    def run_with_lock(self, database: str, table: str, action: Callable[[], T]) -> T:
        with self._world.mutex:
            self._world.calls.append(f"{database}.{table}")
            return action()

    def close(self) -> None:
        self._world.calls.append("closed")


class WitnessFactory:
    def __init__(self) -> None:
        self.mutex = threading.Lock()
        self.calls: list[str] = []

    def create(self) -> Witness:
        return Witness(self)


@pytest.mark.sweep
def test_a_catalog_brings_a_lock_of_its_own(tmp_path: Path) -> None:
    """FL-94: it gets database and table, runs the commit, and is closed."""
    factory = WitnessFactory()
    catalog = FileCatalog(str(tmp_path), io=OverwritingFileIO(), lock_factory=factory)
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.with_options({"write-buffer-size": "8 mb"}).write(rows((1, 1)))
    assert factory.calls == ["db.t", "closed"]
    table.with_options({"commit.lock": "rename"}).write(rows((2, 2)))
    assert factory.calls == ["db.t", "closed"]
    in_threads(table.store.paths.root, lock_factory=factory)
    assert content(table) == {1: 1, 2: 2} | EVERYTHING


def test_an_error_of_the_action_frees_the_lock_and_is_raised(tmp_path: Path) -> None:
    """FL-94."""
    lock = FileLockFactory(directory=str(tmp_path), clock=SystemClock()).create()
    with pytest.raises(ZeroDivisionError):
        lock.run_with_lock("db", "t", lambda: 1 // 0)
    assert lock.run_with_lock("db", "t", lambda: 7) == 7
    lock.close()


def test_a_lock_that_is_held_for_too_long_is_named_and_nothing_runs(tmp_path: Path) -> None:
    """FL-94."""
    path, ran = str(tmp_path / LOCK_FILE_NAME), []
    first, second = FileLock(path, SystemClock()), FileLock(path, ManualClock(), timeout_ms=5_000)
    with pytest.raises(UnavailableError, match=r"held by another writer.*table=db\.t"):
        first.run_with_lock("db", "t", lambda: second.run_with_lock("db", "t", lambda: ran.append(1)))
    assert ran == []


def test_a_lock_file_that_went_with_its_table_is_not_the_lock_of_the_next_one(tmp_path: Path) -> None:
    path = str(tmp_path / LOCK_FILE_NAME)
    first, second = FileLock(path, SystemClock()), FileLock(path, SystemClock())

    def drop_and_make_again() -> int:
        os.unlink(path)
        return second.run_with_lock("db", "t", lambda: 2)

    assert first.run_with_lock("db", "t", drop_and_make_again) == 2


def test_a_commit_to_a_dropped_table_does_not_bring_its_directory_back(tmp_path: Path) -> None:
    lock = FileLock(str(tmp_path / "gone" / LOCK_FILE_NAME), SystemClock())
    with pytest.raises(UnavailableError, match="nothing was published"):
        lock.run_with_lock("db", "t", lambda: 1)
    assert not (tmp_path / "gone").exists()


def test_tables_and_their_locks_cross_processes(tmp_path: Path) -> None:
    """FL-95: the factory is what travels."""
    factory: CatalogLockFactory = FileLockFactory(directory=str(tmp_path), clock=SystemClock())
    table = FileCatalog(str(tmp_path), lock_factory=factory).create_table("db.t", KEY_SCHEMA, primary_key=["id"])
    arrived = pickle.loads(pickle.dumps(table))
    arrived.write(rows((1, 1)))
    assert (tmp_path / LOCK_FILE_NAME).exists()
    assert content(table) == {1: 1}


@pytest.mark.parametrize("commit_lock", ["conditional-put", "jdbc"])
def test_locks_of_other_stores_are_refused_on_a_local_directory(tmp_path: Path, commit_lock: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"commit\.lock={commit_lock} fix='use auto, rename or file'"):
        locked_table(tmp_path, commit_lock=commit_lock)
    with pytest.raises(InvalidInputError, match=rf"commit\.lock={commit_lock}"):
        locked_table(tmp_path).with_options({"commit.lock": commit_lock}).write(rows((1, 1)))
