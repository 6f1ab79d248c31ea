"""What a check of a table found, and how much it matters."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import IntEnum
from typing import Any


class Severity(IntEnum):
    """How much a finding matters."""

    OK = 0
    NOTE = 1  # good to know
    WARNING = 2  # costs time or space
    CRITICAL = 3  # blocks writers, or will lose data


@dataclass(frozen=True, slots=True, kw_only=True)
class Symptom:
    """The result of one check."""

    check: str
    severity: Severity
    fact: str
    fix: str | None = None  # the option or command to change it, and the expected effect
    values: Mapping[str, Any] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """JSON values for scripts."""
        return asdict(self) | {"severity": self.severity.name.lower(), "values": dict(self.values)}
