"""What a commit says about its rows, and what a micro-batch has read."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.lineage.origins import (
    FIRST_BATCH_BARRIER,
    PROPERTY,
    CommitOrigin,
    SourceRead,
    batch_barrier,
    newest_reads,
    reads_of_offsets,
)
from filestore.snapshot.snapshot import CommitKind, Snapshot
from lsm.errors import CorruptDataError

NAMES = st.sampled_from(["db.a", "db.b", "db.a$branch_x"])
SNAPSHOT = Snapshot(
    id=1,
    schema_id=0,
    base_manifest_list="base",
    delta_manifest_list="delta",
    commit_user="user",
    commit_identifier=1,
    commit_kind=CommitKind.APPEND,
    time_ms=0,
)
READS = st.builds(SourceRead, warehouse=st.sampled_from(["/w", "/v"]), table=NAMES, snapshot_id=st.integers(0, 5))


@pytest.mark.sweep
@given(st.builds(CommitOrigin, job=st.text(min_size=1), barrier_id=st.integers(0, 2**63 - 1), reads=st.tuples(READS)))
def test_a_snapshot_says_what_its_commit_was_told(origin: CommitOrigin) -> None:
    """LN-02."""
    assert CommitOrigin.of(SNAPSHOT) is None
    assert CommitOrigin.of(replace(SNAPSHOT, properties=origin.to_properties())) == replace(
        origin, run=SNAPSHOT.commit_user
    ), "a run that is not named is that of the commit user"


@pytest.mark.parametrize(
    "text", ["", "{}", '{"job":"j","barrier":"x","reads":[]}', '{"job":"j","barrier":1,"reads":[1]}']
)
def test_a_broken_origin_is_named(text: str) -> None:
    with pytest.raises(CorruptDataError, match="snapshot=1"):
        CommitOrigin.of(replace(SNAPSHOT, properties={PROPERTY: text}))


@given(st.lists(READS))
def test_each_table_is_read_up_to_its_newest_snapshot(reads: list[SourceRead]) -> None:
    """A query that reads a table twice has read it as far as the further of the two."""
    newest: dict[tuple[str, str], int] = {}
    for each in reads:
        newest[each.warehouse, each.table] = max(newest.get((each.warehouse, each.table), 0), each.snapshot_id)
    found = newest_reads(reads)
    assert {(each.warehouse, each.table): each.snapshot_id for each in found} == {k: v for k, v in newest.items() if v}
    assert len(found) == len({(each.warehouse, each.table) for each in found})


def test_sources_that_are_not_ours_say_nothing() -> None:
    """LN-13."""
    ours = {"version": 1, "phase": "log", "read": {"warehouse": "/w", "table": "db.a", "snapshot": 3}}
    kafka = {"topic": {"0": 7}}
    before = {"version": 1, "phase": "log", "snapshot": 3}  # of a Fluvial that did not note it
    found = reads_of_offsets([kafka, None, 5, ours, before, {"read": "x"}, {"read": {"table": "db.b"}}])
    assert found == (SourceRead(warehouse="/w", table="db.a", snapshot_id=3),)


@given(st.integers(0, 2**41), st.integers(1, 1000), st.uuids(), st.uuids())
def test_a_later_batch_write_has_a_higher_barrier(now_ms: int, later_ms: int, user: object, other: object) -> None:
    barrier = batch_barrier(now_ms, str(user))
    assert FIRST_BATCH_BARRIER <= barrier < batch_barrier(now_ms + later_ms, str(other)) < 2**63
