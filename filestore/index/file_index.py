"""File indexes of a table: made while a data file is written, asked before one is opened.

A small one lies in the manifest, a larger one beside the data file. They only ever save work: a file without one is
read, as is one whose index is of a kind that is not known here.
Source: Paimon DataFileIndexWriter, FileIndexEvaluator, FileIndexOptions.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from filestore.hashing.xxhash import Hashes, column_hashes, has_hash
from filestore.index.bloom_filter import BloomFilter
from filestore.index.container import Indexes, pack_indexes, unpack_indexes
from filestore.io.file_io import FileIO
from filestore.manifest.entries import DataFileMeta
from filestore.options.table_options import TableOptions
from filestore.predicate.predicate import And, Compare, CompareOp, Constant, In, Or, Predicate, leaves
from filestore.schema.index_options import _COLUMNS_KEY, BLOOM, BloomColumn, bloom_columns
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField, arrow_type
from lsm.errors import InvalidInputError

INDEX_SUFFIX: Final = ".index"
_ITEMS_AT_ONCE: Final = 1_048_576  # hashes that wait to be counted
_MOST_ITEMS: Final = 4_194_304  # different ones that are kept to find the size of a filter: 32 MB


def written_blooms(schema: TableSchema, options: TableOptions) -> tuple[BloomColumn, ...]:
    """The same of a table that somebody else may have made: what is not known here is left out."""
    with suppress(InvalidInputError):
        return bloom_columns(schema, options)
    known = {field.name for field in schema.fields if has_hash(field.type)}
    names = [name.strip() for name in (options.free(_COLUMNS_KEY) or "").split(",")]
    return tuple(BloomColumn(field=schema.field(name)) for name in names if name in known)


class IndexWriter:
    """Gathers the indexes of one data file."""

    def __init__(self, columns: Sequence[BloomColumn]) -> None:
        self._filters = [_FilterInMaking(column) for column in columns]

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        """Take rows of the file into account: at least the indexed columns."""
        for each in self._filters:
            each.add(rows)

    def close(self) -> bytes | None:
        """The container; None when no column is indexed."""
        return pack_indexes(self.indexes()) if self._filters else None

    def indexes(self) -> Indexes:
        """The same, before it is packed; no row can be added any more."""
        return {each.column.field.name: {BLOOM: each.close().to_bytes()} for each in self._filters}


class _FilterInMaking:
    """Keeps hashes until their number is known, which the filter's size follows; past a limit it fills one at once."""

    def __init__(self, column: BloomColumn) -> None:
        self.column = column
        self._known = np.zeros(0, np.uint64)  # different ones
        self._waiting: list[Hashes] = []
        self._waiting_count = 0
        self._filter = None if column.items is None else self._sized(column.items)

    def add(self, rows: pa.Table | pa.RecordBatch) -> None:
        hashes = column_hashes(rows.column(self.column.field.name), self.column.field.type)
        if self._filter is not None:
            self._filter.add(hashes)
            return
        self._waiting.append(hashes)
        self._waiting_count += len(hashes)
        if self._waiting_count >= _ITEMS_AT_ONCE:
            self._count()
            if len(self._known) >= _MOST_ITEMS:
                self._fill(2 * _MOST_ITEMS)

    def close(self) -> BloomFilter:
        self._count()
        if self._filter is None:
            self._fill(max(len(self._known), 1))
        assert self._filter is not None
        return self._filter

    def _count(self) -> None:
        if self._waiting:
            self._known = np.unique(np.concatenate([self._known, *self._waiting]))
            self._waiting, self._waiting_count = [], 0

    def _fill(self, items: int) -> None:
        self._filter = self._sized(items)
        self._filter.add(self._known)
        self._known = np.zeros(0, np.uint64)

    def _sized(self, items: int) -> BloomFilter:
        return BloomFilter.empty(items=items, false_positive_rate=self.column.false_positive_rate)


def index_file_of(file: DataFileMeta) -> str | None:
    """The name of the file beside a data file that holds its indexes; None: there is none, or the manifest has it."""
    if file.embedded_index is not None:
        return None
    return next((name for name in file.extra_files if name.endswith(INDEX_SUFFIX)), None)


def asks_indexes(predicate: Predicate | None, options: TableOptions) -> bool:
    """Whether indexes may be used, and a filter compares anything with values."""
    if predicate is None or not options.file_index_read_enabled:
        return False
    return any(_asked(leaf) is not None for leaf in leaves(predicate))


def embedded_may_match(
    file: DataFileMeta, predicate: Predicate, *, file_schema: TableSchema, read_schema: TableSchema
) -> bool:
    """False only if the index in the manifest says that surely no row of a file passes a filter."""
    if file.embedded_index is None:
        return True
    indexes = unpack_indexes(file.embedded_index, source=f"manifest entry of {file.file_name}")
    return _may_match(predicate, indexes, indexed_fields(file_schema, read_schema))


def stored_may_match(
    io: FileIO, path: str, file: DataFileMeta, predicate: Predicate, *, file_schema: TableSchema,
    read_schema: TableSchema,
) -> bool:  # fmt: skip
    """The same of the index beside the file, which is read.

    Args:
        io: where the file is.
        path: of the data file.
        file: what the manifest says of it.
        predicate: on the read schema.
        file_schema: the schema that the file was written with.
        read_schema: the table's.

    Raises:
        CorruptDataError: the index is garbled.
    """
    name = index_file_of(file)
    if name is None:
        return True
    index_path = f"{path.rpartition('/')[0]}/{name}"
    try:
        container = io.read_bytes(index_path)
    except FileNotFoundError:
        return True  # it saves work, no more
    indexes = unpack_indexes(container, source=index_path)
    return _may_match(predicate, indexes, indexed_fields(file_schema, read_schema))


def indexed_fields(file_schema: TableSchema, read_schema: TableSchema) -> dict[str, DataField]:
    """By today's name of a column: the column as a file knows it, where its type has not changed."""
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
    asked = _asked(predicate)
    field = None if asked is None else fields.get(asked.column)
    if asked is None or field is None:
        return True
    kinds = indexes.get(field.name, {})
    if BLOOM not in kinds or not has_hash(field.type):
        return True
    body = kinds[BLOOM]
    if body is None or not asked.values:
        return False  # where all is null no comparison is true
    return bool(BloomFilter.from_bytes(body).may_hold(_hashes_of(asked.values, field)).any())


class _Asked(NamedTuple):
    """A column, and the values one of which it must have."""

    column: str
    values: Sequence[Any]


def _asked(predicate: Predicate) -> _Asked | None:
    """What a test asks an index; None: nothing that an index knows."""
    if isinstance(predicate, In) and not predicate.path:
        return _Asked(predicate.column, predicate.values)
    if isinstance(predicate, Compare) and predicate.op is CompareOp.EQ and not predicate.path:
        return _Asked(predicate.column, (predicate.value,))
    return None


def _hashes_of(values: Sequence[Any], field: DataField) -> Hashes:
    if field.type.root in ("FLOAT", "DOUBLE"):
        # zeros of both signs are equal, but not alike
        values = [each for value in values for each in ((0.0, -0.0) if value == 0 else (value,))]
    return column_hashes(pa.array(values, type=arrow_type(field.type)), field.type)
