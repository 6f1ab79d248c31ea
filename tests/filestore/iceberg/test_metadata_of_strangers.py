"""Iceberg metadata beside a stranger's table: whatever it names, nothing outside of the table is read or deleted."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from io import BytesIO

import fastavro
import orjson
import pytest

from filestore.branch.branches import create_branch
from filestore.iceberg.places import HINT
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from lsm.errors import FluvialError
from tests.support.faults import MemoryFileIO
from tests.support.hostile import HOSTILE, VICTIM, WatchedFileIO, edits
from tests.support.hostile_table import OPERATIONS
from tests.support.tables import expire_all_but, key_table, newest_snapshot, reopened, rows

ORDER = ("write", "expire", "clean", "roll back", "read")
OTHERS = ("/victim", "file:///victim/v.parquet", "../../victim/v.parquet", "/", "")
"""Places that are a directory, an address, or nothing."""


def published() -> FileTable:
    """A table with metadata of several snapshots, a tag and a branch; and the file of another user."""
    table = key_table(bucket="1", **{"metadata.iceberg.storage": "table-location",
                                     "metadata.iceberg.previous-versions-max": "3",
                                     "metadata.iceberg.manifest-compression": "none"})  # fmt: skip
    for number in range(3):
        table.write(rows((number, number)))
    create_tag(table.store, "kept")
    create_branch(table.store, "dev", tag="kept")
    table.on_branch("dev").write(rows((9, 9)))
    table.compact(full=True)
    files(table)[VICTIM] = b"of another one"
    return table


def files(table: FileTable) -> dict[str, bytes]:
    found: dict[str, bytes] = table.store.io.files  # type: ignore[attr-defined]
    return found


def of_iceberg(table: FileTable) -> list[str]:
    """One manifest, each list and each version of the metadata."""
    paths = sorted(path for path in files(table) if path.startswith(f"{table.store.paths.root}/metadata/"))
    return [path for path in paths if not path.endswith(HINT)]


def led_out(table: FileTable, edited: dict[str, bytes]) -> list[str]:
    """What was opened or deleted outside of the table, after each operation; others than our errors fail the test."""
    inner = MemoryFileIO({**files(table), **edited})
    watched = WatchedFileIO(inner, [table.store.paths.root])
    for name in ORDER:
        with suppress(FluvialError):
            OPERATIONS_HERE[name](reopened(table, watched))  # type: ignore[arg-type]
    return watched.outside + ([] if inner.files.get(VICTIM) == b"of another one" else ["the victim is gone"])


OPERATIONS_HERE: dict[str, Callable[[FileTable], object]] = {
    **OPERATIONS,
    "write": lambda table: table.write(rows((5, 5))),
    "expire": lambda table: expire_all_but(table, 1),
}


def of_lists(body: bytes, value: str) -> Iterator[bytes]:
    """A list of manifests, each of which has this path; and one whose manifest has."""
    reader = fastavro.reader(BytesIO(body))
    lines = [dict(record) for record in reader]
    if lines and "manifest_path" in lines[0]:
        for number in range(len(lines)):
            out = BytesIO()
            changed = [{**line, "manifest_path": value} if at == number else line for at, line in enumerate(lines)]
            fastavro.writer(out, reader.writer_schema, changed)
            yield out.getvalue()


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("value", [VICTIM, HOSTILE[0], "..", *OTHERS])
def test_no_path_of_the_metadata_leads_out_of_the_table(value: str) -> None:
    """In each version of it and each list; with another table's number, too, so that it is made again."""
    table = published()
    assert led_out(table, {}) == []
    found = {}
    for path in of_iceberg(table):
        body = files(table)[path]
        if path.endswith(".json"):
            whole = orjson.loads(body)
            shown = whole["snapshots"]
            for number in range(len(shown)):
                line = [{**each, "manifest-list": value} if at == number else each for at, each in enumerate(shown)]
                for base, other in ((whole, "all"), ({**whole, "format-version": 1}, "of another version")):
                    edited = orjson.dumps({**base, "snapshots": line})
                    if outside := led_out(table, {path: edited}):
                        found[f"{path} {number} {other}"] = outside
        else:
            for number, edited in enumerate(of_lists(body, value)):
                if outside := led_out(table, {path: edited}):
                    found[f"{path} {number}"] = outside
    assert found == {}


@pytest.mark.long
@pytest.mark.sweep
def test_nor_does_any_text_of_it() -> None:
    table = published()
    newest = f"{table.store.paths.root}/metadata/v{newest_snapshot(table).id}.metadata.json"
    found = {}
    for what, body in edits(files(table)[newest], [VICTIM]):
        if outside := led_out(table, {newest: body}):
            found[what] = outside
    assert found == {}
