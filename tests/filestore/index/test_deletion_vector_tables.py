"""Tables with deletion vectors: the same rows as without, whatever happens, and no mark is ever lost."""

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from filestore.branch.branches import create_branch
from filestore.commit.committable import discard
from filestore.commit.table_commit import TableCommit
from filestore.compact.compactor import compact_buckets, pick_tasks, run_task
from filestore.compact.task import CompactionTask
from filestore.diff.table_diff import open_diff
from filestore.evolution.schema_change import SetOption
from filestore.index.deletion_vectors import read_deletion_vectors, write_deletion_vectors
from filestore.index.index_manifest import index_files
from filestore.maintenance.orphans import find_orphans
from filestore.maintenance.rewriting import copy_data_file, lost_files, remove_lost_files, rescale, restore
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.maintenance.verification import verify_files
from filestore.manifest.commit_message import CommitMessage
from filestore.read.split_read import BucketFiles
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.retention import Retention
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.table import FileTable
from filestore.tag.savepoints import create_savepoint
from filestore.tag.tags import create_tag
from lsm.compaction.compaction import CompactionReason
from lsm.errors import ConflictError, FluvialError, InvalidInputError
from lsm.row_kind import RowKind
from tests.support.changelogs import changelog_changes
from tests.support.faults import Disks, MemoryFileIO, When, fail_points, paused_before
from tests.support.tables import (
    KEY_SCHEMA,
    check_metadata,
    content,
    failing_at,
    key_table,
    memory_catalog,
    reopened,
    rows,
)

ON = {"deletion-vectors.enabled": "true"}
SMALL = {"target-file-row-num": "4", "num-sorted-run.compaction-trigger": "3"}
FORMATS = ("parquet", "orc", "avro")
TALL = {"num-sorted-run.compaction-trigger": "6", "file.compression": "none"}
UPPER = {"compaction.max-size-amplification-percent": "100000", "compaction.size-ratio": "0"}
"""Compactions that leave older files alone, so that rows in them have to be marked."""


def vectors(table: FileTable, snapshot: Snapshot | None = None) -> dict[str, list[int]]:
    """Deleted rows by file."""
    found = read_deletion_vectors(table.store, index_files(table.store, snapshot or table.store.snapshots.latest()))
    return {name: positions.tolist() for name, positions in found.items()}


def check_vectors(table: FileTable) -> None:
    """In every snapshot: no vector without its file, none beyond its rows, one index file per bucket."""
    for snapshot_id in table.store.snapshots.ids():
        snapshot = table.store.snapshots.read(snapshot_id)
        live = LiveFiles(table.store, snapshot)
        counts = {file.file_name: file.row_count for key in live.buckets() for file in live.files(key)}
        entries = index_files(table.store, snapshot)
        assert len({(entry.partition, entry.bucket) for entry in entries}) == len(entries)
        for name, positions in vectors(table, snapshot).items():
            assert positions == sorted({*positions})
            assert positions[-1] < counts[name]


def marked(disk: MemoryFileIO | None = None, **options: str) -> FileTable:
    """Rows 0 to 999 on the top level; of these 1, 2 and 3 were replaced or deleted by two files above, 2 by both."""
    table = key_table(disk, **ON, **TALL, **UPPER, **options)
    table.write(rows(*((n, n) for n in range(1000))))
    table.write(rows((1, 10), (2, 20), (20, 1)))
    table.write(rows((2, 21), (3, 3)), pa.array(["+I", "-D"]))
    return table


STATE = {n: n for n in range(1000)} | {1: 10, 2: 21, 20: 1}
del STATE[3]
TOP = 6


def test_a_write_is_seen_at_once_and_reads_need_no_merge() -> None:
    """FL-162: a batch write compacts what it wrote; older rows are marked where they are."""
    table = marked()
    assert content(table) == STATE
    assert sorted(vectors(table).values()) == [[1], [1, 2, 3, 20]]
    plan = table.read().plan()
    assert not any(split.needs_merge for split in plan.splits)
    assert [(split.raw_convertible, len(split.files)) for split in plan.splits] == [(True, 1), (False, 2)]
    assert [sorted(file.level for file in split.files) for split in plan.splits] == [[4], [5, 6]]
    check_vectors(table)
    check_metadata(table)


