"""``Table.stream``: a snapshot and what follows, each change once, from every start, through restarts anywhere."""

import asyncio
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.follow.position import FollowPosition
from engine.follow.stream import StreamedChanges
from engine.procedures import create_tag, rollback
from engine.stream.rows import StreamRows
from filestore.evolution.schema_change import AddColumn
from filestore.types.data_types import parse_data_type
from lsm.errors import CorruptDataError, InvalidInputError
from tests.engine.stream.test_law import KEYS, SCHEMA, law, operations, run_operation
from tests.support.streams import Rows, content, expire, fold, forget_log, ids, query, rows
from tests.support.warehouses import ID_SCHEMA


def delivered(found: Sequence[StreamedChanges]) -> Rows:
    """All rows, in order."""
    return [row for changes in found for row in changes.rows.to_pylist()]


def available(table: Table, start: Any = None, **choices: Any) -> list[StreamedChanges]:
    """What a stream gives until the table's state of now."""
    with table.stream(start, follow=False, **choices) as stream:
        return list(stream)


@pytest.fixture
def table(catalog: Catalog) -> Table:
    """Snapshot 1 has ids 1 to 3, 2 updates 2, 3 deletes 1; without a log."""
    made = catalog.create_table("db.t", ID_SCHEMA, primary_key=["id"], options={"bucket": "2"})
    made.write(rows([1, 2, 3]))
    for changes in (rows([2], "new"), rows([1], kind="-D")):
        time.sleep(0.002)  # each has a time of its own
        made.write(changes)
    return made


