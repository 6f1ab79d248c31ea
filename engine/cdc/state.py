"""The state of a job between batches: small files under ``_cdc/JOB`` in the warehouse.

One file per table has its source tables and schema parts, and for a parked table the time, the reason and the next
offsets; one file has the progress of the newest batch; one file for each request of a user exists until the job takes
the request.
They are in the warehouse, because ``fluvial cdc status`` needs nothing else, and a lost checkpoint must not lose the
names of columns. Each is replaced atomically, by the driver of the job alone.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final
from urllib.parse import quote, unquote

from engine.cdc.records.routing import RecordPlace
from engine.cdc.rules.names import Naming, SourceTable
from engine.cdc.rules.part_sequence import PartSequence
from engine.cdc.rules.transactions import CutDecision
from engine.kafka.offsets import (
    OffsetRange,
    TopicIds,
    TopicPosition,
    from_json,
    recreated_topics,
    to_json,
    topic_ids_of,
)
from filestore.io.file_io import FileIO
from lsm.errors import CorruptDataError

logger = logging.getLogger("fluvial.cdc")

STATE_DIRECTORY: Final = "_cdc"
RESNAPSHOT: Final = "resnapshot"
_TABLES: Final = "tables"
_REQUESTS: Final = "requests"
_PROGRESS: Final = "progress.json"
_CUTS: Final = "cuts.json"
_GENERATED: Final = "generated.json"
_SUFFIX: Final = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitedSnapshot:
    """A snapshot of the connector that replaces the rows of a table."""

    drops: bool  # the table is made again
    is_met: bool = False  # it came, and could not be written: a request continues with it


@dataclass(frozen=True, slots=True, kw_only=True)
class Parked:
    """A table whose records wait."""

    since_ms: int
    reason: str
    batch_id: int
    offsets: Mapping[TopicPosition, int]  # the next record of each partition
    awaits: AwaitedSnapshot | None = None  # continues with it by itself, from these offsets on; None: with a request
    at: RecordPlace | None = None  # the first record that a skip leaves out; None: all from these offsets on
    left_out: tuple[OffsetRange, ...] = ()  # what users have skipped behind these offsets
    topic_ids: TopicIds = field(default_factory=dict)  # of the offsets' topics, as far as they are known
    sources: tuple[SourceTable, ...] = ()  # whose records wait

    def met(self, starts: Mapping[TopicPosition, int], ids: TopicIds) -> "Parked":
        """This table behind another batch, which begins there: it may have got partitions, or topics that have an id.

        A table that awaits a snapshot begins again in a topic that was created again: all its rows are replaced.
        """
        known, topic_ids = set(self.offsets), {**ids, **self.topic_ids}
        if self.awaits is not None:
            again = recreated_topics(self.topic_ids, ids)
            topic_ids, known = {**topic_ids, **ids}, {each for each in known if each[0] not in again}
        missing = {each: offset for each, offset in starts.items() if each not in known}
        return replace(self, offsets={**self.offsets, **missing}, topic_ids=topic_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcTableState:
    """The state of a table: its source tables, its schema parts, and why it waits."""

    sources: tuple[SourceTable, ...] = ()
    key: tuple[str, ...] = ()  # of the source, as records had it first
    sequences: Mapping[SourceTable, PartSequence] = field(default_factory=dict)
    parked: Parked | None = None
    key_types: Mapping[str, str] = field(default_factory=dict)  # that a table could not get: created again it has them

    @property
    def known_sources(self) -> tuple[SourceTable, ...]:
        """The source tables whose records the table has, or waits with."""
        return tuple(dict.fromkeys((*self.sources, *(() if self.parked is None else self.parked.sources))))

    def sequence_of(self, source: SourceTable) -> PartSequence:
        """The schema parts that a source table has had."""
        return self.sequences.get(source, PartSequence())

    def others(self, source: SourceTable) -> list[PartSequence]:
        """The schema parts of the other source tables."""
        return [sequence for each, sequence in self.sequences.items() if each != source]

    def each_sequence(self, done: Callable[[PartSequence], PartSequence]) -> "CdcTableState":
        """The state with a function applied to the schema parts of each source table."""
        return replace(self, sequences={source: done(each) for source, each in self.sequences.items()})

    def to_json(self) -> dict[str, Any]:
        """The state as JSON values, for its file."""
        parked = self.parked
        return {
            "sources": [[each.schema, each.name] for each in self.sources],
            "key": list(self.key),
            "key_types": dict(self.key_types),
            "parts": [[each.schema, each.name, found.to_json()] for each, found in self.sequences.items()],
            "parked": None
            if parked is None
            else {
                "since": parked.since_ms,
                "reason": parked.reason,
                "batch": parked.batch_id,
                "offsets": to_json(parked.offsets, parked.topic_ids),
                "awaits": None if parked.awaits is None else asdict(parked.awaits),
                "at": parked.at,
                "left_out": [asdict(each) for each in parked.left_out],
                "sources": [[each.schema, each.name] for each in parked.sources],
            },
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "CdcTableState":
        """The inverse of ``to_json``."""
        parked = body["parked"]
        return cls(
            sources=tuple(SourceTable(*each) for each in body["sources"]),
            key=tuple(body["key"]),
            key_types=body.get("key_types", {}),
            sequences=_sequences(body["parts"], [SourceTable(*each) for each in body["sources"]]),
            parked=None
            if parked is None
            else Parked(
                since_ms=parked["since"],
                reason=parked["reason"],
                batch_id=parked["batch"],
                offsets=from_json(parked["offsets"]),
                topic_ids=topic_ids_of(parked["offsets"]),
                awaits=None if not parked.get("awaits") else AwaitedSnapshot(**parked["awaits"]),
                at=None if not parked.get("at") else tuple(parked["at"]),
                left_out=tuple(OffsetRange(**each) for each in parked.get("left_out", ())),
                sources=tuple(SourceTable(*each) for each in parked.get("sources", ())),
            ),
        )


def _sequences(parts: Any, sources: Sequence[SourceTable]) -> dict[SourceTable, PartSequence]:
    """The schema parts by source table; an earlier version had one sequence for all of them."""
    if isinstance(parts, list):
        return {SourceTable(schema, name): PartSequence.from_json(body) for schema, name, body in parts}
    common = PartSequence.from_json(parts)

    def share(source: SourceTable) -> PartSequence:
        return common.of_topic(lambda topic: SourceTable.of_topic(topic) == source)

    return {source: share(source) if len(sources) > 1 else common for source in sources}


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of a user to a running job."""

    name: str  # of its file
    action: str  # resume, skip, resnapshot
    table: str
    until: int | None = None  # skip: records before this offset are left out, from the refused one on
    offsets: Mapping[TopicPosition, int] = field(default_factory=dict)  # resnapshot: it begins behind these
    drops: bool = False  # resnapshot: the table is made again


