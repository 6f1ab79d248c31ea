"""Rows without a key that are deleted one by one, by deletion vectors."""

import random
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pytest

from filestore.changelog.snapshot_changes import plan_changes, read_changes
from filestore.commit.committable import discard
from filestore.commit.table_commit import TableCommit
from filestore.compact.compactor import pick_tasks, run_task
from filestore.maintenance.orphans import find_orphans
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.scan.live_files import LiveFiles
from filestore.scan.table_scan import TableScan
from filestore.snapshot.retention import Retention
from filestore.snapshot.snapshot import CommitKind
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from filestore.write.row_deletion import delete_rows, replace_rows
from lsm.errors import ConflictError, FluvialError, InvalidInputError
from lsm.row_kind import RowKind
from tests.filestore.index.test_deletion_vector_tables import FORMATS, ON, vectors
from tests.support.faults import When, fail_points
from tests.support.tables import check_metadata, content, failing_at, key_table, rows


def appended(**options: str) -> FileTable:
    """Rows 0 to 29 in three files."""
    table = key_table(primary_key=(), **ON, **options)
    for start in (0, 10, 20):
        table.write(rows(*((n, n % 7) for n in range(start, start + 10))))
    return table


BUCKETED = {"bucket": "2", "bucket-key": "id"}


@pytest.mark.parametrize("file_format", FORMATS)
@pytest.mark.parametrize("options", [{}, BUCKETED], ids=["unbucketed", "bucketed"])
def test_rows_without_a_key_are_deleted_where_they_are(options: dict[str, str], file_format: str) -> None:
    """One commit, no file rewritten; compaction drops them."""
    table = appended(**options, **{"file.format": file_format})
    files = {
        file.file_name
        for key in LiveFiles.latest(table.store).buckets()
        for file in LiveFiles.latest(table.store).files(key)
    }
    done = delete_rows(table.store, "v = 3 and id > 3")
    assert done.snapshot is not None
    assert done.snapshot.commit_kind is CommitKind.OVERWRITE
    wanted = {n: n % 7 for n in range(30) if n <= 3 or n % 7 != 3}
    assert content(table) == wanted
    assert {*vectors(table)} <= files
    assert delete_rows(table.store, "v = 3 and id > 3").snapshot == done.snapshot
    delete_rows(table.store, "id = 1 or v is null")
    del wanted[1]
    assert content(table) == wanted
    changes = [
        (row["id"], kind)
        for split in plan_changes(table.store, table.store.snapshots.read(done.snapshot.id - 1), done.snapshot)
        for batch, kinds in read_changes(table, split)
        for row, kind in zip(batch.to_pylist(), kinds.to_pylist(), strict=True)
    ]
    assert sorted(changes) == [(n, RowKind.DELETE) for n in (10, 17, 24)]
    table.compact(full=True)
    assert (content(table), vectors(table)) == (wanted, {})
    assert sum(split.row_count for split in table.read().plan().splits) == len(wanted)
    check_metadata(table)


def test_a_delete_is_refused_when_its_file_was_compacted_meanwhile() -> None:
    """FL-90: so is a compaction of a file of which rows were deleted meanwhile; what others append is no conflict."""
    table = appended()
    plan = TableScan(table.store).plan(filter="id = 4")
    assert plan.snapshot is not None
    first = table.read().plan().splits[0].files[0].file_name
    live = LiveFiles.latest(table.store)
    late = [run_task(table.store, task) for task in pick_tasks(table.store, live, full=True)]
    table.write(rows((100, 1)))
    replace_rows(table.store, plan.snapshot, plan.splits, {first: np.array([4])})
    wanted = {**{n: n % 7 for n in range(30) if n != 4}, 100: 1}
    assert content(table) == wanted
    with pytest.raises(ConflictError, match="deleted concurrently"):
        TableCommit(table.store, "late").commit_compaction(late, base=live.ref)
    discard(table.store, late)
    before = {*table.store.io.files}  # type: ignore[attr-defined]
    with pytest.raises(ConflictError, match="deleted concurrently"):
        replace_rows(table.store, plan.snapshot, plan.splits, {first: np.array([5])})
    assert {*table.store.io.files} == before  # type: ignore[attr-defined]
    table.compact(full=True)
    with pytest.raises(ConflictError, match="replaced"):
        replace_rows(table.store, plan.snapshot, plan.splits, {first: np.array([5])})
    assert content(table) == wanted


