"""Tags that make themselves: when, of which snapshot, under which names, and which go again."""

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.branch.branches import create_branch, delete_branch
from filestore.evolution.schema_change import SetOption, apply_changes
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.options.table_options import TableOptions
from filestore.options.tag_schedule import DAY_MS, SavepointSchedule, TagSchedule, due_ends, too_many
from filestore.options.time_zone import parse_time_zone
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from filestore.tag.automatic_tags import create_batch_tag, create_due_tags, creates_tags
from filestore.tag.tags import delete_tag, expired_tags
from lsm.errors import InvalidInputError
from tests.filestore.refs.test_versions import commit_with_watermark
from tests.support.faults import paused_before
from tests.support.tables import content, key_table, newest_snapshot, rows


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def schedule(**options: str) -> TagSchedule:
    texts = {f"tag.{key.replace('_', '-')}": text for key, text in options.items()}
    found = TagSchedule.of(TableOptions.parse(texts))
    assert found is not None
    return found


PROCESS = {"automatic_creation": "process-time"}


@pytest.mark.parametrize(
    ("options", "now", "name"),
    [
        (PROCESS, "2026-02-01 00:00", "2026-01-31"),  # a day's tag has the name of the day that is over
        (PROCESS, "2026-01-31 23:59:59.999", "2026-01-30"),
        ({**PROCESS, "creation_delay": "10 min"}, "2026-02-01 00:09:59", "2026-01-30"),
        ({**PROCESS, "creation_delay": "10 min"}, "2026-02-01 00:10", "2026-01-31"),
        ({**PROCESS, "creation_period": "hourly"}, "2026-02-01 08:30", "2026-02-01 07"),
        ({**PROCESS, "creation_period": "two-hours"}, "2026-02-01 09:30", "2026-02-01 06"),
        (
            {**PROCESS, "creation_period": "hourly", "period_formatter": "without_dashes"},
            "2026-02-01 08:30",
            "20260201 07",
        ),
        ({**PROCESS, "creation_period_duration": "15 min"}, "2026-02-01 08:31", "2026-02-01 0815"),
        ({"create_time": "03:30"}, "2026-02-01 03:30", "2026-02-01"),  # the seed's: named by the day it is made on
        ({"create_time": "03:30"}, "2026-02-01 03:29", "2026-01-31"),
        ({"create_interval": "1 d"}, "2026-02-01 00:00", "2026-02-01"),
        ({"create_time": "03:30", "create_interval": "7 d"}, "2026-02-01 12:00", "2026-01-29"),
    ],
)
def test_the_last_period_that_is_over_and_its_name(options: dict[str, str], now: str, name: str) -> None:
    """TAG-58, TAG-59: time of day, whole days between; and Paimon's periods, delay and forms."""
    rule = schedule(**options)
    end = rule.latest_end(ms(now))
    assert rule.name_of(end) == name
    assert rule.end_of(name) == end
    assert due_ends(rule, clock_ms=ms(now), tags=[], noted_ms=None) == [end]
    assert rule.latest_end(ms(now) + rule.wait_ms(ms(now))) == end + rule.period_ms
    assert rule.latest_end(ms(now) + rule.wait_ms(ms(now)) - 1) == end


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"create_interval": "36 h"}, r"every so many days: tag.create-interval=36 h fix=set it to 1 d or more"),
        ({"create_interval": "12 h"}, "every so many days"),
        ({"create_time": "3:30"}, r"not a time of day: tag.create-time=3:30 example=03:30"),
        ({"create_time": "24:00"}, "not a time of day"),
        ({"create_time": "03:30", **PROCESS}, "tags are made by one rule"),
        ({**PROCESS, "creation_period_duration": "90 s"}, "fix=set it to whole minutes"),
        ({**PROCESS, "period_formatter": "without_dashes"}, r"cannot be named by a number.*with_dashes"),
        (
            {**PROCESS, "period_formatter": "without_dashes_and_spaces", "creation_period": "hourly"},
            "cannot be named by a number",
        ),
    ],
)
def test_rules_that_cannot_be_are_refused(options: dict[str, str], says: str) -> None:
    """TAG-13, TAG-58, TAG-59."""
    with pytest.raises(InvalidInputError, match=says):
        schedule(**options)


