"""The options of compaction, one by one: what each changes for a table."""

from contextlib import suppress

import pyarrow as pa
import pytest

from filestore.compact.compactor import CompactionLimits, compact_buckets, pick_tasks
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable
from lsm.compaction.compaction import CompactionReason
from lsm.errors import FluvialError, InvalidInputError
from tests.support.faults import ManualClock, When
from tests.support.roots import files_there
from tests.support.tables import content, failing_at, key_table, memory_catalog, referenced_files, rows

HOUR_MS = 3_600_000


def runs_of(table: FileTable) -> list[tuple[int, int]]:
    """(level, files) of the runs of all buckets."""
    live = LiveFiles.latest(table.store)
    return [(run.level, len(run.files)) for key in live.buckets() for run in live.levels(key).runs]


def clock_of(table: FileTable) -> ManualClock:
    assert isinstance(table.store.clock, ManualClock)
    return table.store.clock


def with_commits(table: FileTable, *values: int) -> FileTable:
    """One commit for each value, all of the same key and one of their own."""
    for value in values:
        table.write(rows((0, value), (value, value)))
    return table


def test_a_full_compaction_comes_when_its_interval_is_over() -> None:
    """compaction.optimization-interval: by the files' own times, with any last compactor."""
    table = key_table(bucket="1", **{"compaction.optimization-interval": "2 h"})
    with_commits(table, 1, 2)
    assert table.compact() is not None, "nothing was ever compacted"
    with_commits(table, 3)
    assert table.compact() is None
    clock_of(table).ms += 2 * HOUR_MS
    [task] = pick_tasks(table.store, LiveFiles.latest(table.store))
    assert task.reason is CompactionReason.EARLY_FULL
    table.compact()
    assert runs_of(table) == [(5, 1)]
    assert content(table) == {0: 3, 1: 1, 2: 2, 3: 3}


@pytest.mark.parametrize(
    "options",
    [{"compaction.total-size-threshold": "1 mb"}, {"compaction.incremental-size-threshold": "1 b"}],
)
def test_sizes_start_full_compactions(options: dict[str, str]) -> None:
    """compaction.total-size-threshold and compaction.incremental-size-threshold."""
    table = key_table(bucket="1", **options)
    with_commits(table, 1, 2)
    table.compact()
    assert runs_of(table) == [(5, 1)]
    assert table.compact() is None


@pytest.mark.parametrize("key", ["compaction.force-up-level-0", "force-lookup"])
@pytest.mark.parametrize("style", ["universal", "leveled"])
def test_level_0_does_not_wait(key: str, style: str) -> None:
    table = key_table(bucket="1", **{key: "true", "compaction.style": style})
    with_commits(table, 1)
    table.compact()
    assert all(level > 0 for level, _ in runs_of(table))


def test_levels_are_as_many_as_asked_for() -> None:
    """num-levels: the top is the last of them."""
    table = key_table(bucket="1", **{"num-levels": "9"})
    with_commits(table, 1, 2).compact(full=True)
    assert runs_of(table) == [(8, 1)]


def test_off_peak_larger_runs_are_joined() -> None:
    """compaction.offpeak.start.hour, .end.hour and -ratio: by the local clock."""
    table = key_table(
        bucket="1",
        **{
            "num-sorted-run.compaction-trigger": "3",
            "compaction.max-size-amplification-percent": "100000",
            "compaction.offpeak.start.hour": "22",
            "compaction.offpeak.end.hour": "4",
            "compaction.offpeak-ratio": "100",
        },
    )
    table.write(rows(*((number, number) for number in range(20_000))))
    table.compact(full=True)
    table.write(rows(*((number, number) for number in range(200))))
    table.write(rows(*((number, number) for number in range(60))))
    hour = clock_of(table).local_ms() // HOUR_MS % 24
    clock_of(table).ms += ((12 - hour) % 24) * HOUR_MS
    assert pick_tasks(table.store, LiveFiles.latest(table.store)) == []
    clock_of(table).ms += 11 * HOUR_MS
    [task] = pick_tasks(table.store, LiveFiles.latest(table.store))
    assert (task.reason, len(task.files)) == (CompactionReason.SIZE_RATIO, 2)


def test_every_file_is_written_anew_when_asked() -> None:
    """compaction.force-rewrite-all-files: for other formats, codecs or indexes, with a key and without."""
    keyed = key_table(bucket="1", **{"target-file-size": "1 b"})
    keyed.write(rows((1, 1)))
    keyed.compact(full=True)
    plain = memory_catalog().create_table("db.t", pa.schema([("v", pa.int64())]), options={})
    plain.write(pa.table({"v": [1]}))
    for table in (keyed, plain):
        before = referenced_files(table)
        assert table.compact(full=True) is None
        again = table.with_options({"compaction.force-rewrite-all-files": "true", "file.format": "orc"})
        assert again.compact() is None
        assert again.compact(full=True) is not None
        new = [
            file.file_name
            for key in LiveFiles.latest(table.store).buckets()
            for file in LiveFiles.latest(table.store).files(key)
        ]
        assert all(name.endswith(".orc") for name in new)
        assert len(new) == 1
        assert before < referenced_files(table)
    assert content(keyed) == {1: 1}


def test_what_costs_readers_most_comes_first() -> None:
    """Runs times bytes: not the newest, not the first; a bucket that is one run is last."""
    table = key_table(bucket="4")
    live = LiveFiles.latest(table.store)
    by_bucket: dict[int, int] = {}
    for number in range(4000):
        by_bucket[number] = number
    table.write(rows(*by_bucket.items()))
    table.write(rows(*((number, 0) for number in range(5))))
    live = LiveFiles.latest(table.store)
    costs = [
        (len(live.levels(task.key).runs) - 1) * sum(run.size_bytes for run in live.levels(task.key).runs)
        for task in pick_tasks(table.store, live, full=True)
    ]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]
    done = compact_buckets(table.store, full=True, limits=CompactionLimits(buckets=1))
    assert len(done.messages) == 1
    assert done.messages[0].bucket == pick_tasks(table.store, live, full=True)[0].bucket


@pytest.mark.sweep
@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_a_compaction_of_many_buckets_that_dies_leaves_no_file(when: When) -> None:
    """Also the files of the buckets that were done already are deleted."""
    before = key_table(bucket="3")
    before.write(rows(*((number, number) for number in range(20))))
    before.write(rows(*((number, 1) for number in range(20))))
    kept = files_there(before)
    for fail_at in range(1, 200):
        table, again, faulty = failing_at(before, fail_at, when)
        with suppress(FluvialError, OSError):
            again.compact(full=True)
        if len(list(table.store.snapshots.ids())) == 2:
            left = {path for path in files_there(table) - kept if path.endswith(".parquet")}
            assert len(left) <= 1, "what cannot be deleted because the store fails just then"
        if faulty.calls < fail_at:
            break


def test_impossible_hours_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="offpeak"):
        key_table(bucket="1", **{"compaction.offpeak.start.hour": "25"})