@pytest.fixture(params=[pytest.param("broker", id="log"), "files"])
def options(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "files":
        return {"bucket": "2"}
    broker: Broker = request.getfixturevalue(request.param)
    return {"bucket": "2", "log.kafka.bootstrap.servers": broker.bootstrap_servers}


@pytest.mark.sampled(1)
@pytest.mark.sweep
@settings(law, max_examples=10)
@given(operations, st.data())
def test_a_program_that_ends_anywhere_gets_each_change_once(
    options: dict[str, str], steps: list[tuple[str, Any]], data: st.DataObject
) -> None:
    """Positions go through text; batches are cut at any row; compactions, overwrites, aborted transactions and commits
    of other engines lie between. What came adds up to the table, and has no row more than an unbroken stream has."""
    with tempfile.TemporaryDirectory() as root:
        table = Catalog(root).create_table(f"f.t{Path(root).name}", SCHEMA, primary_key=KEYS, options=options)
        run_operation(table, ("write", [("a", 1, 1, False)]))
        place = unbroken = str(table.stream(timeout_s=20).__next__().position)
        got: Rows = []
        whole: Rows = []
        for step in steps:
            run_operation(table, step)
            found = available(table, unbroken)
            unbroken, whole = str(found[-1].position) if found else unbroken, whole + delivered(found)
            for _ in range(data.draw(st.integers(0, 2))):
                with table.stream(place, follow=False, max_rows=data.draw(st.integers(1, 5))) as stream:
                    for _, changes in zip(range(data.draw(st.integers(1, 4))), stream, strict=False):
                        got += changes.rows.to_pylist()
                        place = str(changes.position)
        got += delivered(available(table, place))
        assert fold(got, KEYS) == content(table, KEYS)
        assert Counter(map(repr, got)) == Counter(map(repr, whole))


@pytest.mark.parametrize("max_rows", [None, 1])
def test_starts(table: Table, max_rows: int | None) -> None:
    """Each way to say where; a literal of what comes."""
    create_tag(table, "first", snapshot=1)
    at_two = [row for row in delivered(available(table, 1, max_rows=max_rows)) if row["id"] == 2]
    assert [(row["v"], row["_row_kind"]) for row in at_two] == [("x", "+I"), ("new", "+I")]
    assert ids(delivered(available(table, max_rows=max_rows))) == [2, 3]
    assert (
        ids(delivered(available(table, "first"))) == ids(delivered(available(table, "snapshot.1"))) == [1, 1, 2, 2, 3]
    )
    assert delivered(available(table, "latest")) == []
    moment = datetime.fromtimestamp(table.store.snapshots.read(2).time_ms / 1000, UTC)
    for since in (moment, f"timestamp.{moment.isoformat()}"):
        assert ids(delivered(available(table, since))) == [1, 2]
    result = table.write(rows([9]))
    assert delivered(available(table, table.handle_of(result))) == []
    table.write(rows([10]))
    assert ids(delivered(available(table, table.handle_of(result)))) == [10]
    assert ids(delivered(available(table, f"handle.{table.handle_of(result)}"))) == [10]


@pytest.mark.parametrize(
    ("start", "choices", "said"),
    [
        ("missing", {}, "missing"),
        (77, {}, "no such snapshot"),
        ("{}", {}, "not a position of a stream"),
        ("checkpoint./nowhere", {}, "no committed batch"),
        ("latest", {"columns": ["nope"]}, "nope"),
        ("latest", {"share": (2, 2)}, "share=(2, 2)"),
        ("latest", {"max_rows": 0}, "max_rows=0"),
        ("latest", {"options": {"log.scam": "full"}}, "log.scan"),
        ("latest", {"options": {"log.scan": "full"}}, "given twice"),
        ("latest", {"filter": "nope = 'x'"}, "nope"),
    ],
)
def test_a_wrong_request_is_refused_by_name(table: Table, start: Any, choices: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInputError, match=said.replace("(", r"\(").replace(")", r"\)")):
        list(table.stream(start, follow=False, **choices))


def test_columns_filter_and_kinds(table: Table) -> None:
    found = available(table, 1, columns=["v"], filter="id = 1")
    assert delivered(found) == [{"v": "x", "_row_kind": "+I"}, {"v": "x", "_row_kind": "-D"}]
    assert [kind for changes in found for kind in changes.kinds.to_pylist()] == ["+I", "-D"]


def test_programs_share_the_buckets(table: Table) -> None:
    """Each row goes to one of them, whatever they are called; the consumers of both are the table's."""
    parts = [delivered(available(table, 1, share=(index, 2), consumer="job")) for index in range(2)]
    assert all(parts)
    assert sorted(ids(parts[0]) + ids(parts[1])) == [1, 1, 2, 2, 3]
    assert {"job-0-of-2", "job-1-of-2"} <= set(table.store.consumers.next_snapshots())


def test_a_consumer_continues_without_a_position(table: Table) -> None:
    assert ids(delivered(available(table, consumer="job"))) == [2, 3]
    table.write(rows([4]))
    assert ids(delivered(available(table, consumer="job"))) == [4]
    assert table.store.consumers.next_snapshots()["job"] == 5


def test_a_position_within_a_batch_is_of_the_rows_that_were_asked_for(table: Table) -> None:
    within = next(changes for changes in available(table, max_rows=1) if not changes.is_complete)
    assert FollowPosition.parse(str(within.position)) == FollowPosition.parse(str(within.position))
    assert str(table.store.paths.root) not in str(within.position)  # it may be shown to a browser
    with pytest.raises(InvalidInputError, match="asked for other rows"):
        table.stream(str(within.position), filter="id = 2")


@pytest.mark.sweep
def test_a_stream_ends_when_it_is_stopped_idle_or_out_of_time(table: Table) -> None:
    assert ids(delivered(list(table.stream(idle_s=0)))) == [2, 3]
    assert ids(delivered(list(table.stream(timeout_s=0.2)))) == [2, 3]
    stream = table.stream("latest")
    timer = threading.Timer(0.05, stream.stop)
    timer.start()
    assert delivered(list(stream)) == []
    timer.join()


def test_nothing_is_read_before_it_is_asked_for(
    catalog: Catalog, options: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slow program slows down its own stream: one batch of rows waits, of a log the client's queue behind it."""
    made = catalog.create_table("db.slow", ID_SCHEMA, primary_key=["id"], options=options)
    for first in range(0, 40, 10):
        made.write(rows(range(first, first + 10)))
    read: list[int] = []
    real = StreamRows.read

    def counting(self: StreamRows, *given: Any) -> Iterator[pa.RecordBatch]:
        for batch in real(self, *given):
            read.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(StreamRows, "read", counting)
    with made.stream(follow=False, max_rows=1) as stream:
        assert read == []
        count = 0
        for changes in stream:
            count += changes.rows.num_rows
            assert sum(read[:-1]) <= count + 1
    assert count == sum(read) == 40


def test_asyncio(table: Table) -> None:
    """Rows that come while it waits; a cancelled task ends the stream."""

    async def follow() -> list[int]:
        found: list[int] = []
        async with asyncio.timeout(20):
            async for changes in table.stream():
                found += changes.rows["id"].to_pylist()
                if found == [2, 3]:
                    await asyncio.to_thread(table.write, rows([7]))
                if 7 in found:
                    return found
        raise AssertionError("the stream ended")

    async def cancelled(stream: Any) -> None:
        async for _ in stream:
            pass

    async def cancel() -> None:
        stream = table.stream("latest")
        task = asyncio.create_task(cancelled(stream))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stream.close()

    assert asyncio.run(follow())[-1] == 7
    asyncio.run(cancel())


@pytest.mark.parametrize("policy", ["fail", "resnapshot", "earliest"])
def test_what_is_lost_is_answered_as_the_option_says(table: Table, policy: str) -> None:
    """Between two batches, and within one, where no difference is exact any more."""
    given = {"log.on-offset-lost": policy}
    [*_, last] = available(table, "snapshot.1", options=given, max_rows=1)[:3]
    expire(table, 1, 2)
    if policy == "fail":
        with pytest.raises(CorruptDataError, match=r"log\.on-offset-lost=resnapshot"):
            available(table, str(last.position), options=given)
        return
    found = delivered(available(table, str(last.position), options=given))
    assert ids(found) == ([2, 3] if policy == "resnapshot" else [1])


def test_a_spark_checkpoint_is_a_start(table: Table, tmp_path: Path) -> None:
    """The end of the newest committed batch of a query, not of the one that it has only planned."""
    spark = query(table)
    assert ids(spark.available()) == [2, 3]
    table.write(rows([5]))
    assert spark.plan()
    (tmp_path / "metadata").write_text('{"id": "q"}')
    for folder, count in (("offsets", len(spark.planned)), ("commits", spark.committed)):
        (tmp_path / folder).mkdir()
        for number in range(count):
            lines = ["v1", "{}", spark.planned[number]]
            (tmp_path / folder / str(number)).write_text("\n".join(lines))
    assert ids(delivered(available(table, tmp_path))) == [5]
    assert ids(delivered(available(table, f"checkpoint.{tmp_path}"))) == [5]
    (tmp_path / "offsets" / str(spark.committed - 1)).write_text('v1\n{}\n{"logOffset": 3}')
    with pytest.raises(InvalidInputError, match="tables=0"):
        available(table, tmp_path)


@pytest.mark.sweep
def test_a_running_stream_follows_new_columns(table: Table, catalog: Catalog) -> None:
    """It keeps its own; a new stream at its position has them all."""
    stream = table.stream(1, idle_s=0.3)
    found = [next(stream)]
    catalog.alter_table("db.t", [AddColumn(path=("n",), type=parse_data_type("BIGINT"))])
    catalog.table("db.t").write(rows([8]).append_column("n", [[7]]))
    found += list(stream)
    stream.close()
    assert delivered(found)[-1] == {"id": 8, "v": "x", "_row_kind": "+I"}
    again = delivered(available(catalog.table("db.t"), "snapshot.1"))
    assert [row["n"] for row in again if row["id"] == 8] == [7]


@pytest.mark.parametrize("commits", [0, 1, 2])
@pytest.mark.parametrize("choices", [{}, {"consumer": "c"}, {"follow": True, "timeout_s": 20}], ids=str)
@pytest.mark.parametrize("where", ["behind", "within", "between splits", "differences"])
def test_a_position_of_what_was_rolled_back_is_refused_while_there_is_nothing_new_too(
    catalog: Catalog, where: str, choices: dict[str, Any], commits: int
) -> None:
    """Not to be up to date: the reader has rows that the table does not have. By the commit, and not by its number."""
    options = {"bucket": "2", "source.split.target-size": "1 b", "source.split.open-file-cost": "1 b"}
    made = catalog.create_table("db.rolled", ID_SCHEMA, primary_key=["id"], options=options)
    made.write(rows([1, 2, 3]))
    create_tag(made, "first")
    made.write(rows([4, 5, 6]))
    if where == "differences":
        made.overwrite(rows([7, 8, 9]).drop_columns(["_row_kind"]))
        made.overwrite(rows([1, 2]).drop_columns(["_row_kind"]))
    given: dict[str, Any] = {"max_rows": 1, "options": {"read.stream.maxRowsPerTrigger": "1"}}
    places = [str(each.position) for each in available(made, "snapshot.2", **given)]
    index = {"behind": -1, "within": 1, "between splits": 3, "differences": -2}[where]
    rollback(made, tag="first", force=True)
    for number in range(commits):
        made.write(rows([10 + number]))
    with pytest.raises(InvalidInputError, match=r"rolled back below the stream's position: .* fix="):
        list(made.stream(places[index], **{"follow": False, **choices}))


def test_a_consumers_place_behind_the_tables_end_is_no_place(table: Table) -> None:
    """Another engine has rolled the table back, and left the place where it was."""
    available(table, consumer="job")
    for name in ("job", "job.base"):
        assert table.store.consumers.next_snapshots()[name] in (3, 4)
    rollback(table, snapshot=1, force=True)
    assert table.store.consumers.next_snapshots()["job"] == 2
    assert available(table, consumer="job")  # ours moves it
    table.store.consumers.write("job", 4)
    with pytest.raises(InvalidInputError, match=r"consumer-id=job place=4 latest_snapshot=1 fix='move it with CALL"):
        table.stream(consumer="job")


def test_a_table_without_a_key(catalog: Catalog) -> None:
    """Rows in the order in which they were written."""
    made = catalog.create_table("db.events", ID_SCHEMA, options={"bucket": "1", "bucket-key": "id"})
    stream = made.stream(timeout_s=30)
    assert delivered([next(stream)]) == []
    for number in range(3):
        made.write(rows([number, number]))
        found: list[int] = []
        while len(found) < 2:
            found += next(stream).rows["id"].to_pylist()
        assert found == [number, number]
    stream.close()


@pytest.mark.broker
@pytest.mark.parametrize(
    "given", [{"log.consistency": "eventual"}, {"log.scan.normalize": "true"}, {"log.format": "debezium-json"}]
)
def test_ways_of_the_log(catalog: Catalog, broker: Broker, given: dict[str, str]) -> None:
    """Every change in the order of its key, each update complete where that is asked for."""
    asked = {key: text for key, text in given.items() if key == "log.scan.normalize"}
    options = {key: text for key, text in given.items() if key not in asked}
    options["log.kafka.bootstrap.servers"] = broker.bootstrap_servers
    made = catalog.create_table("db.ways", ID_SCHEMA, primary_key=["id"], options=options)
    made.write(rows([1, 2]))
    stream = made.stream(options=asked, timeout_s=60)
    found: Rows = []
    made.write(rows([1], "a"))
    made.write(rows([2], kind="-D"))
    made.write(rows([3]))
    while not any(row["id"] == 3 for row in found):
        found += next(stream).rows.to_pylist()
    stream.close()
    assert fold(found) == content(made)
    updates = [(row["_row_kind"], row["v"]) for row in found if row["id"] == 1]
    if asked:
        assert updates == [("+I", "x"), ("-U", "x"), ("+U", "a")]


@pytest.mark.broker
def test_a_stream_follows_the_log_by_consumers_that_stay(catalog: Catalog, broker: Broker) -> None:
    """Several commits, an aborted transaction, and retention between: no new client is needed, and no row is missed."""
    made = catalog.create_table(
        "db.kept", ID_SCHEMA, primary_key=["id"], options={"log.kafka.bootstrap.servers": broker.bootstrap_servers}
    )
    seen: Counter[int] = Counter()
    stream = made.stream("latest", timeout_s=60)
    next(stream)
    clients = set()
    for number in range(6):
        made.write(rows([number, number + 100]))
        while number + 100 not in seen:
            seen.update(next(stream).rows["id"].to_pylist())
        clients |= {id(kept.consumer) for kept in stream._kept._by_bucket.values()}
    assert seen == Counter([*range(6), *range(100, 106)])
    assert len(clients) == 1
    forget_log(made)
    made.write(rows([50]))
    while 50 not in seen:
        seen.update(next(stream).rows["id"].to_pylist())
    stream.close()
    assert not stream._kept._by_bucket
