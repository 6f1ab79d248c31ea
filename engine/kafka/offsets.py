"""Positions in Kafka topics as a stream's checkpoint holds them, and what can be computed about them without a broker.

In a checkpoint they are ``{"topic": {"0": 12}, "@topic-ids": {"topic": "s8f…"}}``: per partition the offset of the
next record to read, as Spark's own Kafka connector has it; and which topic of that name is meant. The end of a query's
first batch also says, in ``@begin``, where the query began. Checkpoints of earlier versions have neither.
"""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lsm.errors import CorruptDataError, InvalidInputError

LATEST_OFFSET: Final = -1
EARLIEST: Final = -2
"""Offsets that mean an end of the partition, where a user gives positions."""

TopicPosition = tuple[str, int]
Offsets = Mapping[TopicPosition, int]
"""Next offset of each (topic, partition)."""
TopicIds = Mapping[str, str]
"""Id of each topic: a new one each time a topic of a name is made."""

_OURS: Final = "@"  # no topic has one in its name
_IDS_KEY: Final = "@topic-ids"
_BEGIN_KEY: Final = "@begin"
UNSTARTED_OFFSET: Final[Mapping[str, dict[str, Any]]] = {"@unstarted": {}}
"""The offset of a query that has not begun: it stays the same however often Spark asks before the first batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Records of one partition with ``start_offset <= offset < end_offset``; there may be gaps."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int


def to_json(offsets: Offsets, topic_ids: TopicIds) -> dict[str, dict[str, Any]]:
    """As a checkpoint holds them, topics and partitions in order."""
    nested: dict[str, dict[str, Any]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    if topic_ids:
        nested[_IDS_KEY] = dict(sorted(topic_ids.items()))
    return nested


def from_json(nested: Mapping[str, Mapping[str, Any]]) -> dict[TopicPosition, int]:
    """The offsets of ``to_json``."""
    return {
        (topic, int(partition)): offset
        for topic, offsets in nested.items()
        if not topic.startswith(_OURS)
        for partition, offset in offsets.items()
    }


def with_begin(end: Mapping[str, Any], begin: Mapping[str, Any]) -> dict[str, Any]:
    """The end of a query's first batch, with where the query began."""
    return {**end, _BEGIN_KEY: dict(begin)}


def without_begin(end: Mapping[str, Any]) -> dict[str, Any]:
    """The same end as those of later batches are written."""
    return {key: value for key, value in end.items() if key != _BEGIN_KEY}


