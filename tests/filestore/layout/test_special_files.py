"""What lies in a table's directory and is no file: a pipe, a socket, a directory, a file of nothing but size.

Who may write there could let every reader wait without end, or take all memory of it.
"""

import os
import socket
from collections.abc import Callable
from contextlib import chdir, suppress
from pathlib import Path

import pyarrow as pa
import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.io.commit_lock import LOCK_FILE_NAME
from filestore.io.file_io import LocalFileIO
from lsm.errors import CorruptDataError, FluvialError
from tests.support.hostile_table import OPERATIONS, kinds_of_files, on_disk

IDS = pa.schema([("id", pa.int64())])
TEBIBYTE = 1 << 40
pytestmark = pytest.mark.timeout(100)


def pipe(path: Path) -> None:
    os.mkfifo(path)


def listener(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made, chdir(path.parent):  # addresses are short
        made.bind("s")
        Path("s").rename(path)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(TEBIBYTE)


ODD: dict[str, Callable[[Path], None]] = {
    "pipe": pipe,
    "socket": listener,
    "directory": Path.mkdir,
    "sparse": sparse,
}


@pytest.mark.sampled(4)
@pytest.mark.sweep
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", kinds_of_files())
def test_no_operation_waits_for_it_or_ends_in_a_raw_error(kind: str, odd: str, tmp_path: Path) -> None:
    """In place of every kind of metadata, whichever operation reads it."""
    path = on_disk(tmp_path / "w") / kind
    path.unlink()
    ODD[odd](path)
    for operation in OPERATIONS.values():
        with suppress(FluvialError):
            operation(FileCatalog(str(tmp_path / "w")).table("db.t"))


@pytest.mark.sweep
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", ["index/*", "p=a/bucket-0/*"])
def test_nor_where_a_file_has_rows(kind: str, odd: str, tmp_path: Path) -> None:
    for path in [*on_disk(tmp_path / "w").glob(kind)]:
        path.unlink()
        ODD[odd](path)
    for operation in OPERATIONS.values():
        with suppress(FluvialError):
            operation(FileCatalog(str(tmp_path / "w")).table("db.t"))
    with pytest.raises(FluvialError):
        FileCatalog(str(tmp_path / "w")).table("db.t").read().to_arrow()


@pytest.mark.parametrize("odd", ["pipe", "socket"])
def test_the_error_names_the_path_and_what_it_is(odd: str, tmp_path: Path) -> None:
    path = tmp_path / "t" / "snapshot" / "LATEST"
    path.parent.mkdir(parents=True)
    ODD[odd](path)
    for deed in (LocalFileIO().read_bytes, LocalFileIO().open_input):
        with pytest.raises(CorruptDataError, match=f"no file.*: path={path} kind={odd} fix="):
            deed(str(path))
    link = path.with_name("snapshot-1")
    link.symlink_to("LATEST")
    for deed in (LocalFileIO().read_bytes, LocalFileIO().open_input):
        with pytest.raises(CorruptDataError, match=f"no file.*: path={path} kind={odd} fix="):
            deed(str(link))


def test_a_file_of_nothing_but_size_takes_no_memory(tmp_path: Path) -> None:
    sparse(path := tmp_path / "LATEST")
    with pytest.raises(CorruptDataError, match=f"path={path} bytes={TEBIBYTE} most="):
        LocalFileIO().read_bytes(str(path))


@pytest.mark.parametrize("odd", ODD)
def test_nor_does_a_writer_wait_for_a_lock_that_is_none(odd: str, tmp_path: Path) -> None:
    table = FileCatalog(str(tmp_path / "w")).create_table("db.t", IDS, options={"commit.lock": "file"})
    lock = Path(table.store.paths.root) / LOCK_FILE_NAME
    lock.unlink(missing_ok=True)
    ODD[odd](lock)
    with suppress(FluvialError):
        table.write(pa.table({"id": [1]}, IDS))
