"""When tags and savepoints make themselves: which periods are over, what tags are called, and which are too many.

Pure decisions over a clock and the names there are. Times are milliseconds of the wall clock of one zone
(``sink.process-time-zone``, on every machine) as if it were UTC; watermarks are event times, in no zone.
Source: Paimon TagPeriodHandler and TagAutoCreation, from which names and delays are.
"""

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from filestore.options.parsing import time_of_day_ms
from filestore.options.table.common import DAY_MS
from filestore.options.table_options import TableOptions
from filestore.options.time_zone import UTC_ZONE, TimeZone
from lsm.errors import InvalidInputError

_HOUR_MS: Final = 3_600_000
_MINUTE_MS: Final = 60_000
_MOST_AT_ONCE: Final = 100
_PERIODS: Final = {"daily": DAY_MS, "hourly": _HOUR_MS, "two-hours": 2 * _HOUR_MS}
_DATES: Final = {"with_dashes": "%Y-%m-%d", "without_dashes": "%Y%m%d", "without_dashes_and_spaces": "%Y%m%d"}
_NEVER_ZERO: Final = frozenset(
    {
        "tag.default-time-retained", "tag.create-interval", "tag.creation-period-duration", "savepoint.create-interval",
        "log.retention", "partition.expiration-time", "record-level.expire-time", "consumer.expiration-time",
        "scan.plan-auto-tag-for-read.time-retained",
    }
)  # fmt: skip
_OF_DELAYS: Final = frozenset(
    {"tag.automatic-creation", "tag.creation-delay", "tag.creation-period", "tag.creation-period-duration"}
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TagClock(StrEnum):
    """The clock that decides whether a period has ended."""

    PROCESS_TIME = "process-time"
    WATERMARK = "watermark"


@dataclass(frozen=True, slots=True, kw_only=True)
class TagSchedule:
    """Tags at the ends of periods, which follow each other without a gap."""

    clock: TagClock
    period_ms: int
    first_ms: int = 0  # one of the ends
    delay_ms: int = 0  # after an end until its state is taken
    form: str  # of names, for strftime
    names_end: bool = False  # a tag is named by the end of its period; else by the start
    fills_gaps: bool = False
    most: int | None = None  # tags that are kept
    zone: TimeZone = UTC_ZONE  # of the wall clock

    @classmethod
    def of(cls, options: TableOptions) -> "TagSchedule | None":
        """The schedule in the options of a table; None: no tags by the clock.

        Raises: InvalidInputError for options that contradict each other, or whose names would be numbers.
        """
        mode, kept = options.tag_automatic_creation, options.tag_num_retained_max
        is_by_day = options.tag_create_time is not None or options.tag_create_interval_ms is not None
        if is_by_day:
            if mode != "none":
                raise InvalidInputError(
                    f"tags are made by one rule: tag.automatic-creation={mode} tag.create-time="
                    f"{options.tag_create_time} tag.create-interval={options.tag_create_interval_ms} "
                    "fix=remove tag.automatic-creation, or the other two"
                )
            return cls(
                clock=TagClock.PROCESS_TIME,
                period_ms=_whole_days(options, TableOptions.tag_create_interval_ms.key, options.tag_create_interval_ms),
                first_ms=_tag_time_ms(options),
                form="%Y-%m-%d",
                names_end=True,
                fills_gaps=options.tag_automatic_completion,
                most=kept,
                zone=options.sink_process_time_zone,
            )
        if mode not in {*TagClock}:
            return None
        period_ms = options.tag_creation_period_duration_ms or _PERIODS[options.tag_creation_period]
        if period_ms % _MINUTE_MS:
            raise InvalidInputError(
                f"tags are named by minutes: tag.creation-period-duration="
                f"{options.shown().get('tag.creation-period-duration')} fix=set it to whole minutes"
            )
        return cls(
            clock=TagClock(mode),
            period_ms=period_ms,
            delay_ms=options.tag_creation_delay_ms,
            form=_form(options, period_ms),
            fills_gaps=options.tag_automatic_completion,
            most=kept,
            zone=options.sink_process_time_zone if mode == TagClock.PROCESS_TIME else UTC_ZONE,
        )

    def latest_end(self, clock_ms: int) -> int:
        """The end of the last period that has ended, its delay included."""
        return (clock_ms - self.delay_ms - self.first_ms) // self.period_ms * self.period_ms + self.first_ms

    def wait_ms(self, clock_ms: int) -> int:
        """Milliseconds until the next period ends; > 0."""
        return self.latest_end(clock_ms) + self.period_ms + self.delay_ms - clock_ms

    def name_of(self, end_ms: int) -> str:
        """Name of the tag of a period."""
        moment = _EPOCH + timedelta(milliseconds=end_ms if self.names_end else end_ms - self.period_ms)
        return moment.strftime(self.form)

    def end_of(self, name: str) -> int | None:
        """The end of the period of a tag; None: not an automatic tag."""
        try:
            moment = datetime.strptime(name, self.form).replace(tzinfo=UTC)
        except ValueError:
            return None
        day_ms = round((moment - _EPOCH).total_seconds() * 1000)
        end_ms = day_ms + self.first_ms % DAY_MS if self.names_end else day_ms + self.period_ms
        return end_ms if (end_ms - self.first_ms) % self.period_ms == 0 and self.name_of(end_ms) == name else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SavepointSchedule:
    """Savepoints some time after each other, or at the ends of the periods that daily tags have."""

    interval_ms: int = 0
    days: TagSchedule | None = None

    @classmethod
    def of(cls, options: TableOptions) -> "SavepointSchedule | None":
        """What the options of a table say; None: no savepoints by the clock. A time of day alone is daily."""
        interval_ms, time_ms = options.savepoint_create_interval_ms, options.savepoint_create_time_ms
        if time_ms is None:
            return None if interval_ms is None else cls(interval_ms=interval_ms)
        days = TagSchedule(
            clock=TagClock.PROCESS_TIME,
            period_ms=max(1, -(-(interval_ms or 0) // DAY_MS)) * DAY_MS,  # an older table may have parts of a day
            first_ms=time_ms,
            form="",
            zone=options.sink_process_time_zone,
        )
        return cls(days=days)

    def due_ms(self, saved_ms: int | None, *, began_ms: int | None) -> int:
        """When the next savepoint is due, in epoch milliseconds; 0: at once.

        Args:
            saved_ms: when the newest savepoint was made; None: there is none.
            began_ms: of the table's first snapshot; None: it has expired.
        """
        if self.days is None:
            return 0 if saved_ms is None else saved_ms + self.interval_ms
        last_ms = began_ms if saved_ms is None else saved_ms
        if last_ms is None:
            return 0
        return self.days.zone.epoch_ms(self.days.latest_end(self.days.zone.local_ms(last_ms)) + self.days.period_ms)


def check_periods(options: TableOptions, keys: Collection[str]) -> None:
    """Refuse periods that are set now and never pass, or never begin; tables that have them already keep them.

    Raises: InvalidInputError naming the option.
    """
    for key in sorted(_NEVER_ZERO & {*keys}):
        if options[TableOptions.declared[key]] == 0:
            raise InvalidInputError(f"a time of nothing: option={key} value={options.shown()[key]} fix=set it to more")
    interval, time = TableOptions.savepoint_create_interval_ms.key, TableOptions.savepoint_create_time_ms.key
    if {interval, time} & {*keys} and options.savepoint_create_time_ms is not None:
        _whole_days(options, interval, options.savepoint_create_interval_ms)
        _time_of_day_ms(time, options.shown()[time])
    if not _OF_DELAYS & {*keys} or options.tag_automatic_creation not in {*TagClock}:
        return
    schedule = TagSchedule.of(options)
    if schedule is not None and schedule.delay_ms >= schedule.period_ms:
        raise InvalidInputError(
            "the tag of a period would be made after the end of the next: "
            f"tag.creation-delay={options.shown()['tag.creation-delay']} period_ms={schedule.period_ms} "
            "fix='set tag.creation-delay to less than the period'"
        )


def due_ends(
    schedule: TagSchedule, *, clock_ms: int, tags: Collection[str], noted_ms: int | None, again: bool = False
) -> list[int]:
    """The ends of the periods that want a tag now, oldest first.

    Args:
        schedule: of the table.
        clock_ms: now, or the newest watermark.
        tags: names of all there are.
        noted_ms: the last end for which a tag was made, which may be deleted since; None: none ever was.
        again: that counts for nothing.

    Returns:
        Without those that have a tag. The last one that has ended, and with ``tag.automatic-completion`` all since the
        newest tag, as many as may be kept; a hundred at most, the rest is due next time.
    """
    newest = schedule.latest_end(clock_ms)
    made = [end for end in map(schedule.end_of, tags) if end is not None]
    done = max([*made, *([] if noted_ms is None or again else [noted_ms])], default=None)
    if done is not None and newest <= done:
        return []
    if done is None or not schedule.fills_gaps:
        return [newest]
    ends = range(done + schedule.period_ms, newest + 1, schedule.period_ms)
    return list(ends[-schedule.most if schedule.most else 0 :][:_MOST_AT_ONCE])


def too_many(schedule: TagSchedule, tags: Collection[str]) -> list[str]:
    """Names of the scheduled tags that are more than may be kept, oldest first."""
    ends = sorted((end, name) for name in tags if (end := schedule.end_of(name)) is not None)
    return [] if schedule.most is None else [name for _, name in ends[: -schedule.most]]


def _form(options: TableOptions, period_ms: int) -> str:
    form = str(options.tag_period_formatter)
    clock = "" if period_ms % DAY_MS == 0 else "%H" if period_ms % _HOUR_MS == 0 else "%H%M"
    space = "" if not clock or form == "without_dashes_and_spaces" else " "
    if form != "with_dashes" and not space:
        raise InvalidInputError(
            f"a tag cannot be named by a number, that is a snapshot id: tag.period-formatter={form} "
            f"tag.creation-period={options.tag_creation_period} fix=set tag.period-formatter=with_dashes"
        )
    return f"{_DATES[form]}{space}{clock}"


def _whole_days(options: TableOptions, key: str, interval_ms: int | None) -> int:
    """The interval beside a time of day; a day without one. Raises: InvalidInputError."""
    if interval_ms is None:
        return DAY_MS
    if interval_ms < DAY_MS or interval_ms % DAY_MS:
        raise InvalidInputError(
            f"{key.partition('.')[0]}s are made every so many days: {key}={options.shown().get(key)} "
            "fix=set it to 1 d or more, in whole days"
        )
    return interval_ms


def _tag_time_ms(options: TableOptions) -> int:
    text = options.tag_create_time
    return 0 if text is None else _time_of_day_ms(TableOptions.tag_create_time.key, text)


def _time_of_day_ms(key: str, text: str) -> int:
    if re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", text) is None:
        raise InvalidInputError(f"not a time of day: {key}={text} example=03:30")
    return time_of_day_ms(text)