def slow_due(rule: TagSchedule, now: int, tags: Sequence[str], noted: int | None) -> list[int]:
    """Every minute of some weeks is looked at."""
    ends = [m for m in range(now - 40 * DAY_MS, now + 1, 60_000) if (m - rule.first_ms) % rule.period_ms == 0]
    over = [end for end in ends if end + rule.delay_ms <= now]
    done = [end for end in ends if rule.name_of(end) in tags or (noted is not None and end <= noted)]
    missing = [end for end in over if not done or end > max(done)]
    if not rule.fills_gaps or not done:
        return missing[-1:]
    return missing[-(rule.most or 10**9) :][:100]


@pytest.mark.sweep
@given(
    options=st.sampled_from(
        [
            {**PROCESS, "creation_delay": "90 min"},
            {**PROCESS, "creation_period": "two-hours", "creation_delay": "5 min"},
            {"create_time": "07:45", "create_interval": "3 d"},
        ]
    ),
    minutes=st.integers(0, 40 * 24 * 60),
    fills=st.booleans(),
    most=st.none() | st.integers(1, 5),
    tagged=st.sets(st.integers(1, 300), max_size=4),
    noted=st.none() | st.integers(1, 300),
)
def test_what_is_due_is_what_looking_at_every_minute_finds(
    options: dict[str, str], minutes: int, fills: bool, most: int | None, tagged: set[int], noted: int | None
) -> None:
    """TAG-60: over random clocks, tags that are there, and notes of tags that were."""
    more = {"automatic_completion": str(fills).lower(), **({} if most is None else {"num_retained_max": str(most)})}
    rule = schedule(**options, **more)
    now = ms("2026-03-01 00:00") + minutes * 60_000
    ends = [rule.latest_end(now) - (number - 1) * rule.period_ms for number in range(301)]
    names = [rule.name_of(ends[each]) for each in tagged if ends[each] > now - 40 * DAY_MS]
    noted_ms = None if noted is None or ends[noted] <= now - 40 * DAY_MS else ends[noted]
    assert due_ends(rule, clock_ms=now, tags=[*names, "mine"], noted_ms=noted_ms) == slow_due(
        rule, now, names, noted_ms
    )
    gone = too_many(rule, [*names, "mine"])
    assert len(names) - len(gone) == min(len(names), most or 10**9)
    assert all(rule.end_of(one) < rule.end_of(two) for one in gone for two in {*names} - {*gone})  # type: ignore[operator]


# ---- on a table


def daily(**more: str) -> FileTable:
    options = {"tag.automatic-creation": "process-time", **more}
    table = key_table(bucket="1", **options)
    set_clock(table, "2026-01-30 12:00")
    return table


def set_clock(table: FileTable, text: str) -> None:
    table.store.clock.ms = ms(text)  # type: ignore[attr-defined]


def made(table: FileTable, *, force: bool = False) -> dict[str, int]:
    return {tag.name: tag.snapshot.id for tag in create_due_tags(table.store, force=force).created}


def test_a_day_is_tagged_with_its_last_snapshot_whenever_somebody_looks() -> None:
    """TAG-60: also when nothing has been written since."""
    table = daily()
    assert creates_tags(table.store)
    assert not creates_tags(key_table().store)
    assert made(table) == {}  # nothing was there yesterday
    table.write(rows((1, 1)))
    table.write(rows((1, 2)))
    assert made(table) == {}
    set_clock(table, "2026-01-31 00:00:05")
    assert made(table) == {"2026-01-30": 2}
    assert made(table) == {}
    set_clock(table, "2026-02-01 10:00")
    table.write(rows((1, 3)))
    assert made(table) == {"2026-01-31": 2}
    assert content(table, tag="2026-01-31") == {1: 2}


