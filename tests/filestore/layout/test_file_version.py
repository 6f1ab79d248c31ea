"""Metadata files of a version that is not known are refused by readers and writers. (FL-14)"""

from collections.abc import Callable

import orjson
import pytest

from filestore.table import FileTable
from filestore.tag.tags import create_tag
from lsm.errors import CorruptDataError
from tests.support.tables import content, key_table, reopened, rows


def at_version(table: FileTable, path: str, version: int) -> None:
    body = orjson.loads(table.store.io.read_bytes(path))
    table.store.io.replace(path, orjson.dumps(body | {"version": version}))


@pytest.mark.parametrize("version", [4, 99, -1])
@pytest.mark.parametrize("use", [content, lambda table: table.write(rows((3, 3))), lambda table: table.compact()])
def test_a_snapshot_of_a_newer_version_is_neither_read_nor_written_upon(
    use: Callable[[FileTable], object], version: int
) -> None:
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    path = table.store.paths.snapshot(1)
    at_version(table, path, version)
    with pytest.raises(CorruptDataError, match=f"snapshot of an unknown version.*file={path} version={version} .*fix="):
        use(table)
    assert table.store.snapshots.ids() == [1]


@pytest.mark.parametrize("version", [1, 2, 3])
def test_older_snapshots_are_read(version: int) -> None:
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    at_version(table, table.store.paths.snapshot(1), version)
    assert content(table) == {1: 1}


def test_a_tag_and_a_schema_of_a_newer_version_are_refused() -> None:
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    create_tag(table.store, "eod")
    at_version(table, table.store.paths.tag("eod"), 99)
    with pytest.raises(CorruptDataError, match="snapshot of an unknown version"):
        content(table, tag="eod")
    at_version(table, table.store.paths.schema(0), 99)
    with pytest.raises(CorruptDataError, match="schema of an unknown version"):
        reopened(table, table.store.io)
