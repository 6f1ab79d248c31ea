"""One table of a warehouse that cannot be read, or one database, ends no look at the others. (Issue 41)

Others write in a shared warehouse: any file of a table may have any bytes, and any name may be a directory that its
reader must not list.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from engine.cli.app import run_command
from engine.procedures import compact_database
from engine.system_tables.catalog_tables import catalog_rows
from engine.ui.console import Console
from filestore.io.file_io import LocalFileIO
from lsm.errors import FluvialError, UnavailableError
from tests.support.hostile_table import kinds_of_files, on_disk

_NUMBER = re.compile(r"[0-9a-f]{8}-[-0-9a-f]+|\d+")
_LINEAGE = {"table-lineage": "true", "data-lineage": "true"}


def command(*words: str) -> Callable[[Catalog, pytest.CaptureFixture[str]], str]:
    def look(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> str:
        place = [f"--catalog-option={key}={value}" for key, value in _LINEAGE.items()]
        code = run_command([*words, "--warehouse", catalog.warehouse, *place])
        said = capsys.readouterr()
        assert code == 0, said.err
        return said.out + said.err

    return look


def found_in(read: Callable[[Catalog], pa.Table]) -> Callable[[Catalog, Any], str]:
    return lambda catalog, _: str(read(catalog).to_pylist())


def console(catalog: Catalog, _: Any) -> str:
    page = Console(catalog, patience_s=60)
    try:
        names, broken = page.names()
        return f"{page.facts(names)} {broken}"
    finally:
        page.close()


LOOKS: dict[str, Callable[[Catalog, Any], str]] = {
    "ls": command("ls", "--json"),
    "top": command("top", "--once"),
    "top --json": command("top", "--once", "--json"),
    "lineage": command("lineage"),
    "compact-database": found_in(compact_database),
    "sys.tables": found_in(lambda catalog: catalog_rows(catalog, "tables")),
    "sys.partitions": found_in(lambda catalog: catalog_rows(catalog, "partitions")),
    "sys.all_table_options": found_in(lambda catalog: catalog_rows(catalog, "all_table_options")),
    "ui": console,
}


def warehouse_of(path: Path) -> Catalog:
    catalog = Catalog(str(path), options=_LINEAGE)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("p", pa.string(), nullable=False)])
    for name in ("aa.good", "zz.good"):  # before and behind the broken one
        table = catalog.create_table(name, schema, primary_key=["p", "id"], partition_by=["p"])
        table.write([{"id": 1, "p": "a"}])
    return catalog


def blind(
    catalog: Catalog, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, says: str = ""
) -> dict[str, str]:
    """The looks that do not show both good tables, or do not say what is wrong, with what they show."""
    wrong = {}
    for name, look in LOOKS.items():
        try:
            caplog.clear()
            found = look(catalog, capsys) + caplog.text
        except (FluvialError, OSError, AssertionError) as error:
            wrong[name] = repr(error)
            continue
        wanted = [] if name in ("sys.partitions", "sys.all_table_options") else [says]
        for each in ("aa", "zz"):
            wanted.append(f"'database_name': '{each}'" if name.startswith("sys.") else f"{each}.good")
        if not all(each in found for each in wanted):
            wrong[name] = found
    return wrong


@pytest.mark.parametrize("kind", kinds_of_files())
def test_a_table_with_broken_files_ends_no_look_at_the_others(
    tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    catalog = warehouse_of(tmp_path)
    broken = on_disk(tmp_path) / kind
    for path in broken.parent.iterdir():
        if _NUMBER.sub("", path.name) == _NUMBER.sub("", broken.name):
            path.write_bytes(b"{")
    assert blind(catalog, capsys, caplog) == {}


@pytest.mark.parametrize("kind", ["locked", "file", "pipe", "link to nothing"])
def test_a_database_that_cannot_be_listed_ends_no_look_at_the_others(
    tmp_path: Path,
    kind: str,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = warehouse_of(tmp_path)
    path = tmp_path / "hidden.db"
    match kind:
        case "locked":
            path.mkdir()
            listed = LocalFileIO.list_names

            def locked(io: LocalFileIO, directory: str) -> list[str]:
                if Path(directory) == path:
                    raise UnavailableError(f"cannot list: path={directory} reason=Permission denied")
                return listed(io, directory)

            monkeypatch.setattr(LocalFileIO, "list_names", locked)
        case "file":
            path.write_bytes(b"")
        case "pipe":
            os.mkfifo(path)
        case "link to nothing":
            path.symlink_to(tmp_path / "nothing")
    assert blind(catalog, capsys, caplog, "Permission denied" if kind == "locked" else "") == {}
