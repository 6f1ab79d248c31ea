"""Iceberg's table metadata as JSON: what a state of the table adds to the metadata before it.

Source: Iceberg spec "Table Metadata"; Paimon IcebergMetadata. Version numbers and ids of snapshots are the table's;
snapshots of branches, whose numbers are main's again, have ids that are made of what they are.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import orjson

from filestore.iceberg.entries import DATA, CommitId, IcebergRecord
from filestore.iceberg.manifests import live_count
from filestore.iceberg.places import BRANCH_NUMBER
from filestore.iceberg.schema import FIRST_PARTITION_ID, UNSORTED, IcebergColumns
from filestore.snapshot.snapshot import CommitKind, Snapshot, SnapshotRef
from lsm.errors import CorruptDataError

MAIN_REF: Final = "main"
"""Iceberg's name of the main branch, whatever the table calls it."""
_READING: Final = {"read.parquet.vectorization.enabled": "false"}
"""Iceberg's vectorized reader in Spark fails at DELTA_BINARY_PACKED, which keys and timestamps have."""
_IDENTITY: Final = "fluvial.snapshot"  # of the summary: which snapshot of the table it is
_TABLE: Final = "fluvial.table"
_RULE: Final = "fluvial.visible-files"
_BRANCH: Final = "fluvial.branch"  # of the summary: which branch's snapshot it is; absent: main's
_CREATION: Final = "fluvial.branch-creation"
_LEAST_BRANCH_ID: Final = 1 << 62  # no id of a table comes up to it
Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class BranchName:
    """A branch, and the id of its creation, which another one of the same name has not."""

    name: str
    creation: str

    def snapshot_id(self, snapshot: Snapshot) -> int:
        """The id that a snapshot of the branch has for Iceberg: the same whenever it is asked for."""
        text = "\0".join((self.name, self.creation, str(snapshot.id), snapshot.identity))
        return _LEAST_BRANCH_ID | int.from_bytes(blake2b(text.encode(), digest_size=8).digest()) % _LEAST_BRANCH_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBranch:
    """The part of a branch that readers see."""

    head: int  # id of its newest snapshot, its own or one of main
    snapshots: Sequence[Json] = field(default_factory=tuple)  # its own, oldest first
    trimmed: Sequence[Json] = field(default_factory=tuple)  # those before them, which are not shown any more


def ref_of(shown: Json) -> SnapshotRef:
    """The snapshot of the table, or of a branch, that one of Iceberg's shows."""
    summary = shown["summary"]
    return SnapshotRef(int(summary.get(BRANCH_NUMBER) or shown["snapshot-id"]), str(summary.get(_IDENTITY, "")))


@dataclass(frozen=True, slots=True)
class Metadata:
    """One version of the metadata."""

    body: Json

    @classmethod
    def parse(cls, text: bytes, *, source: str) -> "Metadata":
        """Read a file. Raises: CorruptDataError."""
        try:
            body = orjson.loads(text)
            found = cls(body)
            assert isinstance(found.current["manifest-list"], str)
        except (ValueError, KeyError, TypeError, IndexError, AssertionError) as error:
            raise CorruptDataError(f"Iceberg metadata cannot be decoded: file={source} error={error!r}") from error
        return found

    def to_json(self) -> bytes:
        """The bytes of its file."""
        return orjson.dumps(self.body)

    @property
    def current(self) -> Json:
        """The newest snapshot."""
        found: Json = next(each for each in reversed(self.snapshots) if each["snapshot-id"] == self.snapshot_id)
        return found

    @property
    def snapshots(self) -> list[Json]:
        """All snapshots: those of branches, then those of main."""
        found: list[Json] = self.body["snapshots"]
        return found

    @property
    def main(self) -> list[Json]:
        """The snapshots of main, oldest first."""
        return [each for each in self.snapshots if _BRANCH not in each["summary"]]

    @property
    def branches(self) -> dict[BranchName, list[Json]]:
        """The snapshots of branches, oldest first."""
        found: dict[BranchName, list[Json]] = defaultdict(list)
        for each in self.snapshots:
            summary = each["summary"]
            if _BRANCH in summary:
                found[BranchName(summary[_BRANCH], summary.get(_CREATION, ""))].append(each)
        return dict(found)

    @property
    def snapshot_id(self) -> int:
        """The id of the newest snapshot."""
        return int(self.body["current-snapshot-id"])

    @property
    def ref(self) -> SnapshotRef:
        """The table's snapshot that it shows."""
        return ref_of(self.current)

    @property
    def schema_id(self) -> int:
        """The id of main's newest schema."""
        return int(self.body["current-schema-id"])

    @property
    def next_row_id(self) -> int:
        """The first row id that is not given yet."""
        return int(self.body.get("next-row-id") or 0)

    def is_of(self, table_id: str, version: int, rule: str) -> bool:
        """Whether it can be continued: it is of this table, in this version, with files chosen by this rule."""
        properties: Json = self.body.get("properties") or {}
        return bool(self.body["format-version"] == version) and (properties.get(_TABLE), properties.get(_RULE)) == (
            table_id,
            rule,
        )

    def is_of_other_table(self, table_id: str) -> bool:
        """Whether a table that was here before made it."""
        return bool((self.body.get("properties") or {}).get(_TABLE, table_id) != table_id)


