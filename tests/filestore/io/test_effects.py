import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from filestore.io.file_io import Clock, FileIO, LocalFileIO, NameSource, RandomNames, SystemClock, write_hint
from filestore.io.memory_files import MemoryFiles
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError, UnavailableError

IO: FileIO = LocalFileIO()


def test_a_new_file_holds_its_bytes_and_parents_are_made(tmp_path: Path) -> None:
    path = str(tmp_path / "a" / "b" / "file")
    IO.write_new(path, b"body")
    assert IO.read_bytes(path) == b"body"
    assert IO.size_bytes(path) == 4
    assert IO.exists(path)
    assert not IO.is_directory(path)
    assert IO.is_directory(str(tmp_path / "a"))
    assert IO.modified_ms(path) == pytest.approx(SystemClock().now_ms(), abs=60_000)


def test_a_new_file_never_replaces_another(tmp_path: Path) -> None:
    path = str(tmp_path / "file")
    IO.write_new(path, b"first")
    with pytest.raises(ConflictError, match=path):
        IO.write_new(path, b"second")
    assert IO.read_bytes(path) == b"first"


def test_missing_things(tmp_path: Path) -> None:
    path = str(tmp_path / "missing")
    for operation in (IO.read_bytes, IO.size_bytes, IO.modified_ms, IO.open_input):
        with pytest.raises(FileNotFoundError):
            operation(path)
    assert IO.list_names(path) == []
    assert not IO.exists(path)
    assert not IO.is_directory(path)
    IO.delete(path)
    IO.delete_tree(path)


