"""Random histories of tables of every merge engine, and a consumer that takes a changelog at its word."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import pyarrow as pa
from hypothesis import strategies as st

from filestore.changelog.snapshot_changes import ChangeSplit, plan_changes, read_changes
from filestore.manifest.entries import DataFileMeta
from filestore.snapshot.snapshot import Snapshot
from filestore.table import FileTable
from tests.support.rows import change_tuples
from tests.support.tables import newest_snapshot

SCHEMA: Final = pa.schema(
    [("p", pa.string()), ("id", pa.int32()), ("v", pa.int64()), ("s", pa.string()), ("g", pa.int32())]
)
KEY: Final = ("p", "id")
Change = tuple[Any, ...]
"""Kind and values of a row."""
State = dict[tuple[Any, ...], tuple[Any, ...]]
"""Rows by key."""

_SUM: Final = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
ENGINES: Final[Mapping[str, tuple[Mapping[str, str], bool]]] = {  # options, and whether deletes are taken
    "deduplicate": ({}, True),
    "row-deduplicate": ({"changelog-producer.row-deduplicate": "true"}, True),
    "sequence-field": ({"sequence.field": "g"}, True),
    "ignore-delete": ({"ignore-delete": "true"}, True),
    "leveled": ({"compaction.style": "leveled", "level0_file_num_compaction_trigger": "2"}, True),
    "partial-update": ({"merge-engine": "partial-update"}, False),
    "partial-update-deletes": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        True,
    ),
    "sequence-group": ({"merge-engine": "partial-update", "fields.g.sequence-group": "v,s"}, True),
    "aggregation": (_SUM, False),
    "aggregation-retracts": (_SUM | {"fields.s.ignore-retract": "true", "fields.g.ignore-retract": "true"}, True),
    "aggregation-deletes": (_SUM | {"aggregation.remove-record-on-delete": "true"}, True),
    "first-row": ({"merge-engine": "first-row"}, False),
}

row_values = st.fixed_dictionaries(
    {
        "p": st.sampled_from(["a", "b"]),
        "id": st.integers(0, 12),
        "v": st.none() | st.integers(-3, 30),
        "s": st.none() | st.sampled_from(["x", "yy"]),
        "g": st.none() | st.integers(0, 3),
    }
)

writes_and_compactions = st.one_of(
    st.tuples(
        st.just("write"),
        st.lists(st.tuples(row_values, st.sampled_from(["+I", "+I", "+U", "-D"])), min_size=1, max_size=8),
    ),
    st.tuples(st.just("compact"), st.booleans()),
)


def drops_equal(engine: str) -> bool:
    """Whether updates that change nothing are left out."""
    return engine in ("row-deduplicate", "first-row")


def apply(state: State, found: Iterable[Change], *, drops_equal: bool) -> None:
    """Row by row: each says what there was, exactly as it was emitted before."""
    held: Change | None = None
    for kind, *values in found:
        row = tuple(values)
        key = row[: len(KEY)]
        assert (key in state) == (kind in ("-U", "-D")), (kind, row)
        if kind in ("-U", "-D"):
            assert state.pop(key) == row
        else:
            assert (kind == "+U") == (held is not None)
            assert held is None or held[: len(KEY)] == key
            assert not (drops_equal and held == row)
            state[key] = row
        held = row if kind == "-U" else None
    assert held is None


def changelog_entries(table: FileTable, snapshot: Snapshot) -> list[tuple[Any, int, DataFileMeta]]:
    """Partition, bucket and file of every file of a snapshot's changelog."""
    if snapshot.changelog_manifest_list is None:
        return []
    manifests = table.store.manifests.read_list(snapshot.changelog_manifest_list, snapshot.changelog_manifest_list_size)
    entries = [entry for each in manifests for entry in table.store.manifests.read_manifest(each)]
    return [(entry.partition, entry.bucket, entry.file) for entry in entries]


def changelog_changes(table: FileTable, snapshot: Snapshot) -> list[Change]:
    """The changes of a snapshot's changelog, in the order of its files."""
    splits = [
        ChangeSplit(snapshot=snapshot.ref, partition=partition, bucket=bucket, added=(file,), is_changelog=True)
        for partition, bucket, file in changelog_entries(table, snapshot)
    ]
    return [change for split in splits for change in change_tuples(read_changes(table, split))]


def newest_changes(table: FileTable) -> list[Change]:
    """What a stream gets of the newest commit."""
    newest = newest_snapshot(table)
    splits = plan_changes(table.store, table.store.snapshots.read(newest.id - 1), newest)
    return [change for split in splits for change in change_tuples(read_changes(table, split))]