def test_only_marked_rows_of_tables_without_a_key() -> None:
    with pytest.raises(InvalidInputError, match="cannot be deleted by their place"):
        delete_rows(key_table(**ON).store, "id = 1")
    with pytest.raises(InvalidInputError, match="enabled=false"):
        delete_rows(key_table(primary_key=()).store, "id = 1")


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(3))
def test_any_history_of_deletes_without_a_key(seed: int) -> None:
    """Appends, deletes, compactions, tags and expiry beside a list."""
    rnd = random.Random(seed)
    given = {"compaction.min.file-num": "3", "file.format": FORMATS[seed], **(BUCKETED if seed == 1 else {})}
    table = key_table(primary_key=(), **ON, **given)
    state: dict[int, int] = {}
    tags: dict[str, dict[int, int]] = {}
    for step in range(25):
        what = rnd.random()
        if what < 0.4 or not state:
            new = {step * 100 + n: rnd.randrange(5) for n in range(rnd.randint(1, 20))}
            table.write(rows(*new.items()))
            state |= new
        elif what < 0.75:
            value, low = rnd.randrange(5), rnd.choice([*state])
            delete_rows(table.store, f"v = {value} and id >= {low}")
            state = {k: v for k, v in state.items() if v != value or k < low}
        elif what < 0.9:
            table.compact(full=rnd.random() < 0.3)
        else:
            create_tag(table.store, f"t{step}")
            tags[f"t{step}"] = dict(state)
            list(expire_snapshots(table.store, Retention(min_count=1, max_count=2, age_ms=0, limit=100)))
        assert content(table) == state
    for tag, then in tags.items():
        assert content(table, tag=tag) == then
    assert find_orphans(table.store, before_ms=table.store.clock.now_ms() + 1) == []
    check_metadata(table)


@pytest.mark.sweep
@pytest.mark.parametrize("when", When)
def test_whatever_fails_a_delete_happens_once_or_not_at_all(when: When) -> None:
    """FL-91, FL-163."""
    before = appended()
    wanted = {n: n % 7 for n in range(30) if n % 7 != 3}
    _, clean, counted = failing_at(before, 0, when)
    delete_rows(clean.store, "v = 3")
    for fail_at in fail_points(counted, when):
        table, failing, _ = failing_at(before, fail_at, when)
        with suppress(FluvialError, OSError):
            delete_rows(failing.store, "v = 3")
        assert content(table) in ({n: n % 7 for n in range(30)}, wanted)
        delete_rows(table.store, "v = 3")
        assert content(table) == wanted
        for path in find_orphans(table.store, before_ms=1 << 60):
            table.store.io.delete(path.path)
        assert content(table) == wanted


@pytest.mark.parametrize("file_format", FORMATS)
def test_a_filter_leaves_out_row_groups_and_rows_are_counted_all_the_same(file_format: str) -> None:
    given = {"file.format": file_format, "file.block-size": "1 kb", "target-file-size": "1 gb"}
    table = key_table(primary_key=(), **ON, **given)
    count = 30_000
    table.write(pa.table({"id": np.arange(count), "v": np.arange(count)}))
    delete_rows(table.store, "id >= 20000 and id < 20010")
    delete_rows(table.store, "id = 29999")
    assert [*vectors(table).values()] == [[*range(20_000, 20_010), 29_999]]
    assert table.read().to_arrow(filter="id > 19998 and id < 20012").column("v").to_pylist() == [19_999, 20_010, 20_011]
    assert table.read().to_arrow().num_rows == count - 11
