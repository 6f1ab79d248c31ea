"""The first pass over a range of records: which tables it has, which schema parts in which order, truncates, times.

The records themselves are kept for the second pass while they fit into a budget, which the ranges of a batch share;
what does not fit is read again. So a batch takes bounded memory, however far the job is behind.
"""

import logging
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.cdc.records.declared import declared_part
from engine.cdc.records.metadata import OTHERS, POSTGRES_CONNECTOR
from engine.cdc.records.routing import (
    READ,
    UPDATE,
    Declared,
    RecordPiece,
    RefusedRecord,
    Routed,
    RowPart,
    route,
)
from engine.cdc.rules.names import SourceTable
from engine.cdc.rules.part_sequence import SourceMoment
from engine.cdc.rules.repeats import Progressions, Stamp, Stamps, moments_of, stamps_of
from engine.cdc.rules.snapshots import RowsOfSnapshots
from engine.cdc.rules.transactions import ChangeRun, EndedTransaction, transaction_key
from engine.cdc.settings import CUT, CdcSettings
from engine.kafka.offsets import OffsetRange
from logstore.format.avro_payloads import AvroPayloads
from logstore.format.schema_parts import Split, split_payloads
from logstore.format.schema_registry import SchemaRegistry
from logstore.json.arrow_bytes import flags
from logstore.log.kept_consumers import IdleConsumers
from logstore.log.log_reader import MARKER, OLD_KEY, RecordsLostError, read_range
from logstore.offsets import LogRange

logger = logging.getLogger("fluvial.cdc")

_LOOKED_AT: Final = 10
_NO_SNAPSHOT: Final = pa.array(["false", None], pa.string())


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSpan:
    """Neighbouring records of a table with one schema part."""

    offset: int  # of the first
    part: RowPart
    last_offset: int
    last: Stamp | None
    has_changes: bool = True  # not only rows of a snapshot
    moments: tuple[SourceMoment, SourceMoment] | None = None  # the least and the greatest of its records
    is_appended: bool = False  # the source puts each new column behind all others


