"""The entries of a manifest as columns: what decides about an entry is a number or a span, the rest stays encoded.

Entries become objects only when they are asked for, see ``entry_building``. The bytes are always in our own schema:
those of a manifest whose schema is another one are encoded once more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from io import BytesIO
from typing import Any, Final, NamedTuple, TypeAlias

import fastavro
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from filestore.format.avro_blocks import read_encoded
from filestore.manifest.avro_schemas import MANIFEST_SCHEMA
from filestore.manifest.avro_walk import PADDING, Column, EncodedBytes, Lists, Numbers, Spans, flat_fields, walk_records
from filestore.manifest.entries import MANIFEST_VERSION, EntryKind, ManifestEntry
from filestore.manifest.record_files import UnknownField, is_avro
from lsm.keys.words import BoolArray, IndexArray

_Places = NDArray[np.int32] | NDArray[np.int64]  # wide where the bytes are many
ROWS_AT_ONCE: Final = 8192  # their cursors stay in the processor's cache
KEPT_ENTRIES: Final = 512
"""Up to so many, what was decoded of their columns is kept and shared."""

FIELDS: Final = flat_fields(MANIFEST_SCHEMA)
_PARSED: Final = fastavro.parse_schema(MANIFEST_SCHEMA)
_LEAST_RECORD_BYTES: Final = 16
_LEAST_PARTITION_BYTES: Final = 12  # of a row without columns
_MOST_STARTS: Final = 16  # places for each entry: with more, looking at all of them would cost more than it saves
_ARITY_BYTES: Final = 4
_BYTES_OF_ENTRY: Final = 3 << 10  # about, as an object
_WANTED: Final = (
    "_VERSION",
    "_KIND",
    "_PARTITION",
    "_BUCKET",
    "_TOTAL_BUCKETS",
    "_FILE._FILE_NAME",
    "_FILE._FILE_SIZE",
    "_FILE._ROW_COUNT",
    "_FILE._MIN_KEY",
    "_FILE._MAX_KEY",
    "_FILE._KEY_STATS._MIN_VALUES",
    "_FILE._KEY_STATS._MAX_VALUES",
    "_FILE._MIN_SEQUENCE_NUMBER",
    "_FILE._MAX_SEQUENCE_NUMBER",
    "_FILE._SCHEMA_ID",
    "_FILE._LEVEL",
    "_FILE._EXTRA_FILES",
    "_FILE._DELETE_ROW_COUNT",
    "_FILE._EMBEDDED_FILE_INDEX",
    "_FILE._EXTERNAL_PATH",
)


UnknownByRow: TypeAlias = Mapping[int, tuple[tuple[UnknownField, ...], tuple[UnknownField, ...]]]
"""What a later version of Paimon notes of some entries: of the entry, and of its file."""


class ByteSpans(NamedTuple):
    """Values as (n,) places in the bytes of a manifest, of their first byte and behind their last."""

    starts: _Places
    ends: _Places


@dataclass(frozen=True, kw_only=True)
class EntryColumns:
    """Entries in file order."""

    body: EncodedBytes  # the encoded entries, then padding
    places: _Places  # (n + 1,) where each begins, and the end
    kinds: NDArray[np.int8]  # EntryKind
    partitions: tuple[bytes, ...]  # that occur
    partition_codes: NDArray[np.int32]  # index into ``partitions``
    buckets: NDArray[np.int32]
    total_buckets: NDArray[np.int32]
    levels: NDArray[np.int32]
    schema_ids: NDArray[np.int64]
    sizes: NDArray[np.int64]  # bytes
    row_counts: NDArray[np.int64]
    has_no_deletes: BoolArray  # by its count; without one the file may have some
    min_sequence_numbers: NDArray[np.int64]
    max_sequence_numbers: NDArray[np.int64]
    names: ByteSpans
    first_keys: ByteSpans  # BinaryRow
    last_keys: ByteSpans
    key_lows: ByteSpans  # BinaryRow of the lowest values of the key columns
    key_highs: ByteSpans
    is_plain: BoolArray  # without extra files, embedded index and external path: no other has its name
    unknown: "UnknownByRow" = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.kinds)

    @cached_property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        arrays = [value for value in self.__dict__.values() if isinstance(value, np.ndarray)]
        spans = [each for value in self.__dict__.values() if isinstance(value, ByteSpans) for each in value]
        columns = sum(each.nbytes for each in (*arrays, *spans)) + sum(map(len, self.partitions))
        return columns + (_BYTES_OF_ENTRY * len(self) if len(self) <= KEPT_ENTRIES else 0)

    @cached_property
    def objects(self) -> dict[int, ManifestEntry]:
        """Entries that were made, by row; only where there are few. ``entry_building`` makes and adds them."""
        return {}

    def texts(self, spans: ByteSpans, rows: IndexArray) -> pa.LargeBinaryArray:
        """The bytes of some rows of a column of spans."""
        bounds = np.column_stack([spans.starts[rows], spans.ends[rows]]).astype(np.int64)
        if len(rows) and (bounds[1:, 0] < bounds[:-1, 1]).any():
            return pa.array([self.body[start:end].tobytes() for start, end in bounds.tolist()], pa.large_binary())
        offsets = np.append(bounds.ravel(), len(self.body))  # every second value is a gap
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.body)]
        with_gaps = pa.Array.from_buffers(pa.large_binary(), 2 * len(rows), buffers)
        return pc.take(with_gaps, pa.array(np.arange(0, 2 * len(rows), 2)))

    def encoded(self, rows: IndexArray) -> bytes:
        """The rows as they are stored, one after the other."""
        if len(rows) == len(self):
            return self.body[: self.places[-1]].tobytes()
        bounds = zip(self.places[rows].tolist(), self.places[rows + 1].tolist(), strict=True)
        return b"".join([self.body[start:end].tobytes() for start, end in bounds])


@dataclass(frozen=True, slots=True)
class Encoded:
    """The entries of a manifest, one after the other in our schema."""

    count: int
    body: bytes
    unknown: UnknownByRow = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """Bytes in memory."""
        return len(self.body)


def encoded_of_file(body: bytes) -> Encoded | None:
    """The entries of a manifest file; None: its schema is another one, or it is not Avro.

    Raises: as ``read_blocks``.
    """
    if not is_avro(body):
        return None
    schema, blocks = read_encoded(BytesIO(body))
    if not _is_ours(schema):
        return None
    counted = list(blocks)
    return Encoded(sum(count for count, _ in counted), b"".join(block for _, block in counted))


def encoded_of_entries(entries: Sequence[ManifestEntry]) -> Encoded:
    """Entries that are objects already."""
    buffer = BytesIO()
    for entry in entries:
        fastavro.schemaless_writer(buffer, _PARSED, entry.to_avro())
    return Encoded(len(entries), buffer.getvalue(), unknown_of(entries))


def unknown_of(entries: Sequence[ManifestEntry]) -> UnknownByRow:
    """What is not known here of entries, by their place."""
    both = ((entry.unknown, entry.file.unknown) for entry in entries)
    return {row: each for row, each in enumerate(both) if each != ((), ())}


def entry_columns_of(given: Sequence[Encoded]) -> EntryColumns | None:
    """The entries of manifests, one after the other; None: they must be read one by one."""
    count, size = sum(each.count for each in given), sum(len(each.body) for each in given)
    if not count:
        return None
    body = np.frombuffer(b"".join([*(each.body for each in given), bytes(PADDING)]), np.uint8)
    starts = _possible_starts(body[:-PADDING])
    if len(starts) < count or len(starts) > _MOST_STARTS * count:
        return None
    columns, ends, is_bad = _read(body, starts)
    chosen = _chain(starts, np.where(is_bad, -1, ends), size)
    if chosen is None or len(chosen) != count:
        return None
    places = np.append(starts[chosen], size)
    bounds = np.cumsum([len(each.body) for each in given])
    firsts = [0, *np.cumsum([each.count for each in given]).tolist()]
    unknown = {
        first + row: kept for first, each in zip(firsts, given, strict=False) for row, kept in each.unknown.items()
    }
    if (places[np.cumsum([each.count for each in given])] != bounds).any():
        return None
    if count < len(starts):
        columns = {name: _taken(column, chosen) for name, column in columns.items()}
    made = _made(body, places, columns)
    return replace(made, unknown=unknown) if unknown else made


def columns_of_entries(entries: Sequence[ManifestEntry]) -> EntryColumns:
    """Entries that are objects already. Raises: ValueError for values that do not fit."""
    encoded = [encoded_of_entries([entry]) for entry in entries]
    ends = np.cumsum([0, *(len(each.body) for each in encoded)])
    body = np.frombuffer(b"".join([*(each.body for each in encoded), bytes(PADDING)]), np.uint8)
    columns, found_ends, is_bad = _read(body, ends[:-1])
    if is_bad.any() or (found_ends != ends[1:]).any():
        raise ValueError("entries are not read as they were encoded")
    return replace(_made(body, ends, columns), unknown=unknown_of(entries))


def _read(body: EncodedBytes, starts: IndexArray) -> tuple[dict[str, Column], IndexArray, BoolArray]:
    """Read what is wanted, in pieces of ROWS_AT_ONCE."""
    firsts = range(0, max(1, len(starts)), ROWS_AT_ONCE)
    read = [walk_records(body, starts[first : first + ROWS_AT_ONCE], FIELDS, _WANTED) for first in firsts]
    columns = {name: _joined([each.columns[name] for each in read]) for name in read[0].columns}
    return columns, np.concatenate([each.ends for each in read]), np.concatenate([each.is_bad for each in read])


def _joined(parts: Sequence[Any]) -> Column:
    first: Column = parts[0]
    if len(parts) == 1:
        return first
    valid = None
    if any(each.valid is not None for each in parts):
        valid = np.concatenate([_validity(each) for each in parts])
    if isinstance(first, Lists):
        return Lists(np.concatenate([each.counts for each in parts]), None, valid)
    if isinstance(first, Numbers):
        return Numbers(np.concatenate([each.values for each in parts]), valid)
    return Spans(np.concatenate([each.starts for each in parts]), np.concatenate([each.ends for each in parts]), valid)


def _validity(column: Column) -> BoolArray:
    valid: BoolArray | None = column.valid
    return np.ones(_length(column), np.bool_) if valid is None else valid


def _length(column: Column) -> int:
    if isinstance(column, Lists):
        return len(column.counts)
    return len(column.values if isinstance(column, Numbers) else column.starts)


def _taken(column: Column, rows: IndexArray) -> Column:
    valid = None if column.valid is None else column.valid[rows]
    if isinstance(column, Lists):
        return Lists(column.counts[rows], None, valid)
    if isinstance(column, Numbers):
        return Numbers(column.values[rows], valid)
    return Spans(column.starts[rows], column.ends[rows], valid)


def _made(body: EncodedBytes, places: IndexArray, columns: dict[str, Any]) -> EntryColumns:
    def numbers(name: str, kind: Any = np.int64) -> NDArray[Any]:
        values: NDArray[np.int64] = columns[name].values
        narrow: NDArray[Any] = values.astype(kind)
        if kind is not np.int64 and (narrow != values).any():
            raise ValueError(f"not an int: field={name}")
        return narrow

    def spans(name: str) -> ByteSpans:
        return ByteSpans(columns[name].starts.astype(place), columns[name].ends.astype(place))

    place: Any = np.int32 if len(body) <= np.iinfo(np.int32).max else np.int64
    versions, kinds = columns["_VERSION"].values, columns["_KIND"].values
    if (versions != MANIFEST_VERSION).any() or not np.isin(kinds, list(map(int, EntryKind))).all():
        raise ValueError("not a version or a kind of entries")
    partitions, codes = _encoded_partitions(body, columns["_PARTITION"])
    deletes = columns["_FILE._DELETE_ROW_COUNT"]
    is_plain = columns["_FILE._EXTRA_FILES"].counts == 0
    for name in ("_FILE._EMBEDDED_FILE_INDEX", "_FILE._EXTERNAL_PATH"):
        is_plain &= ~_validity(columns[name])
    return EntryColumns(
        body=body,
        places=places.astype(place),
        kinds=kinds.astype(np.int8),
        partitions=partitions,
        partition_codes=codes,
        buckets=numbers("_BUCKET", np.int32),
        total_buckets=numbers("_TOTAL_BUCKETS", np.int32),
        levels=numbers("_FILE._LEVEL", np.int32),
        schema_ids=numbers("_FILE._SCHEMA_ID"),
        sizes=numbers("_FILE._FILE_SIZE"),
        row_counts=numbers("_FILE._ROW_COUNT"),
        has_no_deletes=_validity(deletes) & (deletes.values == 0),
        min_sequence_numbers=numbers("_FILE._MIN_SEQUENCE_NUMBER"),
        max_sequence_numbers=numbers("_FILE._MAX_SEQUENCE_NUMBER"),
        names=spans("_FILE._FILE_NAME"),
        first_keys=spans("_FILE._MIN_KEY"),
        last_keys=spans("_FILE._MAX_KEY"),
        key_lows=spans("_FILE._KEY_STATS._MIN_VALUES"),
        key_highs=spans("_FILE._KEY_STATS._MAX_VALUES"),
        is_plain=is_plain,
    )


def _encoded_partitions(body: EncodedBytes, column: Spans) -> tuple[tuple[bytes, ...], NDArray[np.int32]]:
    """The distinct values in the order of their first entries, and the index of each entry's."""
    bounds = zip(column.starts.tolist(), column.ends.tolist(), strict=True)
    view = body.data
    codes: dict[bytes, int] = {}
    found = [codes.setdefault(bytes(view[start:end]), len(codes)) for start, end in bounds]
    return tuple(codes), np.array(found, np.int32)


