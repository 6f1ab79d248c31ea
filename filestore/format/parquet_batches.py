"""Batches of Parquet files by bytes: the footer says how wide rows are, before any of them is decoded.

A row group is read in batches of as many rows as its average row allows. Texts and bytes in a dictionary of the file
say nothing about the rows (a megabyte once in a dictionary may be a thousand rows), so they are read as dictionaries
and become values slice by slice, by their exact sizes; that is also faster than Arrow's own way. Arrow decodes a page
as a whole: a file with pages above the limit, as many writers make of wide values, is decoded once while nothing else
is, into a local file in small batches, if other files are open at the same time.
Source: Parquet format, "PageHeader" in Thrift's compact protocol.
"""

import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from filestore.format.interface import BatchLimit, FileRows
from filestore.options.table.common import MIB
from lsm.byte_sizes import release_after, rows_within

_VALUE_BYTES: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "FLOAT": 4, "DOUBLE": 8, "INT96": 8}
_VARIABLE: Final = "BYTE_ARRAY"
_PLAIN: Final = frozenset({pa.string(), pa.binary()})  # types of columns
_OFFSET_BYTES: Final = 4  # of a text or an index into a dictionary
_DICTIONARY_BYTES: Final = 5 * MIB // 4  # writers give a dictionary up at a megabyte: a larger chunk holds plain values
_INDEX_BYTES: Final = 2.5
_WIDE_BYTES: Final = 1024  # of an average value: from here on pages and dictionaries are looked at
_HEADER_BYTES: Final = 64
_DICTIONARY_PAGE: Final = 2
_I32, _STRUCT = 5, 12  # Thrift's types
_SPILL: Final = pa.ipc.IpcWriteOptions(compression="lz4")

Open = Callable[[Collection[str]], pq.ParquetFile]
"""Opens the file again, with some columns as dictionaries."""


def bounded_batches(
    file: pq.ParquetFile,
    source: pa.NativeFile,
    names: Sequence[str],
    limit: BatchLimit,
    *,
    row_groups: Sequence[int],
    reopen: Open,
) -> Iterator[FileRows]:
    """The rows of row groups in order, in batches that keep the limit.

    Args:
        file: open.
        source: what it reads.
        names: columns; none: the rows are only counted.
        limit: of a batch.
        row_groups: numbers, ascending.
        reopen: called for files with dictionaries.
    """
    leaves = _leaves(file, names)
    shapes = [_shape(file.metadata.row_group(index), source, leaves, limit) for index in row_groups]
    places = rows_of_groups(file.metadata)

    def shape_and_gaps(nth: int) -> tuple[_Shape, int]:
        return shapes[nth], row_groups[nth] - nth

    # the rows of a batch are consecutive in the file: no batch has rows from both sides of a gap
    for (shape, _), group in groupby(range(len(row_groups)), key=shape_and_gaps):
        chosen = [row_groups[nth] for nth in group]
        first = places[chosen[0]].start
        reader = reopen(shape.dictionaries) if shape.dictionaries else file
        found = reader.iter_batches(shape.rows, row_groups=chosen, columns=list(names), use_threads=False)
        batches = (each for coded in found for each in _plain(coded, limit)) if shape.dictionaries else found
        for batch in _spilled(batches) if shape.spills else batches:
            row_bytes = batch.nbytes / batch.num_rows if shape.rows < limit.rows else 0
            numbered = FileRows(first, batch)
            first += batch.num_rows
            del batch
            yield numbered
            del numbered
            release_after(row_bytes)


def rows_of_groups(metadata: pq.FileMetaData) -> list[range]:
    """The positions in the file of the rows of each row group."""
    ends = list(accumulate(metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)))
    return [range(start, end) for start, end in pairwise([0, *ends])]


@dataclass(frozen=True, slots=True)
class _Shape:
    """How a row group is read."""

    rows: int  # of a batch
    dictionaries: frozenset[str]  # columns
    spills: bool


@dataclass(frozen=True, slots=True)
class _Leaf:
    index: int
    value_bytes: int | None  # None: variable
    name: str | None  # of a column of texts or bytes that is not nested


def _leaves(file: pq.ParquetFile, names: Sequence[str]) -> list[_Leaf]:
    wanted, stored, found = set(names), file.schema, []
    plain = {field.name for field in file.schema_arrow if field.name in wanted and field.type in _PLAIN}
    for index in range(len(stored)):
        column = stored.column(index)
        path = column.path
        if path not in wanted and not any(outer in wanted for outer in accumulate(path.split("."), "{}.{}".format)):
            continue
        is_plain = path in plain
        variable = column.physical_type == _VARIABLE
        size = None if variable else _VALUE_BYTES.get(column.physical_type) or column.length
        found.append(_Leaf(index, size, path if is_plain and variable else None))
    return found


