"""Which snapshot a version means, as a word and as a place in time."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from filestore.commit.committable import Committable
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.refs.versions import Version, as_of, at_watermark, parse_version, snapshot_of
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from lsm.errors import InvalidInputError
from tests.support.tables import content, key_table, messages_of, rows


def keep(count: int) -> Retention:
    return Retention(min_count=1, max_count=count, age_ms=10**15, limit=99)


def with_branch(table: FileTable, name: str, *, tag: str) -> FileTable:
    """A branch made from a tag, as the layout says: copies of the schemas, the tag and its snapshot."""
    there, io = table.store.paths.with_branch(name), table.store.io
    for schema_id in table.store.schemas.ids():
        io.replace(there.schema(schema_id), io.read_bytes(table.store.paths.schema(schema_id)))
    io.replace(there.tag(tag), io.read_bytes(table.store.paths.tag(tag)))
    io.replace(there.snapshot(table.store.snapshots.tag(tag).id), io.read_bytes(table.store.paths.tag(tag)))
    return table.on_branch(name)


def with_versions() -> FileTable:
    """Three snapshots; tags ``eod`` (1), ``v1.2`` (2) and ``dev.eod`` (2); the branch dev was made from eod."""
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    create_tag(table.store, "eod")
    with_branch(table, "dev", tag="eod").write(rows((1, 100)))
    table.write(rows((1, 2)))
    create_tag(table.store, "v1.2")
    table.write(rows((1, 3)))
    return table


@pytest.mark.parametrize(
    ("word", "version", "value"),
    [
        ("1", Version(snapshot_id=1), 1),
        ("snapshot.2", Version(snapshot_id=2), 2),
        ("eod", Version(tag="eod"), 1),
        ("v1.2", Version(tag="v1.2"), 2),
        ("latest", Version(), 3),
        ("timestamp.9999-12-31T00:00:00", Version(time_ms=253402214400000), 3),
        ("dev.eod", Version(branch="dev", tag="eod"), 1),
        ("dev.2", Version(branch="dev", snapshot_id=2), 100),
        ("dev.snapshot.1", Version(branch="dev", snapshot_id=1), 1),
        ("dev.latest", Version(branch="dev"), 100),
        ("main.latest", Version(branch="main"), 3),
    ],
)
def test_a_word_means_a_state(word: str, version: Version, value: int) -> None:
    """TAG-06, TAG-07, TAG-16, TAG-18: numbers are snapshots, words are tags, both also of a branch."""
    table = with_versions()
    assert parse_version(table.store, word) == version
    assert content(table, version=word) == {1: value}
    assert content(table, version=version) == {1: value}


def test_a_tag_comes_before_a_branch_with_the_same_word() -> None:
    table = with_versions()
    create_tag(table.store, "dev.eod", snapshot_id=2)
    assert content(table, version="dev.eod") == {1: 2}
    assert content(table, version="main.eod") == {1: 1}


def test_a_number_is_a_snapshot_even_when_another_engine_made_a_tag_of_that_name() -> None:
    """TAG-13 (Trap 3): a numeric word is never a tag."""
    table = with_versions()
    table.store.io.replace(table.store.paths.tag("3"), table.store.io.read_bytes(table.store.paths.tag("eod")))
    assert content(table, version="3") == {1: 3}
    assert content(table, tag="3") == {1: 1}


@pytest.mark.parametrize(
    ("word", "says"),
    [
        ("9", r"no such snapshot: table=db.t version=snapshot.9 earliest=1 latest=3 tags=\['eod', 'v1.2'\]"),
        ("dev.9", r"no such snapshot: table=db.t branch=dev version=dev.snapshot.9 earliest=1 latest=2 tags=\['eod'\]"),
        ("typo", r"no such version: table=db.t version='typo' tags=\['eod', 'v1.2'\] branches=\['main', 'dev'\]"),
        ("other.eod", r"no such version: .*branches=\['main', 'dev'\]"),
        ("dev.typo", r"no such version: table=db.t version='typo' tags=\['eod'\]"),
        ("", "no such version"),
        ("dev.", "no such version"),
        ("dev", "a branch alone is no version: table=db.t version='dev' fix='write dev.latest for its newest state"),
        ("main", "fix='write main.latest for its newest state"),
        ("savepoint.7", "no such savepoint: .*savepoint=7"),
        ("timestamp.noon", "not a time: version=timestamp.noon"),
        ("timestamp.5", "no such snapshot: .*version=timestamp.5 earliest=1"),
        ("watermark.5", "no such snapshot: .*version=watermark.5"),
    ],
)
def test_a_word_that_means_nothing_is_refused_with_what_there_is(word: str, says: str) -> None:
    with pytest.raises(InvalidInputError, match=says):
        with_versions().read(version=word)


def test_a_time_is_the_last_snapshot_before_it_or_else_the_closest_tag() -> None:
    """TAG-08, TAG-09: the tags count only once the snapshots of that time are gone."""
    table = key_table(bucket="1")
    times = {}
    for turn in range(1, 7):
        table.write(rows((1, turn)))
        times[turn] = table.store.snapshots.read(turn).time_ms
        if turn in (2, 4):
            create_tag(table.store, f"t{turn}")
    assert content(table, timestamp_ms=times[3]) == {1: 3}
    list(expire_snapshots(table.store, keep(1)))
    assert table.store.snapshots.ids() == [6]
    expected = {2: 2, 3: 2, 4: 4, 5: 4, 6: 6}
    for turn, value in expected.items():
        assert content(table, timestamp_ms=times[turn]) == {1: value}
    found = as_of(table.store, times[5])
    assert found is not None
    assert found[1] == "the snapshots of that time have expired, this is the closest tag before it: t4"
    with pytest.raises(InvalidInputError, match="no such snapshot"):
        table.read(timestamp_ms=times[1])


def commit_with_watermark(table: FileTable, value: int, watermark: int | None) -> None:
    latest = table.store.snapshots.latest_ref()
    messages = messages_of(table, rows((1, value)))
    committable = Committable(identifier=2**63 - 1, messages=messages, base=latest, watermark=watermark)
    table.new_commit(table.store.names.uuid()).commit(committable)


@pytest.mark.sweep
@given(
    watermarks=st.lists(st.none() | st.integers(0, 9), min_size=1, max_size=6),
    tagged=st.sets(st.integers(1, 6)),
    kept=st.integers(1, 6),
    wanted=st.integers(0, 10),
)
@example(watermarks=[0, None], tagged={1}, kept=1, wanted=0)  # the first moment of the epoch is a watermark too
def test_a_watermark_is_the_first_snapshot_that_has_it(
    watermarks: list[int | None], tagged: set[int], kept: int, wanted: int
) -> None:
    """scan.watermark as Paimon's: the oracle looks at every snapshot and tag that is left."""
    table = key_table(bucket="1")
    for value, watermark in enumerate(watermarks, start=1):
        commit_with_watermark(table, value, watermark)
        if value in tagged:
            create_tag(table.store, f"t{value}")
    reached = [max((w for w in watermarks[:end] if w is not None), default=-1) for end in range(1, len(watermarks) + 1)]
    list(expire_snapshots(table.store, keep(kept)))
    left = {*table.store.snapshots.ids(), *(each for each in tagged if each <= len(watermarks))}
    expected = min((each for each in left if reached[each - 1] >= wanted), default=None)
    found = at_watermark(table.store, wanted)
    assert (None if found is None else found[0].id) == expected
    if expected is not None:
        assert snapshot_of(table.store, f"watermark.{wanted}").snapshot.id == expected
