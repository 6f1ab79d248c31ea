"""The plan of a history: everything that decides it, also as text."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from engine.simulation.scheduler import Fault, Intervention, Schedule
from engine.simulation.schedules import InterventionRates, PlacedSchedule, RandomSchedule
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryPlan:
    """Everything that decides a history."""

    actors: tuple[tuple[str, ...], ...]  # names of operations
    setup: str = "keyed"
    file_format: str = "parquet"
    is_object_store: bool = False
    seed: int | None = None  # of a random schedule
    rates: InterventionRates | None = None  # of a random schedule
    choices: tuple[tuple[int, int, Intervention], ...] = ()  # of a placed one: actor, own step

    def schedule(self) -> Schedule:
        """The schedule, from its beginning."""
        if self.seed is not None and self.rates is not None:
            return RandomSchedule(random.Random(f"schedule {self.seed}"), self.rates)
        return PlacedSchedule({(actor, step): choice for actor, step, choice in self.choices})

    def to_json(self) -> str:
        """The plan as text, from which ``of_json`` makes it again."""
        return orjson.dumps(self).decode()

    @classmethod
    def of_json(cls, text: str) -> "HistoryPlan":
        """The plan of a text. Raises: InvalidInputError."""
        try:
            body = orjson.loads(text)
            choices = tuple((actor, step, _choice(found)) for actor, step, found in body.pop("choices"))
            rates = None if body["rates"] is None else InterventionRates(**body["rates"])
            actors = tuple(tuple(names) for names in body.pop("actors"))
            return cls(**{**body, "rates": rates}, actors=actors, choices=choices)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidInputError(f"not the plan of a history: text={text[:200]} error={error!r}") from error

    def __str__(self) -> str:
        where = "object store" if self.is_object_store else "disk"
        actors = " | ".join(" ".join(names) for names in self.actors)
        places = " ".join(f"{actor}@{step}={_choice_text(choice)}" for actor, step, choice in self.choices)
        how = f"seed={self.seed}" if self.seed is not None else places or "no intervention"
        return f"{actors} ({self.setup}, {self.file_format}, {where}; {how})"


def _choice(body: Mapping[str, Any]) -> Intervention:
    fault = body["fault"]
    return Intervention(pause=body["pause"], crash=body["crash"], fault=None if fault is None else Fault(fault))


def _choice_text(choice: Intervention) -> str:
    parts = [f"pause{choice.pause}"] if choice.pause else []
    parts += ["crash"] if choice.crash else []
    parts += [choice.fault.value] if isinstance(choice.fault, Fault) else []
    return "+".join(parts)