def at_beginnings(parked: Parked, ids: TopicIds) -> Parked:
    """A parked table, from the beginning of topics that were created again; it does not know their ids yet."""
    again = recreated_topics(parked.topic_ids, ids)
    return replace(
        parked,
        offsets={each: 0 if each[0] in again else offset for each, offset in parked.offsets.items()},
        at=None if parked.at is not None and parked.at[0] in again else parked.at,
        left_out=tuple(each for each in parked.left_out if each.topic not in again),
    )


def can_answer(parked: Parked | None, ranges: Sequence[OffsetRange]) -> bool:
    """Whether a batch knows where the records of a parked table end.

    One that was planned before it was asked has no ranges of partitions where nothing is new: then the next one
    answers.
    """
    known = {(each.topic, each.partition) for each in ranges}
    return parked is None or known >= parked.offsets.keys()


def backlog(parked: Parked, ranges: Sequence[OffsetRange], requests: Sequence[Request]) -> list[OffsetRange]:
    """The ranges of a parked table that continues in this batch, up to the batch's ends.

    Args:
        parked: the table.
        ranges: of the batch, of all partitions.
        requests: of this table, in order; a skip raises the start where no record is known that was refused.
    """
    until = max((each.until for each in requests if each.until is not None and parked.at is None), default=0)
    planned = {(each.topic, each.partition): each for each in ranges}
    gone = sorted(left_out(parked, requests), key=lambda each: each.start_offset)
    found = []
    for position, start in sorted(parked.offsets.items()):
        own = planned.get(position)
        begin = max(start, until)
        for each in gone:  # also records that the topic no longer has
            if (each.topic, each.partition) == position and each.start_offset <= begin < each.end_offset:
                begin = each.end_offset
        if own is not None and begin < own.end_offset:
            found.append(replace(own, start_offset=begin))
    return found


def left_out(parked: Parked, requests: Sequence[Request]) -> tuple[OffsetRange, ...]:
    """The ranges that a parked table leaves out when it continues: from the record it could not take to the skip."""
    until = max((each.until for each in requests if each.until is not None), default=0)
    if parked.at is None or until <= parked.at[2]:
        return parked.left_out
    topic, partition, start = parked.at
    new = OffsetRange(topic=topic, partition=partition, start_offset=start, end_offset=until)
    return (*parked.left_out, new)


