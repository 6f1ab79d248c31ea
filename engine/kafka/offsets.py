"""Positions in Kafka topics as stored in a stream's checkpoint, and computations on them without a broker.

A checkpoint has ``{"topic": {"0": 12}, "@topic-ids": {"topic": "s8f…"}}``: the next offset to read of each partition,
as in Spark's own Kafka connector, and the id of each topic. The end of a query's first batch also has its start, in
``@begin``. Checkpoints of earlier versions have neither.
"""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lsm.errors import CorruptDataError, InvalidInputError

LATEST_OFFSET: Final = -1
EARLIEST: Final = -2
"""Values for the ends of a partition in offsets given by a user."""

TopicPosition = tuple[str, int]
Offsets = Mapping[TopicPosition, int]
"""Next offset to read of each (topic, partition)."""
TopicIds = Mapping[str, str]
"""Id of each topic; a recreated topic has a new one."""
NO_IDS: Final[TopicIds] = {}
"""Of topics whose ids are not known."""

_RESERVED: Final = "@"  # not allowed in topic names
_IDS_KEY: Final = "@topic-ids"
_BEGIN_KEY: Final = "@begin"
UNSTARTED_OFFSET: Final[Mapping[str, dict[str, Any]]] = {"@unstarted": {}}
"""The offset of a query before its first batch, which stays the same however often Spark asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Records of one partition with ``start_offset <= offset < end_offset``; offsets may have gaps."""

    topic: str
    partition: int
    start_offset: int
    end_offset: int
    topic_id: str = ""  # "" = not known
    begins_again: bool = False  # the topic is another one of this name than at the position before


def to_json(offsets: Offsets, topic_ids: TopicIds) -> dict[str, dict[str, Any]]:
    """The offsets as JSON for a checkpoint, ordered by topic and partition."""
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
        if not topic.startswith(_RESERVED)
        for partition, offset in offsets.items()
    }


def with_begin(end: Mapping[str, Any], begin: Mapping[str, Any]) -> dict[str, Any]:
    """The end of a query's first batch, with the query's start."""
    return {**end, _BEGIN_KEY: dict(begin)}


def without_begin(end: Mapping[str, Any]) -> dict[str, Any]:
    """The end of a batch without the query's start."""
    return {key: value for key, value in end.items() if key != _BEGIN_KEY}


def begin_of(end: Mapping[str, Any]) -> dict[str, Any] | None:
    """The query's start in the end of its first batch; None when an earlier version planned it."""
    return end.get(_BEGIN_KEY)


def topic_ids_of(nested: Mapping[str, Mapping[str, Any]]) -> TopicIds:
    """The topic ids of ``to_json``; empty in an old checkpoint."""
    return nested.get(_IDS_KEY, {})


def recreated_topics(then: TopicIds, now: TopicIds) -> frozenset[str]:
    """Topics with another id than before; topics known at one time only are not compared."""
    return frozenset(topic for topic in then.keys() & now.keys() if then[topic] != now[topic])


def parse_positions(text: str, *, option: str) -> dict[TopicPosition, int]:
    """Offsets that a user wrote as JSON; -1 is the latest, -2 the earliest.

    Raises:
        InvalidInputError: not in the form ``{"topic": {"0": 12}}``.
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
    """Offsets given by a user, with -1 and -2 resolved.

    Raises:
        InvalidInputError: a partition is missing or unknown, or an offset is out of its range.
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
    start: Offsets, earliest: Offsets, latest: Offsets, *, fail_on_data_loss: bool, recreated: Collection[str] = ()
) -> tuple[dict[TopicPosition, int], list[str]]:
    """The offsets to continue from, for every existing partition, and what was lost where they differ from ``start``.

    A partition that is new since ``start`` is read from its earliest record, and so are all partitions of a
    ``recreated`` topic.

    Returns:
        Offsets, and messages about lost records: empty unless ``fail_on_data_loss`` is false.

    Raises:
        CorruptDataError: records were deleted before they were read, or a topic or partition was deleted or recreated.
    """
    losses = []
    result = dict(earliest)
    for position, wanted in start.items():
        if position not in latest:
            losses.append(_loss("a partition that was read before no longer exists", position, wanted))
        elif position[0] in recreated:
            losses.append(_loss("the topic was deleted and recreated since it was read", position, wanted))
        elif wanted < earliest[position]:
            facts = f" earliest={earliest[position]} lost={earliest[position] - wanted}"
            losses.append(_loss("records were deleted before they were read", position, wanted) + facts)
        elif wanted > latest[position]:
            facts = f" latest={latest[position]} cause=the topic was probably deleted and recreated"
            losses.append(_loss("the partition ends before the position", position, wanted) + facts)
        else:
            result[position] = wanted
    if losses and fail_on_data_loss:
        raise CorruptDataError(f"{losses[0]} {LOSS_ADVICE}")
    return result, losses


LOSS_ADVICE: Final = (
    "fix=start with a new checkpoint, or set failOnDataLoss=false to continue with the remaining records; "
    "a longer retention.ms of the topic prevents it"
)


def _loss(fact: str, position: TopicPosition, wanted: int) -> str:
    return f"{fact}: topic={position[0]} partition={position[1]} wanted={wanted}"


def limited(start: Offsets, latest: Offsets, max_count: int) -> dict[TopicPosition, int]:
    """End offsets for at most ``max_count`` offsets, each partition in proportion to its waiting records.

    Args:
        start: for every partition of ``latest``.
        latest: not before ``start``.
        max_count: > 0; used up if that many offsets are waiting.
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
    """Positions in topics other than the given ones."""
    return {position: offset for position, offset in offsets.items() if position[0] not in topics}


def ranges(start: Offsets, end: Offsets) -> list[OffsetRange]:
    """The ranges between two positions, without empty ones, ordered by topic and partition.

    A new partition starts at 0, and so does a recreated one (``end`` before ``start``).
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
    """Number of offsets between two positions, over all partitions."""
    return sum(max(0, offset - start.get(position, 0)) for position, offset in end.items())
