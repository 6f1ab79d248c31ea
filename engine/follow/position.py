"""The position of a program that follows a table: a position of a stream, and how far the next batch is delivered.

A batch lies between two positions of a stream, and a position within it counts its rows. It names what it counts, the
reading, which a later one repeats or is refused. So a caller who keeps results and position in one transaction gets
each row once. Between batches nothing is counted, and the text is that of a position in Spark's checkpoint.

    {"at": {"version": 1, "phase": "log", ...}, "to": {...}, "rows": 4096, "reading": {"schema": 3, "columns": "0-2"}}
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from engine.follow.reading import BatchReading
from engine.stream.position.position import Position
from lsm.errors import CorruptDataError, InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowPosition:
    """What a program has received of a table. As text it can be stored anywhere."""

    at: Position  # everything before is delivered
    to: Position | None = None  # end of the batch that is being delivered; None: none is
    row_count: int = 0  # delivered of that batch
    reading: BatchReading | None = None  # what the rows are counted of; None: written by a former version, or none are
    asked: str = ""  # by a former version: a digest of share, filter and options

    def __str__(self) -> str:
        body = _json(self.at)
        if self.to is not None:
            of = {"of": self.asked} if self.reading is None else {"reading": self.reading.to_json()}
            body = {"at": body, "to": _json(self.to), "rows": self.row_count, **of}
        return json.dumps(body, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> "FollowPosition":
        """The inverse of ``str``; takes positions in Spark's checkpoints too.

        Raises:
            InvalidInputError: not a position, or one of a newer Fluvial.
        """
        try:
            body = json.loads(text)
            return cls._of_json(body)
        except (
            CorruptDataError,
            ArithmeticError,
            AttributeError,
            KeyError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise InvalidInputError(
                f"not a position of a stream: start={text[:200]!r} reason={error} fix=pass on str(changes.position)"
            ) from error

    @classmethod
    def _of_json(cls, body: Mapping[str, Any]) -> "FollowPosition":
        if "at" not in dict(body):
            return cls(at=Position.from_json(body).place)
        return cls(
            at=Position.from_json(body["at"]).place,
            to=Position.from_json(body["to"]),
            row_count=int(body["rows"]),
            reading=BatchReading.from_json(body["reading"]) if "reading" in body else None,
            asked="" if "reading" in body else str(body["of"]),
        )

    @property
    def snapshot_id(self) -> int:
        """The newest snapshot of which every change is delivered; 0: none."""
        return self.at.snapshot_id


def _json(position: Position) -> dict[str, Any]:
    """Without what lineage adds: positions leave the house, and name no directory."""
    return replace(position, read=None, begin=None).to_json()