def _shape(group: Any, source: pa.NativeFile, leaves: Sequence[_Leaf], limit: BatchLimit) -> _Shape:
    row_count = max(group.num_rows, 1)
    width = 0.0
    dictionaries: set[str] = set()
    spills = False
    for leaf in leaves:
        chunk = group.column(leaf.index)
        values = max(chunk.num_values, 1)
        if leaf.value_bytes is not None:
            width += leaf.value_bytes * values / row_count
            continue
        size = chunk.total_uncompressed_size
        width += _OFFSET_BYTES * values / row_count
        if not any("DICTIONARY" in encoding for encoding in chunk.encodings):
            width += size / row_count
            spills |= limit.spills and size > limit.size_bytes and size > _WIDE_BYTES * values
            continue
        if leaf.name is not None and size <= _DICTIONARY_BYTES + _INDEX_BYTES * values:
            dictionaries.add(leaf.name)
            continue
        entry_bytes = _entry_bytes(source, chunk)
        if leaf.name is not None and entry_bytes >= _WIDE_BYTES:
            dictionaries.add(leaf.name)
        else:
            width += max(size, entry_bytes * values) / row_count
    if spills:
        pages = [group.column(leaf.index).data_page_offset for leaf in leaves if leaf.value_bytes is None]
        spills = any(_page(source, offset).size_bytes > limit.size_bytes for offset in pages)
    rows = rows_within(width, most_rows=limit.rows, most_bytes=limit.size_bytes)
    return _Shape(rows, frozenset(dictionaries), spills)


def _entry_bytes(source: pa.NativeFile, chunk: Any) -> float:
    """The average size of the values in a chunk's dictionary; 0 when the page is not one."""
    page = _page(source, chunk.dictionary_page_offset or chunk.data_page_offset)
    return page.size_bytes / max(page.value_count, 1) if page.kind == _DICTIONARY_PAGE else 0.0


@dataclass(frozen=True, slots=True)
class _Page:
    kind: int
    size_bytes: int  # decompressed
    value_count: int


def _page(source: pa.NativeFile, offset: int) -> _Page:
    """The header of a page, as far as it is needed; zeros where it is not what was expected."""
    source.seek(offset)
    header = iter(source.read(_HEADER_BYTES))
    fields: dict[int, int] = {}
    number = 0
    for byte in header:
        number += byte >> 4
        if byte & 15 == _STRUCT:
            next(header, 0)  # the first field of every page's own header is its number of values
            fields[0] = _zigzag(header)
            break
        if byte & 15 != _I32 or not byte >> 4:
            break
        fields[number] = _zigzag(header)
    return _Page(fields.get(1, 0), fields.get(2, 0), fields.get(0, 0))


def _zigzag(header: Iterator[int]) -> int:
    value, shift = 0, 0
    for byte in header:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    return (value >> 1) ^ -(value & 1)


def _plain(batch: pa.RecordBatch, limit: BatchLimit) -> Iterator[pa.RecordBatch]:
    """The batch with values instead of dictionaries, in slices that keep the limit."""
    coded = [column for column in batch.columns if pa.types.is_dictionary(column.type)]
    lengths = [pc.binary_length(column.dictionary).fill_null(0) for column in coded]
    widest = sum(pc.max(each).as_py() or 0 for each in lengths)
    if batch.num_rows * widest <= limit.size_bytes:
        yield _decoded(batch)
        return
    sizes = np.full(batch.num_rows, sum(column.nbytes for column in batch.columns) // batch.num_rows, np.int64)
    for column, each in zip(coded, lengths, strict=True):
        if len(each):
            sizes += np.where(column.is_valid(), each.to_numpy()[column.indices.fill_null(0).to_numpy()], 0)
    ends = np.cumsum(sizes)
    start = 0
    while start < batch.num_rows:
        before = ends[start - 1] if start else 0
        stop = max(int(np.searchsorted(ends, before + limit.size_bytes, side="right")), start + 1)
        yield _decoded(batch.slice(start, stop - start))
        start = stop


def _decoded(batch: pa.RecordBatch) -> pa.RecordBatch:
    columns = [
        column.dictionary_decode() if pa.types.is_dictionary(column.type) else column for column in batch.columns
    ]
    fields = [field.with_type(column.type) for field, column in zip(batch.schema, columns, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


def _spilled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same batches, after all of them have been read: into a local file without a name, which no crash leaves."""
    with tempfile.TemporaryFile(prefix="fluvial-spill-") as file:
        writer = None
        for batch in batches:
            writer = writer or pa.ipc.new_stream(pa.PythonFile(file, mode="w"), batch.schema, options=_SPILL)
            writer.write_batch(batch)
        del batches
        if writer is None:
            return
        writer.close()
        del batch
        pa.default_memory_pool().release_unused()
        file.seek(0)
        with pa.ipc.open_stream(pa.PythonFile(file, mode="r")) as reader:
            yield from reader
