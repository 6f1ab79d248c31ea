"""The work of a batch by table, planned from scanned ranges and known states. Pure."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any, Final

from engine.cdc.records.routing import RecordPlace, RefusedRecord, RefusedRecordError
from engine.cdc.records.scan import RangeScan, ScannedTable
from engine.cdc.records.table_rows import TableSource
from engine.cdc.rules.names import Naming, SourceTable, TableTarget
from engine.cdc.rules.repeats import Mark, Repeated, find_repeated, is_one_repeated
from engine.cdc.rules.snapshots import AWAITED
from engine.cdc.settings import CdcSettings
from engine.cdc.state import CdcTableState, Parked
from engine.cdc.tables import MetPart
from engine.kafka.offsets import OffsetRange, TopicIds, TopicPosition, recreated_topics
from logstore.log.log_reader import RecordsLostError
from lsm.errors import InvalidInputError

Marks = Mapping[tuple[str, str], Mark]
"""By ``topic/partition`` and source table."""


_RESNAPSHOT: Final = re.compile(r"(fluvial cdc resnapshot [^\s';]*[^\s';,](?: --drop)?)(?![^\s';,])(?! --)")


class TopicMadeAgainError(InvalidInputError):
    """Topics of a table were deleted and created again: their offsets count from 0."""

    def __init__(self, text: str, topics: Collection[str] = ()) -> None:
        super().__init__(text)
        self.topics = topics


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The records of one source table of a table in one range."""

    source: SourceTable
    target: TableTarget
    scan: RangeScan
    found: ScannedTable
    repeated: tuple[Repeated, ...] = ()  # changes that the table has already
    has_others: bool = False  # other source tables have rows in the table
    partition_count: int = 1  # of the topics, in which its changes are
    replaced_from: int = -1  # the first row of a snapshot that replaces all rows before it; -1: there is none
    awaited_from: int = -1  # the first record behind the snapshot for which the table has waited; -1: it has not

    def without_repeats(self, marks: Marks, stood: Mapping[TopicPosition, int]) -> tuple["Share", Mark | None]:
        """The share without the parts and truncates of repeated changes, and the table's mark after this share."""
        known = self._mark(marks)
        spans, mark = find_repeated(
            self.found.progressions.found, known, stood=stood.get(_position(self.scan.source), 0)
        )
        if self.found.snapshot_rows.place is not None:
            mark = replace(mark or Mark(stamp=None), place=self.found.snapshot_rows.place)
        if not spans:
            return self, mark
        found = replace(
            self.found,
            parts=[each for each in self.found.parts if not is_one_repeated(each.last_offset, each.last, spans)],
            truncates=[each for each in self.found.truncates if not is_one_repeated(*each, spans)],
        )
        return replace(self, found=found, repeated=spans), mark

    def begun_again(self, marks: Marks, stood: Mapping[TopicPosition, int]) -> int:
        """The beginning of the newest snapshot behind other records of the source table; -1: there is none."""
        known, position = self._mark(marks), _position(self.scan.source)
        begin = self.found.snapshot_rows.begin(None if known is None else known.place)
        if begin is None or begin < stood.get(position, 0):
            return -1
        has_before = known is not None or (position in stood and not self.has_others)
        return begin if has_before or begin > self.found.first_offset else -1

    def replaced_by_snapshot(self, marks: Marks, stood: Mapping[TopicPosition, int]) -> "Share":
        """This share of a table without a key, without what precedes a snapshot that has begun again.

        Raises:
            InvalidInputError: other rows are in the table, so which ones the snapshot replaces is not known.
        """
        begin = self.begun_again(marks, stood)
        if begin < 0:
            return self
        partitions = {each for each in {*stood, _position(self.scan.source)} if each[0] == self.scan.source.topic}
        if self.has_others or len(partitions) > 1:
            raise InvalidInputError(
                f"a snapshot of a table without a key has begun again, its rows would be counted twice: "
                f"source={self.source} at={self.scan.position} offset={begin} "
                f"{'sources=several' if self.has_others else f'partitions={len(partitions)}'} "
                f"fix='stop the writers of the source tables, wait until the connector has published all, then: "
                f"fluvial cdc resnapshot {self.target.table} --writers-stopped'"
            )
        return replace(self, replaced_from=begin)

    def _mark(self, marks: Marks) -> Mark | None:
        return marks.get((self.scan.position, str(self.source)))

    def truncated_at(self, settings: CdcSettings) -> int:
        """The offset of the last truncate, by the rule for truncates; -1: there is none.

        Raises:
            InvalidInputError: the rule says ``fail``, other source tables have rows in the same table, or changes in
                other partitions have no order with it.
        """
        rule = settings.schema_changes.get("truncate", "apply")
        if self.found.truncated_at is None or rule == "ignore" or self.found.truncated_at < self.awaited_from:
            return -1
        where = f"source={self.source} at={self.scan.position} offset={self.found.truncated_at}"
        if rule == "fail":
            raise InvalidInputError(
                f"the source table was truncated: {where} schema-changes.truncate=fail "
                f"fix='set it to apply, start the job again, and: fluvial cdc resume {self.target.table}'"
            )
        if self.has_others:
            raise RefusedRecordError(
                f"one of several source tables was truncated: table={self.target.table} {where} "
                f"fix='delete its rows in {self.target.table}, then fluvial cdc skip {self.target.table} "
                f"--until {self.found.truncated_at + 1}'",
                (*_position(self.scan.source), 0),  # and what it removed
            )
        if self.partition_count > 1:
            raise InvalidInputError(
                f"a source table was truncated whose changes are in several partitions, so which of them came before "
                f"is not known: table={self.target.table} {where} partitions={self.partition_count} "
                f"fix='fluvial cdc resnapshot {self.target.table}, which replaces its rows; a topic of one partition, "
                "or DELETE in the source, needs none'"
            )
        return self.found.truncated_at

    def snapshot_from(self, parked: Parked) -> int:
        """The first record of the snapshot that a table waits for; -1: it waits for none, or it is not here."""
        start = parked.offsets.get(_position(self.scan.source))
        if parked.awaits is None or start is None:
            return -1
        return next((max(first, start) for first, last in self.found.snapshots if last >= start), -1)


