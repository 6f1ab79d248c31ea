"""One history: drawn by a seed or given, played against its oracle, and what is wrong with the product if it is."""

import random
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lsm.errors import FluvialError
from tests.crossings import drawing
from tests.crossings.covering import Cell
from tests.crossings.history import History, Step
from tests.crossings.operations import OPERATIONS
from tests.crossings.oracle import MismatchError
from tests.crossings.play import Play, RefusedError, SkippedError
from tests.crossings.ways import WAYS
from tests.crossings.world import world


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """The product does something else than its pages say."""

    history: History  # up to the step that shows it
    what: str  # the step's name, and how it shows: as a wrong row or as an error
    message: str

    def __str__(self) -> str:
        return f"{self.what}: {self.message}\n{self.history.lines()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a history."""

    history: History
    done: tuple[str, ...]  # names of the steps that were not skipped
    violation: Violation | None = None


def replayed(history: History) -> Outcome:
    """A history as it is given."""
    return _played(history.cell, history.steps, None, 0)


def drawn(cell: Cell, seed: object, *, steps: int = 7, looks: int = 3) -> Outcome:
    """A history of a table, by a seed.

    Args:
        cell: the choices for the table.
        seed: any value; the same one gives the same history.
        steps: operations.
        looks: ways to read that are tried after each of them.
    """
    return _played(cell, None, random.Random(f"{seed}"), steps, looks)


def _played(
    cell: Cell, given: Sequence[Step] | None, chance: random.Random | None, count: int, looks: int = 0
) -> Outcome:
    taken: list[Step] = []
    done: list[str] = []

    def outcome(what: str = "", message: str = "") -> Outcome:
        history = History(cell=cell, steps=tuple(taken))
        found = Violation(history=history, what=what, message=message) if what else None
        return Outcome(history=history, done=tuple(done), violation=found)

    with world() as place:
        try:
            play = Play(cell, place)
        except RefusedError:
            return outcome()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is what this history shows
            return outcome(f"create {_kind(error)}", _text(error))
        for step in _steps(play, given, chance, count, looks):
            taken.append(step)
            name, arguments = step
            try:
                (OPERATIONS.get(name) or WAYS[name])(play, **arguments)
                play.after(step)
                done.append(name)
            except SkippedError:
                if chance is not None:
                    taken.pop()
            except Exception as error:  # noqa: BLE001 - as above
                return outcome(f"{name} {_kind(error)}", _text(error))
    return outcome()


def _steps(
    play: Play, given: Sequence[Step] | None, chance: random.Random | None, count: int, looks: int
) -> Iterator[Step]:
    if given is not None or chance is None:
        yield from given or ()
        return
    for _ in range(count):
        step = drawing.operation(play, chance)
        yield step
        yield from drawing.looks(play, chance, step, looks)
    for name in sorted(play.followers):
        known = play.followers[name]
        yield (
            "follow",
            {
                "name": name,
                **({"filter": known.filter} if known.filter is not None else {}),
                **({"normalize": True} if play.shape.has_key and name in "pq" else {}),
                **({"consumer": True} if name == "s" else {}),
            },
        )
    yield "verify", {}


def _kind(error: Exception) -> str:
    if isinstance(error, MismatchError):
        return "mismatch"
    return type(error).__name__ if isinstance(error, FluvialError) else f"raised {type(error).__name__}"


def _text(error: Exception) -> str:
    if isinstance(error, MismatchError | FluvialError):
        return str(error)
    return "".join(traceback.format_exception(error)[-3:])
