"""kill -9 and SIGSTOP of everything that runs a query: afterwards table and log hold each batch once, and agree.

The suite has one chain of three starts; `make soak` has hundreds of random rounds. What a failure prints (seed, starts,
points) is how it is run again:

    FLUVIAL_KILL_SEEDS=7 FLUVIAL_KILL_STARTS=12 make soak ARGS='-k "kills and not cluster"'
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.broker.broker import Broker
from engine.runtime.steps import Step
from logstore.log.log_writer import CHUNK_ROWS
from tests.peers.agreement import Agreement
from tests.support.kills.oracle import check_table, committed_records, last_changes
from tests.support.kills.points import Strike
from tests.support.kills.processes import Cluster
from tests.support.kills.rounds import TAKEN_OVER, Rounds
from tests.support.kills.world import World

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.xdist_group("kills")]

DRIVER_STEPS = [
    Step.BATCH_STARTED,
    Step.LOG_RECOVERED,
    Step.TASKS_DONE,  # the log holds the batch, the table does not
    Step.TABLE_COMMITTED,  # the table holds the batch, Spark does not know
]
TASK_STEPS = [
    Step.PART_STARTED,
    Step.BUCKET_FENCED,
    Step.ROWS_WRITTEN,
    Step.FILES_FLUSHED,
    Step.LOG_COMMITTED,
    Step.PART_DONE,
]
SEEDS = [int(each) for each in os.environ.get("FLUVIAL_KILL_SEEDS", "1,2,3,4").split(",")]
STARTS = int(os.environ.get("FLUVIAL_KILL_STARTS", "12"))
BESIDE = (Strike.SELF, Strike.SELF, Strike.SELF, Strike.BROKER)

NewWorld = Callable[..., World]


@pytest.fixture
def new_world(tmp_path: Path, broker: Broker) -> Iterator[NewWorld]:
    """Makes one; its processes end with the test."""
    made: list[World] = []

    def make(**given: object) -> World:
        made.append(World(tmp_path / f"world{len(made)}", broker, **given))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.mark.timeout(600)
def test_killed_workers_broker_and_driver_and_a_paused_driver_repeat_and_lose_nothing(new_world: NewWorld) -> None:
    """FL-72, FL-78, FL-127, FL-164, issue 14 item 4: a task is tried again, a query starts again, a driver too."""
    world = new_world(seed=1)
    world.feed(3)
    task_steps = [world.point("sink_log", step.value, Strike.SELF, after=n // 3) for n, step in enumerate(TASK_STEPS)]
    all_struck = world.point("format_log", Step.BATCH_STARTED.value, Strike.HOLD, after=1)
    first = world.start(
        *task_steps,
        all_struck,
        world.point("format_log", Step.ROWS_STAGED.value, Strike.SELF),
        world.point("format_log", Step.LOG_COMMITTED.value, Strike.SELF),
        world.point("format_log", Step.TASKS_DONE.value, Strike.DRIVER, after=1),
        lanes=("sink_log", "format_log"),
    )
    for step in task_steps:
        world.until_struck(first, step)
    world.release(all_struck)  # the other lane ends the driver
    assert world.until_end(first) < 0, f"{world.place}\n{first.errors()}"
    assert {*task_steps, first.points[-1]} <= set(world.struck(first)), world.place
    assert not [each for each in first.errors() if TAKEN_OVER in each]

    world.feed(2)
    paused = world.point("sink_log", Step.TASKS_DONE.value, Strike.PAUSE)
    zombie = world.start(paused, lanes=("sink_log",))
    world.until_struck(zombie, paused)
    zombie.tree.freeze()
    held = world.point("sink_log", Step.TABLE_COMMITTED.value, Strike.HOLD)
    unlogged = [
        world.point("sink_files", Step.FILES_FLUSHED.value, Strike.SELF),
        world.point("sink_files", Step.PART_STARTED.value, Strike.BROKER, after=1),
        world.point("format_files", Step.FILES_FLUSHED.value, Strike.SELF),  # a task that writes files itself
        world.point("format_files", Step.TABLE_COMMITTED.value, Strike.SELF, after=1),
    ]
    second = world.start(held, *unlogged)
    world.until_struck(second, held)
    before = world.state("sink_log")
    world.resume(zombie, paused)
    assert world.until_end(zombie) == 3, f"{world.place}\n{zombie.errors()}"
    assert world.state("sink_log") == before
    assert f"{TAKEN_OVER}: table={world.lanes['sink_log'].table.name} query=" in zombie.errors("sink_log")[0]
    world.release(held)
    assert world.until_end(second) == 0, f"{world.place}\n{second.errors()}"
    assert set(world.struck(second)) == {held, *unlogged}
    assert not [each for each in second.errors() if TAKEN_OVER in each]
    world.check()


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", SEEDS)
def test_random_kills_and_pauses_of_local_drivers(new_world: NewWorld, seed: int) -> None:
    """Issue 14 item 4."""
    world = new_world(seed=seed)
    Rounds(world, strikes=BESIDE).run(STARTS)
    print(f"rounds={world.happened} {world.place}")


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("seed", SEEDS[:2])
def test_random_kills_and_pauses_on_a_cluster_of_two_workers(tmp_path: Path, new_world: NewWorld, seed: int) -> None:
    """Issue 14 item 4: executors die too, and those of a paused driver continue without it."""
    (tmp_path / "cluster").mkdir()
    cluster = Cluster(tmp_path / "cluster")
    try:
        cluster.start()
        world = new_world(seed=seed, master=cluster.address, cluster=cluster, conf=cluster.conf)
        Rounds(world, strikes=(*BESIDE, Strike.EXECUTORS, Strike.EXECUTORS)).run(STARTS)
        print(f"rounds={world.happened} {world.place}")
    finally:
        cluster.stop()


@pytest.mark.soak
@pytest.mark.interop
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("lane", ["sink_log", "sink_files", "driver_log", "driver_files", "format_log", "format_files"])
def test_a_driver_killed_at_every_step_repeats_and_loses_nothing(
    new_world: NewWorld, assert_peers_agree: Agreement, lane: str
) -> None:
    """FL-72, FL-164: a chain of runs on one table, each killed at the next step of the committing process."""
    world = new_world(seed=1, lanes=(lane,))
    steps = [*DRIVER_STEPS, *(TASK_STEPS if not lane.startswith("sink") else ())]
    if not world.lanes[lane].log:
        steps = [each for each in steps if each not in (Step.LOG_RECOVERED, Step.BUCKET_FENCED, Step.LOG_COMMITTED)]
    world.feed(len(steps) + 1)
    for step in steps:
        start = world.start(world.point(lane, step.value, Strike.DRIVER))
        assert world.until_end(start) < 0, f"{world.place}\n{start.tree.tail()}"
        assert world.struck(start), world.place
    last = world.start()
    assert world.until_end(last) == 0, f"{world.place}\n{last.errors()}"
    world.check()
    table = world.lanes[lane].table
    table.compact(full=True)
    assert len(assert_peers_agree(table.store.paths.root)) == len(world.lanes[lane].source.table())


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_an_eventual_log_folded_by_key_is_the_table_though_killed_tasks_had_shown_their_rows(
    new_world: NewWorld,
) -> None:
    """FL-58, FL-108, FL-128: what the dead had committed to the log stays there; the newest row of a key is right."""
    rows = CHUNK_ROWS + 10_000
    options = {"bucket": "1", "log.consistency": "eventual"}
    world = new_world(seed=1, lanes=("sink_log",), options=options, rows=(rows, rows), keys=10 * rows)
    lane = world.lanes["sink_log"]
    world.feed(3)
    shown = world.point(lane.name, Step.FILES_FLUSHED.value, Strike.SELF)  # a chunk of a batch
    whole = world.point(lane.name, Step.TASKS_DONE.value, Strike.DRIVER, after=1)  # a batch without a snapshot
    first = world.start(shown, whole)
    assert world.until_end(first) < 0, first.tree.tail()
    assert world.struck(first) == [shown, whole]
    last = world.start()
    assert world.until_end(last) == 0, last.tree.tail()
    table = lane.table
    newest = table.latest_snapshot()
    assert newest is not None
    assert table.log is not None
    log = committed_records(world.broker.bootstrap_servers, table.log.topic, newest.log_offsets)
    [changes] = log.values()
    assert len(changes) > len(lane.source.changes)  # duplicates: at-once visibility has its price
    found = table.read().to_arrow().to_pylist()
    check_table(lane.source, found)
    assert {row["id"]: row["salt"] for row in found} == {key: row.salt for key, row in last_changes(changes).items()}
