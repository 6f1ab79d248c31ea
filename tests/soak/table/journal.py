"""What each process did and when, written before and after: so it is known what a killed one may have done.

A line is written by one call, and what a process has written outlives it: the line of a deed's beginning is there
before anything of the deed is.
"""

import json
import os
import time
import traceback
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from filestore.snapshot.lost_files import LostFileError, SnapshotExpiredError
from lsm.errors import (
    CommittedError,
    ConflictError,
    FluvialError,
    InvalidInputError,
    OutcomeUnknownError,
    UnavailableError,
)

DONE: Final = "done"
REFUSED: Final = "refused"  # nothing of it is visible
UNKNOWN: Final = "unknown"
FAILED: Final = "failed"  # as nothing may fail
_ALWAYS: Final = ("no such table", "table is gone")
"""What any deed may be refused with: the table has another name by now."""


@dataclass(slots=True, kw_only=True)
class Deed:
    """One operation of a process."""

    what: str
    slot: str
    began: int  # nanoseconds of the machine's monotonic clock
    ended: int  # or when its process was found dead
    facts: dict[str, Any] = field(default_factory=dict)
    outcome: str = UNKNOWN
    error: str | None = None

    @property
    def is_done(self) -> bool:
        return self.outcome == DONE

    @property
    def may_be_done(self) -> bool:
        return self.outcome in (DONE, UNKNOWN)


class Journal:
    """The journal of one process."""

    def __init__(self, file: Path, began_ms: MutableSequence[float], place: int, has_moved: Callable[[], bool]) -> None:
        """``began_ms``: of the deed that each process is at, 0 for none; ``place``: of this process in it.

        ``has_moved``: whether the table that is open has another name by now.
        """
        self._descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._began_ms, self._place, self._has_moved = began_ms, place, has_moved
        self._numbers = count()
        self.outcome = DONE  # of the last deed that ended

    @contextmanager
    def deed(self, what: str, *, may: Sequence[str] = (), **facts: Any) -> Iterator[dict[str, Any]]:
        """What happens inside is one deed; what is put into the dict is kept with it.

        Args:
            what: its name.
            may: parts of the messages with which it may be refused because others were first.
            facts: of it.
        """
        number, outer_ms = next(self._numbers), self._began_ms[self._place]
        self._began_ms[self._place] = outer_ms or time.time() * 1000
        self._write(number, begin=what, **facts)
        more: dict[str, Any] = {}
        try:
            yield more
        except BaseException as error:
            outcome = self._outcome(error, may)
            said = f"{type(error).__name__}: {error}"
            self._write(number, end=outcome, error=said, trace=traceback.format_exc(), **more)
            if outcome == FAILED:
                raise
        else:
            self._write(number, end=DONE, **more)
        finally:
            self._began_ms[self._place] = outer_ms

    def _outcome(self, error: BaseException, may: Sequence[str]) -> str:
        match error:
            case OutcomeUnknownError() | CommittedError():
                return UNKNOWN
            case ConflictError() | UnavailableError() | SnapshotExpiredError():
                return REFUSED
            case InvalidInputError():
                is_known = any(each in str(error) for each in (*may, *_ALWAYS))
                return REFUSED if is_known or self._has_moved() else FAILED
            case FluvialError() | OSError():
                return UNKNOWN if self._has_moved() and not isinstance(error, LostFileError) else FAILED
            case _:
                return FAILED

    def _write(self, number: int, /, **line: Any) -> None:
        self.outcome = line.get("end", self.outcome)
        os.write(self._descriptor, json.dumps({"n": number, "t": time.monotonic_ns(), **line}).encode() + b"\n")


def read_journal(file: Path, slot: str, *, ended: int) -> list[Deed]:
    """The deeds of one process in their order; ``ended``: when it was found dead."""
    deeds: dict[int, Deed] = {}
    lines = file.read_text().split("\n")[:-1] if file.exists() else []
    for line in map(json.loads, lines):
        number, at = line.pop("n"), line.pop("t")
        if "begin" in line:
            deeds[number] = Deed(what=line.pop("begin"), slot=slot, began=at, ended=ended, facts=line)
        else:
            deed = deeds[number]
            deed.ended, deed.outcome, deed.error = at, line.pop("end"), line.pop("error", None)
            if "seen" in line:
                line["seen"] = {int(group): seen for group, seen in line["seen"].items()}
            deed.facts |= line
    return list(deeds.values())
