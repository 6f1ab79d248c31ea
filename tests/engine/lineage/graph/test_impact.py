"""What follows from a snapshot, against an oracle that marks every write by itself."""

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lineage.graph.impact import ImpactedTable, Link, affected_by, place_at, places_behind
from engine.lineage.origins import FIRST_BATCH_BARRIER

TABLES: list[ImpactedTable] = [("db", name) for name in "abcd"]
JOBS = ["j1", "j2", "j3"]


@dataclass(frozen=True)
class Rows:
    """Lineage as lists."""

    sources: tuple[Link, ...]
    sinks: tuple[Link, ...]

    def readers(self, table: ImpactedTable, *, from_id: int) -> Iterable[Link]:
        return [each for each in self.sources if each.table == table and each.snapshot_id >= from_id]

    def writes(self, job: str, *, from_barrier: int) -> Iterable[Link]:
        return [each for each in self.sinks if each.job == job and each.barrier_id >= from_barrier]

    def reads(self, job: str) -> Iterable[Link]:
        return [each for each in self.sources if each.job == job]

    def reading_jobs(self, table: ImpactedTable) -> Iterable[str]:
        return {each.job for each in self.sources if each.table == table}


BARRIERS = st.one_of(st.integers(0, 4), st.integers(FIRST_BATCH_BARRIER, FIRST_BATCH_BARRIER + 2))
LINKS = st.builds(
    Link, job=st.sampled_from(JOBS), barrier_id=BARRIERS, table=st.sampled_from(TABLES), snapshot_id=st.integers(1, 5)
)


def unique(links: Iterable[Link]) -> tuple[Link, ...]:
    """One row for each primary key."""
    return tuple({(each.job, each.barrier_id, each.table): each for each in links}.values())


ROWS = st.builds(
    lambda sources, sinks: Rows(unique(sources), unique(sinks)),
    st.lists(LINKS, max_size=12),
    st.lists(LINKS, max_size=12),
)


def marked(rows: Rows, table: ImpactedTable, snapshot_id: int) -> dict[ImpactedTable, int]:
    """The first affected snapshot of each table: marks are passed on until none is new."""
    marks = {(table, each) for each in range(snapshot_id, 9)}
    while True:
        hit = {
            (each.job, each.barrier_id, each.table) for each in rows.sources if (each.table, each.snapshot_id) in marks
        }
        new = {
            (sink.table, later)
            for sink in rows.sinks
            for job, barrier, source in hit
            if sink.job == job
            and sink.table != source
            and (sink.barrier_id == barrier or barrier < sink.barrier_id < FIRST_BATCH_BARRIER)
            for later in range(sink.snapshot_id, 9)
        }
        if new <= marks:
            break
        marks |= new
    return {name: min(each for other, each in marks if other == name) for name in {name for name, _ in marks}}


@pytest.mark.sweep
@given(ROWS, st.sampled_from(TABLES), st.integers(1, 5))
def test_everything_that_a_snapshot_went_into_is_found(rows: Rows, table: ImpactedTable, snapshot_id: int) -> None:
    """LN-03, LN-04, LN-29, LN-36: of each table the first snapshot, through any number of jobs, also in circles."""
    found = affected_by(rows, table, snapshot_id)
    first = {table: snapshot_id}
    for each in found:
        if each.table is not None and each.snapshot_id is not None:
            first[each.table] = min(each.snapshot_id, first.get(each.table, each.snapshot_id))
    assert first == marked(rows, table, snapshot_id)
    assert len({(each.job, each.source, each.table) for each in found}) == len(found)
    readers = {each.job for source, at in first.items() for each in rows.readers(source, from_id=at)}
    assert {each.job for each in found} == readers  # also those that wrote nothing


@pytest.mark.sweep
@given(ROWS, st.sampled_from(JOBS), st.dictionaries(st.sampled_from(TABLES), st.integers(0, 5)))
def test_a_job_goes_back_to_the_last_barrier_without_anything_late(
    rows: Rows, job: str, bounds: dict[ImpactedTable, int]
) -> None:
    """LN-06, LN-38: of all that it read; what it wrote by then is what stays."""
    place = place_at(rows, job, bounds)
    barriers = sorted({each.barrier_id for each in rows.reads(job)})
    good: list[int] = []
    for barrier in barriers:
        if any(each.barrier_id == barrier and each.snapshot_id > bounds.get(each.table, 9) for each in rows.reads(job)):
            break
        good.append(barrier)
    assert place.barrier_id == (good[-1] if good else None)
    for name, snapshot_id in place.sources.items():
        reads = [each for each in rows.reads(job) if each.table == name and each.barrier_id in good]
        assert snapshot_id == max(((each.barrier_id, each.snapshot_id) for each in reads), default=(0, 0))[1]
    for name, snapshot_id in place.targets.items():
        last = -1 if place.barrier_id is None else place.barrier_id
        kept = [e.snapshot_id for e in rows.writes(job, from_barrier=0) if e.table == name and e.barrier_id <= last]
        assert snapshot_id == max(kept, default=0)


@pytest.mark.sweep
@given(ROWS, st.sampled_from(TABLES), st.integers(1, 5))
def test_places_behind_a_snapshot_belong_together(rows: Rows, table: ImpactedTable, snapshot_id: int) -> None:
    """LN-06: no job is ahead of what the jobs before it have written at their places."""
    places = places_behind(rows, table, snapshot_id)
    bounds = {table: snapshot_id}
    for place in places:
        for name, written_id in place.targets.items():
            bounds[name] = min(bounds.get(name, written_id), written_id)
    for place in places:
        if table not in place.targets:
            assert place.sources.get(table, 0) <= snapshot_id


def test_the_pipeline_of_the_seed() -> None:
    """LN-35 to LN-41: snapshot 4 of table1 is tied to barrier 5 of the job, to snapshot 6 of table2 and 2 of table3."""

    def link(barrier: int, name: str, snapshot_id: int) -> Link:
        return Link(job="job", barrier_id=barrier, table=("db", name), snapshot_id=snapshot_id)

    rows = Rows(
        sources=(
            link(4, "table1", 3), link(4, "table2", 5),
            link(5, "table1", 4), link(5, "table2", 6),
            link(6, "table1", 5), link(6, "table2", 7),
        ),
        sinks=(link(4, "table3", 1), link(5, "table3", 2), link(6, "table3", 3)),
    )  # fmt: skip
    [place] = places_behind(rows, ("db", "table1"), 4)
    assert (place.barrier_id, place.sources, place.targets) == (
        5,
        {("db", "table1"): 4, ("db", "table2"): 6},
        {("db", "table3"): 2},
    )
    [hit] = affected_by(rows, ("db", "table1"), 5)
    assert (hit.barrier_id, hit.table, hit.snapshot_id) == (6, ("db", "table3"), 3)