@dataclass(slots=True)
class ScannedTable:
    """The records of one table in a range, as the first look counts them."""

    source: SourceTable
    first_offset: int
    record_count: int = 0
    newest_ms: int | None = None  # of the source's clock
    newest_lsn: int | None = None
    truncates: list[tuple[int, Stamp | None]] = field(default_factory=list)  # offsets
    parts: list[PartSpan] = field(default_factory=list)
    progressions: Progressions = field(default_factory=Progressions)
    has_updates: bool = False  # records from which values may be missing
    snapshots: list[tuple[int, int]] = field(default_factory=list)  # first and last offset of a snapshot's records
    snapshot_rows: RowsOfSnapshots = field(default_factory=RowsOfSnapshots)

    @property
    def truncated_at(self) -> int | None:
        """The offset of the last truncate; None: there is none."""
        return max((offset for offset, _ in self.truncates), default=None)

    @property
    def has_snapshot(self) -> bool:
        """Whether there are records of a connector's look at the whole table."""
        return bool(self.snapshots)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some records, and where they belong; of their values only what belongs to a table."""

    records: pa.RecordBatch  # offset, key and old key
    routed: Routed
    end_offset: int  # the next record after them

    @property
    def size_bytes(self) -> int:
        """Memory that it takes."""
        return int(self.records.nbytes) + sum(each.size_bytes for each in self.routed.pieces)


@dataclass(slots=True)
class RangeScan:
    """The records of a range, as the first look finds them."""

    source: OffsetRange
    tables: dict[SourceTable, ScannedTable] = field(default_factory=dict)
    bad: list[tuple[int, RefusedRecord]] = field(default_factory=list)  # with its offset
    chunks: list[Chunk] = field(default_factory=list)  # the first ones; those after them are to be read again
    lost: RecordsLostError | None = None  # the first records are not in the topic
    left_out: tuple[OffsetRange, ...] = ()  # records that a user has skipped
    runs: list[ChangeRun] = field(default_factory=list)  # with ``commit.cut=transaction``
    ended: list[EndedTransaction] = field(default_factory=list)

    @property
    def position(self) -> str:
        """``topic/partition``."""
        return position_of(self.source)


class Budget:
    """Bytes that may be kept; safe for threads."""

    def __init__(self, size_bytes: int) -> None:
        self._left = size_bytes
        self._lock = threading.Lock()

    def take(self, size_bytes: int) -> bool:
        """Whether so many may be kept."""
        with self._lock:
            if size_bytes > self._left:
                return False
            self._left -= size_bytes
            return True


def position_of(source: OffsetRange) -> str:
    """``topic/partition``."""
    return f"{source.topic}/{source.partition}"


def split_of(settings: CdcSettings) -> Split:
    """The function that splits records into payloads and schema parts."""
    return split_payloads if settings.registry is None else _avro_payloads(settings.registry)


@lru_cache(maxsize=4)
def _avro_payloads(registry: SchemaRegistry) -> AvroPayloads:
    """One per registry and process: its cache of schemas outlives a batch."""
    return AvroPayloads(registry)


def declared_parts(settings: CdcSettings) -> Declared:
    """The parts of tables whose columns the job declares. Raises: InvalidInputError, see ``declared_part``."""
    parts = {
        name: declared_part(name, each.columns, each.key, settings.connector)
        for name, each in settings.tables.items()
        if each.columns
    }

    def declared(source: SourceTable) -> RowPart | None:
        target = settings.naming.target_of(source) if parts else None
        return None if target is None else parts.get(target.table)

    return declared


def read_chunks(
    settings: CdcSettings,
    source: OffsetRange,
    consumers: IdleConsumers | None = None,
    left_out: Sequence[OffsetRange] = (),
) -> Iterator[Chunk]:
    """The records of a range, routed, without those that are left out. Raises: FluvialError, see ``read_range``."""
    split, declared = split_of(settings), declared_parts(settings)
    flattened = settings.flattened_source(source.topic)
    wanted = LogRange(bucket=source.partition, start_offset=source.start_offset, end_offset=source.end_offset)
    columns = ["offset", "key", "value", OLD_KEY.name]
    found = read_range(settings.properties, topic=source.topic, log_range=wanted, columns=columns, kept=consumers)
    for records in found:
        if left_out and (records := _without(records, source, left_out)).num_rows == 0:
            continue
        routed = route(records["key"], records["value"], split=split, declared=declared, flattened=flattened)
        yield Chunk(records.drop_columns(["value"]), routed, records["offset"][-1].as_py() + 1)


def _without(records: pa.RecordBatch, source: OffsetRange, left_out: Sequence[OffsetRange]) -> pa.RecordBatch:
    offsets, stays = records["offset"].to_numpy(), np.ones(records.num_rows, bool)
    for each in left_out:
        if (each.topic, each.partition) == (source.topic, source.partition):
            stays &= (offsets < each.start_offset) | (offsets >= each.end_offset)
    return records.filter(pa.array(stays))


def raw_record(settings: CdcSettings, source: OffsetRange, offset: int) -> pa.RecordBatch:
    """One record as it is in the topic, with its key and value. Raises: FluvialError, see ``read_range``."""
    wanted = LogRange(bucket=source.partition, start_offset=offset, end_offset=offset + 1)
    (found,) = read_range(settings.properties, topic=source.topic, log_range=wanted, columns=["offset", "key", "value"])
    return found


def scan_range(
    settings: CdcSettings,
    source: OffsetRange,
    budget: Budget | None = None,
    consumers: IdleConsumers | None = None,
    left_out: tuple[OffsetRange, ...] = (),
) -> RangeScan:
    """Look at a range.

    Args:
        settings: of the job.
        source: the range.
        budget: for records to keep; None: none are.
        consumers: of the job, one of which reads; None: a new one.
        left_out: records that count as none.

    Raises:
        UnavailableError: the brokers do not answer.
    """
    found, keeps = RangeScan(source=source, left_out=left_out), budget is not None
    try:
        for chunk in read_chunks(settings, source, consumers, left_out):
            offsets = chunk.records["offset"].to_numpy()
            has_old_keys = chunk.records[OLD_KEY.name].null_count < len(offsets)
            for piece in chunk.routed.pieces:
                _add(found, piece, offsets, has_old_keys=has_old_keys)
            for table in found.tables.values():
                own = [each for each in chunk.routed.pieces if each.source == table.source]
                if own:
                    _add_order(table, own, offsets)
            if settings.cut == CUT:
                found.runs += _runs(chunk, offsets)
                found.ended += [
                    EndedTransaction(
                        position=(source.topic, source.partition),
                        offset=int(offsets[index]),
                        id=transaction_key(name),
                        counts=counts,
                    )
                    for index, name, counts in chunk.routed.ended
                ]
            for name in chunk.routed.others:
                _tell_others(settings.name, source.topic, name)
            found.bad += [(int(offsets[each.index]), each) for each in chunk.routed.bad]
            keeps = keeps and budget is not None and budget.take(chunk.size_bytes)
            if keeps:
                found.chunks.append(chunk)
        if keeps and found.chunks:  # behind them are only marks of transactions
            found.chunks[-1] = replace(found.chunks[-1], end_offset=source.end_offset)
    except RecordsLostError as error:
        found.lost = error
    if found.bad and not found.tables and _is_log(settings, source):
        logger.warning("a topic is the log of a table, and left out: topic=%s job=%s", source.topic, settings.name)
        found.bad = []
    for table in found.tables.values():
        table.parts = _in_order(table.parts, {each.offset for each in table.progressions.found})
    return found


@lru_cache(maxsize=1024)
def _tell_others(job: str, topic: str, name: str) -> None:
    """Say once that a topic has records that are no changes of rows, unless connectors publish them beside changes."""
    if not name.endswith(tuple(OTHERS)):
        logger.warning(
            "records of a topic are no changes of rows, and left out: job=%s topic=%s records='%s' "
            "fix='let the pattern not match it; rows without envelopes: source.flattened'",
            job, topic, name or "without a schema part",
        )  # fmt: skip


def _is_log(settings: CdcSettings, source: OffsetRange) -> bool:
    """Whether the last records of a range are of a table's log, as of another warehouse: each commit leaves a mark."""
    start = max(source.start_offset, source.end_offset - _LOOKED_AT)
    wanted = LogRange(bucket=source.partition, start_offset=start, end_offset=source.end_offset)
    try:
        found = list(read_range(settings.properties, topic=source.topic, log_range=wanted, columns=[MARKER.name]))
    except RecordsLostError:
        return False
    return any(each[MARKER.name].null_count < each.num_rows for each in found)