@dataclass(slots=True, kw_only=True)
class TableWork:
    """The records of a batch for one table."""

    name: str
    shares: list[Share] = field(default_factory=list)
    failure: tuple[str, RecordPlace] | None = None  # why it cannot be done, and the first record that is missing
    refused: list[tuple[RecordPlace, RefusedRecord]] = field(default_factory=list)  # records that cannot be read at all

    def unreadable(self, stood: Mapping[TopicPosition, int]) -> list[tuple[RecordPlace, RefusedRecord]]:
        """The unreadable records after these positions, by topic partition and offset.

        Raises:
            RefusedRecordError: records of the table have expired.
        """
        if self.failure is not None:
            raise RefusedRecordError(*self.failure)
        return sorted((each for each in self.refused if each[0][2] >= stood.get(each[0][:2], 0)), key=itemgetter(0))

    @property
    def is_counted(self) -> bool:
        """Whether records have no key, so that rows are known by all their values."""
        return any(part.part.key is None for share in self.shares for part in share.found.parts)

    @property
    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics, as far as they are known."""
        return {each.scan.source.topic: each.scan.source.topic_id for each in self.shares if each.scan.source.topic_id}

    def made_again(
        self, known: TopicIds, stood: Mapping[TopicPosition, int], continued: Parked | None
    ) -> frozenset[str]:
        """Topics that were created again since the table read them; they are read from their beginning.

        In a cluster without topic ids, a topic is recognized as a new one when it ends before the table's position,
        and later by the position at which the table was parked.

        Args:
            known: ids of the topics that the table has read.
            stood: position of the table.
            continued: the request with which a user resumed the table; None: the table is not parked.

        Raises:
            TopicMadeAgainError: no user has confirmed it: records of the deleted topic may be missing in the table.
        """
        ids = self.topic_ids
        shorter = {each[0] for each, end in self.ends.items() if end < stood.get(each, 0) and each[0] not in known}
        waiting = {} if continued is None else continued.offsets
        shorter |= {each[0] for each, offset in waiting.items() if offset < stood.get(each, 0)}
        noticed = {
            each.scan.source.topic
            for each in self.shares
            if each.scan.source.begins_again
            and each.scan.source.topic not in known
            and any(topic == each.scan.source.topic for topic, _ in stood)
        }
        again = recreated_topics(known, ids) | noticed | shorter
        for topic in sorted(again):
            if continued is None or continued.topic_ids.get(topic) != ids.get(topic):
                raise TopicMadeAgainError(
                    f"the topic was deleted and made again since it was read: table={self.name} topic={topic} "
                    f"fix='fluvial cdc resnapshot {self.name}, which replaces its rows; or fluvial cdc resume "
                    f"{self.name}, which reads the topic from its beginning'",
                    again,
                )
        return again

    @property
    def met(self) -> list[MetPart]:
        """The schema parts, by position and offset."""
        return [
            MetPart(
                source=share.source,
                target=share.target,
                position=share.scan.position,
                offset=span.offset,
                part=span.part,
                has_changes=span.has_changes,
                last_offset=span.last_offset,
                moments=span.moments,
                is_appended=span.is_appended,
            )
            for share in self.shares
            for span in share.found.parts
        ]

    @property
    def starts(self) -> dict[TopicPosition, int]:
        """The first offset of each range."""
        return {_position(share.scan.source): share.scan.source.start_offset for share in self.shares}

    @property
    def ends(self) -> dict[TopicPosition, int]:
        """The next offset after each range."""
        return {_position(share.scan.source): share.scan.source.end_offset for share in self.shares}

    def knowing(self, sources: Iterable[SourceTable], stood: Mapping[TopicPosition, int]) -> "TableWork":
        """The work for a table with rows of these source tables, read up to these positions."""
        known = {*sources, *(each.source for each in self.shares)}
        positions = {*stood, *(_position(each.scan.source) for each in self.shares)}
        return replace(
            self,
            shares=[
                replace(each, has_others=known != {each.source}, partition_count=len(positions)) for each in self.shares
            ],
        )

    def is_truncated(self, stood: Mapping[TopicPosition, int], settings: CdcSettings) -> bool:
        """Whether a truncate of this batch, or a snapshot that replaces all, lies behind the position of the table."""
        return any(
            each.replaced_from >= 0 or each.truncated_at(settings) >= stood.get(_position(each.scan.source), 0)
            for each in self.shares
        )

    def replaced_by_snapshot(self, marks: Marks, stood: Mapping[TopicPosition, int]) -> "TableWork":
        """The work for a table without a key. Raises: InvalidInputError, see ``Share.replaced_by_snapshot``."""
        return replace(self, shares=[each.replaced_by_snapshot(marks, stood) for each in self.shares])

    def has_awaited(self, parked: Parked) -> bool:
        """Whether the snapshot begins in this batch for which the table waits."""
        return any(each.snapshot_from(parked) >= 0 for each in self.shares)

    def begins_awaited(self, parked: Parked) -> bool:
        """Whether a table that waits continues in this batch by itself."""
        return parked.awaits is not None and not parked.awaits.is_met and self.has_awaited(parked)

    def from_awaited(self, parked: Parked) -> "TableWork":
        """The work from the snapshot on, without the schema parts that end before it begins.

        A partition in which no row of it is yet begins where the table was asked to wait: what follows there comes
        before such rows, or is of keys that have none.
        """
        shares = []
        for share in self.shares:
            start = share.snapshot_from(parked)
            start = parked.offsets.get(_position(share.scan.source), -1) if start < 0 else start
            parts = share.found.parts
            after = [each.offset for each in parts[1:]] + [2**63]
            kept = [each for each, end in zip(parts, after, strict=True) if end > start]
            shares.append(replace(share, found=replace(share.found, parts=kept), awaited_from=start))
        return replace(self, shares=shares)

    def without_repeats(self, marks: Marks, stood: Mapping[TopicPosition, int]) -> tuple["TableWork", dict[Any, Mark]]:
        """The work without the changes that connectors have published again, and the marks after it."""
        found, after = [], dict(marks)
        for share in self.shares:
            own, mark = share.without_repeats(marks, stood)
            found.append(own)
            if mark is not None:
                after[share.scan.position, str(share.source)] = mark
        return replace(self, shares=found), after

    def awaiting(self, marks: Marks, parked: Parked, sources: Iterable[SourceTable]) -> dict[tuple[str, str], Mark]:
        """The marks after the batch in which the awaited snapshot begins: some partitions have none of its rows yet.

        Args:
            marks: of the table.
            parked: the table, which waits for the snapshot.
            sources: all source tables of the table.
        """
        begun = {(each.scan.position, str(each.source)) for each in self.shares if each.snapshot_from(parked) >= 0}
        known = [*sources]
        places = {
            (f"{topic}/{partition}", str(each))
            for topic, partition in parked.offsets
            for each in known
            if len(known) == 1 or SourceTable.of_topic(topic) == each
        }
        awaited = {*marks, *places} - begun
        return {**marks, **{each: replace(marks.get(each, Mark(stamp=None)), place=AWAITED) for each in awaited}}

    def behind(self, stood: Mapping[TopicPosition, int]) -> "TableWork":
        """The work without schema parts all of whose records the table has; those that it needs begin where it is."""
        shares = []
        for share in self.shares:
            begin = stood.get(_position(share.scan.source), 0)
            parts = [
                replace(each, offset=max(each.offset, begin)) for each in share.found.parts if each.last_offset >= begin
            ]
            shares.append(replace(share, found=replace(share.found, parts=parts)))
        return replace(self, shares=shares)

    def sources(
        self, stood: Mapping[TopicPosition, int], state: CdcTableState, settings: CdcSettings
    ) -> tuple[TableSource, ...]:
        """The sources of the table's rows: of each range the rows behind its position, truncates and new snapshots."""
        return tuple(
            TableSource(
                source=share.source,
                range=share.scan.source,
                after=max(
                    stood.get(_position(share.scan.source), 0) - 1,
                    share.truncated_at(settings),
                    share.replaced_from - 1,
                    share.awaited_from - 1,
                ),
                sequence=state.sequence_of(share.source),
                others=tuple(state.others(share.source)),
                constants=share.target.constants,
                repeated=share.repeated,
                left_out=share.scan.left_out,
            )
            for share in self.shares
        )

    @property
    def record_count(self) -> int:
        """Records, truncates included."""
        return sum(share.found.record_count for share in self.shares)

    @property
    def newest_ms(self) -> int | None:
        """The newest time of the source; None: its records have none."""
        return max((each.found.newest_ms for each in self.shares if each.found.newest_ms is not None), default=None)

    @property
    def newest_lsn(self) -> int | None:
        """The newest place in the log of PostgreSQL; None: its records have none."""
        return max((each.found.newest_lsn for each in self.shares if each.found.newest_lsn is not None), default=None)


