"""Where a killed job is struck: a step of a micro-batch in one lane, and what happens to its processes there."""

import os
import signal
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from engine.runtime.steps import StepEvent

_ANSWER_S = 180.0


class Strike(Enum):
    """What happens to the process that reaches the step, or by it."""

    SELF = "self"  # SIGKILL of this process: a Python worker, or the committing process of format("fluvial")
    DRIVER = "driver"  # SIGKILL of Spark's JVM, of the driver's Python, and of this process
    PAUSE = "pause"  # SIGSTOP of this process; the harness stops all others of the driver
    EXECUTORS = "executors"  # SIGKILL of the executors of one worker of the cluster, by the harness
    BROKER = "broker"  # SIGKILL of the broker, by the harness, and a new start
    HOLD = "hold"  # waits until the harness lets it go on


@dataclass(frozen=True)
class Point:
    """One strike. It happens once: at the first batch from ``batch`` on whose step is reached in this lane."""

    lane: str
    step: str
    batch: int
    strike: Strike

    def __str__(self) -> str:
        return f"{self.strike.value}@{self.lane}/{self.step}/{self.batch}"

    def mark(self, marks: Path | str) -> Path:
        """The file that says that it happened; its text is the process and the batch."""
        return Path(marks) / str(self).replace("/", "_")

    def answer(self, marks: Path | str) -> Path:
        """The file by which the harness lets the process continue."""
        return self.mark(marks).with_suffix(".done")


@dataclass(frozen=True)
class Trap:
    """An observer of one lane that strikes. Picklable: tasks and committing processes get it too."""

    points: tuple[Point, ...]
    marks: str
    driver_pid: int
    jvm_pid: int

    def __call__(self, event: StepEvent) -> None:
        for point in self.points:
            if point.step == event.step.value and event.batch_id >= point.batch and self._is_first(point, event):
                self._strike(point)

    def _is_first(self, point: Point, event: StepEvent) -> bool:
        try:
            handle = os.open(point.mark(self.marks), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
        except FileExistsError:
            return False
        os.write(handle, f"{os.getpid()} {event.batch_id}".encode())
        os.close(handle)
        return True

    def _strike(self, point: Point) -> None:
        if point.strike is Strike.PAUSE:
            os.kill(os.getpid(), signal.SIGSTOP)
        elif point.strike in (Strike.SELF, Strike.DRIVER):
            if point.strike is Strike.DRIVER:
                os.kill(self.jvm_pid, signal.SIGKILL)
                os.kill(self.driver_pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            deadline = time.monotonic() + _ANSWER_S
            while not point.answer(self.marks).exists() and time.monotonic() < deadline:
                time.sleep(0.02)