@dataclass(frozen=True, slots=True)
class StateFiles:
    """The files of one job. Picklable."""

    io: FileIO
    root: str
    job: str
    _known: dict[str, CdcTableState] = field(default_factory=dict, compare=False)

    def table(self, name: str) -> CdcTableState:
        """The state of a table; an empty one for a table that is not known."""
        if name not in self._known:
            body = self._read(f"{_TABLES}/{quote(name, safe='')}{_SUFFIX}")
            self._known[name] = CdcTableState() if body is None else CdcTableState.from_json(body)
        return self._known[name]

    def put(self, name: str, state: CdcTableState) -> None:
        """Remember the state of a table; nothing is written when it is the same."""
        if state != self.table(name):
            self._write(f"{_TABLES}/{quote(name, safe='')}{_SUFFIX}", state.to_json())
            self._known[name] = state

    def park(self, name: str, parked: Parked | None) -> None:
        """Park a table, or resume it."""
        self.put(name, replace(self.table(name), parked=parked))

    def tables(self) -> list[str]:
        """Names of all tables that the job knows, sorted."""
        names = self.io.list_names(f"{self._home}/{_TABLES}")
        return sorted(unquote(name.removesuffix(_SUFFIX)) for name in names if name.endswith(_SUFFIX))

    def let_go_unnamed(self, naming: Naming) -> None:
        """Let no table wait all of whose source tables the rules now send to other tables, or to none."""
        for name in self.tables():
            known = self.table(name)
            sources = known.known_sources
            targets = [naming.target_of(each) for each in sources]
            if known.parked is not None and sources and all(each is None or each.table != name for each in targets):
                self.park(name, None)
                logger.warning(
                    "a table does not wait any more, the rules let no source table into it: table=%s sources=%s "
                    "fix='drop it, if it is there'", name, ",".join(map(str, sorted(sources))),
                )  # fmt: skip

    def request_names(self) -> list[str]:
        """Names of the requests that wait, in order."""
        return [name for name in self.io.list_names(f"{self._home}/{_REQUESTS}") if name.endswith(_SUFFIX)]

    def pending(self, *, now_ms: int, max_wait_ms: float) -> list[str]:
        """List why a batch is due without new records: requests, and changes that were held back for too long."""
        newest = max(self.cuts().values(), key=lambda each: each.batch_id, default=None)
        is_overdue = newest is not None and newest.overdue(now_ms, max_wait_ms)
        return [*self.request_names(), *([f"overdue-{newest.batch_id}"] if newest is not None and is_overdue else [])]

    def requests(self) -> list[Request]:
        """The requests that wait, in order."""
        found = []
        for name in self.request_names():
            body = self._read(f"{_REQUESTS}/{name}")
            if body is not None:
                found.append(
                    Request(
                        name=name,
                        action=body["action"],
                        table=body["table"],
                        until=body["until"],
                        offsets=from_json(body.get("offsets", {})),
                        drops=body.get("drops", False),
                    )
                )
        return found

    def ask(
        self,
        action: str,
        table: str,
        *,
        at_ms: int,
        until: int | None = None,
        offsets: Mapping[TopicPosition, int] | None = None,
        drops: bool = False,
    ) -> None:
        """Ask something of the job; it answers with its next batch."""
        name = f"{at_ms:013d}-{quote(table, safe='')}{_SUFFIX}"
        body = {"action": action, "table": table, "until": until, "drops": drops}
        self._write(f"{_REQUESTS}/{name}", body | {"offsets": to_json(offsets or {}, {})})

    def answered(self, request: Request) -> None:
        """Forget a request."""
        self.io.delete(f"{self._home}/{_REQUESTS}/{request.name}")

    def progress(self) -> dict[str, Any] | None:
        """The progress of the newest batch; None before the first."""
        return self._read(_PROGRESS)

    def put_progress(self, body: Mapping[str, Any]) -> None:
        """Replace the progress."""
        self._write(_PROGRESS, body)

    def cuts(self) -> dict[int, CutDecision]:
        """The ends of the newest batches, by batch."""
        body = self._read(_CUTS) or {"cuts": []}
        return {each["batch"]: CutDecision.from_json(each) for each in body["cuts"]}

    def put_cut(self, decision: CutDecision) -> None:
        """Remember where a batch ends, and where the one before it did."""
        before = self.cuts().get(decision.batch_id - 1)
        self._write(_CUTS, {"cuts": [each.to_json() for each in (before, decision) if each is not None]})

    def generated(self) -> frozenset[str] | None:
        """Generated columns, as the catalog of the source named them last; None: it was never read."""
        body = self._read(_GENERATED)
        return None if body is None else frozenset(body["columns"])

    def put_generated(self, columns: frozenset[str]) -> None:
        """Remember the generated columns of the source."""
        if columns != self.generated():
            self._write(_GENERATED, {"columns": sorted(columns)})

    @property
    def _home(self) -> str:
        return f"{self.root}/{STATE_DIRECTORY}/{quote(self.job, safe='')}"

    def _read(self, name: str) -> dict[str, Any] | None:
        path = f"{self._home}/{name}"
        try:
            found: dict[str, Any] = json.loads(self.io.read_bytes(path))
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise CorruptDataError(f"state of a job cannot be decoded: file={path} error={error}") from error
        return found

    def _write(self, name: str, body: Mapping[str, Any]) -> None:
        path = f"{self._home}/{name}"
        self.io.make_directory(path.rpartition("/")[0])
        self.io.replace(path, json.dumps(body).encode())
