"""File indexes of a table: built while a data file is written, used before one is opened.

A small one is embedded in the manifest, a larger one is next to the data file. They only save work: a file without one
is read, as is one with an index of unknown kind.
Source: Paimon DataFileIndexWriter, FileIndexEvaluator, FileIndexOptions.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from filestore.hashing.xxhash import Hashes, column_hashes, has_hash
from filestore.index.container import Indexes, pack_indexes, unpack_indexes
from filestore.io.file_io import FileIO
from filestore.manifest.entries import DataFileMeta
from filestore.options.table_options import TableOptions
from filestore.predicate.predicate import And, Compare, CompareOp, Constant, In, Or, Predicate, leaves
from filestore.schema.index_options import _COLUMNS_KEY, BLOOM, BloomColumn, bloom_columns
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField, arrow_type
from lsm.errors import CorruptDataError, InvalidInputError

# ---- Bloom filters over 64-bit hashes: false positives, but no false negatives. Source: Paimon BloomFilter64


_COUNT_BYTES: Final = 4
_BATCH_HASHES: Final = 262_144  # bounds the memory for bit positions
_MAX_BITS: Final = 2**31 - 8


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BloomFilter:
    """The bits, and the number of bits per hash."""

    bits: npt.NDArray[np.uint8]  # 8 per byte, lowest first
    hash_count: int

    @classmethod
    def empty(cls, *, items: int, false_positive_rate: float) -> "BloomFilter":
        """An empty filter.

        Args:
            items: expected number of distinct hashes.
            false_positive_rate: expected rate with that many hashes; between 0 and 1, exclusive.
        """
        wanted = int(-items * math.log(false_positive_rate) / math.log(2) ** 2)
        bit_count = min(wanted + 8 - wanted % 8, _MAX_BITS)
        hash_count = max(1, math.floor(bit_count / items * math.log(2) + 0.5))
        return cls(bits=np.zeros(bit_count // 8, np.uint8), hash_count=hash_count)

    def add(self, hashes: Hashes) -> None:
        """Add (n,) hashes."""
        for first in range(0, len(hashes), _BATCH_HASHES):
            flags = np.zeros(len(self.bits) * 8, np.bool_)
            flags[self._places(hashes[first : first + _BATCH_HASHES]).ravel()] = True
            np.bitwise_or(self.bits, np.packbits(flags, bitorder="little"), out=self.bits)

    def may_hold(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """(n,) False where a hash was definitely never added."""
        places = self._places(hashes)
        found: npt.NDArray[np.bool_] = ((self.bits[places >> 3] >> (places & 7).astype(np.uint8)) & 1).all(axis=0)
        return found

    def to_bytes(self) -> bytes:
        """The number of bits per hash, big-endian, then the bits."""
        return self.hash_count.to_bytes(_COUNT_BYTES, "big") + self.bits.tobytes()

    @classmethod
    def from_bytes(cls, body: bytes) -> "BloomFilter":
        """Parse the result of ``to_bytes``, or of Paimon. Raises: CorruptDataError."""
        count = int.from_bytes(body[:_COUNT_BYTES], "big", signed=True)
        if len(body) <= _COUNT_BYTES or count < 1:
            raise CorruptDataError(f"bloom filter is truncated or corrupt: size_bytes={len(body)} hash_count={count}")
        return cls(bits=np.frombuffer(body, np.uint8, offset=_COUNT_BYTES), hash_count=count)

    def _places(self, hashes: Hashes) -> npt.NDArray[np.int32]:
        """(hash_count, n) bit positions, from both halves of the hashes in wrapping 32-bit arithmetic, as in Java."""
        low = hashes.astype(np.uint32).view(np.int32)
        high = (hashes >> np.uint64(32)).astype(np.uint32).view(np.int32)
        factors = np.arange(1, self.hash_count + 1, dtype=np.int32)[:, None]
        mixed = low + factors * high
        return np.where(mixed < 0, ~mixed, mixed) % np.int32(len(self.bits) * 8)


# ---- File indexes of a table: built while a data file is written, used before one is opened


INDEX_SUFFIX: Final = ".index"
_BATCH_ITEMS: Final = 1_048_576  # hashes buffered before counting
_MAX_ITEMS: Final = 4_194_304  # distinct hashes kept to size a filter: 32 MB
_MOST_LOOKUPS: Final = 10_000  # values of a filter: of more, one is as good as always in the filter


def written_blooms(schema: TableSchema, options: TableOptions) -> tuple[BloomColumn, ...]:
    """The bloom filter columns to write; for tables of other engines, unsupported columns are ignored."""
    with suppress(InvalidInputError):
        return bloom_columns(schema, options)
    known = {field.name for field in schema.fields if has_hash(field.type)}
    names = [name.strip() for name in (options.free(_COLUMNS_KEY) or "").split(",")]
    return tuple(BloomColumn(field=schema.field(name)) for name in names if name in known)


class IndexWriter:
    """Builds the indexes of one data file."""

    def __init__(self, columns: Sequence[BloomColumn]) -> None:
        self._filters = [_FilterBuilder(column) for column in columns]

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Add rows of the file, with at least the indexed columns."""
        for each in self._filters:
            each.add(rows)

    def close(self) -> bytes | None:
        """The serialized container; None when no column is indexed."""
        return pack_indexes(self.indexes()) if self._filters else None

    def indexes(self) -> Indexes:
        """The indexes before serialization. No rows can be added afterwards."""
        return {each.column.field.name: {BLOOM: each.close().to_bytes()} for each in self._filters}


