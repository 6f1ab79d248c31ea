"""Iceberg's manifests and manifest lists: their bytes, and which of them can hold a file.

The name of a manifest ends with the buckets of its files, so that a commit reads only those that can hold what it
removes. Source: Iceberg spec "Manifests", "Manifest Lists".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any, Final

import fastavro
import orjson
from pyiceberg.conversions import from_bytes, to_bytes
from pyiceberg.manifest import (
    MANIFEST_LIST_FILE_SCHEMAS,
    data_file_with_partition,
    manifest_entry_schema_with_data_file,
)
from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, PrimitiveType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from filestore.iceberg.entries import (
    DATA,
    STATUS_ADDED,
    STATUS_DELETED,
    STATUS_EXISTING,
    CommitId,
    IcebergRecord,
    bucket_of,
)
from filestore.iceberg.schema import IcebergColumns
from filestore.manifest.record_files import decoded_records
from filestore.types.identity_cache import cached_by_identity

MOST_ENTRIES: Final = 128
"""Of one manifest: what a commit that removes one file of it writes again."""
_CODECS: Final = {"gzip": "deflate", "zstd": "zstandard", "none": "null", "uncompressed": "null"}
_NAME: Final = re.compile(r"-b(-?\d+)-(-?\d+)\.avro$")


@dataclass(frozen=True, eq=False)
class ManifestForm:
    """The form that manifests of one schema version share."""

    version: int
    columns: IcebergColumns
    entry_schema: Any  # Avro
    partition_names: tuple[str, ...]  # in Avro
    partition_types: tuple[PrimitiveType, ...]


@cached_by_identity(64)
def manifest_form(columns: IcebergColumns, version: int) -> ManifestForm:
    """The form of manifests of a schema version; ``version`` is of Iceberg's format."""
    partition = columns.spec.partition_type(columns.schema)
    entry = manifest_entry_schema_with_data_file(version, data_file_with_partition(partition, version))
    avro = AvroSchemaConversion().iceberg_to_avro(entry, schema_name="manifest_entry")
    names = AvroSchemaConversion().iceberg_to_avro(Schema(*partition.fields), "r")
    return ManifestForm(
        version=version,
        columns=columns,
        entry_schema=fastavro.parse_schema(avro),
        partition_names=tuple(field["name"] for field in names["fields"]),
        partition_types=tuple(field.field_type for field in partition.fields),
    )


def manifest_bytes(form: ManifestForm, entries: Sequence[IcebergRecord], content: int, *, compression: str) -> bytes:
    """The bytes of a manifest with these entries."""
    metadata = {
        "schema": orjson.dumps(form.columns.schema_json).decode(),
        "partition-spec": orjson.dumps(form.columns.spec_json["fields"]).decode(),
        "partition-spec-id": "0",
        "format-version": str(form.version),
        "content": "data" if content == DATA else "deletes",
    }
    return _avro(form.entry_schema, entries, metadata, compression)


def manifest_name(uuid: str, number: int, entries: Iterable[IcebergRecord]) -> str:
    """The name of a manifest with these entries, at least one."""
    buckets = [bucket_of(entry["data_file"]) for entry in entries]
    return f"{uuid}-m{number}-b{min(buckets)}-{max(buckets)}.avro"


def manifest_record(
    form: ManifestForm, path: str, size_bytes: int, entries: Sequence[IcebergRecord], content: int, at: CommitId
) -> IcebergRecord:
    """The line of a manifest in a manifest list."""
    counts = dict.fromkeys((STATUS_ADDED, STATUS_EXISTING, STATUS_DELETED), 0)
    rows = dict.fromkeys((STATUS_ADDED, STATUS_EXISTING, STATUS_DELETED), 0)
    for entry in entries:
        counts[entry["status"]] += 1
        rows[entry["status"]] += entry["data_file"]["record_count"]
    live = [entry["sequence_number"] for entry in entries if entry["status"] != STATUS_DELETED]
    return {
        "manifest_path": path,
        "manifest_length": size_bytes,
        "partition_spec_id": 0,
        "content": content,
        "sequence_number": at.sequence_number,
        "min_sequence_number": min(live, default=at.sequence_number),
        "added_snapshot_id": at.snapshot_id,
        "added_files_count": counts[STATUS_ADDED],
        "existing_files_count": counts[STATUS_EXISTING],
        "deleted_files_count": counts[STATUS_DELETED],
        "added_rows_count": rows[STATUS_ADDED],
        "existing_rows_count": rows[STATUS_EXISTING],
        "deleted_rows_count": rows[STATUS_DELETED],
        "partitions": _summaries(form, [entry["data_file"]["partition"] for entry in entries]),
    }


