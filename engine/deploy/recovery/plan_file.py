"""The file of a recovery: its plan and how far it is. Written before a step is begun, and replaced as a whole.

What the file says is never ahead of the tables: a step is marked after its end, and each step finds out by itself what
an earlier attempt has done.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from engine.deploy.recovery.recovery_plan import RecoveryPlan
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError

_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryState:
    """How far a recovery is."""

    facts: Mapping[int, str] = field(default_factory=dict)  # of the steps that are done, by index
    checked: Mapping[str, int] = field(default_factory=dict)  # newest snapshot of each branch when it was checked
    is_publishing: bool = False  # from then on there is no way back
    is_abandoned: bool = False  # and from then on no way forward

    def with_fact(self, index: int, fact: str) -> "RecoveryState":
        """The state after a step."""
        return replace(self, facts={**self.facts, index: fact})


class PlanFile:
    """A plan file that this process alone works on."""

    def __init__(self, path: Path, plan: RecoveryPlan, state: RecoveryState) -> None:
        """Made by ``opened`` and ``created``."""
        self.path, self.plan, self.state = path, plan, state

    def save(self, state: RecoveryState) -> None:
        """Replace the state; after a crash the file has the old one or the new one."""
        self.state = state
        body = {
            "version": _VERSION,
            "plan": self.plan.to_json(),
            "done": {str(index): fact for index, fact in state.facts.items()},
            "checked": dict(state.checked),
            "publishing": state.is_publishing,
            "abandoned": state.is_abandoned,
        }
        write_whole(self.path, json.dumps(body, indent=2, ensure_ascii=False))


def read_plan(path: Path) -> PlanFile | None:
    """A plan file; None when there is none. Raises: CorruptDataError."""
    try:
        body: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise CorruptDataError(f"plan file cannot be read: file={path} reason={error}") from error
    if body.get("version") != _VERSION:
        raise InvalidInputError(f"plan file is of another version: file={path} version={body.get('version')}")
    try:
        state = RecoveryState(
            facts={int(index): fact for index, fact in body["done"].items()},
            checked=body["checked"],
            is_publishing=body["publishing"],
            is_abandoned=body.get("abandoned", False),
        )
        return PlanFile(path, RecoveryPlan.from_json(body["plan"]), state)
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"plan file cannot be read: file={path} reason={error!r}") from error


@contextmanager
def alone_with(path: Path) -> Iterator[None]:
    """Lock the recovery against other processes. Raises: ConflictError: another process holds the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_name(f".{path.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConflictError(f"another process carries out this recovery: file={path} fix=wait for it") from error
        yield


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there as a whole or not at all, also after a loss of power."""
    growing = path.with_name(f".{path.name}.tmp")
    with growing.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    growing.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
