"""``consumer-id``: the table knows where a stream is."""

import os
import time
from pathlib import Path

import pytest

from engine import Table
from engine.stream.position.place import BASE_SUFFIX
from lsm.errors import ConflictError, InvalidInputError
from tests.engine.stream.conftest import NewTable
from tests.support.streams import content, expire, fold, ids, query, rows

pytestmark = pytest.mark.broker


@pytest.fixture(params=[True, False], ids=["log", "files"])
def table(request: pytest.FixtureRequest, new_table: NewTable) -> Table:
    """Snapshots 1 and 2 of ids 1 and 2."""
    found = new_table(log=request.param, bucket="2", consumer_expiration__time="1 h")
    for number in (1, 2):
        found.write(rows([number]))
    return found


def test_a_place_is_noted_when_a_batch_is_done(table: Table) -> None:
    """Idea 9: and only then; what is read first and what differences start from is held from the first plan on."""
    stream = query(table, consumer__id="job")
    assert stream.plan()
    assert table.store.consumers.next_snapshots() == {"job" + BASE_SUFFIX: 2}
    stream.read()
    stream.commit()
    stream.available()
    assert table.store.consumers.next_snapshots() == {"job": 3, "job" + BASE_SUFFIX: 2}
    table.write(rows([3]))
    stream.available()
    assert table.store.consumers.next_snapshots() == {"job": 4, "job" + BASE_SUFFIX: 3}


@pytest.mark.parametrize("mode", ["exactly-once", "at-least-once"])
def test_either_mode_keeps_a_place_once_its_batch_is_done(table: Table, mode: str) -> None:
    """With its checkpoint a stream delivers exactly once; by its place alone, what was under way comes again."""
    stream = query(table, consumer__id="job", consumer_mode=mode, read_stream_maxRowsPerTrigger="2")
    stream.available()
    table.write(rows([3, 4, 5, 6]))
    first = ids(stream.batch())
    assert 0 < len(first) < 4
    assert ids(query(table, consumer__id="job", consumer_mode=mode).available()) == [3, 4, 5, 6]
    stream.start()
    assert sorted(first + ids(stream.available())) == [3, 4, 5, 6]
    with pytest.raises(InvalidInputError, match=r"consumer\.mode"):
        query(table, consumer__id="job", consumer_mode="at-most-once")


def test_a_stream_without_its_checkpoint_goes_on_from_its_place(table: Table) -> None:
    """FL-71: unless it is reported to ignore it; then its new place counts, though it is an earlier one."""
    query(table, consumer__id="job").available()
    table.write(rows([3]))
    assert ids(query(table, consumer__id="job").available()) == [3]
    assert query(table, consumer__id="job").available() == []
    assert ids(query(table, consumer__id="other").available()) == [1, 2, 3]
    again = query(
        table,
        consumer__id="job",
        consumer_ignore__progress="true",
        scan_mode="from-snapshot",
        scan_snapshot__id="1",
        read_stream_maxRowsPerTrigger="1",
    )
    again.batch()
    assert table.store.consumers.next_snapshots()["job"] < 4
    again.available()
    assert table.store.consumers.next_snapshots()["job"] == 4


def test_a_stream_that_died_within_its_first_snapshot_begins_again(table: Table) -> None:
    """FL-71: the place of a half-read snapshot would leave rows out."""
    table.write(rows(range(3, 20)))
    half = query(table, consumer__id="job", read_stream_maxRowsPerTrigger="1")
    assert 0 < len(half.batch() or []) < 19
    assert table.store.consumers.next_snapshots() == {"job" + BASE_SUFFIX: 3}
    assert ids(query(table, consumer__id="job").available()) == list(range(1, 20))


def test_snapshots_before_a_place_may_expire(table: Table) -> None:
    """FL-99: the stream goes on, and so does one without its checkpoint, also over an overwrite."""
    stream = query(table, consumer__id="job")
    found = stream.available()
    table.overwrite(rows([1, 5]).drop_columns(["_row_kind"]))
    table.write(rows([1], kind="-D"))
    least = table.store.consumers.least_next_snapshot()
    assert least is not None
    expire(table, *(each for each in table.store.snapshots.ids() if each < least))
    stream.start()
    again = query(table, consumer__id="job").available()
    assert fold(found + again) == fold(found + stream.available()) == content(table)
    assert (2, "-D") in [(row["id"], row["_row_kind"]) for row in again]


def test_a_query_whose_place_another_one_moves_is_stopped(table: Table) -> None:
    """Two queries of one name: expiry would take what the slower one needs."""
    slow, fast = query(table, consumer__id="job"), query(table, consumer__id="job")
    slow.available()
    fast.available()
    table.write(rows([3]))
    assert slow.plan()
    assert ids(fast.available()) == [3]
    with pytest.raises(ConflictError, match=r"consumer-id=job file=job place=4 written=3 .* fix="):
        slow.commit()
    assert table.store.consumers.next_snapshots() == {"job": 4, "job" + BASE_SUFFIX: 3}


@pytest.mark.parametrize("name", ["job.base", "job-0-of-2", "a-10-of-2"])
def test_a_name_that_another_consumers_files_have_is_refused(table: Table, name: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"consumer-id={name}"):
        query(table, consumer__id=name)


def test_places_that_nobody_keeps_are_forgotten(table: Table) -> None:
    """``consumer.expiration-time`` is applied by the streams that do; one that waits for data is kept."""
    idle, busy = query(table, consumer__id="idle"), query(table, consumer__id="busy")
    query(table, consumer__id="gone").available()
    idle.available()

    def age(name: str) -> None:
        for each in (name, name + BASE_SUFFIX):
            past = time.time() - 7200
            os.utime(Path(table.store.paths.consumer(each)), (past, past))

    age("gone")
    age("idle")
    assert idle.reader._watching is not None
    assert idle.reader._watching._place is not None
    idle.reader._watching._place._recorded_ms -= 7_200_000
    assert idle.available() == []
    busy.available()
    assert set(table.store.consumers.next_snapshots()) == {"idle", "idle.base", "busy", "busy.base"}
