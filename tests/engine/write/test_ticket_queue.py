"""The queue as files: what a turn costs, who waits how long, and what is left behind."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from engine.write.ticket_queue import TURNS_DIRECTORY, TicketQueue
from filestore.io.file_io import SystemClock
from filestore.table import FileTable
from filestore.table_store import TableStore
from lsm.errors import ConflictError
from tests.support.faults import FaultyFileIO, MemoryFileIO
from tests.support.tables import key_table


def store_of(io: MemoryFileIO | FaultyFileIO | None = None, **options: str) -> TableStore:
    made = key_table(**{"log.turn-lease": "1 s", **options})
    inner = io or made.store.io
    if isinstance(inner, FaultyFileIO):
        inner.inner = made.store.io
    return FileTable.open(made.name, made.store.paths.root, io=inner, clock=SystemClock(), names=made.store.names).store


def left(store: TableStore) -> list[str]:
    return store.io.list_names(f"{store.paths.root}/{TURNS_DIRECTORY}")


def put(store: TableStore, number: int, holder: str = "dead") -> None:
    body = {"id": f"{holder}-{number}", "holder": holder, "place": "host/7", "since": 0}
    store.io.create_exclusive(f"{store.paths.root}/{TURNS_DIRECTORY}/{number}", json.dumps(body).encode())


@contextmanager
def elsewhere(store: TableStore, holder: str) -> Iterator[None]:
    """Another thread has the turn for the length of the block."""
    has_it, done = threading.Event(), threading.Event()

    def hold() -> None:
        with TicketQueue(store, holder).turn(patience_s=None):
            has_it.set()
            done.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    has_it.wait(30)
    yield
    done.set()
    thread.join()


def test_without_others_a_turn_is_one_put_one_list_and_one_delete() -> None:
    io = FaultyFileIO(MemoryFileIO())
    store = store_of(io)
    for _ in range(3):
        io.log.clear()
        with TicketQueue(store, "a").turn(patience_s=0) as turn:
            assert left(store) == [str(turn.ticket.number)]
        names = [line.split(" ")[0] for line in io.log if TURNS_DIRECTORY in line]
        assert names == ["create_exclusive", "list_names", "list_names", "delete"], "one of the lists is the test's"
    assert left(store) == []


@pytest.mark.sweep
def test_threads_have_it_one_after_the_other_and_none_starves() -> None:
    """FL-90: a writer that waits sees each of the others at most twice before it has its turn."""
    store, inside, order = store_of(), [], list[str]()
    most_waits: dict[str, int] = {}

    def work(name: str) -> None:
        for _ in range(8):
            before = len(order)
            with TicketQueue(store, name).turn(patience_s=None):
                inside.append(name)
                assert inside == [name]
                most_waits[name] = max(most_waits.get(name, 0), len(order) - before)
                order.append(name)
                time.sleep(0.002)
                inside.clear()

    threads = [threading.Thread(target=work, args=(f"w{index}",)) for index in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(order) == sorted(f"w{index}" for index in range(4) for _ in range(8))
    assert max(most_waits.values()) <= 2 * len(threads)
    assert left(store) == []


def test_a_thread_that_has_the_turn_gets_it_again_at_once() -> None:
    """A statement that reads and writes in one turn; its writer would else wait for the statement."""
    store = store_of()
    with TicketQueue(store, "statement").turn(patience_s=0) as outer:
        with TicketQueue(store, "writer").turn(patience_s=0) as inner:
            assert inner is outer
        assert outer.is_held()
    assert not outer.is_held()


def test_who_waits_too_long_says_for_whom() -> None:
    store = store_of()
    with elsewhere(store, "job-1"):
        said = r"holder=job-1 place=.* since='.*waited_s=0 log.turn-timeout=0.1 s fix="
        with pytest.raises(ConflictError, match=said), TicketQueue(store, "job-2").turn(patience_s=0.1):
            pass
        assert len(left(store)) == 1
    assert left(store) == []


@pytest.mark.sweep
def test_tickets_of_dead_writers_cost_one_lease_together() -> None:
    """FL-91: one that the writer before it would have had to remove as well."""
    store = store_of()
    for number in (1, 2, 3):
        put(store, number)
    store.io.create_exclusive(f"{store.paths.root}/{TURNS_DIRECTORY}/4", b"not a ticket")
    began_s = time.monotonic()
    with TicketQueue(store, "live").turn(patience_s=30):
        assert 1.0 <= time.monotonic() - began_s < 10
    assert left(store) == []


@pytest.mark.sweep
def test_a_writer_that_died_over_its_sign_of_life_leaves_nothing() -> None:
    """As kill -9 between the temporary file and its move: the next writer found it there for ever."""
    store = store_of()
    put(store, 1)
    store.io.write_new(f"{store.paths.root}/{TURNS_DIRECTORY}/.1.beat.cfe1212b.tmp", b"{}")
    store.io.write_new(f"{store.paths.root}/{TURNS_DIRECTORY}/.11.beat.cfe1212b.tmp", b"{}")
    with TicketQueue(store, "next").turn(patience_s=30):
        pass
    assert left(store) == [".11.beat.cfe1212b.tmp"], "that of a writer that lives"


@pytest.mark.sweep
def test_a_holder_that_lives_keeps_its_turn_for_longer_than_a_lease() -> None:
    store = store_of()
    with elsewhere(store, "slow"), pytest.raises(ConflictError), TicketQueue(store, "next").turn(patience_s=2.5):
        pass
    assert left(store) == [], "signs of life go with their ticket"


@pytest.mark.sweep
def test_a_holder_that_was_taken_for_dead_finds_out_and_brings_nothing_back() -> None:
    store = store_of()
    with TicketQueue(store, "paused").turn(patience_s=0) as turn:
        store.io.delete(turn.path)
        put(store, turn.ticket.number, holder="newcomer")
        assert not turn.is_held()
        with pytest.raises(ConflictError, match="another writer took over the turn"):
            turn.check("batch=1")
        time.sleep(1.2)
        assert left(store) == [str(turn.ticket.number)]
    assert left(store) == [str(turn.ticket.number)], "the ticket of another"


def test_a_ticket_of_unknown_outcome_does_not_stand_in_its_own_way() -> None:
    store = store_of(**{"log.turn-lease": "100 s"})
    io = FaultyFileIO(store.io)
    asked = FileTable.open(store.name, store.paths.root, io=io, clock=SystemClock(), names=store.names).store  # type: ignore[arg-type]
    from tests.support.faults import When

    io.when, io.fail_at = When.AFTER, io.calls + 1
    began_s = time.monotonic()
    with TicketQueue(asked, "a").turn(patience_s=30):
        assert time.monotonic() - began_s < 50, "it did not wait for a lease"
    assert left(store) == []
