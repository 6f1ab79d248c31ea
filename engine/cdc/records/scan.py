"""The first pass over a range of records: which tables it has, which schema parts in which order, truncates, times.

The records themselves are kept for the second pass while they fit into a budget, which the ranges of a batch share;
what does not fit is read again. So a batch takes bounded memory, however far the job is behind.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from engine.cdc.names import SourceTable
from engine.cdc.records.routing import RecordPiece, Routed, RowPart, route
from engine.cdc.settings import CdcSettings
from engine.kafka.offsets import OffsetRange
from logstore.format.avro_payloads import AvroPayloads
from logstore.format.schema_parts import Split, split_payloads
from logstore.json.reading import BadRecord
from logstore.log.log_reader import RecordsLostError, read_range
from logstore.offsets import LogRange


@dataclass(slots=True)
class ScannedTable:
    """What a range has of one table."""

    source: SourceTable
    first_offset: int
    record_count: int = 0
    newest_ms: int | None = None  # of the source's clock
    newest_lsn: int | None = None
    truncated_at: int | None = None  # offset of the last truncate
    parts: list[tuple[int, RowPart]] = field(default_factory=list)  # at the first record after another part
    transactions: dict[str, int] = field(default_factory=dict)  # events by id, in order


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some records, and where they belong."""

    records: pa.RecordBatch
    routed: Routed


@dataclass(slots=True)
class RangeScan:
    """What a range has."""

    source: OffsetRange
    tables: dict[SourceTable, ScannedTable] = field(default_factory=dict)
    bad: list[tuple[int, BadRecord]] = field(default_factory=list)  # with its offset; of no known table
    chunks: list[Chunk] | None = None  # None: to be read again
    lost: str | None = None  # the records are gone, and why

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
    """How records are split into payloads and schema parts."""
    return split_payloads if settings.registry is None else AvroPayloads(settings.registry)


def read_chunks(settings: CdcSettings, source: OffsetRange) -> Iterator[Chunk]:
    """The records of a range, routed. Raises: FluvialError, see ``read_range``."""
    split = split_of(settings)
    wanted = LogRange(bucket=source.partition, start_offset=source.start_offset, end_offset=source.end_offset)
    for records in read_range(settings.properties, topic=source.topic, log_range=wanted):
        yield Chunk(records, route(records["key"], records["value"], split=split))


def scan_range(settings: CdcSettings, source: OffsetRange, budget: Budget | None = None) -> RangeScan:
    """Look at a range.

    Args:
        settings: of the job.
        source: the range.
        budget: for records to keep; None: none are.

    Raises:
        UnavailableError: the brokers do not answer.
    """
    found = RangeScan(source=source, chunks=None if budget is None else [])
    try:
        for chunk in read_chunks(settings, source):
            offsets = chunk.records["offset"].to_numpy()
            for piece in chunk.routed.pieces:
                _add(found, piece, offsets)
            for table in found.tables.values():
                own = [each for each in chunk.routed.pieces if each.source == table.source and each.part is not None]
                table.parts += part_starts(own, offsets) if own else []
            found.bad += [(int(offsets[each.index]), each) for each in chunk.routed.bad]
            if found.chunks is not None:
                if budget is not None and budget.take(chunk.records.nbytes):
                    found.chunks.append(chunk)
                else:
                    found.chunks = None
    except RecordsLostError as error:
        found.lost = str(error)
    for table in found.tables.values():
        table.parts = _in_order(table.parts)
    return found


def _add(found: RangeScan, piece: RecordPiece, offsets: NDArray[np.int64]) -> None:
    at = offsets[piece.indices]
    table = found.tables.get(piece.source)
    if table is None:
        table = found.tables[piece.source] = ScannedTable(source=piece.source, first_offset=int(at[0]))
    table.record_count += len(at)
    source = pc.struct_field(piece.meta, "source")
    for name, key in (("newest_ms", "ts_ms"), ("newest_lsn", "lsn")):
        newest = pc.max(pc.struct_field(source, key)).as_py()
        known = getattr(table, name)
        setattr(table, name, newest if known is None else known if newest is None else max(known, newest))
    if piece.part is None:
        table.truncated_at = max(table.truncated_at or 0, int(at.max()))
    transactions = pc.struct_field(pc.struct_field(piece.meta, "transaction"), "id").drop_null()
    if len(transactions):
        for each in transactions.value_counts().to_pylist():
            name = each["values"]
            table.transactions[name] = table.transactions.get(name, 0) + each["counts"]


def part_starts(pieces: Sequence[RecordPiece], offsets: NDArray[np.int64]) -> list[tuple[int, RowPart]]:
    """The offsets at which another part begins, of the pieces of one table; one that comes back begins again."""
    at = np.concatenate([offsets[each.indices] for each in pieces])
    which = np.concatenate([np.full(len(each.indices), number) for number, each in enumerate(pieces)])
    order = np.argsort(at)
    at, which = at[order], which[order]
    starts = np.flatnonzero(np.r_[True, which[1:] != which[:-1]])
    found = ((int(at[start]), pieces[which[start]].part) for start in starts)
    return [(offset, part) for offset, part in found if part is not None]


def _in_order(parts: list[tuple[int, RowPart]]) -> list[tuple[int, RowPart]]:
    """Parts by offset, without those that repeat the one before."""
    kept: list[tuple[int, RowPart]] = []
    for offset, part in sorted(parts, key=lambda each: each[0]):
        if not kept or kept[-1][1].digest != part.digest:
            kept.append((offset, part))
    return kept