def test_gaps_are_filled_where_that_is_asked_for() -> None:
    """paimon#1942: after an outage each day has its tag, with the state at its end."""
    table = daily(**{"tag.automatic-completion": "true"})
    table.write(rows((1, 1)))
    set_clock(table, "2026-01-31 00:01")
    assert made(table) == {"2026-01-30": 1}
    set_clock(table, "2026-02-02 12:00")
    table.write(rows((1, 2)))
    set_clock(table, "2026-02-04 08:00")
    assert made(table) == {"2026-01-31": 1, "2026-02-01": 1, "2026-02-02": 2, "2026-02-03": 2}


def test_a_snapshot_that_has_expired_is_replaced_by_the_oldest_that_is_left() -> None:
    table = daily()
    for turn in range(3):
        table.write(rows((1, turn)))
    set_clock(table, "2026-01-31 10:00")
    table.write(rows((1, 9)))
    list(expire_snapshots(table.store, Retention(min_count=1, max_count=1, age_ms=10**15, limit=9)))
    assert made(table) == {"2026-01-30": 4}


def test_a_tag_that_is_over_is_not_made_again_unless_it_is_forced() -> None:
    """TAG-60: a retention shorter than the period, or a tag that somebody deleted."""
    table = daily(**{"tag.default-time-retained": "1 h"})
    table.write(rows((1, 1)))
    set_clock(table, "2026-01-31 00:00")
    assert made(table) == {"2026-01-30": 1}
    set_clock(table, "2026-01-31 02:00")
    (over,) = expired_tags(table.store)
    delete_tag(table.store, over.name)
    assert made(table) == {}
    assert made(table, force=True) == {"2026-01-30": 1}


@pytest.mark.parametrize("operation", ["write_new", "create_exclusive"])
def test_a_process_that_dies_at_a_tag_loses_no_period(operation: str) -> None:
    """versions.md H2: the name of a tag that was never complete counted as made."""
    table = daily()
    table.write(rows((1, 1)))
    set_clock(table, "2026-01-31 00:00")

    def die() -> None:
        raise KeyboardInterrupt

    with paused_before(table.store.io, operation, die) as io, pytest.raises(KeyboardInterrupt):
        create_due_tags(replace(table.store, io=io))
    assert table.store.snapshots.tag_names() == []
    assert made(table) == {"2026-01-30": 1}
    assert content(table, tag="2026-01-30") == {1: 1}


def test_the_oldest_go_when_there_are_too_many_and_others_tags_stay() -> None:
    """tag.num-retained-max counts automatic tags only."""
    table = daily(**{"tag.num-retained-max": "2", "tag.automatic-completion": "true"})
    table.write(rows((1, 1)))
    for day in range(1, 5):
        set_clock(table, f"2026-02-0{day} 00:00")
        table.write(rows((1, day)))
        done = create_due_tags(table.store)
    assert done.deleted == ("2026-02-01",)
    assert table.store.snapshots.tag_names() == ["2026-02-02", "2026-02-03"]


def test_a_watermark_ends_periods_too() -> None:
    """tag.automatic-creation=watermark: the first snapshot that is complete up to the end of the day."""
    table = daily(**{"tag.automatic-creation": "watermark"})
    set_clock(table, "2027-01-01 00:00")
    for value, watermark in enumerate(["2026-01-30 20:00", "2026-01-31 00:00", "2026-01-31 09:00"], start=1):
        commit_with_watermark(table, value, ms(watermark))
    assert made(table) == {"2026-01-30": 2}
    assert made(key_table(bucket="1", **{"tag.automatic-creation": "watermark"})) == {}


