"""``Table.live``: a copy in memory that is the table as of one position, whatever happens to the table."""

import random
import threading
import time
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.follow.stream import StreamedChanges
from engine.write.batch_writer import BatchWriter
from filestore.evolution.schema_change import SetOption
from lsm.errors import InvalidInputError, UnavailableError
from tests.support.logs import write_batch, write_without_commit
from tests.support.streams import content, expire, rows
from tests.support.waiting import wait_until
from tests.support.warehouses import ID_SCHEMA


@pytest.fixture(params=[pytest.param("broker", id="log"), "files"])
def table(request: pytest.FixtureRequest, catalog: Catalog) -> Table:
    """Ids 0 to 9."""
    options = {"bucket": "2"}
    if request.param == "broker":
        broker: Broker = request.getfixturevalue(request.param)
        options["log.kafka.bootstrap.servers"] = broker.bootstrap_servers
    made = catalog.create_table("db.t", ID_SCHEMA, primary_key=["id"], options=options)
    made.write(rows(range(10)))
    return made


@pytest.mark.sampled(1)
@pytest.mark.sweep
def test_a_copy_is_the_table(table: Table) -> None:
    """Read your writes after each of them; a commit that changes no row is seen as well."""
    chance = random.Random(2)
    heard: list[int] = []
    with table.live() as live:
        live.on_change(lambda changes: heard.extend(changes.rows["id"].to_pylist()))
        live.on_change(lambda changes: 1 // 0)  # another's fault stays there
        for number in range(12):
            chosen = chance.sample(range(20), 3)
            result = table.write(rows(chosen, f"v{number}", chance.choice(["+I", "+U", "-D"])))
            live.wait_for(table.handle_of(result))
            assert {(row["id"],): row for row in live.rows()} == content(table)
            wait_until(lambda: len(heard) == 3 * (number + 1), "the callback follows the copy")  # noqa: B023 - ends here
            assert sorted(heard[-3:]) == sorted(chosen)
            assert (live.get(chosen[0]) or {}).get("v") == content(table).get((chosen[0],), {}).get("v")
        compacted = table.compact(full=True)
        assert compacted is not None
        live.wait_for(str(table.handle_of(compacted)))
        assert live.to_arrow().num_rows == len(live) == len(content(table))
        assert live.age_s < 5
        assert 77 not in live
        assert live.position.at.phase.value == "log"


NOT_OF_COPIES: Final = (
    {"scan.mode": "latest"},
    {"log.scan": "latest"},
    {"scan.mode": "from-snapshot", "scan.snapshot-id": "2"},
    {"scan.timestamp": "2100-01-01"},
    {"scan.version": "1"},
    {"consumer-id": "c"},
    {"streaming-read-overwrite": "false"},
)


@pytest.mark.parametrize("options", NOT_OF_COPIES, ids=str)
def test_a_copy_is_the_table_wherever_the_table_has_its_streams_begin(
    options: dict[str, str], catalog: Catalog
) -> None:
    """Options in the table, perhaps of another engine, left out what streams do not begin with."""
    table = catalog.create_table("db.t", ID_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(rows([1]))
    table.write(rows([2]))
    catalog.alter_table("db.t", [SetOption(key, text) for key, text in options.items()])
    table = catalog.table("db.t")
    if "consumer-id" in options:
        assert sum(each.rows.num_rows for each in table.stream(follow=False)) == 2
    with table.live() as live:
        assert sorted(row["id"] for row in live.rows()) == [1, 2]
        live.wait_for(table.handle_of(table.overwrite(rows([3]))))
        assert [row["id"] for row in live.rows()] == [3]


def test_a_copy_holds_expiry_by_a_consumer_and_begins_whole(catalog: Catalog) -> None:
    """It is given to the copy, which is no reader that continues; another start is refused."""
    table = catalog.create_table("db.t", ID_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(rows([1]))
    for number in (2, 3):
        with table.live(options={"consumer-id": "c"}) as live:
            table.write(rows([number]))
            wait_until(lambda: len(live) == number, "the copy follows")  # noqa: B023 - ends here
    assert [*Path(table.store.paths.root, "consumer").iterdir()] != []
    for given in ({"log.scan": "latest"}, {"scan.mode": "from-snapshot", "scan.snapshot-id": "2"}):
        with pytest.raises(InvalidInputError, match=r"given twice"):
            table.live(options=given)


def test_columns_and_rows(table: Table) -> None:
    """A row that does not match any more leaves the copy."""
    with table.live(columns=["id"], filter="v = 'x'") as live, table.live(filter="id < 3") as few:
        assert live.get(4) == {"id": 4}
        handle = table.handle_of(table.write(rows([2, 4], "y")))
        live.wait_for(handle)
        few.wait_for(handle)
        assert sorted(row["id"] for row in live.rows()) == [0, 1, 3, 5, 6, 7, 8, 9]
        assert sorted(map(tuple, (row.values() for row in few.rows()))) == [(0, "x"), (1, "x"), (2, "y")]


@pytest.mark.sweep
def test_all_changes_of_a_commit_are_seen_at_once(table: Table) -> None:
    """Each commit gives all rows the same text: every reader sees one text."""
    seen: set[tuple[str, ...]] = set()
    with table.live() as live:
        is_done = threading.Event()

        def look() -> None:
            while not is_done.is_set():
                seen.add(tuple(sorted({row["v"] for row in live.rows()})))

        looking = threading.Thread(target=look)
        looking.start()
        for number in range(6):
            handle = table.handle_of(table.write(rows(range(10), str(number))))
        live.wait_for(handle)
        is_done.set()
        looking.join()
        assert {len(texts) for texts in seen} <= {1}


@pytest.mark.sweep
def test_a_copy_of_an_eventual_table_has_whole_commits_only(broker: Broker, catalog: Catalog) -> None:
    """Streams get the rows of a batch before its snapshot; the copy showed a commit bucket by bucket."""
    options = {"bucket": "3", "log.kafka.bootstrap.servers": broker.bootstrap_servers, "log.consistency": "eventual"}
    table = catalog.create_table("db.t", ID_SCHEMA, primary_key=["id"], options=options)
    table.write(rows(range(9), "old"))
    with table.live() as live, table.stream("latest", timeout_s=60) as stream:
        write_without_commit(table, 1, rows(range(9), "new"))
        seen = 0
        while seen < 9:
            seen += next(stream).rows.num_rows
        looked_s = time.monotonic()
        wait_until(lambda: time.monotonic() - live.age_s > looked_s, "the copy looks again")
        assert {row["v"] for row in live.rows()} == {"old"}
        again = BatchWriter(table.files, table.log, commit_user="eventual")
        live.wait_for(table.handle_of(write_batch(again, 1, rows(range(9), "new"))))
        assert {row["v"] for row in live.rows()} == {"new"}


def test_a_copy_is_filled_again_when_changes_are_lost(catalog: Catalog) -> None:
    """Deleted rows do not stay. Without that choice every method says what happened."""
    table = catalog.create_table("db.lost", ID_SCHEMA, primary_key=["id"])
    table.write(rows([1, 2]))

    with table.live() as live, table.live(options={"log.on-offset-lost": "fail"}) as strict:
        for each in (live, strict):
            entered, leave = threading.Event(), threading.Event()

            def hold(_: StreamedChanges, entered: threading.Event = entered, leave: threading.Event = leave) -> None:
                entered.set()
                leave.wait(30)

            each.on_change(hold)
            table.write(rows([3]))
            assert entered.wait(30)
            table.write(rows([1], kind="-D"))
            table.write(rows([4]))
            expire(table, *[number for number in table.store.snapshots.ids()[:-1]])
            leave.set()
            handle = table.handle_of(table.write(rows([5])))
            if each is live:
                each.wait_for(handle)
                assert sorted(row["id"] for row in each.rows()) == [2, 3, 4, 5]
            else:
                with pytest.raises(Exception, match=r"log\.on-offset-lost"):
                    each.wait_for(handle)
                with pytest.raises(Exception, match=r"log\.on-offset-lost"):
                    each.get(1)


def test_refusals(catalog: Catalog, table: Table) -> None:
    keyless = catalog.create_table("db.events", pa.schema([("v", pa.int64())]))
    with pytest.raises(InvalidInputError, match="by their key"):
        keyless.live()
    with pytest.raises(InvalidInputError, match="nope"):
        table.live(columns=["nope"])
    with table.live() as live:
        later: Any = table.handle_of(table.write(rows([3])))
        live.wait_for(later)
        missing = str(later).split("@")[0].replace(str(later.snapshot_id), "999", 1).split(":")[0]
        with pytest.raises(UnavailableError, match="wanted_snapshot=999"):
            live.wait_for(missing, timeout_s=0.01)
