"""A record that a stranger wrote to the topic: its marker names nothing outside of the table."""

import json
from collections.abc import Iterator

import pytest
import zstandard

from engine.log.bucket_log import PAYLOAD_DIRECTORY, payload_path, read_payload
from filestore.catalog.catalog import FileCatalog
from filestore.table import FileTable
from logstore.log.marker import CommitMarker, decode_marker, encode_marker
from lsm.errors import CorruptDataError
from tests.support.faults import MemoryFileIO
from tests.support.hostile import HOSTILE, VICTIM, WatchedFileIO, edits
from tests.support.tables import key_table, messages_of, reopened, rows

BY_TURNS = {"data-file.external-paths.strategy": "round-robin"}


def marked(payload: bytes, *, is_pointer: bool = False) -> CommitMarker:
    value = encode_marker(
        query="q", batch=7, row_count=1, start_offset=None, is_final=True, payload=payload, is_pointer=is_pointer
    )
    return decode_marker(value, record_offset=41)


def watched(table: FileTable) -> tuple[FileTable, WatchedFileIO]:
    files = table.store.io
    files.files[VICTIM] = zstandard.compress(b"[]")  # type: ignore[attr-defined]
    io = WatchedFileIO(files, [table.store.paths.root])
    return reopened(table, io), io  # type: ignore[arg-type]


@pytest.mark.parametrize("name", [*HOSTILE, "", f"{PAYLOAD_DIRECTORY}/../../../../victim/v.parquet", "snapshot/LATEST"])
def test_a_pointer_names_a_payload_of_the_table(name: str) -> None:
    table, io = watched(key_table())
    with pytest.raises(CorruptDataError, match=r"files of a batch in the log .* table=db\.t .* end_offset=42"):
        read_payload(table.store, marked(name.encode(), is_pointer=True))
    assert io.outside == []


def test_a_pointer_of_ours_is_followed() -> None:
    table, _ = watched(key_table())
    marker = marked(f"{PAYLOAD_DIRECTORY}/a-1".encode(), is_pointer=True)
    table.store.io.write_new(payload_path(table.store, marker), zstandard.compress(b"[]"))
    assert read_payload(table.store, marker).messages == ()


def payloads() -> Iterator[tuple[str, bytes]]:
    texts = [json.loads(each.to_json()) for each in messages_of(key_table(), rows((1, 1)))]
    files = texts[0]["new_files"]
    files[0] |= {"extra_files": ["a.index"], "external_path": "/x/y"}
    for value in HOSTILE:
        for what, body in edits(json.dumps(texts[0]).encode(), [value]):
            if "file_name" in what or "extra_files" in what:
                message = json.loads(body)
                message["new_files"][0].pop("external_path")
                yield what, json.dumps([json.dumps(message)]).encode()
    yield "external_path", json.dumps([json.dumps(texts[0])]).encode()
    yield from ((body.decode(), body) for body in (b"7", b'"x"', b'["x"]', b"[7]", b'["[]"]', b"{}", b"null"))


@pytest.mark.parametrize("body", [pytest.param(body, id=what) for what, body in payloads()])
def test_a_payload_names_files_of_the_table(body: bytes) -> None:
    table, io = watched(key_table())
    with pytest.raises(CorruptDataError, match="files of a batch in the log"):
        read_payload(table.store, marked(zstandard.compress(body)))
    assert io.outside == []


def test_a_payload_names_files_at_external_places_of_the_table_alone() -> None:
    """Its own directory below what the opener allows; a reader that does not allow it gets an error."""
    table = FileCatalog("/w", {"external-paths.allowed": "/x"}, io=MemoryFileIO()).create_table(
        "db.t", rows((1, 1)).schema, options={"data-file.external-paths": "file:///x", **BY_TURNS}
    )
    write = table.new_write(max_sequence_numbers=lambda partition, bucket: 0)
    write.write(rows((1, 1)))
    messages = write.prepare_commit()
    payload = zstandard.compress(json.dumps([each.to_json() for each in messages]).encode())
    assert read_payload(table.store, marked(payload)).messages == tuple(messages)
    for allowed in ({}, {"external-paths.allowed": "/y"}):
        other = FileCatalog("/w", allowed, io=table.store.io).table("db.t")
        with pytest.raises(CorruptDataError, match=r"a file outside of the table: .file:///x/db\.db/t/"):
            read_payload(other.store, marked(payload))