def test_a_batch_write_has_a_tag_of_its_day() -> None:
    """tag.automatic-creation=batch: a second write of a day takes the name over."""
    table = key_table(bucket="1", **{"tag.automatic-creation": "batch", "tag.num-retained-max": "2"})
    shown = {}
    for day, hour in ((1, 10), (1, 20), (2, 10), (3, 10)):
        set_clock(table, f"2026-02-0{day} {hour}:00")
        snapshot = table.write(rows((1, hour * day))).snapshot
        assert snapshot is not None
        create_batch_tag(table.store, snapshot)
        shown[f"batch-write-2026-02-0{day}"] = snapshot.id
    names = table.store.snapshots.tag_names()
    assert {name: table.store.snapshots.tag(name).id for name in names} == {
        name: shown[name] for name in ("batch-write-2026-02-02", "batch-write-2026-02-03")
    }
    named = table.with_options({"tag.batch.customized-name": "load"})
    create_batch_tag(named.store, snapshot)
    assert table.store.snapshots.tag("load").id == snapshot.id


def test_a_batch_tag_from_which_a_branch_began_stays_and_later_writes_have_another() -> None:
    """versions.md L3: and surplus tags go nevertheless."""
    table = key_table(bucket="1", **{"tag.automatic-creation": "batch", "tag.num-retained-max": "2"})

    def load(text: str) -> tuple[str, ...]:
        set_clock(table, text)
        snapshot = table.write(rows((1, 1))).snapshot
        assert snapshot is not None
        done = create_batch_tag(table.store, snapshot)
        assert [tag.snapshot.id for tag in done.created] == [snapshot.id]
        return (*(tag.name for tag in done.created), *done.deleted)

    assert load("2026-02-01 10:00") == ("batch-write-2026-02-01",)
    create_branch(table.store, "dev", tag="batch-write-2026-02-01")
    assert load("2026-02-01 11:00") == ("batch-write-2026-02-01-2",)
    assert load("2026-02-01 12:00") == ("batch-write-2026-02-01-2",)
    create_branch(table.store, "fix", tag="batch-write-2026-02-01-2")
    assert load("2026-02-01 13:00") == ("batch-write-2026-02-01-3",)
    assert load("2026-02-02 10:00") == ("batch-write-2026-02-02",)
    assert load("2026-02-03 10:00") == ("batch-write-2026-02-03", "batch-write-2026-02-01-3")
    delete_branch(table.store, "dev")
    assert load("2026-02-03 11:00") == ("batch-write-2026-02-03", "batch-write-2026-02-01")
    assert content(table.on_branch("fix")) == {1: 1}


def test_days_begin_in_the_zone_of_the_table_on_every_machine() -> None:
    """versions.md L4: sink.process-time-zone, also where clocks change; batch tags too."""
    table = daily(**{"sink.process-time-zone": "Europe/Berlin", "tag.automatic-completion": "true"})
    set_clock(table, "2026-03-27 12:00")
    table.write(rows((1, 1)))
    set_clock(table, "2026-03-27 22:59:59")
    assert made(table) == {}
    set_clock(table, "2026-03-27 23:00:01")  # midnight in winter
    table.write(rows((1, 2)))
    assert made(table) == {"2026-03-27": 1}
    set_clock(table, "2026-03-29 21:59:58")
    table.write(rows((1, 3)))
    assert made(table) == {"2026-03-28": 2}
    set_clock(table, "2026-03-29 22:00:01")  # and in summer
    table.write(rows((1, 4)))
    assert made(table) == {"2026-03-29": 3}
    batch = table.with_options({"tag.automatic-creation": "batch"})
    assert [tag.name for tag in create_batch_tag(batch.store, newest_snapshot(table)).created] == [
        "batch-write-2026-03-30"
    ]


@pytest.mark.parametrize(
    ("zone", "offset_h"), [("UTC", 0), ("z", 0), ("+02:00", 2), ("GMT-3", -3), ("UTC+05:30", 5.5), ("Asia/Tokyo", 9)]
)
def test_a_zone_is_a_name_or_an_offset(zone: str, offset_h: float) -> None:
    found = parse_time_zone(zone)
    now = ms("2026-02-01 10:00")
    assert found.local_ms(now) - now == offset_h * 3_600_000
    assert found.epoch_ms(found.local_ms(now)) == now