def manifest_list_bytes(
    records: Sequence[IcebergRecord], *, version: int, at: CommitId, parent_id: int | None, compression: str
) -> bytes:
    """The bytes of a manifest list."""
    metadata = {
        "snapshot-id": str(at.snapshot_id),
        "parent-snapshot-id": "null" if parent_id is None else str(parent_id),
        "sequence-number": str(at.sequence_number),
        "format-version": str(version),
    }
    return _avro(_list_schema(version), records, metadata, compression)


def records_of(body: bytes, *, source: str) -> list[IcebergRecord]:
    """The records of a manifest or a manifest list. Raises: CorruptDataError naming the file."""
    return decoded_records(body, source=source, decode=dict)


def live_entries_of(form: ManifestForm, body: bytes, *, first_row_id: int | None, source: str) -> list[IcebergRecord]:
    """The live entries of a manifest, with the ids of their first rows where it has given them some.

    Args:
        form: of the table's manifests.
        body: bytes of the manifest.
        first_row_id: that its list gave it; None: none.
        source: its name, for messages.

    Raises:
        CorruptDataError: naming the file.
    """
    decimals = [
        (name, kind)
        for name, kind in zip(form.partition_names, form.partition_types, strict=True)
        if isinstance(kind, DecimalType)
    ]
    live = []
    for entry in records_of(body, source=source):
        if entry["status"] == STATUS_DELETED:
            continue
        file = entry["data_file"]
        for name, kind in decimals:
            if isinstance(file["partition"][name], bytes):
                file["partition"][name] = from_bytes(kind, file["partition"][name])
        if first_row_id is not None and file["content"] == DATA and file.get("first_row_id") is None:
            file["first_row_id"] = first_row_id
            first_row_id += file["record_count"]
        live.append(entry)
    return live


def live_count(manifest: Mapping[str, Any]) -> int:
    """Files of a manifest that are in the snapshot."""
    return int(manifest["added_files_count"] + manifest["existing_files_count"])


def may_hold(form: ManifestForm, manifest: Mapping[str, Any], places: Iterable[tuple[tuple[Any, ...], int]]) -> bool:
    """Whether a manifest can have files of one of some places: partition values and bucket."""
    found = _NAME.search(manifest["manifest_path"])
    least, most = (int(found[1]), int(found[2])) if found else (None, None)
    summaries = manifest["partitions"] or ()
    ranges = [_range(kind, each) for kind, each in zip(form.partition_types, summaries, strict=False)]
    return any(
        (least is None or most is None or least <= bucket <= most)
        and all(_within(value, *each) for value, each in zip(values, ranges, strict=False))
        for values, bucket in places
    )


def packed_entries(entries: Iterable[IcebergRecord]) -> list[list[IcebergRecord]]:
    """Entries as those of manifests of few buckets each."""
    ordered = sorted(entries, key=_place)
    return [ordered[at : at + MOST_ENTRIES] for at in range(0, len(ordered), MOST_ENTRIES)]


def _place(entry: IcebergRecord) -> tuple[str, int]:
    file = entry["data_file"]
    return repr([*file["partition"].values()]), bucket_of(file)


@cache
def _list_schema(version: int) -> Any:
    return fastavro.parse_schema(
        AvroSchemaConversion().iceberg_to_avro(MANIFEST_LIST_FILE_SCHEMAS[version], schema_name="manifest_file")
    )


def _avro(schema: Any, records: Sequence[IcebergRecord], metadata: Mapping[str, str], compression: str) -> bytes:
    buffer = BytesIO()
    codec = _CODECS.get(compression, compression)
    fastavro.writer(buffer, schema, records, codec=codec, metadata=dict(metadata))
    return buffer.getvalue()


def _summaries(form: ManifestForm, partitions: Sequence[Mapping[str, Any]]) -> list[IcebergRecord]:
    summaries = []
    for name, kind in zip(form.partition_names, form.partition_types, strict=True):
        values = {each[name] for each in partitions}
        known = [each for each in values if each is not None and each == each]
        summaries.append(
            {
                "contains_null": None in values,
                "contains_nan": any(each != each for each in values),
                "lower_bound": to_bytes(kind, min(known)) if known else None,
                "upper_bound": to_bytes(kind, max(known)) if known else None,
            }
        )
    return summaries


def _range(kind: PrimitiveType, summary: Mapping[str, Any]) -> tuple[bool, Any, Any]:
    low, high = summary["lower_bound"], summary["upper_bound"]
    if low is None or high is None:
        return bool(summary["contains_null"]), None, None
    return bool(summary["contains_null"]), from_bytes(kind, low), from_bytes(kind, high)


def _within(value: Any, has_null: bool, low: Any, high: Any) -> bool:
    if value is None:
        return has_null
    if value != value:
        return True
    return low is not None and bool(low <= value <= high)