def work_by_table(scans: Sequence[RangeScan], naming: Naming) -> dict[str, TableWork]:
    """The tables that have records in a batch, by name; tables that are left out are not there."""
    work: dict[str, TableWork] = {}
    for scan in scans:
        for source, found in scan.tables.items():
            target = naming.target_of(source)
            if target is not None:
                own = work.setdefault(target.table, TableWork(name=target.table))
                own.shares.append(Share(source=source, target=target, scan=scan, found=found))
        for target, source, refused in _failures(scan, naming):
            own = work.setdefault(target.table, TableWork(name=target.table))
            if scan.lost is not None and own.failure is None:
                place = (scan.source.topic, scan.source.partition, scan.lost.wanted_offset)
                own.failure = _lost(target.table, scan, scan.lost), place
            own.refused += refused
            if all(each.scan is not scan for each in own.shares):
                nothing = ScannedTable(source=source, first_offset=scan.source.start_offset)
                own.shares.append(Share(source=source, target=target, scan=scan, found=nothing))
    return dict(sorted(work.items()))


def _failures(
    scan: RangeScan, naming: Naming
) -> Iterator[tuple[TableTarget, SourceTable, list[tuple[RecordPlace, RefusedRecord]]]]:
    """Tables of a range with expired or unreadable records; records of no known table count for all of the range."""
    unknown = list(scan.tables) or [SourceTable.of_topic(scan.source.topic)]
    failed: dict[SourceTable, list[tuple[RecordPlace, RefusedRecord]]] = {}
    if scan.lost is not None:
        failed = {each: [] for each in unknown}
    for offset, bad in scan.bad:
        place = (scan.source.topic, scan.source.partition, offset)
        for source in unknown if bad.source is None else [bad.source]:
            failed.setdefault(source, []).append((place, bad))
    for source, refused in failed.items():
        target = naming.target_of(source)
        if target is not None:
            yield target, source, refused


