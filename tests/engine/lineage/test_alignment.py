"""Batches that end where snapshots end, and which snapshot holds what was delivered."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Catalog, Table
from engine.lineage.lineage import lineage_of
from engine.lineage.store.entities import DataLineage, LineageRecords, time_of
from engine.stream.position.alignment import next_aligned_id, snapshot_read
from engine.stream.position.plan import SnapshotFacts
from engine.stream.position.position import Position
from filestore.snapshot.lost_files import SnapshotExpiredError
from logstore.offsets import LogOffsets
from lsm.errors import InvalidInputError
from tests.support.streams import Query, expire, query, rows

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
ALIGNED = {"source_checkpoint__align_enabled": "true"}


class Offsets:
    """A history of one bucket, of which the oldest snapshots are gone."""

    is_eventual = False

    def __init__(self, offsets: Mapping[int, int], earliest: int) -> None:
        self._offsets, self._earliest = offsets, earliest

    def facts(self, snapshot_id: int) -> SnapshotFacts:
        if snapshot_id < self._earliest:
            raise SnapshotExpiredError(str(snapshot_id))
        offsets = LogOffsets({0: self._offsets[snapshot_id]})
        return SnapshotFacts(id=snapshot_id, offsets=offsets, schema_id=0, time_ms=0)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=12), st.data())
def test_it_is_the_oldest_snapshot_that_holds_everything_delivered(steps: list[int], data: st.DataObject) -> None:
    """LN-02, LN-72: also for a stream whose limits end its batches between two snapshots."""
    offsets = {index + 1: sum(steps[: index + 1]) for index in range(len(steps))}
    newest = len(steps)
    delivered = data.draw(st.integers(0, newest))
    at = data.draw(st.integers(offsets.get(delivered, 0), offsets[newest] + 1))
    earliest = data.draw(st.integers(1, newest))
    here = Position.in_log(delivered, {0: at}, schema_id=0, topic_id=None)
    holders = [each for each in range(max(delivered, 1), newest + 1) if each >= earliest and offsets[each] >= at]
    if at == 0:
        holders = [delivered]  # nothing of the log, whatever has expired
    expected = min(holders, default=newest)  # eventual: no snapshot has it yet
    assert snapshot_read(here, newest, Offsets(offsets, earliest)) == expected  # type: ignore[arg-type]


@given(st.integers(0, 30), st.integers(0, 40), st.integers(1, 20), st.integers(1, 5))
def test_the_end_of_a_batch_depends_on_the_numbers_of_snapshots_alone(
    after: int, newest: int, earliest: int, every: int
) -> None:
    """LN-70, LN-72: a stream that comes from before a cut stops at it."""
    ends = [each for each in range(1, newest + 1) if each > after and each >= earliest and each % every == 0]
    assert next_aligned_id(after, newest, earliest_id=earliest, every=every) == min(ends, default=None)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    catalog = Catalog(str(tmp_path / "warehouse"))
    made = catalog.create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for number in range(1, 7):
        made.write(rows([number]))
    return made


def ends(stream: Query) -> list[int]:
    """The snapshot at the end of each batch."""
    found = []
    while stream.batch() is not None:
        found.append(stream.position["read"]["snapshot"])
    return found


@pytest.mark.sweep
def test_jobs_that_start_anywhere_share_the_ends_of_their_batches(table: Table) -> None:
    """LN-70, LN-72, LN-73: one snapshot is one batch, and all its rows are in it."""
    changes = {"scan_mode": "from-snapshot", **ALIGNED}
    assert ends(query(table, scan_snapshot__id="2", **changes)) == [2, 3, 4, 5, 6]
    assert ends(query(table, scan_snapshot__id="4", **ALIGNED)) == [4, 5, 6]
    assert ends(query(table, scan_snapshot__id="2", scan_mode="from-snapshot")) == [6]
    pairs = {"source_checkpoint__align_snapshots": "2"}
    assert ends(query(table, scan_snapshot__id="2", **changes, **pairs)) == [2, 4, 6]
    late = query(table, scan_snapshot__id="5", **changes, **pairs)
    assert ends(late) == [6]
    table.write(rows([7]))
    assert ends(late) == []
    table.write(rows([8]))
    assert ends(late) == [8]


def test_a_batch_ends_at_the_next_snapshot_that_is_left(table: Table) -> None:
    stream = query(table, scan_snapshot__id="3", **ALIGNED)
    assert stream.batch()
    expire(table, 1, 2)
    assert ends(stream) == [4, 5, 6]


def test_a_batch_of_whole_snapshots_has_no_other_limit(table: Table) -> None:
    with pytest.raises(InvalidInputError, match=r"align.enabled=true read.stream.maxRowsPerTrigger=5"):
        query(table, read_stream_maxRowsPerTrigger="5", **ALIGNED)


def other_job(table: Table, *snapshot_ids: int) -> None:
    found = lineage_of(Catalog(str(Path(table.store.paths.root).parents[1])))
    assert found is not None
    stated = (DataLineage("other", batch, "db", "t", each, time_of(2**42)) for batch, each in enumerate(snapshot_ids))
    found.store(LineageRecords(source_snapshots=tuple(stated)))


def test_a_job_begins_where_another_is(table: Table) -> None:
    """LN-24, LN-71: the snapshot is looked up in the lineage, the stream starts from it, and job_startup says so."""
    other_job(table, 2, 3, 4)
    start = {"scan_start__from__job": "other", "pipeline_name": "mine"}
    whole = query(table, **start, **ALIGNED)
    assert sorted(row["id"] for row in whole.batch() or []) == [1, 2, 3, 4]
    assert ends(whole) == [5, 6]
    changes = query(table, **start, scan_mode="from-snapshot")
    assert sorted(row["id"] for row in changes.available()) == [5, 6]
    assert startups(table) == [("mine", "t", 4)]


def startups(table: Table) -> list[tuple[str, str, int]]:
    found = lineage_of(Catalog(str(Path(table.store.paths.root).parents[1])))
    assert found is not None
    return [(each.job, each.table, each.snapshot_id) for each in found.meta.job_startups()]


def test_a_named_job_says_where_it_begins_before_its_first_batch(table: Table) -> None:
    """LN-14, LN-24, LN-71: at each restart, with new rows, without any, or with a batch to repeat."""
    stream = query(table, scan_snapshot__id="2", pipeline_name="mine")
    assert stream.plan()
    assert startups(table) == [("mine", "t", 2)]
    stream.available()
    stream.start()
    assert not stream.plan()
    assert startups(table) == [("mine", "t", 6)]
    table.write(rows([9]))
    assert stream.plan()
    stream.start()
    table.write(rows([10]))
    stream.read()
    assert startups(table) == [("mine", "t", 6)]
    stream.commit()
    stream.start()
    assert stream.plan()
    assert startups(table) == [("mine", "t", 7)]


def test_a_job_that_is_not_known_is_no_start(table: Table) -> None:
    with pytest.raises(InvalidInputError, match=r"fix=set pipeline\.name"):
        query(table, scan_start__from__job="other")
    with pytest.raises(InvalidInputError, match=r"scan.start-from-job=other scan.snapshot-id=1"):
        query(table, scan_start__from__job="other", pipeline_name="mine", scan_snapshot__id="1")
    with pytest.raises(InvalidInputError, match="does not know what the job has read"):
        query(table, scan_start__from__job="other", pipeline_name="mine").batch()
