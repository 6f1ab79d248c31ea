"""A program with a consumer: what it reads is kept from its start on, and a second program of the name is noticed."""

import logging
import os
import time
from pathlib import Path
from typing import Any

import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.procedures import create_tag, expire_snapshots
from engine.stream.position.place import BASE_SUFFIX
from engine.stream.position.position import Phase
from filestore.snapshot.consumers import ConsumerStore
from lsm.errors import ConflictError, InvalidInputError
from tests.support.streams import Rows, fold, ids, rows
from tests.support.warehouses import ID_SCHEMA, new_table

SMALL_SPLITS = {"source.split.target-size": "1 b", "source.split.open-file-cost": "1 b", "bucket": "2"}


@pytest.fixture(params=[pytest.param("broker", id="log", marks=pytest.mark.broker), "files"])
def table(request: pytest.FixtureRequest, catalog: Catalog) -> Table:
    """A hundred ids."""
    broker: Broker | None = request.getfixturevalue("broker") if request.param == "broker" else None
    made = new_table(catalog, ID_SCHEMA, broker=broker, options=SMALL_SPLITS)
    made.write(rows(range(100)))
    return made


def overwrite_repeatedly(table: Table, times: int = 3) -> None:
    """What is read is no part of the table any more, and may expire if nothing holds it."""
    for number in range(times):
        table.overwrite(rows([7], str(number)).drop_columns(["_row_kind"]))
    expire_snapshots(table, retain_max=1, retain_min=1, older_than="2100-01-01")


def rest(stream: Any, until: int = 1 << 60) -> Rows:
    """Rows of a stream to its end, or to that of a snapshot."""
    found: Rows = []
    for changes in stream:
        found += changes.rows.to_pylist()
        at = changes.position.at
        if changes.is_complete and at.phase is Phase.LOG and at.snapshot_id >= until:
            break
    return found


@pytest.mark.parametrize("rows_taken", [None, 0, 30, 100], ids=["made", "begun", "within", "all rows"])
@pytest.mark.parametrize("restarts", ["running", "restarted"])
def test_what_a_consumer_reads_is_kept_from_its_start_on(table: Table, rows_taken: int | None, restarts: str) -> None:
    stream = table.stream(consumer="c", max_rows=10)
    found: Rows = []
    place = None
    while rows_taken is not None and (place is None or len(found) < rows_taken):
        changes = next(stream)
        found += changes.rows.to_pylist()
        place = str(changes.position)
    overwrite_repeatedly(table)
    assert table.store.snapshots.earliest_id() == 1
    if restarts == "running":
        found += rest(stream, 4)
    elif place is not None:
        found += rest(table.stream(place, consumer="c", follow=False))
    else:
        found += rest(table.stream(consumer="c", follow=False))  # nothing was delivered: the newest snapshot
    stream.close()
    assert fold(found) == {(7,): {"id": 7, "v": "2"}}


@pytest.mark.parametrize("start", ["latest", "snapshot.1", "tagged", "position"])
def test_every_start_is_kept(table: Table, start: str) -> None:
    """Of a program that has delivered nothing yet."""
    create_tag(table, "tagged", snapshot=1)
    table.write(rows([200]))
    place: Any = start
    if start == "position":
        with table.stream("snapshot.1", max_rows=10, timeout_s=30) as other:
            place = [str(next(other).position) for _ in range(3)][-1]
    with table.stream(place, consumer="c") as stream:
        least = 2 if start == "latest" else 1
        assert table.store.consumers.next_snapshots() == {"c" + BASE_SUFFIX: least}
        overwrite_repeatedly(table)
        assert (table.store.snapshots.earliest_id() or 0) <= least
        found = rest(stream, 5)
    assert fold(found)[(7,)] == {"id": 7, "v": "2"}


def test_a_stream_that_begins_before_the_first_commit_keeps_it(catalog: Catalog) -> None:
    made = new_table(catalog, ID_SCHEMA)
    with made.stream(consumer="c") as stream:
        made.write(rows([1]))
        overwrite_repeatedly(made)
        assert made.store.snapshots.earliest_id() == 1
        assert (1, "+I") in [(row["id"], row["_row_kind"]) for row in rest(stream, 4)]


