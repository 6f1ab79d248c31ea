"""Findings that are not mended yet: what they are known by, so that they do not hide others. None at the end."""

from collections.abc import Callable, Mapping
from typing import Final

from tests.crossings.run import Violation

Predicate = Callable[[Violation], bool]


def _ways(found: Violation) -> set[str]:
    return {name for name, _ in found.history.steps}


def _expired_within_a_batch(found: Violation) -> bool:
    return found.what == "follow mismatch" and found.history.cell["expiry"] != "none" and "wait" in _ways(found)


def _columns_within_a_batch(found: Violation) -> bool:
    if found.what != "follow mismatch":
        return False
    follows = [more for name, more in found.history.steps if name == "follow"]
    return any("normalize" in more or "filter" in more for more in follows)


def _consumer_before_its_first_batch(found: Violation) -> bool:
    return found.what == "follow CorruptDataError" and found.history.steps[-1][1].get("consumer") is True


def _rolled_back_and_bounded(found: Violation) -> bool:
    return found.what == "follow mismatch" and "rollback" in _ways(found)


def _difference_to_other_columns(found: Violation) -> bool:
    return found.what in ("difference mismatch", "incremental mismatch") and bool({"drop", "add"} & _ways(found))


def _difference_to_what_is_not_seen(found: Violation) -> bool:
    cell = found.history.cell
    is_late = cell["vectors"] in ("on", "wide") or cell["engine"] == "first-row" or cell["bucket"] == "postponed"
    return found.what in ("difference mismatch", "incremental mismatch") and is_late


KNOWN: Final[Mapping[str, Predicate]] = {
    "B2: rows expire within a batch of a stream": _expired_within_a_batch,
    "B3: a position within a batch does not know the columns": _columns_within_a_batch,
    "B4: a consumer holds nothing before its first batch": _consumer_before_its_first_batch,
    "B7: a bounded stream does not notice a rollback": _rolled_back_and_bounded,
    "B8: a difference to other columns depends on compactions": _difference_to_other_columns,
    "N2: a difference has rows that no read shows": _difference_to_what_is_not_seen,
}


def known_as(found: Violation) -> str | None:
    """The finding that a violation is of."""
    return next((name for name, matches in KNOWN.items() if matches(found)), None)
