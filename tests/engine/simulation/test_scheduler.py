"""The scheduler: one actor at a time, places in a known order, and the dead do nothing."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from engine.simulation.scheduler import Actor, EndlessError, Fault, Intervention, Scheduler
from engine.simulation.schedules import PlacedSchedule
from engine.simulation.seams import ActorNames, files_of
from filestore.io.file_io import MovesDirectories
from filestore.io.memory_files import MemoryFiles, MemoryObjects
from lsm.errors import OutcomeUnknownError, UnavailableError


def counting(said: list[str], name: str, *, steps: int = 3):
    def program(actor: Actor) -> None:
        for step in range(1, steps + 1):
            actor.reach("read_bytes", f"{name}{step}", changes=False)
            said.append(f"{name}{step}")

    return name, program


def said_with(choices: dict[tuple[int, int], Intervention]) -> list[str]:
    said: list[str] = []
    Scheduler(PlacedSchedule(choices)).run([counting(said, "a"), counting(said, "b")])
    return said


def test_actors_run_one_after_the_other_unless_one_is_paused() -> None:
    assert said_with({}) == ["a1", "a2", "a3", "b1", "b2", "b3"]
    assert said_with({(0, 2): Intervention(pause=1 << 60)}) == ["a1", "b1", "b2", "b3", "a2", "a3"]
    assert said_with({(0, 2): Intervention(pause=2)}) == ["a1", "b1", "a2", "a3", "b2", "b3"]


def test_both_may_wait_until_the_other_has_ended() -> None:
    until_others_end = Intervention(pause=1 << 60)
    assert said_with({(0, 2): until_others_end, (1, 2): until_others_end}) == ["a1", "b1", "a2", "a3", "b2", "b3"]


def test_what_is_dead_changes_nothing_although_it_cleans_up() -> None:
    files = MemoryFiles({"/t/kept": b"1"})

    def program(actor: Actor) -> None:
        own = files_of(files, actor)
        try:
            own.write_new("/t/new", b"2")
        finally:
            own.delete("/t/kept")

    for step, left in ((1, ["kept"]), (2, ["kept", "new"]), (9, ["new"])):
        disk = files = MemoryFiles({"/t/kept": b"1"})
        Scheduler(PlacedSchedule({(0, step): Intervention(crash=True)})).run([("a", program)])
        assert disk.list_names("/t") == left


@pytest.mark.parametrize(
    ("fault", "error", "is_there"),
    [
        (Fault.REFUSED, UnavailableError, False),
        (Fault.LOST_ANSWER, OutcomeUnknownError, True),
        (Fault.UNSURE, OutcomeUnknownError, False),
    ],
)
def test_a_creation_fails_in_three_ways(fault: Fault, error: type[Exception], is_there: bool) -> None:
    files = MemoryObjects()

    def program(actor: Actor) -> None:
        with pytest.raises(error):
            files_of(files, actor).create_exclusive("/t/a", b"1")

    Scheduler(PlacedSchedule({(0, 1): Intervention(fault=fault)})).run([("a", program)])
    assert files.exists("/t/a") is is_there


def test_a_listing_of_an_object_store_comes_in_pages() -> None:
    files = MemoryObjects({"/t/b": b"", "/t/d": b""})
    listed: list[str] = []

    def lists(actor: Actor) -> None:
        listed.extend(files_of(files, actor).list_names("/t"))

    def creates(actor: Actor) -> None:
        for name in ("a", "c"):
            files_of(files, actor).write_new(f"/t/{name}", b"")

    Scheduler(PlacedSchedule({(0, 2): Intervention(pause=1 << 60)})).run([("lists", lists), ("creates", creates)])
    assert listed == ["b", "c", "d"]


def test_a_file_system_keeps_its_abilities() -> None:
    actor = Actor(Scheduler(PlacedSchedule()), 0, "a")
    assert isinstance(files_of(MemoryFiles(), actor), MovesDirectories)
    assert not isinstance(files_of(MemoryObjects(), actor), MovesDirectories)


def test_errors_and_endless_histories_are_raised() -> None:
    def fails(actor: Actor) -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        Scheduler(PlacedSchedule()).run([("a", fails)])
    with pytest.raises(EndlessError, match="more than 5 steps"):
        Scheduler(PlacedSchedule(), most_steps=5).run([counting([], "a", steps=9)])


def test_names_of_two_actors_differ() -> None:
    assert {ActorNames(actor).uuid() for actor in range(3)} == {
        f"0000000{actor}-0000-4000-8000-000000000001" for actor in range(3)
    }


def test_a_seam_on_another_thread_is_refused() -> None:
    """Threads interleave as they like, so that a seed would not replay; a hand-over between two of them hung."""

    def program(actor: Actor) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(actor.reach, "read_bytes", "/t/data", changes=False).result()

    with pytest.raises(AssertionError, match="a thread that is not the actor's: operation=read_bytes path=/t/data"):
        Scheduler(PlacedSchedule()).run([("a", program)])