def test_filters_count_rows_before_they_drop_them() -> None:
    table = marked()
    assert table.read().to_arrow(filter="id >= 2 and id < 5").sort_by("id").to_pylist() == [
        {"id": 2, "v": 21},
        {"id": 4, "v": 4},
    ]
    assert table.read().to_arrow(columns=["id"], filter="v = 20 or v = 1").to_pylist() == [{"id": 20}]


def test_rows_wait_for_a_compaction_when_writers_do_not_compact() -> None:
    """``write-only`` writers leave it to others; ``merge-on-read`` shows their rows all the same."""
    table = marked()
    lazy = table.with_options({"write-only": "true"})
    lazy.write(rows((4, 40), (5, 5)), pa.array(["+U", "-D"]))
    eager = table.with_options({"deletion-vectors.merge-on-read": "true"})
    assert content(table) == STATE
    new = {**STATE, 4: 40}
    del new[5]
    assert content(eager) == new
    table.compact()
    assert content(table) == content(eager) == new
    check_vectors(table)


def test_an_overwrite_shows_its_rows_with_its_own_commit() -> None:
    table = marked()
    done = table.overwrite(rows((1, 1), (100, 1)))
    assert done.snapshot is not None
    assert (done.snapshot.commit_kind, done.snapshot.index_manifest) == (CommitKind.OVERWRITE, None)
    assert content(table) == {1: 1, 100: 1}
    check_metadata(table)


def test_a_full_compaction_leaves_no_mark() -> None:
    table = marked()
    assert table.compact(full=True) is not None
    assert (content(table), vectors(table)) == (STATE, {})
    assert table.compact(full=True) is None
    table.write(rows((4, 40)))
    assert [*vectors(table).values()] == [[3]]
    assert table.compact(full=True) is not None
    assert (content(table), vectors(table)) == ({**STATE, 4: 40}, {})


def test_files_of_which_much_is_deleted_are_rewritten_alone() -> None:
    """compaction.delete-ratio-threshold."""
    table = key_table(**ON, **SMALL, **UPPER, **{"compaction.delete-ratio-threshold": "0.5"})
    table.write(rows(*((n, n) for n in range(100))))
    table.write(rows(*((n, -n) for n in range(50))))
    assert [*vectors(table).values()] == [[*range(50)]]
    assert table.compact() is None  # half is not more than half
    table.write(rows((50, -50)))
    [(name, positions)] = [(name, each) for name, each in vectors(table).items() if len(each) > 1]
    assert positions == [*range(51)]
    [task] = pick_tasks(table.store, LiveFiles.latest(table.store))
    assert (task.reason, [file.file_name for file in task.files]) == (CompactionReason.DELETE_RATIO, [name])
    assert CompactionTask.from_json(task.to_json()) == task
    assert table.compact() is not None
    assert vectors(table) == {}
    assert content(table) == {n: -n if n <= 50 else n for n in range(100)}
    check_metadata(table)


@pytest.mark.parametrize(
    ("options", "fix"),
    [({"merge-engine": "first-row"}, "leave deletion"), ({"changelog-producer": "full-compaction"}, "lookup")],
)
def test_what_paimon_refuses_is_refused(options: dict[str, str], fix: str) -> None:
    with pytest.raises(InvalidInputError, match=fix):
        key_table(**ON, **options)


def test_vectors_are_chosen_when_a_table_is_made() -> None:
    """Older rows without a mark would be seen; without a key there are none."""
    catalog = memory_catalog()
    for name, key in (("db.k", ["id"]), ("db.a", [])):
        catalog.create_table(name, KEY_SCHEMA, primary_key=key).write(rows((1, 1)))
    change = SetOption("deletion-vectors.enabled", "true")
    with pytest.raises(InvalidInputError, match="cannot change once there are rows"):
        catalog.alter_table("db.k", [change])
    assert catalog.alter_table("db.a", [change]).options["deletion-vectors.enabled"] == "true"


# ---- histories


def sum_up(old: int | None, new: int) -> int:
    return (old or 0) + new


def replaced(_old: int | None, new: int) -> int:
    return new


def by_value(old: int | None, new: int) -> int:
    return new if old is None else max(old, new)


