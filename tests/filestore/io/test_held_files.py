"""Files that are made in memory and written later."""

import pytest

from filestore.io.held_files import HeldFiles
from lsm.errors import UnavailableError
from tests.support.faults import FaultyFileIO, MemoryFileIO, When


def test_nothing_is_on_disk_before_all_is_written() -> None:
    disk, held = MemoryFileIO(), HeldFiles()
    with held.open_output("/t/a") as sink:
        sink.write(b"first")
    held.sync("/t/a")
    held.write_new("/t/b", b"other")
    held.write_new("/t/c", b"not wanted")
    held.delete("/t/c")
    held.open_output("/t/d")
    held.delete("/t/d")
    assert held.open_input("/t/b").read() == b"other"
    assert not disk.files
    held.write_to(disk)
    assert dict(disk.files) == {"/t/a": b"first", "/t/b": b"other"}
    held.write_to(disk)  # there is nothing left, so no name is taken


def test_a_failed_write_is_an_error() -> None:
    held = HeldFiles()
    held.write_new("/t/a", b"first")
    faulty = FaultyFileIO(MemoryFileIO(), when=When.BEFORE)
    faulty.calls, faulty.fail_at = 0, 1
    with pytest.raises(UnavailableError):
        held.write_to(faulty)