def begin_of(end: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where a query began, by the end of its first batch; None when that was planned by an earlier version."""
    return end.get(_BEGIN_KEY)


def topic_ids_of(nested: Mapping[str, Mapping[str, Any]]) -> TopicIds:
    """The topic ids of ``to_json``; empty in an old checkpoint."""
    return nested.get(_IDS_KEY, {})


def made_again(then: TopicIds, now: TopicIds) -> frozenset[str]:
    """Topics that are not the ones they were; what is known of one time only is not compared."""
    return frozenset(topic for topic in then.keys() & now.keys() if then[topic] != now[topic])


def parse_positions(text: str, *, option: str) -> dict[TopicPosition, int]:
    """Offsets that a user wrote as JSON; -1 is the latest and -2 the earliest.

    Raises:
        InvalidInputError: not of the form ``{"topic": {"0": 12}}``.
    """
    example = 'example={"topic": {"0": 12, "1": -2}}'
    try:
        nested: Any = json.loads(text)
        result = from_json(nested)
    except (ValueError, AttributeError) as error:
        raise InvalidInputError(f"not offsets: option={option} given={text} {example}") from error
    for (topic, partition), offset in result.items():
        if partition < 0 or not isinstance(offset, int) or offset < EARLIEST:
            raise InvalidInputError(
                f"not an offset: option={option} topic={topic} partition={partition} offset={offset} {example}"
            )
    return result


def positioned(wanted: Offsets, earliest: Offsets, latest: Offsets, *, option: str) -> dict[TopicPosition, int]:
    """Offsets that a user gave, with -1 and -2 replaced by what they mean now.

    Raises:
        InvalidInputError: a partition is missing or does not exist, or an offset is not in it.
    """
    for position in wanted.keys() ^ latest.keys():
        word = "is missing" if position in latest else "does not exist or is not subscribed"
        raise InvalidInputError(
            f"a partition {word}: option={option} topic={position[0]} partition={position[1]} "
            f"fix=give an offset for every partition (-2 = earliest, -1 = latest)"
        )
    result = {}
    for position, offset in wanted.items():
        real = {LATEST_OFFSET: latest[position], EARLIEST: earliest[position]}.get(offset, offset)
        if not earliest[position] <= real <= latest[position]:
            raise InvalidInputError(
                f"the partition has no such offset: option={option} topic={position[0]} partition={position[1]} "
                f"offset={real} earliest={earliest[position]} latest={latest[position]}"
            )
        result[position] = real
    return result


def checked_start(
    start: Offsets,
    earliest: Offsets,
    latest: Offsets,
    *,
    fail_on_data_loss: bool,
    made_again: Collection[str] = (),
) -> tuple[dict[TopicPosition, int], list[str]]:
    """From where to read on, for every partition that exists now, and what was lost where that is not ``start``.

    A partition that is new since ``start`` begins at its earliest record, and so does every one of a topic that was
    ``made_again``.

    Returns:
        Offsets, and sentences about lost records: empty unless ``fail_on_data_loss`` is false.

    Raises:
        CorruptDataError: records were deleted before they were read, or a topic or partition is gone or was made anew.
    """
    losses = []
    result = dict(earliest)
    for position, wanted in start.items():
        if position not in latest:
            losses.append(_loss("a partition that was read before does not exist any more", position, wanted))
        elif position[0] in made_again:
            losses.append(_loss("the topic was deleted and made again since it was read", position, wanted))
        elif wanted < earliest[position]:
            facts = f" earliest={earliest[position]} lost={earliest[position] - wanted}"
            losses.append(_loss("records were deleted before they were read", position, wanted) + facts)
        elif wanted > latest[position]:
            facts = f" latest={latest[position]} cause=the topic was probably deleted and made anew"
            losses.append(_loss("the partition ends before what was read", position, wanted) + facts)
        else:
            result[position] = wanted
    if losses and fail_on_data_loss:
        raise CorruptDataError(f"{losses[0]} {LOSS_ADVICE}")
    return result, losses


LOSS_ADVICE: Final = (
    "fix=start with a new checkpoint, or set failOnDataLoss=false to go on with what is there; "
    "a longer retention.ms of the topic prevents it"
)


def _loss(fact: str, position: TopicPosition, wanted: int) -> str:
    return f"{fact}: topic={position[0]} partition={position[1]} wanted={wanted}"


def limited(start: Offsets, latest: Offsets, max_count: int) -> dict[TopicPosition, int]:
    """Ends that take at most ``max_count`` offsets, each partition in proportion to what waits in it.

    Args:
        start: for every partition of ``latest``.
        latest: not before ``start``.
        max_count: > 0; all of it is used if that much waits.
    """
    waiting = {position: latest[position] - start[position] for position in latest}
    total = sum(waiting.values())
    if total <= max_count:
        return dict(latest)
    shares = {position: divmod(count * max_count, total) for position, count in waiting.items()}
    left = max_count - sum(share for share, _ in shares.values())
    by_rest = sorted(shares, key=lambda position: (-shares[position][1], position))
    rounded_up = set(by_rest[:left])
    return {position: start[position] + share + (position in rounded_up) for position, (share, _) in shares.items()}


def without_topics(offsets: Offsets, topics: Collection[str]) -> dict[TopicPosition, int]:
    """Positions in other topics than these."""
    return {position: offset for position, offset in offsets.items() if position[0] not in topics}


def ranges(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """What lies between two positions, partition by partition, empty ranges left out.

    A partition that is new begins at 0, and so does one that was made anew (``end`` before ``start``).
    """
    found = []
    for position, end_offset in sorted(end.items()):
        start_offset = start.get(position, 0)
        if start_offset > end_offset:
            start_offset = 0
        if start_offset < end_offset:
            topic, partition = position
            found.append(
                OffsetRange(topic=topic, partition=partition, start_offset=start_offset, end_offset=end_offset)
            )
    return found


def waiting_count(start: Offsets, end: Offsets) -> int:
    """Offsets between two positions, over all partitions."""
    return sum(max(0, offset - start.get(position, 0)) for position, offset in end.items())


def topics_of(positions: Iterable[TopicPosition]) -> tuple[str, ...]:
    """The topics of positions, each once, in order."""
    return tuple(sorted({topic for topic, _ in positions}))