def iceberg_snapshot(
    snapshot: Snapshot,
    at: CommitId,
    parent: Json | None,
    manifests: Sequence[IcebergRecord],
    manifest_list: str,
    *,
    removed: Sequence[IcebergRecord],
    added: Sequence[IcebergRecord],
    first_row_id: int | None,
    added_rows: int,
    schema_id: int,
    branch: BranchName | None,
) -> Json:
    """A snapshot of the table as Iceberg's.

    Args:
        snapshot: of the table.
        at: its name in Iceberg.
        parent: Iceberg's snapshot before it; None: it is the first that readers see.
        manifests: lines of its manifest list.
        manifest_list: path of that list.
        removed: entries of removed files, of data and of vectors.
        added: entries of its new files.
        first_row_id: of version 3; None before.
        added_rows: row ids that it gives.
        schema_id: of main's schema with its columns.
        branch: of the snapshot; None: main.
    """
    of_branch = {_BRANCH: branch.name, _CREATION: branch.creation, BRANCH_NUMBER: str(snapshot.id)} if branch else {}
    body: Json = {
        "sequence-number": at.sequence_number,
        "snapshot-id": at.snapshot_id,
        "timestamp-ms": snapshot.time_ms,
        "summary": {
            "operation": _operation(snapshot, has_removed=bool(removed), has_added=bool(added)),
            _IDENTITY: snapshot.identity,
            **of_branch,
            **_totals(manifests),
            **_counts("added", added),
            **_counts("deleted", removed),
        },
        "manifest-list": manifest_list,
        "schema-id": schema_id,
    }
    if parent is not None:
        body["parent-snapshot-id"] = parent["snapshot-id"]
    if first_row_id is not None:
        body |= {"first-row-id": first_row_id, "added-rows": added_rows}
    return body


def metadata_of(
    snapshots: Sequence[Json],
    schemas: Sequence[IcebergColumns],
    *,
    version: int,
    uuid: str,
    location: str,
    table_id: str,
    rule: str,
    tags: Mapping[str, int],
    branches: Mapping[str, ShownBranch],
    next_row_id: int,
    base: Metadata | None,
    properties: Mapping[str, str],
) -> Metadata:
    """A version of the metadata.

    Args:
        snapshots: of main that it shows, oldest first; the last is the current one.
        schemas: of every version of the schema, oldest first; the last is the current one.
        version: of Iceberg's format.
        uuid: of the table for Iceberg.
        location: of the table.
        table_id: see ``Metadata.is_of``.
        rule: see ``Metadata.is_of``.
        tags: ids of snapshots by name of tag.
        branches: by name, which no tag has.
        next_row_id: see ``Metadata.next_row_id``.
        base: the metadata before, whose highest column id stays.
        properties: for a catalog server.
    """
    shown = {each["snapshot-id"] for each in snapshots}
    current, newest = snapshots[-1], schemas[-1]
    refs = {name: {"snapshot-id": at, "type": "tag"} for name, at in tags.items() if at in shown and name != MAIN_REF}
    refs |= {name: {"snapshot-id": each.head, "type": "branch"} for name, each in sorted(branches.items())}
    fields, order = newest.spec_json["fields"], newest.order_json
    log, time_ms = [], 0
    for each in snapshots:
        time_ms = max(time_ms, each["timestamp-ms"])
        log.append({"snapshot-id": each["snapshot-id"], "timestamp-ms": time_ms})
    body: Json = {
        "format-version": version,
        "table-uuid": uuid,
        "location": location,
        "last-sequence-number": current["sequence-number"],
        "last-updated-ms": time_ms,
        "last-column-id": max(
            0 if base is None else base.body["last-column-id"], *(each.last_column_id for each in schemas)
        ),
        "schemas": [each.schema_json for each in schemas],
        "current-schema-id": newest.schema_json["schema-id"],
        "partition-specs": [newest.spec_json],
        "default-spec-id": 0,
        "last-partition-id": FIRST_PARTITION_ID + len(fields) - 1,
        "sort-orders": [UNSORTED, *([order] if order["fields"] else [])],
        "default-sort-order-id": order["order-id"],
        "properties": {_TABLE: table_id, _RULE: rule, **_READING, **properties},
        "current-snapshot-id": current["snapshot-id"],
        "refs": {MAIN_REF: {"snapshot-id": current["snapshot-id"], "type": "branch"}, **refs},
        # those of branches first: Java's Paimon adds its own at the end, and expires from the beginning to the first
        # that it keeps, which is any with such an id
        "snapshots": [*(one for name in sorted(branches) for one in branches[name].snapshots), *snapshots],
        "snapshot-log": log,
        "metadata-log": [],
    }
    if version >= 3:
        body["next-row-id"] = next_row_id
    return Metadata(body)


def _operation(snapshot: Snapshot, *, has_removed: bool, has_added: bool) -> str:
    if not has_removed:
        return "append"
    if snapshot.commit_kind is CommitKind.COMPACT:
        return "replace"
    return "overwrite" if has_added else "delete"


def _totals(manifests: Sequence[IcebergRecord]) -> dict[str, str]:
    """Files and rows of a snapshot, from the lines of its manifests."""
    data = [each for each in manifests if each["content"] == DATA]
    rows = sum(each["added_rows_count"] + each["existing_rows_count"] for each in data)
    vectors = sum(live_count(each) for each in manifests if each["content"] != DATA)
    return {
        "total-data-files": str(sum(map(live_count, data))),
        "total-records": str(rows),
        "total-delete-files": str(vectors),
    }


def _counts(word: str, entries: Sequence[IcebergRecord]) -> dict[str, str]:
    files = [entry["data_file"] for entry in entries if entry["data_file"]["content"] == DATA]
    if not files:
        return {}
    return {
        f"{word}-data-files": str(len(files)),
        f"{word}-records": str(sum(file["record_count"] for file in files)),
        f"{'added' if word == 'added' else 'removed'}-files-size": str(
            sum(file["file_size_in_bytes"] for file in files)
        ),
    }
