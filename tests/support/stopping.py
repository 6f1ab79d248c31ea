"""An observer of steps that stops a writer, as a process that dies there would."""

from itertools import count

from engine.runtime.steps import Step, StepEvent


class Stopped(Exception):
    """The process that reached a step goes no further."""


class Stopper:
    """Stops at a step when it is reached for the n-th time, in whichever thread; None: never."""

    def set(self, stop: tuple[Step, int] | None) -> None:
        self.stop = stop
        self.reached = count()

    def __call__(self, event: StepEvent) -> None:
        if self.stop is not None and event.step is self.stop[0] and next(self.reached) == self.stop[1]:
            raise Stopped