@given(st.integers(ms("2020-01-01"), ms("2030-01-01")))
def test_a_wall_clock_is_of_its_moment_or_of_an_earlier_one_that_it_shows_twice(now: int) -> None:
    berlin = parse_time_zone("Europe/Berlin")
    local = berlin.local_ms(now)
    assert berlin.epoch_ms(local) in (now, now - 3_600_000)
    assert berlin.local_ms(berlin.epoch_ms(local)) == local


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"sink.process-time-zone": "Mars"}, "expected='a time zone, as Europe/Berlin, UTC or"),
        ({"sink.process-time-zone": "Europe"}, "expected='a time zone"),
        ({"sink.process-time-zone": "+99:00"}, "expected='a time zone"),
        ({"tag.automatic-creation": "process-time", "tag.creation-delay": "2 d"}, "tag.creation-delay=2 d period_ms"),
        ({"tag.automatic-creation": "watermark", "tag.creation-delay": "1 d"}, "less than the period"),
        ({"savepoint.create-interval": "0 s"}, "option=savepoint.create-interval value=0 s"),
        ({"savepoint.create-time": "03:00", "savepoint.create-interval": "36 h"}, "savepoint.create-interval=36 h fix"),
        ({"savepoint.create-interval": "6 h", "savepoint.create-time": "03:00"}, "savepoints are made every so many d"),
        ({"log.retention": "0"}, "a time of nothing: option=log.retention value=0 fix"),
        (
            {"log.retention": "7"},
            "without a unit is milliseconds: option=log.retention value=7 fix='write the unit, as",
        ),
        ({"savepoint.create-interval": "30"}, "without a unit is milliseconds: option=savepoint.create-interval"),
        ({"tag.default-time-retained": "7"}, "without a unit is milliseconds: option=tag.default-time-retained"),
        (
            {"snapshot.time-retained": "5"},
            "milliseconds: option=snapshot.time-retained value=5 fix='write the unit",
        ),
        ({"changelog.time-retained": " 7 "}, "without a unit is milliseconds: option=changelog.time-retained"),
        ({"consumer.expiration-time": "9"}, "without a unit is milliseconds: option=consumer.expiration-time"),
        ({"partition.expiration-time": "7"}, "without a unit is milliseconds: option=partition.expiration-time"),
        ({"partition.expiration-time": "0 d"}, "a time of nothing: option=partition.expiration-time value=0 d"),
        ({"consumer.expiration-time": "0"}, "a time of nothing: option=consumer.expiration-time value=0"),
        ({"scan.at-least.timeout": "30"}, "fix='write the unit, as 30 d or 30 ms'"),
        ({"tag.default-time-retained": "0 s"}, "option=tag.default-time-retained value=0 s"),
        ({"tag.creation-period-duration": "0 s"}, "option=tag.creation-period-duration value=0 s"),
        ({"tag.batch.customized-name": "123"}, "cannot be a number"),
        ({"tag.batch.customized-name": "latest"}, "the name is reserved"),
        ({"tag.batch.customized-name": "a:b"}, "invalid tag name"),
    ],
)
def test_periods_and_names_that_cannot_be_are_refused_when_they_are_set(options: dict[str, str], says: str) -> None:
    """versions.md L3, L4: at creation and by ALTER; a table that has one already can be altered otherwise."""
    with pytest.raises(InvalidInputError, match=re.escape(says).replace("\\ ", " ")):
        key_table(bucket="1", **options)
    schema = key_table(bucket="1").schema
    *before, last = options.items()
    for key, text in before:
        schema = apply_changes(schema, [SetOption(key, text)])
    with pytest.raises(InvalidInputError, match=re.escape(says).replace("\\ ", " ")):
        apply_changes(schema, [SetOption(*last)])
    if "zone" not in last[0]:
        old = replace(schema, options={**schema.options, **options})
        assert apply_changes(old, [SetOption("snapshot.num-retained.min", "3")]).id == old.id + 1


