"""Samples of what FORMAT.md describes: values with every field set, and tables that have left every kind of file."""

import re
from collections.abc import Mapping
from typing import Any

from filestore.branch.branches import create_branch
from filestore.format.simple_stats import SimpleStats
from filestore.layout.branch_log import write_branch_log
from filestore.layout.branch_state import FAST_FORWARD_SEAL, seal
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta, EntryKind
from filestore.manifest.lists import DeletionVectorRange, IndexManifestEntry
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.retention import Retention
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.table import FileTable
from filestore.tag.automatic_tags import create_due_tags
from filestore.tag.savepoints import create_savepoint, delete_savepoint
from filestore.types.data_types import parse_field
from logstore.log.marker import encode_marker
from tests.support.faults import FaultyFileIO
from tests.support.tables import committable_of, key_table, rows

STATS = SimpleStats(min_values=bytes(12), max_values=bytes(12), null_counts=(0,))
SNAPSHOT = Snapshot(
    id=1,
    schema_id=0,
    base_manifest_list="b",
    base_manifest_list_size=1,
    delta_manifest_list="d",
    delta_manifest_list_size=1,
    changelog_manifest_list="c",
    changelog_manifest_list_size=1,
    index_manifest="i",
    commit_user="u",
    commit_identifier=1,
    commit_kind=CommitKind.APPEND,
    time_ms=1,
    log_offsets={0: 1},
    total_record_count=1,
    delta_record_count=1,
    changelog_record_count=1,
    watermark=1,
    statistics="s",
    properties={"a": "b"},
    next_row_id=1,
    operation="o",
    uuid="u",
    writer_version="w",
)
SCHEMA = TableSchema(
    id=0,
    fields=(parse_field({"id": 0, "name": "a", "type": "INT", "description": "d", "defaultValue": "1"}),),
    highest_field_id=0,
    partition_keys=(),
    primary_keys=("a",),
    options={},
    comment="c",
    time_ms=1,
)


class Recorder(FaultyFileIO):
    """Knows every file that was ever written below a directory."""

    def written(self, root: str) -> set[str]:
        calls = (line.split(" ", 1) for line in self.log)
        writes = ("write_new", "create_exclusive", "replace", "open_output")
        paths = {path for name, path in calls if name in writes}
        return {path.removeprefix(f"{root}/") for path in paths if path.startswith(f"{root}/")}


def eventful_table(io: Recorder) -> FileTable:
    """A table that has seen everything that leaves a file."""
    options = {
        "changelog-producer": "input",
        "tag.automatic-creation": "process-time",
        "tag.create-success-file": "true",
    }
    written = key_table(io, primary_key=("id", "v"), partition_by=("id",), bucket="1", **options)  # type: ignore[arg-type]
    for number in range(4):
        written.new_commit("query/1").commit(committable_of(written, number, rows((number, 1))))
    written.store.clock.sleep(3 * 86_400)
    create_due_tags(written.store)
    written.store.consumers.write("reader", 3)
    create_savepoint(written.store, compact=False)
    delete_savepoint(written.store, 1)
    create_branch(written.store, "b", snapshot_id=written.store.snapshots.latest_id())
    write_branch_log(io, written.store.paths.with_branch("b"), {})  # type: ignore[arg-type]
    seal(io, written.store.paths, FAST_FORWARD_SEAL)  # type: ignore[arg-type]
    return written


def expired_and_rolled_back(io: Recorder) -> FileTable:
    """A table that has lost snapshots at both ends."""
    written = key_table(io, bucket="1")  # type: ignore[arg-type]
    for user, number in (("first", 1), ("second", 1), ("second", 2), ("second", 3)):
        written.new_commit(user).commit(committable_of(written, number, rows((number, 1))))
    list(expire_snapshots(written.store, Retention(min_count=1, max_count=3, age_ms=10**15, limit=9)))
    roll_back(written.store, plan_rollback(written.store, written.store.snapshots.read(3)))
    return written


def marker(**changes: Any) -> bytes:
    """A commit marker of the log, with some fields replaced."""
    given: dict[str, Any] = {
        "query": "q", "batch": 7, "row_count": 500, "start_offset": 1, "is_final": True, "payload": b"p",
        "is_pointer": False, "schema_id": 3, "table_id": "t", "end_offset": 1000,
    }  # fmt: skip
    return encode_marker(**given | changes)


def data_file() -> DataFileMeta:
    """A data file in which every field is set."""
    return DataFileMeta(
        file_name="f", size_bytes=1, row_count=1, min_key=b"k", max_key=b"k", key_stats=STATS, value_stats=STATS,
        min_sequence_number=0, max_sequence_number=0, schema_id=0, level=0, extra_files=("x",), creation_time_ms=1,
        delete_row_count=0, embedded_index=b"i", file_source=0, value_stats_cols=("c",), external_path="e",
        first_row_id=0, write_cols=("w",),
    )  # fmt: skip


def message() -> CommitMessage:
    """A commit message that has files of every sort."""
    vector = DeletionVectorRange(data_file_name="f", offset=1, length=1, cardinality=1)
    index = IndexManifestEntry(
        kind=EntryKind.ADD, partition=b"p", bucket=0, index_type="HASH", file_name="i", size_bytes=1, row_count=1,
        deletion_vectors=(vector,),
    )  # fmt: skip
    lists = dict.fromkeys(("new_files", "compact_before", "compact_after", "changelog_files"), (data_file(),))
    return CommitMessage(
        partition=b"p", bucket=0, total_buckets=1, index_before=(index,), index_after=(index,), **lists
    )


def json_type(value: object) -> str:
    """The type of a JSON value, in the words of the page."""
    return {int: "int", str: "string", bool: "bool", dict: "object", list: "array"}[type(value)]


def avro_types(schema: Mapping[str, Any]) -> dict[str, str]:
    """The fields of an Avro record in the words of the page."""
    return {field["name"]: avro_word(field["type"]) for field in schema["fields"]}


def avro_word(kind: Any) -> str:
    """An Avro type, in the words of the page."""
    if isinstance(kind, list):
        assert kind[0] == "null"
        return f"{avro_word(kind[1])}?"
    if isinstance(kind, str):
        return kind
    if kind["type"] == "array":
        items = kind["items"]
        return f"array of {avro_word(items[1] if isinstance(items, list) else items)}"
    return str(kind["type"])


PLACES = {
    "[p1=v1/p2=v2/]": r"([^/]+=[^/]+/)*",
    "<format>": "(parquet|orc|avro)",
    "<uuid>": r"[0-9a-f]{8}(-[0-9a-f]+){4}",
    **dict.fromkeys(("<N>", "<n>", "<B>"), r"\d+"),
}


def pattern_of(path: str) -> re.Pattern[str]:
    """What a path of the page means."""
    parts = re.split(r"(\[.*?\]|<.*?>)", path)
    return re.compile(
        "".join(re.escape(part) if at % 2 == 0 else PLACES.get(part, "[^/]+") for at, part in enumerate(parts))
    )
