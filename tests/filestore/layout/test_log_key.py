"""The file with the key of a log: who may read it can write for the table."""

import os
from pathlib import Path

import pytest

from filestore.io.file_io import LocalFileIO
from filestore.layout.log_key import make_log_key, read_log_key
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