def test_other_failures_are_unavailability_that_names_the_path(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    below_a_file = str(tmp_path / "file" / "below")
    for operation in (IO.read_bytes, IO.size_bytes, IO.list_names, IO.delete_tree, IO.open_output):
        with pytest.raises(UnavailableError, match=below_a_file):
            operation(below_a_file)
    for write in (IO.write_new, IO.create_exclusive, IO.replace):
        with pytest.raises(UnavailableError, match="file system error"):
            write(below_a_file, b"")
    with pytest.raises(UnavailableError):
        IO.read_bytes(str(tmp_path))


def test_names_are_sorted(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        IO.write_new(str(tmp_path / name), b"")
    assert IO.list_names(str(tmp_path)) == ["a", "b", "c"]


def test_a_name_is_claimed_once(tmp_path: Path) -> None:
    path = str(tmp_path / "new" / "snapshot-1")
    assert IO.create_exclusive(path, b"mine")
    assert not IO.create_exclusive(path, b"yours")
    assert IO.read_bytes(path) == b"mine"
    assert IO.list_names(str(tmp_path / "new")) == ["snapshot-1"]  # nothing is left beside it


def test_of_many_claims_at_once_one_wins_with_its_whole_body(tmp_path: Path) -> None:
    """FL-92: the number of a snapshot is taken by exactly one commit."""
    path = str(tmp_path / "snapshot-1")
    bodies = [bytes([number]) * 100_000 for number in range(8)]
    wins: list[bytes] = []
    barrier = threading.Barrier(len(bodies))

    def claim(body: bytes) -> None:
        barrier.wait()
        if LocalFileIO().create_exclusive(path, body):
            wins.append(body)

    threads = [threading.Thread(target=claim, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wins == [IO.read_bytes(path)]
    assert IO.list_names(str(tmp_path)) == ["snapshot-1"]


def test_a_claim_that_may_have_worked_is_of_unknown_outcome(tmp_path: Path) -> None:
    """``link`` is the point from which on nobody can say that nothing happened."""
    path = str(tmp_path / ("x" * 200))
    (tmp_path / "other").mkdir()
    assert IO.create_exclusive(path, b"")
    too_long = str(tmp_path / ("x" * 300))
    with pytest.raises(InvalidInputError, match="too long"):  # the temporary file already failed: nothing appeared
        IO.create_exclusive(too_long, b"")


def test_a_failing_link_is_of_unknown_outcome(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost_reply(source: str, target: str) -> None:
        real_link(source, target)
        raise OSError(5, "Input/output error")

    real_link = os.link
    monkeypatch.setattr(os, "link", lost_reply)
    path = str(tmp_path / "snapshot-1")
    with pytest.raises(OutcomeUnknownError, match=path):
        IO.create_exclusive(path, b"body")
    assert IO.read_bytes(path) == b"body"
    assert IO.list_names(str(tmp_path)) == ["snapshot-1"]


@pytest.mark.parametrize("replace", [LocalFileIO().replace, LocalFileIO().replace_hint])
def test_replacing_shows_the_old_or_the_new_body(tmp_path: Path, replace: Callable[[str, bytes], None]) -> None:
    path = str(tmp_path / "LATEST")
    bodies = [b"1" * 50_000, b"22" * 50_000]
    replace(path, bodies[0])
    stop = threading.Event()
    seen: set[bytes] = set()

    def look() -> None:
        while not stop.is_set():
            seen.add(IO.read_bytes(path))

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(50):
        replace(path, bodies[number % 2])
    stop.set()
    reader.join()
    assert seen <= set(bodies)
    assert IO.list_names(str(tmp_path)) == ["LATEST"]


def test_deleting(tmp_path: Path) -> None:
    IO.write_new(str(tmp_path / "d" / "e" / "file"), b"")
    IO.delete(str(tmp_path / "d" / "e" / "file"))
    assert IO.list_names(str(tmp_path / "d" / "e")) == []
    IO.delete_tree(str(tmp_path / "d"))
    assert not IO.exists(str(tmp_path / "d"))


def test_streams_are_arrows(tmp_path: Path) -> None:
    path = str(tmp_path / "bucket-0" / "data-1")
    with IO.open_output(path) as output:
        assert isinstance(output, pa.NativeFile)
        output.write(b"0123456789")
    IO.sync(path)
    with IO.open_input(path) as source:
        source.seek(4)
        assert source.read(3) == b"456"


def test_the_clock_is_near_the_machines() -> None:
    clock: Clock = SystemClock()
    assert clock.now_ms() == pytest.approx(time.time() * 1000, abs=60_000)
    before = clock.now_ms()
    clock.sleep(0.002)
    assert clock.now_ms() >= before + 2


@pytest.mark.parametrize(("zone", "hours"), [("UTC", 0.0), ("XXX-5:30", 5.5), ("YYY+8", -8.0)])
def test_local_time_is_the_wall_clock_as_if_it_were_utc(
    zone: str, hours: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    try:
        clock = SystemClock()
        assert clock.local_ms() - clock.now_ms() == pytest.approx(hours * 3_600_000, abs=60_000)
    finally:
        monkeypatch.undo()
        time.tzset()


def test_names_are_new() -> None:
    names: NameSource = RandomNames()
    made = {names.uuid() for _ in range(1000)}
    assert len(made) == 1000
    assert all(len(name) == 36 and name == name.lower() for name in made)


@pytest.mark.parametrize("write", ["write_new", "create_exclusive", "replace", "sync", "link_file", "move_directory"])
def test_a_file_and_its_directory_are_synced_before_a_write_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    """FL-92: other tests do without, see tests/conftest.py."""
    synced: set[int] = set()
    io, path, old = LocalFileIO(), tmp_path / "in" / "file", tmp_path / "old"
    path.parent.mkdir()
    old.write_bytes(b"old")
    if write == "sync":
        path.write_bytes(b"1")
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.add(os.fstat(descriptor).st_ino))
    match write:
        case "sync":
            io.sync(str(path))
        case "link_file":
            io.link_file(str(old), str(path))
        case "move_directory":
            (tmp_path / "from").mkdir()
            io.move_directory(str(tmp_path / "from"), str(path))
        case _:
            getattr(io, write)(str(path), b"1")
    expected = {path.parent} | ({path} if write in ("write_new", "create_exclusive", "replace", "sync") else set())
    assert {each.stat().st_ino for each in expected} <= synced


def test_a_hint_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers find the newest snapshot whatever a hint says, or if it is empty after a power failure."""
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    for body in (b"1", b"2"):
        write_hint(IO, str(tmp_path / "snapshot" / "LATEST"), body)
    assert synced == []
    assert IO.read_bytes(str(tmp_path / "snapshot" / "LATEST")) == b"2"
    memory = MemoryFiles()
    write_hint(memory, "/t/LATEST", b"1")
    assert memory.read_bytes("/t/LATEST") == b"1"
    with pytest.raises(UnavailableError, match="action=replace"):
        write_hint(IO, str(tmp_path), b"1")


MAKES: dict[str, Callable[[str], object]] = {
    "write_new": lambda path: IO.write_new(path, b"body"),
    "create_exclusive": lambda path: IO.create_exclusive(path, b"body"),
    "replace": lambda path: IO.replace(path, b"body"),
    "sync": IO.sync,
}


@pytest.mark.parametrize(
    ("step", "make"),
    [
        ("open", "write_new"), ("link", "create_exclusive"), ("open", "create_exclusive"), ("replace", "replace"),
        ("open", "replace"), ("open", "sync"),
    ],
)  # fmt: skip
def test_a_directory_that_is_renamed_while_a_file_is_made_in_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, make: str
) -> None:
    """soak: a tag of a table that was renamed at this moment ended in a bare FileNotFoundError."""
    directory = tmp_path / "t" / "tag"
    directory.mkdir(parents=True)
    path = str(directory / "file")
    if make == "sync":
        Path(path).write_bytes(b"body")
    real = getattr(os, step)

    def renamed(*given: object, **more: object) -> object:
        if directory.exists():
            (tmp_path / "t").rename(tmp_path / "u")
        return real(*given, **more)

    monkeypatch.setattr(os, step, renamed)
    with pytest.raises((UnavailableError, OutcomeUnknownError), match=path):
        MAKES[make](path)
