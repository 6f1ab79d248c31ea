"""Changes read from files against dictionaries: applied snapshot after snapshot they give the table at each."""

import os
import pickle
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from filestore.changelog.snapshot_changes import ChangeSplit, plan_changes, plan_diff, read_changes
from filestore.commit.committable import Committable
from filestore.commit.table_commit import TableCommit
from filestore.manifest.entries import EntryKind
from filestore.manifest.lists import DELETION_VECTORS, DeletionVectorRange, IndexManifestEntry
from filestore.scan.live_files import LiveFiles
from filestore.scan.snapshot_files import live_files, manifests_of
from filestore.snapshot.change_tracking import ChangeSource, changes_of
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.table import FileTable
from lsm.errors import InvalidInputError
from lsm.row_kind import RowKind
from tests.support.tables import KEY_SCHEMA, key_table, memory_catalog, messages_of, rows

SCHEMA = pa.schema([("p", pa.string()), ("id", pa.int32()), ("v", pa.int64()), ("s", pa.string())])
Row = dict[str, Any]
State = dict[tuple[Any, ...], Row]
EXAMPLES = int(os.environ.get("FLUVIAL_MODEL_EXAMPLES", "15"))

SUM = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
ENGINES: Mapping[str, tuple[Mapping[str, str], bool]] = {  # options, and whether deletes are taken
    "deduplicate": ({}, True),
    "ignore-delete": ({"ignore-delete": "true"}, True),
    "sequence-field": ({"sequence.field": "v"}, True),
    "changelog-input": ({"changelog-producer": "input"}, True),
    "partial-update": ({"merge-engine": "partial-update"}, False),
    "partial-update-deletes": (
        {"merge-engine": "partial-update", "partial-update.remove-record-on-delete": "true"},
        True,
    ),
    "aggregation": (SUM, False),
    "aggregation-retracts": (SUM | {"fields.s.ignore-retract": "true"}, True),
    "aggregation-input": (SUM | {"changelog-producer": "input"}, False),
    "first-row": ({"merge-engine": "first-row"}, False),
}


def changes(table: FileTable, splits: Iterable[ChangeSplit], **options: Any) -> list[tuple[str, Row]]:
    found = []
    for split in splits:
        for batch, kinds in read_changes(table, pickle.loads(pickle.dumps(split)), **options):
            assert batch.num_rows == len(kinds) > 0
            assert kinds.type == pa.int8()
            found += [
                (RowKind(kind).symbol, row) for kind, row in zip(kinds.to_pylist(), batch.to_pylist(), strict=True)
            ]
    return found


def key_of(row: Row) -> tuple[Any, ...]:
    return (row["p"], row["id"])


def apply(state: State, found: Iterable[tuple[str, Row]], *, exact: bool = False) -> None:
    """Upserts and deletes; exact ones must also say what was there."""
    for kind, row in found:
        key = key_of(row)
        if exact:
            assert (key in state) == (kind in ("-U", "-D")), (kind, row)
            if kind in ("-U", "-D"):
                assert state[key] == row
        if kind in ("-U", "-D"):
            state.pop(key, None)
        else:
            state[key] = row


def whole(table: FileTable, snapshot: Snapshot) -> State:
    """The rows of a snapshot, those of level 0 included."""
    state: State = {}
    apply(state, changes(table, plan_diff(table.store, None, snapshot)), exact=True)
    return state


def rows_at(table: FileTable, snapshot: Snapshot) -> State:
    found = table.read(snapshot_id=snapshot.id).to_arrow().to_pylist()
    return {key_of(row): row for row in found}


row_values = st.fixed_dictionaries(
    {
        "p": st.sampled_from(["a", "b"]),
        "id": st.integers(0, 8),
        "v": st.none() | st.integers(-3, 30),
        "s": st.none() | st.sampled_from(["x", "yy"]),
    }
)
deeds = st.lists(
    st.one_of(
        st.tuples(
            st.just("write"),
            st.lists(st.tuples(row_values, st.sampled_from(["+I", "+I", "+U", "-U", "-D"])), min_size=1, max_size=8),
        ),
        st.tuples(st.just("overwrite"), st.lists(row_values, max_size=4, unique_by=lambda row: (row["p"], row["id"]))),
        st.tuples(st.just("compact"), st.booleans()),
        st.tuples(st.just("rescale"), st.integers(1, 4)),
    ),
    min_size=1,
    max_size=7,
)