def _possible_starts(body: EncodedBytes) -> IndexArray:
    """Ascending places where the bytes are like those of the first entry: version, kind, fields of the partition."""
    if len(body) < _LEAST_RECORD_BYTES:
        return np.zeros(0, np.int64)
    version = np.uint8(2 * MANIFEST_VERSION)
    inner = body[: -_LEAST_RECORD_BYTES + 1]
    following = body[1 : len(inner) + 1]
    is_long = body[2 : len(inner) + 2] >= 2 * _LEAST_PARTITION_BYTES  # zigzag; the first byte of several is larger
    found = np.flatnonzero((inner == version) & ((following == 0) | (following == 2)) & is_long)
    arities = _arities(body, found)
    return found[(arities == arities[0]).all(axis=1)] if len(found) else found


def _arities(body: EncodedBytes, starts: IndexArray) -> EncodedBytes:
    """(n, 4) first bytes of the partition, behind its length of one byte or two."""
    firsts = starts + 3 + (body[starts + 2] >= 0x80)
    taken: EncodedBytes = body[firsts[:, None] + np.arange(_ARITY_BYTES)]
    return taken


def _chain(starts: IndexArray, ends: IndexArray, size: int) -> IndexArray | None:
    """The places that follow each other from 0 to the end, as indices; None: they do not get there."""
    if not len(starts) or starts[0] != 0:
        return None
    if (ends[:-1] == starts[1:]).all() and ends[-1] == size:
        return np.arange(len(starts))
    following = np.searchsorted(starts, ends)
    is_start = (following < len(starts)) & (starts[np.minimum(following, len(starts) - 1)] == ends)
    steps = np.where(is_start, following, -1).tolist()
    at, chosen = 0, []
    while at >= 0:
        chosen.append(at)
        at = steps[at]
    return np.array(chosen, np.int64) if ends[chosen[-1]] == size else None


@lru_cache(maxsize=64)
def _is_ours(schema: bytes) -> bool:
    return bool(_plain(orjson.loads(schema)) == _plain(MANIFEST_SCHEMA))


def _plain(schema: Any) -> Any:
    """A schema without what does not change the bytes; names of fields are kept, those of records are not."""
    if isinstance(schema, dict):
        if schema.get("type") == "record":
            return [[field["name"], _plain(field["type"])] for field in schema["fields"]]
        return [schema["type"], _plain(schema["items"])] if schema.get("type") == "array" else schema["type"]
    return [_plain(each) for each in schema] if isinstance(schema, list) else schema