ENGINES: dict[str, tuple[dict[str, str], Callable[[int | None, int], int]]] = {
    "deduplicate": ({}, replaced),
    "sequence": ({"sequence.field": "v"}, by_value),
    "partial-update": ({"merge-engine": "partial-update"}, replaced),
    "sum": ({"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}, sum_up),
    "lookup": ({"changelog-producer": "lookup"}, replaced),
    "sum-lookup": (
        {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum", "changelog-producer": "lookup"},
        sum_up,
    ),
    "leveled": (
        {"compaction.style": "leveled", "max_bytes_for_level_base": "2 kb", "max_bytes_for_level_multiplier": "2"},
        replaced,
    ),
}


class History:
    """A table with vectors, one without, and dictionaries; every deed is done to all."""

    def __init__(self, engine: str, seed: int, file_format: str) -> None:
        options, self.fold = ENGINES[engine]
        self.rnd = random.Random(f"{engine}-{seed}")
        self.takes_deletes = engine in ("deduplicate", "lookup", "leveled")
        given = {"deletion-vectors.bitmap64": str(seed == 1).lower(), "bucket": str(1 + seed % 2)}
        given["file.format"] = file_format
        self.table = key_table(**ON, **SMALL, **UPPER, **given, **options, write_only="true")
        self.plain = key_table(**SMALL, **options, bucket=given["bucket"])
        self.tells = engine.endswith("lookup")
        self.state: dict[int, int] = {}
        self.seen: dict[int, int] = {}  # at the last compaction
        self.folded: dict[int, int] = {}  # what the changelog tells
        self.tags: dict[str, dict[int, int]] = {}

    def write(self) -> None:
        keys = self.rnd.sample(range(24), self.rnd.randint(1, 10))
        values = [self.rnd.randrange(100) for _ in keys]
        kinds = ["-D" if self.takes_deletes and self.rnd.random() < 0.3 else "+I" for _ in keys]
        for one in (self.table, self.plain):
            one.write(rows(*zip(keys, values, strict=True)), pa.array(kinds))
        for key, value, kind in zip(keys, values, kinds, strict=True):
            if kind == "-D":
                self.state.pop(key, None)
            else:
                self.state[key] = self.fold(self.state.get(key), value)

    def compact(self) -> None:
        done = self.table.compact(full=self.rnd.random() < 0.15)
        self.seen = dict(self.state)
        if done is not None and done.snapshot is not None and self.tells:
            for kind, key, value in changelog_changes(self.table, done.snapshot):
                if kind in ("-U", "-D"):
                    assert self.folded.pop(key) == value
                else:
                    self.folded[key] = value
            assert self.folded == self.seen

    def tag(self) -> None:
        if self.table.store.snapshots.latest_id() is None:
            return
        name = f"t{len(self.tags)}"
        create_tag(self.table.store, name)
        self.tags[name] = dict(self.seen)
        if self.rnd.random() < 0.5:
            list(expire_snapshots(self.table.store, Retention(min_count=1, max_count=2, age_ms=0, limit=100)))


@pytest.mark.sampled(5)
@pytest.mark.sweep
@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(2))
def test_any_history_gives_the_rows_of_a_table_without_vectors(engine: str, seed: int, file_format: str) -> None:
    """FL-162, FL-135: at every step; tags keep their rows whatever expires, and no file is left over."""
    history = History(engine, seed, file_format)
    table = history.table
    for _ in range(20):
        history.rnd.choices([history.write, history.compact, history.tag], [5, 4, 1])[0]()
        assert content(table) == history.seen
        some = table.read().to_arrow(columns=["v"], filter="id > 7 and id < 20").column("v").to_pylist()
        assert sorted(some) == sorted(v for id, v in history.seen.items() if 7 < id < 20)
        check_vectors(table)
    assert content(history.plain) == history.state
    check_metadata(table)
    for tag, then in history.tags.items():
        assert content(table, tag=tag) == then
    table.compact()
    assert content(table) == content(history.plain)
    assert find_orphans(table.store, before_ms=table.store.clock.now_ms() + 1) == []


@pytest.mark.parametrize("file_format", FORMATS)
def test_an_older_row_is_merged_whatever_place_it_has_in_its_file(file_format: str) -> None:
    """Of the file of 3 and 4 only the second row is wanted: it is row 1, not the first of those that were read."""
    table = key_table(**ON, **ENGINES["sum"][0], **{"file.format": file_format})
    for value, ids in enumerate([[3, 4], [1, 3], [4]], 10):
        table.write(rows(*((number, value) for number in ids)))
    assert content(table) == {1: 11, 3: 21, 4: 22}
    table.compact(full=True)
    assert content(table) == {1: 11, 3: 21, 4: 22}


@pytest.mark.parametrize("file_format", FORMATS)
def test_the_row_with_the_higher_sequence_stays_wherever_it_is(file_format: str) -> None:
    table = key_table(**ON, **ENGINES["sequence"][0], **{"file.format": file_format})
    for pairs in ([(3, 5), (4, 9)], [(1, 1), (3, 6)], [(4, 2)]):
        table.write(rows(*pairs))
    assert content(table) == {1: 1, 3: 6, 4: 9}


def test_the_difference_of_two_states_counts_marked_rows_once() -> None:
    """Also between states of which one has marks where the other has none."""
    table = marked()
    for number in (4, 5, 6):
        table.write(rows((number, 40)))
    for before, after in ((2, 6), (6, 2), (2, table.store.snapshots.latest_id())):
        one, two = content(table, snapshot_id=before), content(table, snapshot_id=after)
        changes: dict[str, dict[int, int]] = {"-D": {}, "-U": {}, "+I": {}, "+U": {}}
        difference = open_diff(table, str(before), str(after))
        for batch, kinds in difference.changes():
            for row, kind in zip(batch.to_pylist(), kinds.to_pylist(), strict=True):
                changes[RowKind(kind).symbol][row["id"]] = row["v"]
        assert changes["+I"] == {k: v for k, v in two.items() if k not in one}
        assert changes["-D"] == {k: v for k, v in one.items() if k not in two}
        assert changes["+U"] == {k: v for k, v in two.items() if k in one and one[k] != v}


# ---- concurrency and faults


def _messages(table: FileTable, live: LiveFiles, **parts: Any) -> list[CommitMessage]:
    return [run_task(table.store, task) for task in pick_tasks(table.store, live, **parts)]


def test_a_compaction_that_read_older_marks_gives_way() -> None:
    """FL-90, FL-91: rows that were deleted while a file was rewritten do not come back."""
    disk = MemoryFileIO()
    table = marked(disk)
    live = LiveFiles.latest(table.store)
    key = next(live.buckets())
    top = [file for file in live.files(key) if file.level == TOP]
    late = run_task(
        table.store,
        CompactionTask(
            partition=key.partition, bucket=0, total_buckets=1, files=tuple(top), output_level=TOP, drops_deletes=True,
            cleans_deletes=True, reason=CompactionReason.FORCED, indexes=live.indexes(key), deletes_old_rows=True,
        ),
    )  # fmt: skip
    assert CommitMessage.from_json(late.to_json()) == late
    table.write(rows((5, 50)))
    assert content(table) == {**STATE, 5: 50}
    with pytest.raises(ConflictError, match="replaced"):
        TableCommit(table.store, "late").commit_compaction([late], base=live.ref)
    discard(table.store, [late])
    assert content(table) == {**STATE, 5: 50}
    check_vectors(table)


def test_a_mark_whose_file_was_rewritten_is_a_conflict() -> None:
    """The rows that it deletes are somewhere else now."""
    table = key_table(**ON, **SMALL, **UPPER)
    table.write(rows(*((n, n) for n in range(100))))
    lazy = table.with_options({"write-only": "true"})
    lazy.write(rows((1, 10), (7, 70)))
    live = LiveFiles.latest(table.store)
    late = _messages(table, live)
    assert late[0].index_after
    key = next(live.buckets())
    [top] = [file for file in live.files(key) if file.level > 0]
    other = CommitMessage(
        partition=key.partition,
        bucket=0,
        total_buckets=1,
        compact_before=(top,),
        compact_after=(copy_data_file(table.store, key, top),),
    )
    TableCommit(table.store, "first").commit_compaction([other], base=live.ref)
    with pytest.raises(ConflictError, match="rows to delete was replaced"):
        TableCommit(table.store, "late").commit_compaction(late, base=live.ref)
    discard(table.store, late)
    table.compact()
    assert content(table) == {**{n: n for n in range(100)}, 1: 10, 7: 70}
    check_vectors(table)


def test_writers_of_one_bucket_race_and_all_rows_are_seen() -> None:
    disk = MemoryFileIO()
    table = marked(disk)

    def meanwhile() -> None:
        table.write(rows((4, 41), (30, 1)))

    with paused_before(disk, "create_exclusive", meanwhile) as io:
        reopened(table, io).write(rows((4, 42), (31, 1)))
    table.compact()
    assert content(table) == {**STATE, 4: 42, 30: 1, 31: 1}
    check_vectors(table)


@pytest.mark.sweep
@pytest.mark.parametrize("when", When)
def test_whatever_fails_no_mark_is_lost(when: When) -> None:
    """FL-91, FL-163: over a write and its compaction; afterwards the same write again, and nothing is left over."""
    before = marked()
    new = rows((0, 1), (4, 44), (5, 5), (21, 1))
    kinds = pa.array(["+I", "+I", "-D", "+I"])
    wanted = {**STATE, 0: 1, 4: 44, 21: 1}
    del wanted[5]
    _, clean, counted = failing_at(before, 0, when)
    clean.write(new, kinds)
    points = fail_points(counted, when)
    assert len(points) >= 12
    disks = Disks()
    for fail_at in points:
        table, failing, _ = failing_at(before, fail_at, when)
        with suppress(FluvialError, OSError):
            failing.write(new, kinds)
        if not disks.is_new(table.store.io):
            continue
        assert content(table) in (STATE, wanted)
        check_vectors(table)
        table.write(new, kinds)
        assert content(table) == wanted
        compact_buckets(table.store, full=True)
        assert content(table) == wanted
        check_vectors(table)
        for path in find_orphans(table.store, before_ms=1 << 60):
            table.store.io.delete(path.path)
        assert content(table) == wanted


def test_a_table_is_rescaled() -> None:
    """Rows that wait in level 0 are compacted first."""
    table = marked(bucket="1")
    wider = table.with_options({"bucket": "3"})
    table.with_options({"write-only": "true"}).write(rows((4, 44)))
    with pytest.raises(InvalidInputError, match="not compacted and emitted"):
        rescale(table.store, wider.store, keep=lambda _: True)
    table.compact()
    rescale(table.store, wider.store, keep=lambda _: True)
    assert content(wider) == {**STATE, 4: 44}
    assert vectors(wider) == {}
    wider.write(rows((4, 45)))
    assert content(wider) == {**STATE, 4: 45}


@pytest.mark.parametrize("file_format", FORMATS)
def test_positions_beyond_the_first_row_group_are_found(file_format: str) -> None:
    """Row groups that cannot hold a key are not read, and still count."""
    given = {"file.format": file_format, "file.block-size": "1 kb", "target-file-size": "1 gb"}
    table = key_table(**ON, **UPPER, **given)
    count = 30_000
    table.write(pa.table({"id": np.arange(count), "v": np.arange(count)}))
    table.compact(full=True)
    chosen = [0, 1, 9_999, 20_000, count - 1]
    table.write(rows(*((n, -1) for n in chosen)))
    assert list(vectors(table).values()) == [chosen]
    found = table.read().to_arrow().sort_by("id")
    assert found.num_rows == count
    assert found.column("v").to_numpy()[chosen].tolist() == [-1] * len(chosen)
    near = table.read().to_arrow(columns=["v"], filter="id >= 19998 and id < 20003").column("v").to_pylist()
    assert sorted(near) == [-1, 19_998, 19_999, 20_001, 20_002]


# ---- what else walks files


def test_an_older_state_is_brought_back_with_its_marks() -> None:
    """TAG-47: by a new commit; the vectors are of the copies then."""
    table = marked()
    create_tag(table.store, "then")
    table.write(rows((500, 1), (1, 99)))
    create_tag(table.store, "later")
    table.compact(full=True)
    for name, number in (("then", 10), ("later", 99)):
        found = table.read(tag=name).snapshot
        assert found is not None
        restore(table.store, found)
        assert content(table)[1] == number
        assert content(table) == content(table, tag=name)
        check_vectors(table)
    assert [*verify_files(table.store, progress=lambda _done, _of: None)] == []


def test_a_lost_file_goes_with_its_marks() -> None:
    table = marked()
    name = next(name for name, positions in vectors(table).items() if len(positions) == 4)
    path = next(path for path in table.store.io.files if path.endswith(name))  # type: ignore[attr-defined]
    table.store.io.delete(path)
    remove_lost_files(table.store, lost_files(table.store))
    assert content(table) == {1: 10, 2: 21, 20: 1}
    assert [*vectors(table).values()] == [[1]]
    check_vectors(table)


def test_verify_tells_of_marks_without_rows() -> None:
    table = marked()
    latest = table.store.snapshots.latest()
    assert latest is not None
    assert [*verify_files(table.store, progress=lambda _done, _of: None)] == []
    live = LiveFiles.latest(table.store)
    largest = max((file for key in live.all_buckets() for file in live.files(key)), key=lambda file: file.row_count)
    for number, (name, place, is_wrong) in enumerate(
        [("data-gone", 7, False), (largest.file_name, largest.row_count - 1, False), (largest.file_name, 1000, True)]
    ):  # no reader looks for marks of a file that is not there
        stray = write_deletion_vectors(table.store, bytes(12), 0, {name: np.array([place])})
        index = table.store.manifests.write_index_manifest([stray])
        table.store.snapshots.publish(replace(latest, id=latest.id + 1 + number, index_manifest=index))
        found = [*verify_files(table.store, progress=lambda _done, _of: None)]
        problems = [each.problem for each in found if each.check == "deletion vectors"]
        assert [f"file={name}" in each for each in problems] == [True] * is_wrong


@pytest.mark.sweep
def test_savepoints_and_branches_keep_marks() -> None:
    """BR-01, SP-17: also when main goes on."""
    table = marked()
    create_savepoint(table.store, compact=False)
    create_tag(table.store, "base")
    create_branch(table.store, "dev", tag="base")
    table.write(rows((600, -1)))
    branch = table.on_branch("dev")
    assert content(branch) == STATE
    branch.write(rows((700, -1)))
    assert content(branch) == {**STATE, 700: -1}
    list(expire_snapshots(table.store, Retention(min_count=1, max_count=1, age_ms=0, limit=100)))
    assert content(table) == {**STATE, 600: -1}
    assert content(branch) == {**STATE, 700: -1}
    assert content(table, version="savepoint.1") == STATE
    create_savepoint(table.store)
    assert vectors(table) == {}


def test_a_rollback_takes_marks_back() -> None:
    table = marked()
    target = table.store.snapshots.latest()
    assert target is not None
    before = vectors(table)
    table.write(rows((1, 99), (5, 50)))
    roll_back(table.store, plan_rollback(table.store, target))
    assert (content(table), vectors(table)) == (STATE, before)
    table.write(rows((5, 51)))
    assert content(table) == {**STATE, 5: 51}
    check_vectors(table)
    assert find_orphans(table.store, before_ms=1 << 60) == []


@pytest.mark.parametrize("bucket", ["-1", "-2"], ids=["dynamic", "postponed"])
def test_buckets_that_come_later_have_marks_too(bucket: str) -> None:
    """Beside the key hashes of dynamic buckets, in one index."""
    table = key_table(**ON, **TALL, **UPPER, bucket=bucket)
    wanted = {n: n for n in range(500)}
    table.write(rows(*wanted.items()))
    assert content(table) == (wanted if bucket == "-1" else {})
    table.compact()
    for number in range(3):
        table.write(rows((number, -1), (600 + number, 1)))
        wanted |= {number: -1, 600 + number: 1}
        table.compact()
        assert content(table) == wanted
    assert sum(len(positions) for positions in vectors(table).values()) >= 3
    table.compact(full=True)
    assert (content(table), vectors(table)) == (wanted, {})


def test_a_late_row_does_not_replace_a_newer_one() -> None:
    """A writer that numbered from elsewhere: the numbers decide, and the row that stays is written again."""
    table = key_table(**ON, **UPPER)
    table.write(rows((1, 1)))
    table.write(rows((1, 2)))
    late = table.new_write(max_sequence_numbers={})
    late.write(rows((1, -5), (9, 9)))
    [written] = late.prepare_commit()
    live = LiveFiles.latest(table.store)
    [key] = live.buckets()
    task = CompactionTask(
        partition=key.partition,
        bucket=key.bucket,
        total_buckets=1,
        files=written.new_files,
        output_level=1,
        drops_deletes=True,
        cleans_deletes=True,
        reason=CompactionReason.LOOKUP,
        lookup_files=live.files(key),
        indexes=live.indexes(key),
        merges_old_rows=True,
        deletes_old_rows=True,
    )
    done = run_task(table.store, task)
    files = BucketFiles(table=table.store, partition=key.partition, bucket=key.bucket, files=done.compact_after)
    [file] = files.files
    found = pa.Table.from_batches(files.read(file, ["id", "v"], with_system=False)).to_pylist()
    assert found == [{"id": 1, "v": 2}, {"id": 9, "v": 9}]
    assert sum(len(each.index_vectors) for each in done.index_after) == 1
