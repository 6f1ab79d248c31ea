"""Steps of micro-batches with their times, in files of a directory: one file for each process, one line for each step.

    {"table": "shop.orders", "batch": 7, "step": "log-committed", "bucket": 1, "facts": {},
     "at_us": 1795422000000000, "process": "host/4711", "thread": 4712}

What Spark reports of a trigger, which it knows only afterwards, is a line with the step ``trigger`` and its durations.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from engine.runtime.steps import Observer, StepEvent
from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError

TRIGGER: Final = "trigger"
_SUFFIX: Final = ".steps.jsonl"
_NEWEST_FILES: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedStep:
    """A line."""

    table: str
    batch: int
    step: str
    at_us: int  # epoch, of the machine's clock
    process: str  # host/pid
    thread: int
    bucket: int | None = None
    facts: Mapping[str, int] = field(default_factory=dict)  # of a trigger: milliseconds by phase

    def to_json(self) -> str:
        """One line."""
        body = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(body | {"facts": dict(self.facts)})


@dataclass(frozen=True, slots=True)
class StepFile:
    """An observer that writes each step down and passes it on; picklable: a task's process has a file of its own."""

    directory: str  # a path of this machine, and of those where tasks run
    table: str
    then: Observer

    @classmethod
    def of(cls, directory: str | None, table: str, then: Observer) -> "StepFile | None":
        """Make the directory; None: there is none to write to.

        Raises:
            InvalidInputError: it cannot be made.
        """
        if directory is None:
            return None
        try:
            Path(directory).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidInputError(
                f"a trace cannot be written: trace.directory={directory} reason={error.strerror} fix='name another one'"
            ) from error
        return cls(str(Path(directory).resolve()), table, then)

    def __call__(self, event: StepEvent) -> None:
        """Write a step down; one that cannot be written is missing, and stops nothing."""
        self._write(event.step.value, event.batch_id, time.time_ns() // 1000, event.bucket, event.facts)
        self.then(event)

    def add_trigger(self, progress: Mapping[str, Any], began_ms: int) -> None:
        """What Spark's progress says of a trigger.

        Args:
            progress: of one micro-batch.
            began_ms: when it began, epoch milliseconds.
        """
        facts = {name: int(value) for name, value in progress["durationMs"].items()}
        self._write(TRIGGER, int(progress["batchId"]), began_ms * 1000, None, facts)

    def _write(self, step: str, batch: int, at_us: int, bucket: int | None, facts: Mapping[str, int]) -> None:
        process, thread = f"{socket.gethostname()}/{os.getpid()}", threading.get_native_id()
        line = TimedStep(
            table=self.table, batch=batch, step=step, at_us=at_us, process=process, thread=thread, bucket=bucket,
            facts=facts,
        )  # fmt: skip
        path = Path(self.directory, f"{process.replace('/', '-')}{_SUFFIX}")
        with suppress(OSError):
            _append(path, f"{line.to_json()}\n".encode())


def _append(path: Path, line: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)  # whole lines, however many threads write
    try:
        os.write(descriptor, line)
    finally:
        os.close(descriptor)


def read_steps(directory: str, *, last_bytes: int | None = None) -> Iterator[TimedStep]:
    """All lines of a directory, in no order; a last line that was cut off is left out.

    Args:
        directory: of the trace.
        last_bytes: only the lines in so many bytes at the end of each of the eight newest files; None: all of all.

    Raises:
        InvalidInputError: there is no such directory, or nothing was traced to it.
        CorruptDataError: a line is no step; names it.
        UnavailableError: a file cannot be read.
    """
    paths = sorted(Path(directory).glob(f"*{_SUFFIX}"))
    if not paths:
        raise InvalidInputError(f"no trace: directory={directory} fix='run with trace.directory={directory}'")
    if last_bytes is not None:
        paths = sorted(paths, key=_time_ns)[-_NEWEST_FILES:]
    for path in paths:
        try:
            lines = _lines(path, last_bytes)
        except OSError as error:
            raise UnavailableError(f"a trace cannot be read: file={path} reason={error.strerror}") from error
        for number, line in enumerate(lines, start=1):
            if not line.endswith(b"\n"):
                continue
            try:
                yield TimedStep(**json.loads(line))
            except (TypeError, ValueError) as error:
                raise CorruptDataError(f"a line of a trace is no step: file={path} line={number}") from error


def _time_ns(path: Path) -> int:
    with suppress(OSError):
        return path.stat().st_mtime_ns
    return 0


def _lines(path: Path, last_bytes: int | None) -> list[bytes]:
    """Lines with their ends, from the first whole one of the last bytes on. Raises: OSError."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = 0 if last_bytes is None else max(0, size - last_bytes)
        file.seek(max(0, start - 1))
        lines = file.read().splitlines(keepends=True)
    return lines[1:] if start else lines
