"""When a partition's values are a time."""

from datetime import UTC, datetime

import pytest

from filestore.maintenance.partition_expiry import PartitionClock
from lsm.errors import InvalidInputError


def ms(*parts: int) -> int:
    return round(datetime(*parts, tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    ("pattern", "formatter", "values", "expected"),
    [
        (None, None, {"dt": "2024-02-29"}, ms(2024, 2, 29)),
        (None, None, {"dt": "20240229", "hh": "7"}, ms(2024, 2, 29)),
        (None, None, {"dt": "2024-02-29 12:30:05"}, ms(2024, 2, 29, 12, 30, 5)),
        ("$dt $hh:00:00", None, {"dt": "2024-02-29", "hh": "07"}, ms(2024, 2, 29, 7)),
        ("$dt_hour", "yyyy-MM-dd HH", {"dt": "x", "dt_hour": "2024-02-29 07"}, ms(2024, 2, 29, 7)),
        ("$y-$m-$d", "yyyy-M-d", {"y": "2024", "m": "2", "d": "9"}, ms(2024, 2, 9)),
        ("$dt", "yyyy'T'MM", {"dt": "2024T03"}, ms(2024, 3, 1)),
        (None, "yyyyMMddHHmmssSSS", {"dt": "20240229123005123"}, ms(2024, 2, 29, 12, 30, 5) + 123),
        (None, None, {"dt": "__DEFAULT_PARTITION__"}, None),
        (None, None, {"dt": "2024-02-30"}, None),
        (None, "HH:mm", {"dt": "12:30"}, None),
    ],
)
def test_values_name_a_time(
    pattern: str | None, formatter: str | None, values: dict[str, str], expected: int | None
) -> None:
    """partition.timestamp-pattern, partition.timestamp-formatter."""
    assert PartitionClock(pattern=pattern, formatter=formatter).time_ms(values) == expected


@pytest.mark.parametrize(
    ("pattern", "formatter", "fact"),
    [
        ("$day", None, r"partition.timestamp-pattern='\$day' found=\$day partition_columns=\['dt'\]"),
        (None, "yyyy-ww", "part=ww"),
        (None, "yyyy yyyy", "has a duplicate part"),
    ],
)
def test_what_cannot_be_understood_is_named(pattern: str | None, formatter: str | None, fact: str) -> None:
    with pytest.raises(InvalidInputError, match=fact):
        PartitionClock(pattern=pattern, formatter=formatter).time_ms({"dt": "2024"})
