"""Rules of a job on the rows that it writes (``expect``): what is done with rows that break one, and how many may.

The rules of a table (CHECK) are of ``filestore.predicate.row_rules``; both pass rows whose condition is null.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.runtime.metrics import record_broken_rows
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.expect")

FAIL: Final = "fail"
WARN: Final = "warn"
DROP: Final = "drop"
DEAD_LETTER: Final = "dead-letter"
ON_FAIL: Final = (FAIL, DROP, DEAD_LETTER, WARN)
EXPECT_KEY: Final = "fluvial.expect"
"""Property of a snapshot: by rule its condition, what is done, and how many of how many rows broke it, as JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A rule of a job."""

    name: str
    condition: str
    on_fail: str = FAIL
    max_count: int | None = None  # rows of a batch that may break it; more fail the batch. None: any number
    max_share: float | None = None  # likewise, of all rows of the batch

    @property
    def leaves_out(self) -> bool:
        """Whether rows that break it are not written."""
        return self.on_fail in (DROP, DEAD_LETTER)

    @property
    def reason(self) -> str:
        """Why a row is a dead letter."""
        return f"row breaks a rule: rule={self.name} condition='{self.condition}'"

    def allows(self, broken: int, rows: int) -> bool:
        """Whether so many rows of a batch may break it."""
        if self.on_fail == FAIL:
            return broken == 0
        most = min(
            rows if self.max_count is None else self.max_count,
            rows if self.max_share is None else int(self.max_share * rows),
        )
        return broken <= most


class BrokenRowsError(InvalidInputError):
    """More rows of a batch break a rule than it allows; nothing of the batch was written."""


def check_broken(
    table: str, rules: Sequence[Expectation], broken: Sequence[int], rows: int, examples: Sequence[Sequence[Any]]
) -> None:
    """Refuse a batch. Raises: BrokenRowsError naming the first rule that does not allow it, its count and some rows.

    Args:
        table: that the batch is for.
        rules: of the job.
        broken: by rule, the rows that break it.
        rows: of the batch, deletes and old values not counted.
        examples: by rule, some of these rows.
    """
    for rule, count, shown in zip(rules, broken, examples, strict=True):
        if not rule.allows(count, rows):
            limits = {"max-count": rule.max_count, "max-share": rule.max_share}
            given = "".join(f" {key}={value}" for key, value in limits.items() if value is not None)
            raise BrokenRowsError(
                f"rows break a rule of the job: table={table} rule={rule.name} condition='{rule.condition}' "
                f"rows={count} of={rows}{given} on-fail={rule.on_fail} examples={list(shown)} "
                "fix='correct the source or the transform, or say what becomes of such rows: on-fail: drop, "
                "dead-letter or warn'"
            )


def note_of(rules: Sequence[Expectation], broken: Sequence[int], rows: int) -> str:
    """The property of the snapshot."""
    return json.dumps(
        {
            rule.name: {"condition": rule.condition, "on_fail": rule.on_fail, "rows": count, "of": rows}
            for rule, count in zip(rules, broken, strict=True)
        }
    )


def report_broken(table: str, rules: Sequence[Expectation], broken: Sequence[int], rows: int, batch_id: int) -> None:
    """Count rows that broke a rule in the metrics, and warn of them."""
    for rule, count in zip(rules, broken, strict=True):
        record_broken_rows(table, rule.name, rule.on_fail, count)
        if count:
            logger.warning(
                "rows break a rule: table=%s batch=%d rule=%s condition='%s' rows=%d of=%d on-fail=%s",
                table, batch_id, rule.name, rule.condition, count, rows, rule.on_fail,
            )  # fmt: skip


def outcomes_of(properties: Mapping[str, str]) -> Mapping[str, Mapping[str, Any]]:
    """The outcome of each rule in a snapshot's batch; empty: the snapshot has none."""
    try:
        found = json.loads(properties.get(EXPECT_KEY, "{}"))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