def with_writers_stopped(reason: str) -> str:
    """The reason of a table without a key: its commands of a snapshot say that the source has no writer."""
    return _RESNAPSHOT.sub(r"\1 --writers-stopped", reason)


def _lost(table: str, scan: RangeScan, lost: RecordsLostError) -> str:
    """Why a table cannot get the records of a range, and what helps."""
    return (
        f"records are not in the topic, because retention removed them before the table had them: table={table} "
        f"at={scan.position} wanted_offset={lost.wanted_offset} earliest_offset={lost.earliest_offset} "
        f"end_offset={lost.end_offset} fix='fluvial cdc resnapshot {table}, which replaces its rows; or without these "
        f"records: fluvial cdc skip {table} --until {lost.earliest_offset}'"
    )


def parked_at(
    work: TableWork,
    *,
    reason: str,
    batch_id: int,
    now_ms: int,
    offsets: Mapping[TopicPosition, int],
    at: RecordPlace | None = None,
) -> Parked:
    """A table that waits from the start of its ranges; positions that it has had before are kept.

    Args:
        work: of the batch that failed.
        reason: why.
        batch_id: of it.
        now_ms: epoch milliseconds.
        offsets: where it stood, as its newest snapshot has it.
        at: the record that it cannot take.
    """
    left_out = tuple(dict.fromkeys(each for share in work.shares for each in share.scan.left_out))
    starts = {each: max(offset, offsets.get(each, 0)) for each, offset in work.starts.items()}
    return Parked(
        since_ms=now_ms,
        reason=reason,
        batch_id=batch_id,
        offsets={**offsets, **starts},
        at=at,
        left_out=left_out,
        topic_ids=work.topic_ids,
        sources=tuple(dict.fromkeys(each.source for each in work.shares)),
    )


def _position(source: OffsetRange) -> TopicPosition:
    return source.topic, source.partition