def test_a_success_file_comes_and_goes_with_its_tag() -> None:
    """tag.create-success-file: where Paimon leaves it; it is no tag."""
    table = daily(**{"tag.create-success-file": "true"})
    table.write(rows((1, 1)))
    set_clock(table, "2026-01-31 00:00")
    assert made(table) == {"2026-01-30": 1}
    path = "/warehouse/db.db/t/tag/tag-success-file/2026-01-30_SUCCESS"
    assert b"creationTime" in table.store.io.read_bytes(path)
    assert table.store.snapshots.tag_names() == ["2026-01-30"]
    delete_tag(table.store, "2026-01-30")
    assert not table.store.io.exists(path)


# ---- periodic savepoints

HOUR, DAY = DAY_MS // 24, DAY_MS


@pytest.mark.parametrize(
    ("saved", "interval", "time_of_day", "due"),
    [
        (None, "1 h", None, 0),
        (5 * DAY - HOUR, "1 h", None, 5 * DAY),
        (4 * DAY + 3 * HOUR, None, "03:00", 5 * DAY + 3 * HOUR),  # alone it is daily, as for tags
        (4 * DAY + 3 * HOUR, "1 d", "03:00", 5 * DAY + 3 * HOUR),
        (4 * DAY + 4 * HOUR, "1 d", "03:00", 5 * DAY + 3 * HOUR),  # yesterday's came late
        (4 * DAY + 2 * HOUR, "1 d", "03:00", 4 * DAY + 3 * HOUR),
        (None, None, "03:00", 2 * DAY + 3 * HOUR),  # the table began at 04:00
        (4 * DAY + 3 * HOUR, "2 d", "03:00", 6 * DAY + 3 * HOUR),  # every other day
        (4 * DAY + 3 * HOUR, "36 h", "03:00", 6 * DAY + 3 * HOUR),  # of an older table
    ],
)
def test_when_a_periodic_savepoint_is_due(
    saved: int | None, interval: str | None, time_of_day: str | None, due: int
) -> None:
    """SP-18."""
    given = {"savepoint.create-interval": interval, "savepoint.create-time": time_of_day}
    found = SavepointSchedule.of(TableOptions.parse({key: text for key, text in given.items() if text is not None}))
    assert found is not None
    assert found.due_ms(saved, began_ms=DAY + 4 * HOUR) == due


def test_without_options_there_is_no_periodic_savepoint_and_a_zone_moves_its_time() -> None:
    assert SavepointSchedule.of(TableOptions.parse({})) is None
    berlin = TableOptions.parse({"savepoint.create-time": "03:00", "sink.process-time-zone": "Europe/Berlin"})
    found = SavepointSchedule.of(berlin)
    assert found is not None
    summer = ms("2026-07-01 10:00")
    assert found.due_ms(summer, began_ms=None) == ms("2026-07-02 01:00")
    assert found.due_ms(None, began_ms=None) == 0  # of what began long ago


def test_a_time_of_day_is_read_alike_for_tags_and_savepoints() -> None:
    for text in ("08:05", "23:59", "00:00"):
        tags = TagSchedule.of(TableOptions.parse({"tag.create-time": text}))
        saved = SavepointSchedule.of(TableOptions.parse({"savepoint.create-time": text}))
        assert tags is not None
        assert saved is not None
        assert saved.days is not None
        assert tags.first_ms == saved.days.first_ms
    for text in ("8:05", "24:00", "08:5", "805", "8:05:00", "", "-1:00"):
        for key in ("tag.create-time", "savepoint.create-time"):
            with pytest.raises(InvalidInputError, match=key):
                key_table(bucket="1", **{key: text})