def _add(found: RangeScan, piece: RecordPiece, offsets: NDArray[np.int64], *, has_old_keys: bool) -> None:
    at = offsets[piece.indices]
    table = found.tables.get(piece.source)
    if table is None:
        table = found.tables[piece.source] = ScannedTable(source=piece.source, first_offset=int(at[0]))
    table.first_offset = min(table.first_offset, int(at[0]))
    table.record_count += len(at)
    is_update = pc.any(pc.equal(pc.struct_field(piece.meta, "op"), UPDATE)).as_py()
    table.has_updates |= has_old_keys or bool(is_update)
    source = pc.struct_field(piece.meta, "source")
    for name, key in (("newest_ms", "ts_ms"), ("newest_lsn", "lsn")):
        newest = pc.max(pc.struct_field(source, key)).as_py()
        known = getattr(table, name)
        setattr(table, name, newest if known is None else known if newest is None else max(known, newest))
    marks = pc.struct_field(source, "snapshot")
    marked = at[~flags(pc.is_in(marks, _NO_SNAPSHOT))]
    if len(marked):
        table.snapshots.append((int(marked[0]), int(marked[-1])))


def _runs(chunk: Chunk, offsets: NDArray[np.int64]) -> list[ChangeRun]:
    """Neighbours of one table and transaction, by offset."""
    runs: list[ChangeRun] = []
    for piece in chunk.routed.pieces:
        ids = pc.struct_field(pc.struct_field(piece.meta, "transaction"), "id").dictionary_encode()
        codes = np.asarray(ids.indices.fill_null(-1))
        starts = np.flatnonzero(np.r_[True, codes[1:] != codes[:-1]])
        counts = np.diff(np.append(starts, len(codes)))
        names = [*map(transaction_key, ids.dictionary.to_pylist()), None]
        at = offsets[piece.indices]
        runs += [
            ChangeRun(offset=int(at[start]), transaction=names[codes[start]], table=str(piece.source), count=int(count))
            for start, count in zip(starts, counts, strict=True)
        ]
    return sorted(runs, key=lambda each: each.offset)


