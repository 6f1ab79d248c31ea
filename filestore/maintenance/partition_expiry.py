"""Partition expiry: finds partitions that are too old, by the time in their values or by their last update.

Source: Paimon PartitionTimeExtractor, PartitionValuesTimeExpireStrategy, PartitionUpdateTimeExpireStrategy;
``partition.expiration-*`` and ``partition.timestamp-*``.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from filestore.maintenance.partitions import PartitionState, list_partitions
from filestore.table_store import TableStore
from filestore.types.partition_text import partition_text
from lsm.errors import InvalidInputError

ExpiryStrategy = Literal["values-time", "update-time"]
_DEFAULT_FORMATS: Final = ("yyyy-MM-dd HH:mm:ss", "yyyy-MM-dd", "yyyyMMdd")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FIELDS: Final = {
    "yyyy": r"(?P<year>\d{4})",
    "uuuu": r"(?P<year>\d{4})",
    "MM": r"(?P<month>\d{2})",
    "M": r"(?P<month>\d{1,2})",
    "dd": r"(?P<day>\d{2})",
    "d": r"(?P<day>\d{1,2})",
    "HH": r"(?P<hour>\d{2})",
    "H": r"(?P<hour>\d{1,2})",
    "mm": r"(?P<minute>\d{2})",
    "ss": r"(?P<second>\d{2})",
    "SSS": r"(?P<millisecond>\d{3})",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionClock:
    """How to parse a time from the values of a partition."""

    pattern: str | None = None  # "$year-$month-$day $hour:00:00"; None: the first column
    formatter: str | None = None  # Java pattern, "yyyyMMdd"; None: SQL date or timestamp, or yyyyMMdd

    def time_ms(self, values: Mapping[str, str]) -> int | None:
        """Milliseconds of the wall clock as if it were UTC; None when the values are not a time.

        Args:
            values: texts by partition column, in column order.

        Raises:
            InvalidInputError: the pattern refers to an unknown column, or the formatter is not supported.
        """
        text = self._text(values)
        for form in (self.formatter,) if self.formatter else _DEFAULT_FORMATS:
            match = _form(form).fullmatch(text)
            if match is None:
                continue
            parts = {name: int(digits) for name, digits in match.groupdict().items()}
            milliseconds = parts.pop("millisecond", 0)
            try:
                moment = datetime(**({"month": 1, "day": 1} | parts), tzinfo=UTC)
            except (ValueError, TypeError):
                return None
            return round((moment - _EPOCH).total_seconds()) * 1000 + milliseconds
        return None

    def _text(self, values: Mapping[str, str]) -> str:
        if self.pattern is None:
            return next(iter(values.values()))

        def value(match: re.Match[str]) -> str:
            # the longest column name that the text after the $ starts with: both "$dt" and "$dt_hour" may exist
            names = [name for name in values if match[1].startswith(name)]
            if not names:
                raise InvalidInputError(
                    f"pattern has no partition column: partition.timestamp-pattern={self.pattern!r} "
                    f"found=${match[1]} partition_columns={list(values)}"
                )
            name = max(names, key=len)
            return values[name] + match[1][len(name) :]

        return re.sub(r"\$(\w+)", value, self.pattern)


def partitions_to_expire(store: TableStore) -> list[PartitionState]:
    """The partitions older than the table's options allow, oldest first; none if the options set no age."""
    options = store.options
    age_ms = options.partition_expiration_time_ms
    if age_ms is None or not store.schema.partition_keys:
        return []
    clock = PartitionClock(pattern=options.partition_timestamp_pattern, formatter=options.partition_timestamp_formatter)
    return expired_partitions(
        store,
        list_partitions(store, store.snapshots.latest()),
        age_ms=age_ms,
        strategy=options.partition_expiration_strategy,
        clock=clock,
        limit=options.partition_expiration_max_num,
    )


def expired_partitions(
    store: TableStore,
    states: Iterable[PartitionState],
    *,
    age_ms: int,
    strategy: ExpiryStrategy,
    clock: PartitionClock,
    limit: int,
) -> list[PartitionState]:
    """The partitions older than a given age, oldest first.

    Args:
        store: the table.
        states: partitions of the table.
        age_ms: maximum age.
        strategy: start of the age; with ``values-time`` partitions without a time in their values are kept.
        clock: how to parse times from values.
        limit: maximum number of partitions.
    """
    before_ms = store.clock.local_ms() - age_ms
    dated = [(_time_ms(store, state, strategy, clock), state) for state in states]
    old = [(time_ms, state) for time_ms, state in dated if time_ms is not None and time_ms < before_ms]
    return [state for _, state in sorted(old, key=lambda each: (each[0], each[1].path))][:limit]


def _time_ms(store: TableStore, state: PartitionState, strategy: ExpiryStrategy, clock: PartitionClock) -> int | None:
    if strategy == "update-time":
        return state.last_update_ms
    return clock.time_ms(_texts(store, state.partition))


def _texts(store: TableStore, partition: bytes) -> Mapping[str, str]:
    fields, values = store.schema.partition_fields, store.partition_values(partition)
    return {
        field.name: partition_text(value, field.type, store.options, legacy=False)
        for field, value in zip(fields, values, strict=True)
    }


def _form(form: str) -> re.Pattern[str]:
    """A regular expression for the subset of Java's DateTimeFormatter patterns used for partitions."""
    pieces = []
    for match in re.finditer(r"'(?P<quoted>[^']*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>.)", form):
        if match["letters"]:
            if match["letters"] not in _FIELDS:
                raise InvalidInputError(
                    f"formatter has an unsupported part: partition.timestamp-formatter={form!r} "
                    f"part={match['letters']} known={_known(_FIELDS)}"
                )
            pieces.append(_FIELDS[match["letters"]])
        else:
            pieces.append(re.escape(match["quoted"] if match["quoted"] is not None else match["other"]))
    try:
        return re.compile("".join(pieces))
    except re.error as error:
        raise InvalidInputError(
            f"formatter has a duplicate part: partition.timestamp-formatter={form!r} error={error}"
        ) from error


def _known(fields: Mapping[str, str]) -> Sequence[str]:
    return sorted(fields)
