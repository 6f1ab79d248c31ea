"""Parquet data files: written for speed and compatibility, read in every variant of other writers.

DELTA_BINARY_PACKED encodes integer keys, sequence numbers and timestamps: one sixth less time to write, one fifth
less to read. Java Paimon reads it since 1.0, as do Spark and Arrow; Java 0.8 and 0.9 fail with an error.
Strings stay PLAIN: no other encoding was tested with the Java readers. Pages have checksums, as Java's do,
which are verified on reads: a flipped bit is an error, not a wrong value that compaction propagates.
Source: Paimon ParquetSchemaConverter.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from decimal import Context, Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from filestore.format.interface import BatchLimit, FileFormat, FileRows, KeepRows, WriteSettings
from filestore.format.parquet_batches import bounded_batches, rows_of_groups
from filestore.format.statistics import FLOAT_ROOTS, ColumnRange, RangeCollector, has_order, merge_ranges
from filestore.options.table.common import MIB
from filestore.schema.file_fields import file_schema, leaf_columns
from filestore.types.data_types import BYTES_ROOTS, TEXT_ROOTS, TIMESTAMP_ROOTS, DataField, arrow_type, walk
from filestore.types.identity_cache import cached_by_identity
from lsm.byte_sizes import release_after, rows_within, sized_pieces
from lsm.errors import InvalidInputError
from lsm.row_kind import KEY_PREFIX, SEQUENCE_NUMBER, VALUE_KIND

READ_BUFFER_BYTES: Final = 64 * 1024  # per column: a reader holds a page of each, not a whole column chunk
SAMPLE_ROWS: Final = 1024
_MIN_GROUP_ROWS: Final = 1024  # smaller groups would be mostly metadata
_GROUP_BYTES: Final = 32 * MIB  # in memory: what a writer holds back
_PAGE_BYTES: Final = 8 * MIB  # readers hold a page of each column of each file that is open
_PAGE_ROWS: Final = 1024  # the library's default
_SMALL_BATCH: Final = BatchLimit(size_bytes=4 * MIB)
SMALL_FILE_ROWS: Final = 512  # below this, looking for repetition costs more than it saves
DICTIONARY_SHARE: Final = 4  # a dictionary must save this factor in the sample
DELTA_ROOTS: Final = frozenset({"INT", "BIGINT", "TIMESTAMP", "TIMESTAMP_LTZ"})

_CODECS: Final = frozenset({"zstd", "snappy", "gzip", "lz4", "brotli", "none"})
_CODEC_SYNONYMS: Final = {"uncompressed": "none", "null": "none", "": "none"}
_EXACT: Final = Context(prec=80)


class ParquetFileWriter:
    """Writes one file; full row groups are written immediately."""

    def __init__(
        self, sink: pa.NativeFile, fields: Sequence[DataField], settings: WriteSettings, *, shared: Mapping[str, str]
    ) -> None:
        """See ``interface.NewWriter``; ``shared`` columns take over the range and encoding of the other one.

        With ``block_bytes`` a row group has as many rows as the first ones fit into it, by their size in memory. It is
        never larger than that or 32 MB, whichever is more, and a page of wide rows not larger than one row or 8 MB.
        """
        _check_writable(tuple(fields))
        self._sink = sink
        self._fields = fields
        self._schema = file_schema(fields)
        self._codec = _codec(settings.compression)
        self._zstd_level = settings.zstd_level if self._codec == "zstd" else None
        self._row_group_rows = settings.row_group_rows
        self._row_group_bytes = settings.block_bytes
        self._most_bytes = max(settings.block_bytes or 0, _GROUP_BYTES)
        self._shared = shared
        self._writer: pq.ParquetWriter | None = None
        self._pending: list[pa.Table] = []
        self._pending_rows = 0
        self._pending_bytes = 0
        self._page_rows = _PAGE_ROWS  # after so many the library looks at the size of a page
        self._floats = RangeCollector([f for f in fields if f.type.root in FLOAT_ROOTS and f.name not in shared])

    def write(self, rows: pa.Table) -> None:
        """Append rows with the file's columns, in file order and of their Arrow types."""
        self._floats.add(rows)
        if self._row_group_bytes is not None and rows.num_rows:
            row_bytes = max(rows.nbytes / rows.num_rows, 1)
            self._row_group_rows = max(int(self._row_group_bytes / row_bytes), _MIN_GROUP_ROWS)
            self._row_group_bytes = None
        for piece, size_bytes in sized_pieces(rows, self._most_bytes // 2):
            if self._pending_bytes + size_bytes > self._most_bytes:
                self._flush(keep_partial=False)
            self._pending.append(piece)
            self._pending_rows += piece.num_rows
            self._pending_bytes += size_bytes
            if self._pending_rows >= self._row_group_rows:
                self._flush(keep_partial=True)

    def bytes_written(self) -> int:
        """Bytes written to the sink, without the unfinished row group."""
        return int(self._sink.tell())

    def close(self) -> dict[str, ColumnRange]:
        """Finish the file without closing the sink. Returns ranges of the columns that are not shared."""
        self._flush(keep_partial=False)
        writer = self._writer or self._open(self._schema.empty_table())
        writer.close()
        return self._ranges(writer.writer.metadata)

    def _flush(self, *, keep_partial: bool) -> None:
        if not self._pending_rows:
            return
        rows = self._pending[0] if len(self._pending) == 1 else pa.concat_tables(self._pending)
        row_bytes = self._pending_bytes / rows.num_rows
        writer = self._open(rows, row_bytes)
        size = self._row_group_rows
        if row_bytes * min(self._page_rows, rows.num_rows) > _PAGE_BYTES:  # far wider rows than the first ones
            size = min(size, rows_within(row_bytes, most_rows=size, most_bytes=_PAGE_BYTES))
        whole = rows.num_rows // size * size if keep_partial else rows.num_rows
        writer.write_table(rows if whole == rows.num_rows else rows.slice(0, whole), row_group_size=size)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        if whole < rows.num_rows:
            rest = rows.slice(whole)
            self._pending, self._pending_rows, self._pending_bytes = [rest], rest.num_rows, rest.nbytes
        release_after(row_bytes)

    def _open(self, rows: pa.Table, row_bytes: float = 0) -> pq.ParquetWriter:
        """The writer, created with the first rows, which determine the encodings and how often a page is looked at."""
        if self._writer is None:
            self._page_rows = rows_within(row_bytes, most_rows=_PAGE_ROWS, most_bytes=_PAGE_BYTES // 8)
            dictionary = self._dictionary_columns(rows)
            delta = {name: "DELTA_BINARY_PACKED" for name in self._delta_columns() if name not in dictionary}
            packed = {*delta, *dictionary} if self._is_small(rows) else set()
            codecs = {} if not packed else {f.name: "none" if f.name in packed else self._codec for f in self._fields}
            levels = {name: self._zstd_level for name, codec in codecs.items() if codec == "zstd"}
            self._writer = pq.ParquetWriter(
                self._sink,
                self._schema,
                compression=codecs or self._codec,
                compression_level=levels if codecs else self._zstd_level,
                use_dictionary=dictionary,
                column_encoding=delta or None,
                store_decimal_as_integer=True,
                store_schema=False,
                write_page_checksum=True,
                write_batch_size=self._page_rows,
                write_statistics=_columns_with_bounds(tuple(self._fields)),
            )
        return self._writer

    def _dictionary_columns(self, rows: pa.Table) -> list[str]:
        """Leaf columns with few distinct values in a spread-out sample; the first sorted rows would mislead."""
        if rows.num_rows < SMALL_FILE_ROWS:
            return [VALUE_KIND] if self._is_small(rows) and VALUE_KIND in self._schema.names else []
        # One row in 32 keeps the cost of sampling at a few percent of the cost of writing.
        wanted = min(max(rows.num_rows // 32, SAMPLE_ROWS // 4), SAMPLE_ROWS)
        step = max(rows.num_rows // wanted, 1)
        sample = rows.take(np.arange(0, rows.num_rows, step)) if step > 1 else rows
        chosen: list[str] = []
        for field in self._fields:
            if field.name in self._shared or field.name == SEQUENCE_NUMBER or field.type.root == "BOOLEAN":
                continue
            for path, values in leaf_columns(field.name, sample.column(field.name).combine_chunks()):
                if len(values) == 0 or pc.count_distinct(values, mode="all").as_py() * DICTIONARY_SHARE <= len(values):
                    chosen.append(path)
        return chosen + [name for name, original in self._shared.items() if original in chosen]

    def _is_small(self, rows: pa.Table) -> bool:
        """Whether what is packed is not compressed too, which costs more than the encoding: columns of a few rows."""
        return self._codec != "none" and rows.num_rows < SMALL_FILE_ROWS and _is_flat(self._schema)

    def _delta_columns(self) -> Iterator[str]:
        keys = set(self._shared.values())
        for field in self._fields:
            is_key = field.name in keys or field.name.startswith(KEY_PREFIX) or field.name == SEQUENCE_NUMBER
            if field.type.root in TIMESTAMP_ROOTS or (is_key and field.type.root in DELTA_ROOTS):
                yield field.name

    def _ranges(self, metadata: pq.FileMetaData) -> dict[str, ColumnRange]:
        fields = [field for field in self._fields if field.name not in self._shared]
        by_group = _ranges_by_group(metadata, fields, range(metadata.num_row_groups))
        result = self._floats.ranges()
        for field in fields:
            parts = [group.get(field.name) for group in by_group]
            known = [part for part in parts if part is not None]
            if field.name not in result and has_order(field.type) and len(known) == len(parts):
                result[field.name] = known[0] if len(known) == 1 else merge_ranges(known)
        return result


def missing_ranges(source: pa.NativeFile, fields: Sequence[DataField]) -> dict[str, ColumnRange]:
    """Ranges of columns without footer bounds (values over 4 KB, nested columns), by reading the columns again."""
    collector = RangeCollector(fields)
    for batch in read_parquet(source, fields, limit=_SMALL_BATCH):
        collector.add(pa.Table.from_batches([batch.rows]))
    return collector.ranges()


def group_ranges(source: pa.NativeFile, fields: Sequence[DataField]) -> list[tuple[dict[str, ColumnRange], int]]:
    """Ranges of columns and number of rows of each row group, by the footer alone."""
    file = _open(source, fields, verify=False)
    metadata = file.metadata
    groups = range(metadata.num_row_groups)
    ranges = _ranges_by_group(metadata, _trusted(file.schema_arrow, fields), groups)
    return [(found, metadata.row_group(index).num_rows) for index, found in zip(groups, ranges, strict=True)]


def _trusted(arrow: pa.Schema, fields: Sequence[DataField]) -> list[DataField]:
    """Columns whose statistics are of the type that the schema says."""
    stored = {each.name: each.type for each in arrow}
    return [field for field in fields if stored.get(field.name) == arrow_type(field.type)]


def read_parquet(
    source: pa.NativeFile,
    fields: Sequence[DataField],
    *,
    limit: BatchLimit,
    keep: KeepRows | None = None,
    keep_fields: Sequence[DataField] = (),
    verify: bool = True,
) -> Iterator[FileRows]:
    """Rows of the row groups that ``keep`` wants, a batch and a page per column in memory; see ``interface.ReadFile``.

    Texts and bytes count as in the footer, so a batch of a row group where few rows are far wider may be larger.

    Raises:
        CorruptDataError: the bytes are not Parquet.
    """
    file = _open(source, fields, verify=verify)
    arrow = file.schema_arrow
    stored = frozenset(arrow.names)
    names = [field.name for field in fields if field.name in stored]
    metadata = file.metadata
    row_groups: Sequence[int] = range(metadata.num_row_groups)
    if keep is not None:
        ranges = _ranges_by_group(metadata, _trusted(arrow, keep_fields), row_groups)
        places = rows_of_groups(metadata)
        row_groups = [i for i in row_groups if keep(ranges[i], places[i])]

    def reopen(dictionaries: Collection[str]) -> pq.ParquetFile:
        return _open(source, fields, verify=verify, metadata=metadata, dictionaries=dictionaries)

    yield from bounded_batches(file, source, names, limit, row_groups=row_groups, reopen=reopen)


def _open(
    source: pa.NativeFile,
    fields: Sequence[DataField],
    *,
    verify: bool,
    metadata: pq.FileMetaData | None = None,
    dictionaries: Collection[str] = (),
) -> pq.ParquetFile:
    # INT96 read as nanoseconds covers only 1677 to 2262, so only columns with that precision use it.
    inner = [kind for field in fields for kind in walk(field.type) if kind.root in TIMESTAMP_ROOTS]
    unit = "ns" if any((kind.precision or 0) > 6 for kind in inner) else "us"
    return pq.ParquetFile(
        source,
        pre_buffer=False,
        buffer_size=READ_BUFFER_BYTES,
        coerce_int96_timestamp_unit=unit,
        page_checksum_verification=verify,
        metadata=metadata,
        read_dictionary=list(dictionaries) or None,
    )


def _ranges_by_group(
    metadata: pq.FileMetaData, fields: Sequence[DataField], groups: Sequence[int]
) -> list[dict[str, ColumnRange]]:
    """Footer ranges of atomic columns per row group; columns without bounds are omitted."""
    by_group: list[dict[str, ColumnRange]] = [{} for _ in groups]
    wanted = {field.name: field for field in fields if has_order(field.type)}
    if not wanted or not by_group:
        return by_group
    first = metadata.row_group(groups[0])
    places = [(i, wanted[path]) for i in range(first.num_columns) if (path := first.column(i).path_in_schema) in wanted]
    for result, group in zip(by_group, groups, strict=True):
        row_group = metadata.row_group(group)
        for place, field in places:
            found = _footer_range(row_group.column(place), row_group.num_rows, field)
            if found is not None:
                result[field.name] = found
    return by_group


def _footer_range(chunk: Any, row_count: int, field: DataField) -> ColumnRange | None:
    statistics = chunk.statistics
    if statistics is None or not statistics.has_null_count:
        return None
    nulls = int(statistics.null_count)
    if nulls == row_count:
        return ColumnRange(null_count=nulls)
    if not statistics.has_min_max or chunk.physical_type == "INT96":
        return None
    low, high = _internal(statistics.min_raw, field), _internal(statistics.max_raw, field)
    if low is None or high is None:
        return None
    return ColumnRange(min=low, max=high, null_count=nulls, may_hold_nan=field.type.root in FLOAT_ROOTS)


def _internal(raw: Any, field: DataField) -> Any:
    """A physical footer value as internal value; None when it is invalid for its type."""
    root = field.type.root
    if root == "DECIMAL":
        unscaled = int.from_bytes(raw, "big", signed=True) if isinstance(raw, bytes) else int(raw)
        return Decimal(unscaled).scaleb(-(field.type.scale or 0), _EXACT)
    if root in TEXT_ROOTS:
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return None  # truncated by a writer in the middle of a character
    if root in BYTES_ROOTS:
        return raw
    return raw


@cached_by_identity(64)
def _columns_with_bounds(fields: tuple[DataField, ...]) -> bool | list[str]:
    """The leaf columns whose bounds the footer has: all but those of floating point numbers that users query.

    Footers leave NaN out of the bounds, and readers that take NaN for the greatest value skip it with them. A writer
    only knows at its end whether there was one. Manifests have bounds of columns without NaN.
    """
    if not any(kind.root in FLOAT_ROOTS for field in fields for kind in walk(field.type)):
        return True
    empty = file_schema(fields).empty_table()
    leaves = [leaf for field in fields for leaf in leaf_columns(field.name, empty.column(field.name).combine_chunks())]
    return [path for path, values in leaves if not pa.types.is_floating(values.type) or path.startswith(KEY_PREFIX)]


@cached_by_identity(64)
def _is_flat(schema: pa.Schema) -> bool:
    return not any(pa.types.is_nested(kind) for kind in schema.types)


@cached_by_identity(64)
def _check_writable(fields: tuple[DataField, ...]) -> None:
    for field, kind in [(each, kind) for each in fields for kind in walk(each.type)]:
        if kind.root in TIMESTAMP_ROOTS and (kind.precision or 0) > 6:
            raise InvalidInputError(
                f"parquet files hold timestamps up to precision 6 for every reader: column={field.name} type={kind} "
                "fix='file.format=orc, or declare TIMESTAMP(6)'"
            )


def _codec(compression: str) -> str:
    name = compression.strip().lower()
    name = _CODEC_SYNONYMS.get(name, name)
    if name not in _CODECS:
        raise InvalidInputError(f"unknown compression: file.compression={compression} allowed={sorted(_CODECS)}")
    return name


PARQUET: Final = FileFormat(name="parquet", writer=ParquetFileWriter, reader=read_parquet)
"""Apache Parquet: the default."""
