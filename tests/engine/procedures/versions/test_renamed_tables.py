"""A table that gets another name while its versions are worked on."""

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from typing import Any

import pytest

from engine import Table
from engine import procedures as sys_
from filestore.catalog.catalog import FileCatalog
from filestore.io.memory_files import MemoryFiles
from lsm.errors import FluvialError
from tests.support.faults import Nth
from tests.support.tables import KEY_SCHEMA, content, memory_catalog, rows


@cache
def _files() -> MemoryFiles:
    io = MemoryFiles()
    table = Table(memory_catalog(io).create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"}))
    table.write(rows((1, 1)))
    sys_.create_tag(table, "eod")
    table.write(rows((1, 2), (3, 3)))
    return io


@pytest.mark.sweep
@pytest.mark.parametrize(
    "act", [sys_.create_savepoint, lambda table: sys_.rollback_to_as_latest(table, tag="eod")], ids=["save", "restore"]
)
def test_a_rename_at_any_moment_is_an_error_of_files_and_not_of_the_program(act: Callable[[Table], Any]) -> None:
    """soak: an assertion that there is a snapshot failed."""
    for nth in range(1, 400):
        disk, ran = MemoryFiles(dict(_files().files)), []
        catalog = memory_catalog(disk)

        def rename(catalog: FileCatalog = catalog, ran: list[bool] = ran) -> None:
            ran.append(True)
            catalog.rename_table("db.t", "db.u")

        io = Nth(disk, 0, rename)
        table = Table(memory_catalog(io).table("db.t"))  # type: ignore[arg-type]
        io.left = nth
        with suppress(FluvialError, FileNotFoundError):
            act(table)
        if not ran:
            return
        assert content(catalog.table("db.u")) in ({1: 2, 3: 3}, {1: 1})
    raise AssertionError("it does not end")
