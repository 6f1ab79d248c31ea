"""A file system as object stores are without conditional writes: who writes last wins, and nobody learns of it."""

import time
from typing import Any

import pyarrow as pa

from filestore.io.file_io import LocalFileIO
from filestore.table import FileTable
from tests.support.tables import KEY_SCHEMA

REQUEST_S = 0.01


class OverwritingFileIO(LocalFileIO):
    """Exclusive creation is a plain write that takes its time, and always says that it won."""

    def create_exclusive(self, path: str, body: bytes) -> bool:
        time.sleep(REQUEST_S)
        self.replace(path, body)
        return True


def write_commits(root: str, writer: int, count: int, **parts: Any) -> None:
    """``count`` commits of one row each, ids of no other writer."""
    options = {"commit.max-retries": "1000", "commit.max-retry-wait": "50 ms"}
    table = FileTable.open("db.t", root, io=OverwritingFileIO(), options=options, **parts)
    for number in range(count):
        table.write(pa.table({"id": [writer * 1000 + number], "v": [number]}, schema=KEY_SCHEMA))
