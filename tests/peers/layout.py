"""The rules of the format that no reader complains about but every reader relies on, checked on the files themselves.

Written against paimon-format sections 0, 3, 4, 14 with fastavro alone: none of our own readers is used.
"""

import io
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import fastavro
import zstandard

Identity = tuple[Any, ...]


def check_layout(root: Path) -> None:
    """Assert that every snapshot of a table is whole: sizes exact, counts true, every live file there."""
    places = {path.name: path for path in root.rglob("bucket-*/*") if path.is_file()}
    numbers = sorted(int(path.name.removeprefix("snapshot-")) for path in (root / "snapshot").glob("snapshot-*"))
    for number in numbers:
        check_snapshot(root, number, places)
    if numbers:
        assert numbers == list(range(numbers[0], numbers[-1] + 1)), "snapshot ids have a gap"


def check_snapshot(root: Path, number: int, places: dict[str, Path]) -> None:
    """Assert that one snapshot is whole; `places` has every data file of the table by name."""
    snapshot = json.loads((root / "snapshot" / f"snapshot-{number}").read_bytes())
    assert snapshot["id"] == number
    assert (root / "schema" / f"schema-{snapshot['schemaId']}").is_file()
    live: dict[Identity, dict[str, Any]] = {}
    for kind in ("base", "delta"):
        counted = 0
        for entry in entries(root, snapshot, kind):
            identity = _identity(entry)
            rows = entry["_FILE"]["_ROW_COUNT"]
            if entry["_KIND"] == 0:
                assert identity not in live, f"added twice: snapshot={number} file={entry['_FILE']['_FILE_NAME']}"
                live[identity] = entry
                counted += rows
            else:
                assert identity in live, f"deleted but not live: snapshot={number} file={entry['_FILE']['_FILE_NAME']}"
                del live[identity]
                counted -= rows
        if kind == "delta":
            assert snapshot["deltaRecordCount"] == counted
    assert snapshot["totalRecordCount"] == sum(entry["_FILE"]["_ROW_COUNT"] for entry in live.values())
    for entry in live.values():
        file = entry["_FILE"]
        assert places[file["_FILE_NAME"]].stat().st_size == file["_FILE_SIZE"], f"wrong size: {file['_FILE_NAME']}"
        assert file["_MIN_SEQUENCE_NUMBER"] <= file["_MAX_SEQUENCE_NUMBER"]


def entries(root: Path, snapshot: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Manifest entries of the base or delta list, in order, after checking every size and count on the way."""
    listed = root / "manifest" / snapshot[f"{kind}ManifestList"]
    size = snapshot.get(f"{kind}ManifestListSize")
    assert size in (None, listed.stat().st_size), f"wrong size: {listed.name}"
    found: list[dict[str, Any]] = []
    for meta in _avro(listed):
        path = root / "manifest" / meta["_FILE_NAME"]
        assert path.stat().st_size == meta["_FILE_SIZE"], f"wrong size: {path.name}"
        part = _avro(path)
        kinds = [entry["_KIND"] for entry in part]
        assert (meta["_NUM_ADDED_FILES"], meta["_NUM_DELETED_FILES"]) == (kinds.count(0), kinds.count(1))
        found += part
    # a list may hold an addition after its deletion (merged manifests): additions first, as readers do
    return sorted(found, key=lambda entry: int(entry["_KIND"]))


def _identity(entry: dict[str, Any]) -> Identity:
    file = entry["_FILE"]
    return (
        entry["_PARTITION"],
        entry["_BUCKET"],
        file["_LEVEL"],
        file["_FILE_NAME"],
        tuple(file["_EXTRA_FILES"]),
        file.get("_EMBEDDED_FILE_INDEX"),
        file.get("_EXTERNAL_PATH"),
    )


def _avro(path: Path) -> list[dict[str, Any]]:
    """Records of an Avro file. fastavro's own container reader needs one more library for Zstandard."""
    with path.open("rb") as body:
        header: Any = fastavro.schemaless_reader(body, _HEADER, None)
        schema = fastavro.parse_schema(json.loads(header["meta"]["avro.schema"]))
        codec = header["meta"].get("avro.codec", b"null").decode()
        found: list[dict[str, Any]] = []
        while body.peek(1):
            count: Any = fastavro.schemaless_reader(body, "long", None)
            block: Any = fastavro.schemaless_reader(body, "bytes", None)
            records = io.BytesIO(_CODECS[codec](block))
            found += [cast(dict[str, Any], fastavro.schemaless_reader(records, schema, None)) for _ in range(count)]
            assert body.read(16) == header["sync"], f"torn block: {path.name}"
        return found


_HEADER = fastavro.parse_schema(
    {
        "type": "record",
        "name": "header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": 16}},
        ],
    }
)
_CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda block: block,
    "deflate": lambda block: zlib.decompress(block, -15),
    "zstandard": lambda block: zstandard.ZstdDecompressor().decompressobj().decompress(block),
}
