"""Files of many buckets are finished by threads."""

import threading
from collections.abc import Sequence

import pyarrow as pa
import pytest

from filestore.write.table_write import finish_all
from lsm import memtable
from lsm.errors import UnavailableError
from lsm.keys.keys import key_order
from tests.support.faults import FaultyFileIO, MemoryFileIO, When
from tests.support.tables import key_table, reopened

SCHEMA = pa.schema([("p", pa.int64()), ("id", pa.int64())])
PARTITIONS = 40
ROWS = pa.table({"p": [n % PARTITIONS for n in range(400)], "id": list(range(400))}, schema=SCHEMA)


class Writer:
    def __init__(self, action: "threading.Barrier | Exception | None" = None) -> None:
        self.action, self.is_finished = action, False

    def encode(self) -> bool:
        return False

    def finish(self) -> None:
        if isinstance(self.action, threading.Barrier):
            self.action.wait(timeout=60)
        if isinstance(self.action, Exception):
            raise self.action
        self.is_finished = True


def test_many_are_finished_side_by_side_and_few_in_their_order() -> None:
    """Two that wait for each other end only if both are at work."""
    meeting = threading.Barrier(2)
    many = [Writer(meeting), Writer(meeting), *(Writer() for _ in range(30))]
    finish_all(many)
    assert all(each.is_finished for each in many)
    few = [Writer(), Writer(UnavailableError("full")), Writer()]
    with pytest.raises(UnavailableError, match="full"):
        finish_all(few)
    assert [each.is_finished for each in few] == [True, False, False]


def test_the_first_error_is_raised_when_no_writer_is_at_work_any_more() -> None:
    writers = [Writer(), Writer(UnavailableError("full")), *(Writer() for _ in range(200))]
    with pytest.raises(UnavailableError, match="full"):
        finish_all(writers)
    finished = [each.is_finished for each in writers]
    assert [each.is_finished for each in writers] == finished


def test_one_thread_makes_small_files_and_others_write_them() -> None:
    """Each is encoded once, before it is finished; when encoding fails the writers after it are left alone."""
    makers: list[int] = []

    class Small(Writer):
        is_encoded = False

        def encode(self) -> bool:
            if isinstance(self.action, Exception):
                raise self.action
            makers.append(threading.get_ident())
            self.is_encoded = True
            return True

        def finish(self) -> None:
            assert self.is_encoded
            assert threading.get_ident() not in makers
            super().finish()

    small = [Small() for _ in range(100)]
    finish_all(small)
    assert makers == [threading.get_ident()] * 100
    assert all(each.is_finished for each in small)
    broken = [*(Small() for _ in range(50)), Small(UnavailableError("full")), *(Small() for _ in range(50))]
    with pytest.raises(UnavailableError, match="full"):
        finish_all(broken)
    assert not any(each.is_encoded or each.is_finished for each in broken[50:])


@pytest.mark.parametrize("key", [True, False], ids=["key", "no key"])
def test_a_small_file_is_one_call_of_the_disk(key: bool) -> None:
    disk = MemoryFileIO()
    columns = ["p", "id"] if key else []
    counting = FaultyFileIO(disk, when=When.BEFORE)
    table = reopened(key_table(disk, schema=SCHEMA, primary_key=columns, partition_by=["p"]), counting)  # type: ignore[arg-type]
    counting.calls = 0
    table.write(ROWS)
    assert PARTITIONS < counting.calls < PARTITIONS + 35
    assert table.read().to_arrow().sort_by("id").to_pylist() == ROWS.to_pylist()


def test_a_write_of_many_buckets_has_every_row_once() -> None:
    table = key_table(MemoryFileIO(), schema=SCHEMA, primary_key=["p", "id"], partition_by=["p"])
    table.write(ROWS)
    table.write(ROWS)
    assert table.read().to_arrow().sort_by("id").to_pylist() == ROWS.to_pylist()
    files = [file for split in table.read().plan().splits for file in split.files]
    assert len(files) == 2 * PARTITIONS
    assert {(file.min_sequence_number, file.max_sequence_number) for file in files} == {(0, 9), (10, 19)}


@pytest.mark.sweep
def test_many_small_buckets_are_sorted_in_one_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 17 item 6: not one sort for each of them; a changelog of the input is sorted by itself."""
    sorts: list[int] = []

    def counting(columns: Sequence[pa.Array], *, presorted: bool) -> object:
        sorts.append(len(columns[0]))
        return key_order(columns, presorted=presorted)

    monkeypatch.setattr(memtable, "key_order", counting)
    for producer in ("none", "input"):
        options = {"changelog-producer": producer}
        table = key_table(MemoryFileIO(), schema=SCHEMA, primary_key=["p", "id"], partition_by=["p"], **options)
        sorts.clear()
        table.write(pa.concat_tables([ROWS, ROWS.slice(100, 50)]))
        assert sorts == [450]
        assert table.read().to_arrow().sort_by("id").to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("fail_at", [12, 25, 40])
def test_a_write_of_many_buckets_that_fails_leaves_no_file(fail_at: int) -> None:
    """Whichever thread met the fault, and whatever the others have written."""
    disk = MemoryFileIO()
    table = key_table(disk, schema=SCHEMA, primary_key=["p", "id"], partition_by=["p"])
    faulty = FaultyFileIO(disk, when=When.BEFORE)
    failing = reopened(table, faulty)  # type: ignore[arg-type]
    faulty.calls, faulty.fail_at = 0, fail_at
    with pytest.raises(UnavailableError):
        failing.write(ROWS)
    assert faulty.calls >= fail_at
    assert not [path for path in disk.files if "/bucket-" in path]
    table.write(ROWS)
    assert table.read().to_arrow().num_rows == 400