def do(table: FileTable, deed: tuple[str, Any], *, takes_deletes: bool) -> FileTable:
    what, data = deed
    if what == "compact":
        table.compact(full=data)
    elif what == "rescale":
        # Every partition at once: a write to one that was left as it is would be refused.
        table = table.with_options({"bucket": str(data), "dynamic-partition-overwrite": "false"})
        table.overwrite(pa.Table.from_pylist([{"p": "a", "id": 1, "v": 1, "s": "x"}], schema=SCHEMA))
        table = table.with_options({"dynamic-partition-overwrite": "true"})
    elif what == "overwrite":
        table.overwrite(pa.Table.from_pylist(data, schema=SCHEMA))
    else:
        kinds = [kind if takes_deletes else "+I" for _, kind in data]
        table.write(pa.Table.from_pylist([row for row, _ in data], schema=SCHEMA), pa.array(kinds))
    return table


@pytest.mark.sampled(2)
@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
@settings(max_examples=EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(history=deeds, buckets=st.integers(1, 3), partitioned=st.booleans(), data=st.data())
def test_changes_applied_in_order_give_every_snapshot(
    engine: str, history: list[tuple[str, Any]], buckets: int, partitioned: bool, data: st.DataObject
) -> None:
    """FL-29, FL-57, FL-139: whatever is written, overwritten, compacted or rescaled; and between any two snapshots."""
    options, takes_deletes = ENGINES[engine]
    table = memory_catalog().create_table(
        "db.t", SCHEMA, primary_key=["p", "id"], partition_by=["p"] if partitioned else [],
        options={"bucket": str(buckets), "num-sorted-run.compaction-trigger": "3", "target-file-row-num": "3"}
        | dict(options),
    )  # fmt: skip
    for deed in history:
        table = do(table, deed, takes_deletes=takes_deletes)
    snapshots = [table.store.snapshots.read(snapshot_id) for snapshot_id in table.store.snapshots.ids()]
    state: State = {}
    previous = None
    states = []
    for snapshot in snapshots:
        if changes_of(snapshot, has_log=False) is ChangeSource.FILES:
            splits = plan_changes(table.store, previous, snapshot)
            assert [(each.partition, each.bucket) for each in splits] == sorted(
                {(each.partition, each.bucket) for each in splits}
            )
            apply(state, changes(table, splits))
        else:
            assert plan_changes(table.store, previous, snapshot) == ()
        assert whole(table, snapshot) == state
        if engine != "first-row" or all(file.file.level for file in files_of(table, snapshot)):
            assert rows_at(table, snapshot) == state
        states.append(dict(state))
        previous = snapshot
    if snapshots:
        one, two = (data.draw(st.integers(0, len(snapshots) - 1)) for _ in range(2))
        moved = dict(states[one])
        found = changes(table, plan_diff(table.store, snapshots[one], snapshots[two]))
        apply(moved, found, exact=True)
        assert moved == states[two]
        if states[one] == states[two]:
            assert not found


def files_of(table: FileTable, snapshot: Snapshot) -> list[Any]:
    return live_files(table.store, snapshot)


def bag(found: Iterable[Row]) -> Counter[str]:
    return Counter(repr(row) for row in found)


def apply_to_bag(state: Counter[str], found: Iterable[tuple[str, Row]]) -> None:
    for kind, row in found:
        assert kind in ("+I", "-D")
        state[repr(row)] += 1 if kind == "+I" else -1
        assert state[repr(row)] >= 0, "a row went that was not there"


@pytest.mark.sweep
@settings(max_examples=2 * EXAMPLES, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(history=deeds, buckets=st.sampled_from([-1, 1, 2]), partitioned=st.booleans(), data=st.data())
def test_changes_of_an_append_table_give_every_snapshot(
    history: list[tuple[str, Any]], buckets: int, partitioned: bool, data: st.DataObject
) -> None:
    """FL-57."""
    table = memory_catalog().create_table(
        "db.t", SCHEMA, partition_by=["p"] if partitioned else [],
        options={"bucket": str(buckets), "target-file-row-num": "3", "compaction.min.file-num": "2"}
        | ({"bucket-key": "id"} if buckets > 0 else {}),
    )  # fmt: skip
    for deed in history:
        if deed[0] != "rescale":
            table = do(table, deed, takes_deletes=False)
    snapshots = [table.store.snapshots.read(snapshot_id) for snapshot_id in table.store.snapshots.ids()]
    state: Counter[str] = Counter()
    states = []
    previous = None
    for snapshot in snapshots:
        if changes_of(snapshot, has_log=False) is ChangeSource.FILES:
            apply_to_bag(state, changes(table, plan_changes(table.store, previous, snapshot)))
        assert state == bag(table.read(snapshot_id=snapshot.id).to_arrow().to_pylist())
        states.append(Counter(state))
        previous = snapshot
    if snapshots:
        one, two = (data.draw(st.integers(0, len(snapshots) - 1)) for _ in range(2))
        apply_to_bag(states[one], changes(table, plan_diff(table.store, snapshots[one], snapshots[two])))
        assert states[one] == states[two]


# ---- what is reported, and how little is read


def changed_rows(table: FileTable, splits: Iterable[ChangeSplit], **options: Any) -> list[tuple[Any, ...]]:
    return [(kind, *row.values()) for kind, row in changes(table, splits, **options)]


def snapshot_of(table: FileTable, snapshot_id: int | None = None) -> Snapshot:
    return table.store.snapshots.read(snapshot_id or table.store.snapshots.latest_id() or 0)


def newest_changes(table: FileTable, **options: Any) -> list[tuple[Any, ...]]:
    newest = snapshot_of(table)
    previous = snapshot_of(table, newest.id - 1) if newest.id > 1 else None
    return changed_rows(table, plan_changes(table.store, previous, newest), **options)


def test_an_append_is_told_from_the_files_that_it_added() -> None:
    """FL-57, FL-136: upserts; nothing else is read."""
    table = key_table(bucket="1")
    table.write(rows((1, 10), (2, 20)))
    assert newest_changes(table) == [("+I", 1, 10), ("+I", 2, 20)]
    table.write(rows((1, 10), (1, 11), (2, 20), (3, 30)), pa.array(["-U", "+U", "-D", "+I"]))
    (split,) = plan_changes(table.store, snapshot_of(table, 1), snapshot_of(table))
    assert (split.before, split.after, len(split.added), split.row_count) == ((), (), 1, 3)
    assert split.size_bytes == split.added[0].size_bytes
    assert changed_rows(table, [split]) == [("+U", 1, 11), ("-D", 2, 20), ("+I", 3, 30)]


def test_a_row_that_was_taken_back_is_gone() -> None:
    """A -U without its +U removes the key for readers of the table, so it is a delete."""
    table = key_table(bucket="1")
    table.write(rows((1, 10)))
    table.write(rows((1, 10)), pa.array(["-U"]))
    assert newest_changes(table) == [("-D", 1, 10)]


def test_a_changelog_is_told_as_it_is() -> None:
    table = key_table(bucket="1", changelog_producer="input")
    table.write(rows((1, 10), (1, 10), (1, 11)), pa.array(["+I", "-U", "+U"]))
    assert newest_changes(table) == [("+I", 1, 10), ("-U", 1, 10), ("+U", 1, 11)]


def test_an_overwrite_is_told_as_an_exact_difference() -> None:
    """FL-29: equal rows are not changes."""
    table = key_table(bucket="1")
    table.write(rows((1, 10), (2, 20), (3, None), (4, 40)))
    table.overwrite(rows((2, 20), (3, None), (4, 41), (5, 50)))
    assert newest_changes(table) == [("-D", 1, 10), ("-U", 4, 40), ("+U", 4, 41), ("+I", 5, 50)]


def test_columns_can_be_chosen_and_only_their_differences_count() -> None:
    table = key_table(bucket="1")
    table.write(rows((1, 10), (2, 20)))
    table.overwrite(rows((1, 11), (3, 30)))
    assert newest_changes(table, columns=["v"]) == [("-U", 10), ("+U", 11), ("-D", 20), ("+I", 30)]
    assert newest_changes(table, columns=["id"]) == [("-D", 2), ("+I", 3)]
    assert [kind for kind, *_ in newest_changes(table, columns=[])] == ["-D", "+I"]
    assert newest_changes(table, columns=["v", "id"])[0] == ("-U", 10, 1)


def test_compactions_change_nothing() -> None:
    table = key_table(bucket="1")
    table.write(rows((1, 10)))
    table.write(rows((1, 11)))
    table.compact(full=True)
    assert plan_changes(table.store, snapshot_of(table, 2), snapshot_of(table)) == ()
    assert changed_rows(table, plan_diff(table.store, snapshot_of(table, 2), snapshot_of(table))) == []


def test_a_difference_reads_only_key_ranges_whose_files_differ() -> None:
    table = key_table(bucket="1", **{"write-only": "true"})
    for start in (0, 100, 200):
        table.write(rows((start, 1), (start + 9, 1)))
    before = snapshot_of(table)
    table.write(rows((105, 2)))
    (split,) = plan_diff(table.store, before, snapshot_of(table))
    assert [len(state.files) for state in (*split.before, *split.after)] == [1, 2]
    assert changed_rows(table, [split]) == [("+I", 105, 2)]
    assert changed_rows(table, plan_diff(table.store, snapshot_of(table), before)) == [("-D", 105, 2)]
    assert plan_diff(table.store, before, before) == ()


def test_a_partition_whose_buckets_were_counted_anew_is_compared_as_a_whole() -> None:
    """A key may be in another bucket: its old and its new row must not come apart."""
    table = key_table(bucket="3")
    table.write(rows(*((key, 1) for key in range(20))))
    table = table.with_options({"bucket": "2"})
    table.overwrite(rows(*((key, 1 if key else 2) for key in range(20))))
    assert newest_changes(table) == [("-U", 0, 1), ("+U", 0, 2)]
    (split,) = plan_diff(table.store, snapshot_of(table, 1), snapshot_of(table))
    assert (split.bucket, len(split.before), len(split.after)) == (0, 3, 2)


@pytest.mark.parametrize("producer", ["none", "input"])
def test_a_snapshot_that_needs_the_expired_one_before_it_is_refused(producer: str) -> None:
    """The changelog of an overwrite has the new rows alone: streams kept those that it had removed."""
    table = key_table(bucket="1", changelog_producer=producer)
    table.write(rows((1, 1)))
    table.write(rows((2, 2)))
    assert changed_rows(table, plan_changes(table.store, None, snapshot_of(table))) == [("+I", 2, 2)], "needs no other"
    table.overwrite(rows((3, 3)))
    with pytest.raises(InvalidInputError, match="snapshot=3 kind=OVERWRITE"):
        plan_changes(table.store, None, snapshot_of(table))


def test_rows_of_another_engine_that_are_older_than_what_is_there_change_nothing() -> None:
    """FL-33: on a table with a log; numbered by a writer that did not see ours, they lose against our rows."""
    table = key_table(bucket="1", **{"log.kafka.bootstrap.servers": "nowhere:1", "write-only": "true"})
    stale = messages_of(table, rows((1, -1), (9, 9)))
    table.write(rows((1, 1), (2, 2)))
    table.write(rows((3, 3)))
    assert changed_rows(table, plan_changes(table.store, snapshot_of(table, 1), snapshot_of(table))) == [("+I", 3, 3)]
    base = snapshot_of(table).ref  # as if it had looked: other engines do not ask who numbered what
    result = TableCommit(table.store, "java").commit(Committable(identifier=0, messages=stale, base=base))
    assert result.snapshot is not None
    foreign = replace(result.snapshot, properties={})
    assert foreign.commit_kind is CommitKind.APPEND
    assert changed_rows(table, plan_changes(table.store, snapshot_of(table, base.id), foreign)) == [("+I", 9, 9)]


def test_older_files_are_read_with_the_columns_of_the_table() -> None:
    old = key_table(bucket="1")
    old.write(rows((1, 10)))
    fields = [*old.schema.fields, replace(old.schema.fields[1], id=2, name="w")]
    newer = replace(old.schema, id=1, fields=tuple(fields), highest_field_id=2)
    old.store.io.write_new(old.store.paths.schema(1), newer.to_json().encode())
    table = FileTable.open("db.t", old.store.paths.root, io=old.store.io, clock=old.store.clock, names=old.store.names)
    assert changed_rows(table, plan_changes(table.store, None, snapshot_of(table, 1))) == [("+I", 1, 10, None)]
    table.overwrite(pa.table({"id": [1], "v": [10], "w": [5]}))
    assert newest_changes(table) == [("-U", 1, 10, None), ("+U", 1, 10, 5)]


def test_no_snapshot_before_is_the_empty_table() -> None:
    table = key_table(bucket="2")
    table.write(rows((1, 10), (2, 20), (3, 30)))
    table.write(rows((2, 20)), pa.array(["-D"]))
    found = changed_rows(table, plan_diff(table.store, None, snapshot_of(table)))
    assert sorted(found) == [("+I", 1, 10), ("+I", 3, 30)]
    assert len(plan_diff(table.store, None, snapshot_of(table))) == len(list(LiveFiles.latest(table.store).buckets()))


def with_deleted_rows(table: FileTable) -> Snapshot:
    """The newest snapshot with rows 1 and 2 of its file deleted by another engine, as the next one."""
    newest = snapshot_of(table)
    body = bytes.fromhex("01 00000018 5e43f2d0 3a300000 01000000 0000 0100 10000000 0100 0200 c3366892")
    table.store.io.write_new(table.store.paths.index("index-0"), body)
    ((key, file),) = [
        (key, file)
        for key in LiveFiles.latest(table.store).buckets()
        for file in LiveFiles.latest(table.store).files(key)
    ]
    vector = DeletionVectorRange(data_file_name=file.file_name, offset=1, length=24, cardinality=2)
    index = table.store.manifests.write_index_manifest(
        [
            IndexManifestEntry(
                kind=EntryKind.ADD, partition=key.partition, bucket=key.bucket, index_type=DELETION_VECTORS,
                file_name="index-0", size_bytes=len(body), row_count=1, deletion_vectors=(vector,), external_path=None,
            )
        ]
    )  # fmt: skip
    base, delta = (
        table.store.manifests.write_list(manifests_of(table.store, newest)),
        table.store.manifests.write_list([]),
    )
    snapshot = replace(
        newest, id=newest.id + 1, commit_kind=CommitKind.OVERWRITE, properties={}, index_manifest=index,
        base_manifest_list=base[0], base_manifest_list_size=base[1],
        delta_manifest_list=delta[0], delta_manifest_list_size=delta[1],
    )  # fmt: skip
    assert table.store.snapshots.publish(snapshot)
    return snapshot


@pytest.mark.parametrize("has_key", [True, False])
def test_rows_that_another_engine_deleted_in_place_are_deletes(has_key: bool) -> None:
    """Deletion vectors: no file was added or removed."""
    options = {"bucket": "1"} if has_key else {}
    table = memory_catalog().create_table("db.t", KEY_SCHEMA, primary_key=["id"] if has_key else [], options=options)
    table.write(rows((0, 0), (1, 10), (2, 20), (3, 30)))
    first, second = snapshot_of(table), with_deleted_rows(table)
    assert changed_rows(table, plan_changes(table.store, first, second)) == [("-D", 1, 10), ("-D", 2, 20)]
    assert changed_rows(table, plan_diff(table.store, second, first)) == [("+I", 1, 10), ("+I", 2, 20)]
    assert changed_rows(table, plan_diff(table.store, None, second)) == [("+I", 0, 0), ("+I", 3, 30)]
    assert changed_rows(table, plan_diff(table.store, second, second)) == []
