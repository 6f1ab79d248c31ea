"""Reading a table's Iceberg metadata by pyiceberg, and what its directory holds."""

import json
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.table import StaticTable

from filestore.iceberg.places import metadata_directory
from filestore.table import FileTable

Rows = list[tuple[Any, ...]]


def metadata_json(table: FileTable) -> dict[str, Any]:
    """The newest metadata, by the hint, as any reader without a catalog finds it."""
    return json.loads(metadata_path(table).read_bytes())  # type: ignore[no-any-return]


def metadata_path(table: FileTable) -> Path:
    """Its path."""
    directory = Path(metadata_directory(table.store))
    return directory / f"v{(directory / 'version-hint.text').read_text()}.metadata.json"


def opened(table: FileTable) -> StaticTable:
    """The table of pyiceberg."""
    return StaticTable.from_metadata(str(metadata_path(table)))


def iceberg_rows(table: FileTable, snapshot_id: int | None = None, **scan: Any) -> Rows:
    """Sorted rows by pyiceberg, of the newest snapshot or another one."""
    return sorted_tuples(opened(table).scan(snapshot_id=snapshot_id, **scan).to_arrow())


def own_rows(table: FileTable, snapshot_id: int | None = None, *, tag: str | None = None) -> Rows:
    """Sorted rows by our reader, of a snapshot that a tag may keep."""
    return sorted_tuples(table.read(snapshot_id=None if tag else snapshot_id, tag=tag).to_arrow())


def sorted_tuples(rows: Any) -> Rows:
    """Rows of an Arrow table in one order, with a text for what is not a number, so that they can be compared."""
    shown = (tuple("nan" if value != value else value for value in row.values()) for row in rows.to_pylist())
    return sorted(shown, key=repr)


def lines_of(path: str) -> list[dict[str, Any]]:
    """The records of a manifest or a manifest list."""
    with Path(path).open("rb") as file:
        return [dict(record) for record in fastavro.reader(file)]  # type: ignore[arg-type]


def live_entries(metadata: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The data files and vectors of the current snapshot, by path and place."""
    snapshot = next(each for each in metadata["snapshots"] if each["snapshot-id"] == metadata["current-snapshot-id"])
    found: dict[str, dict[str, Any]] = {}
    for manifest in lines_of(snapshot["manifest-list"]):
        for entry in lines_of(manifest["manifest_path"]):
            if entry["status"] != 2:
                file = entry["data_file"]
                found[f"{file['file_path']}@{file.get('content_offset')}"] = file
    return found


def referenced(metadata: dict[str, Any]) -> set[str]:
    """Names of the manifests and lists of all snapshots."""
    lists = [each["manifest-list"] for each in metadata["snapshots"]]
    manifests = [line["manifest_path"] for path in lists for line in lines_of(path)]
    return {path.rpartition("/")[2] for path in (*lists, *manifests)}