class _FilterBuilder:
    """Buffers distinct hashes to size the filter by their number; above a limit it fills a filter immediately."""

    def __init__(self, column: BloomColumn) -> None:
        self.column = column
        self._known = np.zeros(0, np.uint64)  # distinct hashes
        self._buffered: list[Hashes] = []
        self._buffered_count = 0
        self._filter = None if column.items is None else self._sized(column.items)

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        hashes = column_hashes(rows.column(self.column.field.name), self.column.field.type)
        if self._filter is not None:
            self._filter.add(hashes)
            return
        self._buffered.append(hashes)
        self._buffered_count += len(hashes)
        if self._buffered_count >= _BATCH_ITEMS:
            self._count()
            if len(self._known) >= _MAX_ITEMS:
                self._fill(2 * _MAX_ITEMS)

    def close(self) -> BloomFilter:
        self._count()
        if self._filter is None:
            self._fill(max(len(self._known), 1))
        assert self._filter is not None
        return self._filter

    def _count(self) -> None:
        if self._buffered:
            self._known = np.unique(np.concatenate([self._known, *self._buffered]))
            self._buffered, self._buffered_count = [], 0

    def _fill(self, items: int) -> None:
        self._filter = self._sized(items)
        self._filter.add(self._known)
        self._known = np.zeros(0, np.uint64)

    def _sized(self, items: int) -> BloomFilter:
        return BloomFilter.empty(items=items, false_positive_rate=self.column.false_positive_rate)


def index_file_of(file: DataFileMeta) -> str | None:
    """The name of a data file's index file; None: there is none, or the index is embedded in the manifest."""
    if file.embedded_index is not None:
        return None
    return next((name for name in file.extra_files if name.endswith(INDEX_SUFFIX)), None)


def uses_indexes(predicate: Predicate | None, options: TableOptions) -> bool:
    """Whether reading indexes is enabled and a filter has a test that an index can answer."""
    if predicate is None or not options.file_index_read_enabled:
        return False
    return any(_lookup_of(leaf) is not None for leaf in leaves(predicate))


def embedded_may_match(
    file: DataFileMeta, predicate: Predicate, *, file_schema: TableSchema, read_schema: TableSchema
) -> bool:
    """False only if the embedded index proves that no row of a file passes a filter."""
    if file.embedded_index is None:
        return True
    indexes = unpack_indexes(file.embedded_index, source=f"manifest entry of {file.file_name}")
    return _may_match(predicate, indexes, indexed_fields(file_schema, read_schema))


def stored_may_match(
    io: FileIO, path: str, file: DataFileMeta, predicate: Predicate, *, file_schema: TableSchema,
    read_schema: TableSchema,
) -> bool:  # fmt: skip
    """`embedded_may_match` for the separate index file, which is read.

    Args:
        io: storage of the file.
        path: path of the data file.
        file: metadata of the data file.
        predicate: filter on the read schema.
        file_schema: the schema that the file was written with.
        read_schema: schema of the table.

    Raises:
        CorruptDataError: the index is corrupt.
    """
    name = index_file_of(file)
    if name is None:
        return True
    index_path = f"{path.rpartition('/')[0]}/{name}"
    try:
        container = io.read_bytes(index_path)
    except FileNotFoundError:
        return True  # an index is optional
    indexes = unpack_indexes(container, source=index_path)
    return _may_match(predicate, indexes, indexed_fields(file_schema, read_schema))


def indexed_fields(file_schema: TableSchema, read_schema: TableSchema) -> dict[str, DataField]:
    """By current column name: the file's column, if its type has not changed."""
    then = {field.id: field for field in file_schema.fields}
    pairs = ((now, then.get(now.id)) for now in read_schema.fields)
    return {
        now.name: old for now, old in pairs if old is not None and arrow_type(old.type) == arrow_type(now.type)
    }  # fmt: skip


def _may_match(predicate: Predicate, indexes: Indexes, fields: Mapping[str, DataField]) -> bool:
    if isinstance(predicate, And):
        return all(_may_match(part, indexes, fields) for part in predicate.parts)
    if isinstance(predicate, Or):
        return any(_may_match(part, indexes, fields) for part in predicate.parts)
    if isinstance(predicate, Constant):
        return predicate.outcome is True
    lookup = _lookup_of(predicate)
    field = None if lookup is None else fields.get(lookup.column)
    if lookup is None or field is None:
        return True
    kinds = indexes.get(field.name, {})
    if BLOOM not in kinds or not has_hash(field.type):
        return True
    body = kinds[BLOOM]
    if body is None or not lookup.values:
        return False  # no comparison is true for nulls
    if len(lookup.values) > _MOST_LOOKUPS:
        return True
    return bool(BloomFilter.from_bytes(body).may_hold(_hashes_of(lookup.values, field)).any())


class _Lookup(NamedTuple):
    """A column, and values of which it must have one."""

    column: str
    values: Sequence[Any]


def _lookup_of(predicate: Predicate) -> _Lookup | None:
    """The index lookup of a test; None if an index cannot answer it."""
    if isinstance(predicate, In) and not predicate.path:
        return _Lookup(predicate.column, predicate.values)
    if isinstance(predicate, Compare) and predicate.op is CompareOp.EQ and not predicate.path:
        return _Lookup(predicate.column, (predicate.value,))
    return None


def _hashes_of(values: Sequence[Any], field: DataField) -> Hashes:
    if field.type.root in ("FLOAT", "DOUBLE"):
        # both zeros are equal, but hash differently
        values = [each for value in values for each in ((0.0, -0.0) if value == 0 else (value,))]
    return column_hashes(pa.array(values, type=arrow_type(field.type)), field.type)
