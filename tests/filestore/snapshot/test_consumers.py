import os
from pathlib import Path
from typing import Any

import pytest

from filestore.io.file_io import LocalFileIO
from filestore.layout.paths import TablePaths
from filestore.snapshot.consumers import ConsumerStore
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.faults import ManualClock, MemoryFileIO
from tests.support.tables import key_table

HOUR_MS = 3_600_000


def a_store(io: Any = None) -> tuple[ConsumerStore, Any, ManualClock]:
    io, clock = io or MemoryFileIO(), ManualClock()
    return ConsumerStore(io, TablePaths("/t"), clock), io, clock


def test_a_place_is_what_paimon_writes() -> None:
    """FL-57: consumer-id, as every Paimon reads it."""
    store, io, _ = a_store()
    assert store.next_snapshot("etl") is None
    assert store.write("etl", 7) == 7
    assert io.files == {"/t/consumer/consumer-etl": b'{\n  "nextSnapshot": 7\n}'}
    io.files["/t/consumer/consumer-etl"] = b'{"nextSnapshot":9,"more":1}'
    assert store.next_snapshot("etl") == 9


def test_a_place_goes_forward_unless_it_is_reset() -> None:
    store, _, _ = a_store()
    store.write("a", 7)
    assert store.write("a", 5) == 7
    assert store.next_snapshot("a") == 7
    assert store.write("a", 5, may_go_back=True) == 5
    assert store.next_snapshot("a") == 5


def test_the_least_place_of_all_holds_back_expiry() -> None:
    store, io, _ = a_store()
    assert store.least_next_snapshot() is None
    store.write("b", 7)
    store.write("a", 9)
    io.files["/t/consumer/.consumer-c.123.tmp"] = b"{"  # somebody is writing
    assert store.next_snapshots() == {"a": 9, "b": 7}
    assert store.least_next_snapshot() == 7
    store.delete("b")
    store.delete("b")
    assert store.least_next_snapshot() == 9


def test_a_file_that_java_is_overwriting_is_read_again() -> None:
    store, io, clock = a_store()

    class Settling(MemoryFileIO):
        def read_bytes(self, path: str) -> bytes:
            return b'{"next' if clock.now_ms() < start + 500 else b'{"nextSnapshot": 3}'

    settling, io, clock = a_store(Settling())
    start = clock.now_ms()
    assert settling.next_snapshot("x") == 3
    store, io, clock = a_store()
    io.files["/t/consumer/consumer-x"] = b'{"nextSnapshot": "3"}'
    with pytest.raises(CorruptDataError, match="consumer-x"):
        store.next_snapshot("x")


def test_places_that_nobody_renews_expire(tmp_path: Path) -> None:
    """consumer.expiration-time counts from the last write, also of the same place."""
    clock = ManualClock()
    store = ConsumerStore(LocalFileIO(), TablePaths(str(tmp_path)), clock)

    def write(name: str, *, age_ms: int) -> None:
        store.write(name, 1)
        then = (clock.now_ms() - age_ms) / 1000
        os.utime(tmp_path / "consumer" / f"consumer-{name}", (then, then))

    write("old", age_ms=2 * HOUR_MS)
    write("young", age_ms=HOUR_MS - 1000)
    assert store.expire(HOUR_MS) == ["old"]
    assert store.next_snapshots() == {"young": 1}
    assert ConsumerStore(LocalFileIO(), TablePaths(str(tmp_path / "none")), clock).expire(0) == []


@pytest.mark.parametrize("name", ["", " ", "a/b", "a\nb"])
def test_a_name_must_be_that_of_a_file(name: str) -> None:
    store, _, _ = a_store()
    with pytest.raises(InvalidInputError, match="consumer-id"):
        store.write(name, 1)


def test_a_branch_has_consumers_of_its_own() -> None:
    table = key_table(bucket="1")
    table.store.consumers.write("a", 2)
    branch = ConsumerStore(table.store.io, table.store.paths.with_branch("dev"), table.store.clock)
    assert branch.next_snapshots() == {}
    assert table.store.consumers.next_snapshots() == {"a": 2}