def test_an_expiry_that_does_not_see_a_consumer_yet_makes_it_begin_again(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked at the consumers a moment before this one was written."""
    made = new_table(catalog, ID_SCHEMA)
    made.write(rows([1]))
    real, calls = ConsumerStore.write, 0

    def write(self: ConsumerStore, *given: Any, **more: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            overwrite_repeatedly(made)
        return real(self, *given, **more)

    monkeypatch.setattr(ConsumerStore, "write", write)
    with made.stream(consumer="c", follow=False) as stream:
        assert made.store.consumers.next_snapshots() == {"c" + BASE_SUFFIX: 4}
        assert ids(rest(stream)) == [7]


def test_a_consumer_whose_batch_takes_longer_than_places_are_kept_is_not_forgotten(catalog: Catalog) -> None:
    """Its file is written again while it delivers."""
    made = new_table(catalog, ID_SCHEMA, options={"consumer.expiration-time": "1 h"})
    made.write(rows(range(5)))
    file = Path(made.store.paths.consumer("c" + BASE_SUFFIX))
    with made.stream(consumer="c", max_rows=1) as stream:
        next(stream), next(stream)
        past = time.time() - 7200
        os.utime(file, (past, past))
        place = stream._watch._place
        assert place is not None
        place._recorded_ms -= 7_200_000
        next(stream)
        assert file.stat().st_mtime > past + 3600
        assert made.store.consumers.expire(3_600_000) == []


def test_a_second_program_of_a_name_takes_over_and_the_first_one_is_stopped(table: Table) -> None:
    """The place is never moved back to where the slower one is."""
    slow = table.stream(consumer="c", timeout_s=30)
    rest(slow, 1)
    table.write(rows([200]))
    assert ids(rest(table.stream(consumer="c", follow=False)))[-1] == 200
    places = table.store.consumers.next_snapshots()
    assert places == {"c": 3, "c" + BASE_SUFFIX: 2}
    with pytest.raises(
        ConflictError, match=r"consumer-id=c file=c place=3 written=None .*fix='run one program of a name"
    ):
        rest(slow, 2)
    assert table.store.consumers.next_snapshots() == places


def test_a_place_that_was_reset_stops_the_program_that_keeps_it(table: Table) -> None:
    stream = table.stream(consumer="c", timeout_s=30)
    rest(stream, 1)
    table.store.consumers.write("c", 1, may_go_back=True)
    table.write(rows([200]))
    with pytest.raises(ConflictError, match="place=1 written=None"):
        rest(stream, 2)


def test_a_start_before_the_place_is_logged(table: Table, caplog: pytest.LogCaptureFixture) -> None:
    """It is what the caller's own position says; expiry waits there from then on."""
    with table.stream(follow=False) as stream:
        early = next(str(changes.position) for changes in stream)
    table.write(rows([200]))
    rest(table.stream(consumer="c", follow=False))
    with caplog.at_level(logging.WARNING, "fluvial.stream"), table.stream(early, consumer="c", follow=False):
        assert "begins before its consumer's place" in caplog.text
        assert table.store.consumers.next_snapshots() == {"c": 3, "c" + BASE_SUFFIX: 1}


@pytest.mark.parametrize("name", ["c.base", "c-0-of-2", "c-0-of-2.base"])
def test_a_name_that_is_made_of_another_consumers_name_is_refused(table: Table, name: str) -> None:
    with pytest.raises(InvalidInputError, match=f"consumer-id={name} .* fix=choose another name"):
        table.stream(consumer=name)


def test_each_share_has_a_place_of_its_own_also_under_a_name_of_the_tables(catalog: Catalog) -> None:
    made = new_table(catalog, ID_SCHEMA, options={"consumer-id": "own", "bucket": "2"})
    made.write(rows(range(9)))
    for index in range(2):
        rest(made.stream(share=(index, 2), follow=False))
    assert set(made.store.consumers.next_snapshots()) == {
        f"own-{index}-of-2{suffix}" for index in range(2) for suffix in ("", BASE_SUFFIX)
    }


def test_tail_keeps_what_it_reads(fluvial: Any, table: Table) -> None:
    """Its first rows are printed after the consumer is there."""
    root = str(Path(table.store.paths.root).parents[1])
    code, out, _ = fluvial("tail", table.name, "--warehouse", root, "--consumer", "c", "--limit", "1")
    assert code == 0
    assert out.count("\n") == 1
    assert table.store.consumers.next_snapshots() == {"c" + BASE_SUFFIX: 1}
