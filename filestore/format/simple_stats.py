"""Lower and upper bounds and null counts of columns, as stored in manifests."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from filestore.types.binary_row import EMPTY_ROW


@dataclass(frozen=True, slots=True, kw_only=True)
class SimpleStats:
    """Minimum, maximum and null count of some columns; which columns is stored elsewhere."""

    min_values: bytes  # BinaryRow, null where unknown
    max_values: bytes
    null_counts: tuple[int | None, ...] | None

    def to_avro(self) -> dict[str, Any]:
        """The Avro record in a manifest."""
        counts = None if self.null_counts is None else list(self.null_counts)
        return {"_MIN_VALUES": self.min_values, "_MAX_VALUES": self.max_values, "_NULL_COUNTS": counts}

    @classmethod
    def from_avro(cls, record: Mapping[str, Any]) -> "SimpleStats":
        """Parse the Avro record of a manifest, by any writer."""
        counts = record.get("_NULL_COUNTS")
        return cls(
            min_values=record["_MIN_VALUES"],
            max_values=record["_MAX_VALUES"],
            null_counts=None if counts is None else tuple(counts),
        )


EMPTY_STATS: Final = SimpleStats(min_values=EMPTY_ROW, max_values=EMPTY_ROW, null_counts=())
