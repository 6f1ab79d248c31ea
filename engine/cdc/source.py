"""The Spark source of a job: it plans ranges of offsets, and its rows are these ranges; no record goes through Spark.

So Structured Streaming gives the checkpoint, the trigger and the progress of one query, however many topics there are.
New topics are added when they appear. Expired records of a partition park its tables, and do not stop other ones.
A position in the checkpoint has the offsets by topic and partition, the ids of the topics, and the requests
(``resume``) that it has seen. Spark's Python workers import this module, so it imports nothing of the query.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from engine.cdc.settings import CUT, CdcSettings
from engine.cdc.topics import PatternTopics
from engine.checkpoint.admission import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    fitting_reader,
)
from engine.kafka.offsets import (
    NO_IDS,
    OffsetRange,
    Offsets,
    TopicIds,
    TopicPosition,
    from_json,
    limited,
    ranges,
    recreated_topics,
    to_json,
    topic_ids_of,
    without_topics,
)

FORMAT: Final = "fluvial-cdc"
RANGE_COLUMNS: Final = (
    "topic string, partition int, start_offset long, end_offset long, topic_id string, begins_again boolean"
)
_SCHEMA: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("start_offset", pa.int64()),
        ("end_offset", pa.int64()),
        ("topic_id", pa.string()),
        ("begins_again", pa.bool_()),
    ]
)
_REQUESTS: Final = "@requests"
_EARLIEST: Final = "@earliest"  # where partitions begin that are new in a batch

ListRequests = Callable[[], list[str]]
"""Lists reasons why a batch is due without new records: requests of users, and changes that were held back."""


def no_requests() -> list[str]:
    """No requests."""
    return []


def planned_ranges(start: Mapping[str, Any], end: Mapping[str, Any]) -> list[OffsetRange]:
    """The ranges of a batch.

    A partition that is new, or of a topic that was created again, begins at its earliest record, which the end keeps.

    With requests, all partitions: the empty ones say where records of parked tables end.
    """
    ids, before = topic_ids_of(end), from_json(_offsets(start))
    again = recreated_topics(topic_ids_of(start), ids)
    known = {**from_json(end.get(_EARLIEST, {})), **without_topics(before, again)}
    ends = from_json(_offsets(end))
    found = [
        replace(
            each,
            topic_id=ids.get(each.topic, ""),
            begins_again=each.topic in again or each.start_offset < before.get((each.topic, each.partition), 0),
        )
        for each in ranges(known, ends)
    ]
    if end.get(_REQUESTS, []) != start.get(_REQUESTS, []):
        full = {(each.topic, each.partition) for each in found}
        found += [
            OffsetRange(
                topic=each[0],
                partition=each[1],
                start_offset=offset,
                end_offset=offset,
                topic_id=ids.get(each[0], ""),
                begins_again=each[0] in again,
            )
            for each, offset in ends.items()
            if each not in full
        ]
    return found


def next_position(
    start: Mapping[str, Any],
    earliest: Offsets,
    latest: Offsets,
    requests: list[str],
    *,
    limit: int | None,
    topic_ids: TopicIds = NO_IDS,
) -> dict[str, Any]:
    """The end of the next batch; equal to ``start`` when there is nothing to do. Pure.

    Args:
        start: the end of the last one.
        earliest: of partitions that are not in ``start``, or whose topic was created again since.
        latest: committed ends of those that exist now.
        requests: pending.
        limit: most offsets; None: all.
        topic_ids: of the topics that exist now, as far as they are known.
    """
    ids = {**topic_ids_of(start), **topic_ids}
    before = without_topics(from_json(_offsets(start)), recreated_topics(topic_ids_of(start), topic_ids))
    begin = {**{each: offset for each, offset in earliest.items() if each not in before}, **before}
    # an end before the position: a topic without a known id was recreated, and is read from its beginning
    ends = {each: latest.get(each, offset) for each, offset in begin.items()}
    begin = {each: offset if offset <= ends[each] else 0 for each, offset in begin.items()}
    if limit is not None:
        ends = {**ends, **limited(begin, ends, limit)}
    new = {each: begin[each] for each in begin if each not in before}
    seen = requests or start.get(_REQUESTS, [])
    named = {topic for topic, _ in ends}
    position: dict[str, Any] = dict(to_json(ends, {name: each for name, each in ids.items() if name in named}))
    if seen:
        position[_REQUESTS] = seen
    is_same = position == {key: value for key, value in start.items() if key != _EARLIEST}
    if is_same:
        return dict(start)
    return position | ({_EARLIEST: to_json(new, {})} if new else {})


def _offsets(position: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in position.items() if not key.startswith("@")}


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePlan:
    """The arguments of the source. Picklable."""

    settings: CdcSettings
    requests: ListRequests = no_requests


def cdc_source(plan: SourcePlan) -> type[DataSource]:
    """A source class for ``spark.dataSource.register``; it has the plan, so no secret becomes an option."""

    class CdcSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return RANGE_COLUMNS

        def streamReader(self, schema: StructType) -> DataSourceStreamReader:
            return fitting_reader(CdcStreamReader(plan), self.options)

    return CdcSource


class CdcStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Plans the batches of a job."""

    def __init__(self, plan: SourcePlan) -> None:
        self._plan = plan
        self._connected: PatternTopics | None = None
        self._target: dict[TopicPosition, int] | None = None
        self._latest: dict[TopicPosition, int] | None = None

    def __getstate__(self) -> Mapping[str, Any]:
        return self.__dict__ | {"_connected": None}

    def initialOffset(self) -> dict[str, Any]:
        """Before the first record of every partition, also of those that do not exist yet."""
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxOffsetsPerTrigger``, if given; with cuts a batch takes all, or it would wait for its own rest."""
        count = None if self._plan.settings.cut == CUT else self._plan.settings.max_records
        return ReadAllAvailable() if count is None else ReadMaxRows(count)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch. Raises: UnavailableError."""
        topics, then = self._topics(), topic_ids_of(start)
        latest = topics.latest(topics.positions())
        ids = topics.ids({topic for topic, _ in latest})
        again = recreated_topics(then, ids)
        if again:  # its ends may be those of the one before
            fresh = [each for each in topics.positions(fresh=True) if each[0] in again]
            latest = {**without_topics(latest, again), **topics.latest(fresh)}
        self._latest = latest
        if self._target is not None:
            latest = {each: min(offset, self._target.get(each, 0)) for each, offset in latest.items()}
        before = without_topics(from_json(_offsets(start)), again)
        new = topics.earliest([each for each in latest if each not in before])
        count = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        return next_position(start, new, latest, self._plan.requests(), limit=count, topic_ids=ids)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the topics, for the progress report."""
        return None if self._latest is None else to_json(self._latest, {})

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the current ends, where the query will end."""
        topics = self._topics()
        self._target = topics.latest(topics.positions())

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One, with all ranges."""
        return [InputPartition(json.dumps([_row(each) for each in planned_ranges(start, end)]))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The ranges as rows."""
        rows = json.loads(partition.value)
        columns = [pa.array([row[index] for row in rows], field.type) for index, field in enumerate(_SCHEMA)]
        yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)

    def _topics(self) -> PatternTopics:
        if self._connected is None:
            self._connected = PatternTopics(self._plan.settings.properties, self._plan.settings.pattern)
        return self._connected


def _row(each: OffsetRange) -> list[Any]:
    return [getattr(each, name) for name in _SCHEMA.names]
