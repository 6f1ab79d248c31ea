"""Random rounds of kills and pauses: what happens, where and when, comes from the seed of the world."""

import random
from collections.abc import Sequence
from typing import Final

from engine.runtime.steps import Step
from tests.support.kills.points import Point, Strike
from tests.support.kills.world import Start, World

TAKEN_OVER: Final = "another run of this query has taken over"

_BATCHES: Final = 4  # of new input for each start
_DRIVER_STEPS: Final = (Step.BATCH_STARTED, Step.LOG_RECOVERED, Step.TASKS_DONE, Step.TABLE_COMMITTED)
_TASK_STEPS: Final = (
    Step.PART_STARTED, Step.BUCKET_FENCED, Step.ROWS_WRITTEN, Step.FILES_FLUSHED, Step.LOG_COMMITTED, Step.PART_DONE,
)  # fmt: skip
_OF_THE_LOG: Final = (Step.LOG_RECOVERED, Step.BUCKET_FENCED, Step.LOG_COMMITTED)


class Rounds:
    """Starts a world's job over and over, and strikes."""

    def __init__(self, world: World, *, strikes: Sequence[Strike]) -> None:
        """``strikes`` are those beside a run, which it survives or not; each start ends by a kill or a pause."""
        self._world = world
        self._strikes = strikes
        self._chance = random.Random(world.seed)

    def run(self, starts: int) -> None:
        """So many starts that are killed or paused; then one to the end, and everything is as it should be."""
        world = self._world
        for _ in range(starts):
            world.feed(_BATCHES)
            (self._paused if self._chance.random() < 0.35 else self._killed)()
        self._to_the_end()
        world.check()

    def _killed(self) -> None:
        world = self._world
        start = world.start(*self._beside(), self._point(Strike.DRIVER, after=self._chance.randrange(_BATCHES)))
        code = world.until_end(start)
        assert code < 0 or code in (0, 1), f"{world.place}\n{start.errors()}\n{start.tree.tail()}"
        self._check_errors(start)

    def _paused(self) -> None:
        """A second start takes over while the first is stopped; the first continues, changes nothing and ends."""
        world = self._world
        paused = self._point(Strike.PAUSE, after=self._chance.randrange(2))
        zombie = world.start(paused)
        world.until_struck(zombie, paused)
        zombie.tree.freeze()
        held = Point(paused.lane, Step.TABLE_COMMITTED.value, paused.batch, Strike.HOLD)
        second = world.start(*self._beside(but=paused.lane), held)
        world.until_struck(second, held)
        before = world.state(paused.lane)
        world.resume(zombie, paused)
        code = world.until_end(zombie)
        assert code == 3, f"{world.place}\n{zombie.errors()}\n{zombie.tree.tail()}"
        assert world.state(paused.lane) == before, f"a paused run changed the table or log: {world.place}"
        refusals = zombie.errors(paused.lane)
        assert any(TAKEN_OVER in each for each in refusals), f"{world.place}\n{refusals}"
        world.release(held)
        code = world.until_end(second)
        # Where the first driver had not begun a batch of another lane, it has just begun it: later than the second.
        assert code in (0, 3), f"{world.place}\n{second.errors()}\n{second.tree.tail()}"
        assert not [each for each in second.errors(paused.lane) if TAKEN_OVER in each], world.place

    def _to_the_end(self) -> None:
        world = self._world
        world.feed(1)
        last = world.start()
        assert world.until_end(last) == 0, f"{world.place}\n{last.errors()}\n{last.tree.tail()}"
        assert last.errors() == [], f"{world.place}\n{last.errors()}"

    def _beside(self, but: str | None = None) -> list[Point]:
        """Some strikes that do not end the driver."""
        return [self._point(each, after=self._chance.randrange(_BATCHES), but=but) for each in self._strikes
                if self._chance.random() < 0.7]  # fmt: skip

    def _point(self, strike: Strike, *, after: int, but: str | None = None) -> Point:
        lane = self._chance.choice([each for name, each in self._world.lanes.items() if name != but])
        steps: list[Step] = [*_DRIVER_STEPS, *_TASK_STEPS]
        if lane.writer == "sink" and strike in (Strike.SELF, Strike.EXECUTORS):
            steps = list(_TASK_STEPS)  # all other steps are the driver's own
        if lane.writer == "format" and strike is not Strike.EXECUTORS:
            steps.append(Step.ROWS_STAGED)
        if lane.writer == "format" and strike is Strike.EXECUTORS:
            steps = [Step.ROWS_STAGED]
        if not lane.log:
            steps = [each for each in steps if each not in _OF_THE_LOG]
        if strike is Strike.PAUSE:
            steps = [each for each in steps if each is not Step.LOG_RECOVERED]  # only a first batch gets there
        step = self._chance.choice(steps)
        return self._world.point(lane.name, step.value, strike, after=0 if step is Step.LOG_RECOVERED else after)

    def _check_errors(self, start: Start) -> None:
        wrong = [each for each in start.errors() if TAKEN_OVER in each]
        assert not wrong, f"nothing else ran: {self._world.place}\n{wrong}"