def ordered_meta(pieces: Sequence[RecordPiece], offsets: NDArray[np.int64]) -> tuple[pa.StructArray, NDArray[np.int64]]:
    """The envelope fields of one table's records in a chunk, by offset, and the offsets, (n,) each."""
    if len(pieces) == 1:
        return pieces[0].meta, offsets[pieces[0].indices]
    at = np.concatenate([offsets[each.indices] for each in pieces])
    order = np.argsort(at)
    return pa.concat_arrays([each.meta for each in pieces]).take(pa.array(order)), at[order]


def _add_order(table: ScannedTable, pieces: Sequence[RecordPiece], offsets: NDArray[np.int64]) -> None:
    """Add facts that depend on the order of a table's records in a chunk: runs, parts, truncates, snapshots."""
    meta, at = ordered_meta(pieces, offsets)
    stamps = stamps_of(meta, at)
    table.snapshot_rows.add(meta, at)
    if stamps is not None:
        stamps = table.progressions.add(stamps)
    own = [each for each in pieces if each.part is not None and not each.part.is_key]
    for each in pieces:
        if each.part is None:
            truncates = offsets[each.indices].tolist()
            table.truncates += [(at, None if stamps is None else stamps.at_offset(at)) for at in truncates]
    if own:
        table.parts += _spans(own, offsets, stamps, [each.offset for each in table.progressions.found])


def _spans(
    pieces: Sequence[RecordPiece], offsets: NDArray[np.int64], stamps: Stamps | None, jumps: Sequence[int]
) -> list[PartSpan]:
    """The parts of the pieces of one table, in order; one that comes back begins again, and so does each run."""
    at = np.concatenate([offsets[each.indices] for each in pieces])
    which = np.concatenate([np.full(len(each.indices), number) for number, each in enumerate(pieces)])
    is_read = np.concatenate([flags(pc.equal(pc.struct_field(each.meta, "op"), READ)) for each in pieces])
    moments = [moments_of(pc.struct_field(each.meta, "source")) for each in pieces]
    times, places = (np.concatenate([each[side] for each in moments]) for side in (0, 1))
    order = np.argsort(at)
    at, which, is_read, times, places = (each[order] for each in (at, which, is_read, times, places))
    starts = np.flatnonzero(np.r_[True, (which[1:] != which[:-1]) | np.isin(at[1:], jumps)])
    connector = pc.struct_field(pieces[0].meta, ["source", "connector"])
    is_appended = pc.any(pc.equal(connector, POSTGRES_CONNECTOR)).as_py() is True
    found = []
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(at)], strict=True):
        part, last = pieces[which[start]].part, int(at[end - 1])
        if part is not None:
            stamp = None if stamps is None else stamps.at_offset(last)
            has_changes = not is_read[start:end].all()
            own_times, own_places = times[start:end], places[start:end]
            first, newest = own_times.min(), own_times.max()
            least = int(first), int(own_places[own_times == first].min())
            greatest = int(newest), int(own_places[own_times == newest].max())
            found.append(
                PartSpan(
                    offset=int(at[start]),
                    part=part,
                    last_offset=last,
                    last=stamp,
                    has_changes=has_changes,
                    moments=(least, greatest),
                    is_appended=is_appended,
                )
            )
    return found


def _in_order(spans: list[PartSpan], jumps: set[int]) -> list[PartSpan]:
    """Parts by offset; a part that repeats its predecessor is merged with it, unless a run begins with it."""
    kept: list[PartSpan] = []
    for each in sorted(spans, key=lambda each: each.offset):
        if kept and kept[-1].part.digest == each.part.digest and each.offset not in jumps:
            has_changes = kept[-1].has_changes or each.has_changes
            moments = [moment for span in (kept[-1], each) for moment in span.moments or ()]
            kept[-1] = replace(
                kept[-1],
                last_offset=each.last_offset,
                last=each.last,
                has_changes=has_changes,
                moments=(min(moments), max(moments)) if moments else None,
            )
        else:
            kept.append(each)
    return kept
