"""ORC data files, through Arrow's ORC library.

It reads timestamps as nanoseconds in 64 bits, from 1677 to 2262, and fails outside. It writes fractions of seconds
before 1970 as negative nanoseconds, which Java cannot read. Therefore neither kind of timestamp is written.
An error of a sink that passes through its code ends the process, also where a writer is dropped: none does.
Source: Paimon OrcTypeUtil, which stores TIME as an INT of milliseconds.
"""

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import orc

from filestore.format.interface import BatchLimit, FileFormat, FileRows, KeepRows, WriteSettings
from filestore.format.statistics import ColumnRange, RangeCollector
from filestore.schema.file_fields import leaf_columns
from filestore.types.data_types import NESTED_ROOTS, TIMESTAMP_ROOTS, DataField, arrow_type, walk
from lsm.byte_sizes import pieces_within, rows_within
from lsm.errors import InvalidInputError

STRIPE_BYTES: Final = 16 * 1024 * 1024  # writers and readers hold one stripe in memory
_FEW_COLUMNS: Final = 256  # whose writer takes little memory

_ARENA_MAX: Final = -8  # M_ARENA_MAX of malloc.h
_MMAP_THRESHOLD: Final = -3  # M_MMAP_THRESHOLD
_OWN_PAGES: Final = 256 * 1024  # buffers from this size on get pages of their own
_FIRST_ROWS: Final = 8  # that say how wide rows are
_COPIES: Final = 4  # of a batch that the library has in memory while it decodes the next ones

_TICKS_PER_SECOND: Final = {"ms": 10**3, "us": 10**6, "ns": 10**9}
_CODECS: Final = {
    "zstd": "zstd",
    "zlib": "zlib",
    "gzip": "zlib",
    "snappy": "snappy",
    "lz4": "lz4",
    "none": "uncompressed",
    "uncompressed": "uncompressed",
    "": "uncompressed",
}


class _Sink:
    """A sink that never fails: after an error it takes bytes and drops them, and ``check`` raises what it was."""

    closed = False

    def __init__(self, sink: pa.NativeFile) -> None:
        self._sink = sink
        self._error: BaseException | None = None

    def write(self, data: bytes) -> int:
        """As a file of Python does."""
        if self._error is None:
            try:
                self._sink.write(data)
            except BaseException as error:  # noqa: BLE001 - the library would end the process; ``check`` raises it
                self._error = error
        return len(data)

    def flush(self) -> None:
        """Nothing is kept back."""

    def close(self) -> None:
        """The sink is its owner's."""

    def check(self) -> None:
        """Raises: the error of a write."""
        if self._error is not None:
            raise self._error


class OrcFileWriter:
    """Writes one file, stripe by stripe."""

    def __init__(
        self, sink: pa.NativeFile, fields: Sequence[DataField], settings: WriteSettings, *, shared: Mapping[str, str]
    ) -> None:
        """See ``interface.NewWriter``."""
        codec = _CODECS.get(settings.compression.strip().lower())
        if codec is None:
            raise InvalidInputError(
                f"unknown compression: file.compression={settings.compression} allowed={sorted(_CODECS)}"
            )
        for field in fields:
            if field.type.root in NESTED_ROOTS and any(kind.root == "TIME" for kind in walk(field.type)):
                raise InvalidInputError(f"orc files cannot hold nested times: column={field.name}")
        self._sink = sink
        self._fields = fields
        self._out = _Sink(sink)
        self._writer = orc.ORCWriter(
            pa.PythonFile(self._out, "w"), compression=codec, stripe_size=settings.block_bytes or STRIPE_BYTES
        )
        self._collector = RangeCollector([field for field in fields if field.name not in shared])
        self._is_empty = True

    def write(self, rows: pa.Table) -> None:
        """Append rows with the file's columns, in file order and of their Arrow types."""
        self._collector.add(rows)
        for piece in pieces_within(rows, STRIPE_BYTES) if rows.num_rows else [rows]:
            columns = [_writable(piece.column(field.name), field) for field in self._fields]
            self._writer.write(pa.table(columns, names=self._names()))
            self._out.check()
        self._is_empty = False

    def bytes_written(self) -> int:
        """Bytes written to the sink; up to one stripe is buffered."""
        return int(self._sink.tell())

    def close(self) -> dict[str, ColumnRange]:
        """Finish the file without closing the sink. Returns ranges of the columns that are not shared."""
        if self._is_empty:
            # Without any write the library produces a file that it cannot open.
            self.write(pa.table([pa.array([], arrow_type(field.type)) for field in self._fields], names=self._names()))
        self._writer.close()
        self._out.check()
        if len(self._fields) > _FEW_COLUMNS:
            del self._writer
            _give_back_freed_memory()
        return self._collector.ranges()

    def _names(self) -> list[str]:
        return [field.name for field in self._fields]


def _writable(column: pa.ChunkedArray, field: DataField) -> pa.ChunkedArray:
    if field.type.root == "TIME":
        return column.cast(pa.int32())
    if any(kind.root in TIMESTAMP_ROOTS for kind in walk(field.type)):
        for chunk in column.chunks:
            for path, values in leaf_columns(field.name, chunk):
                if pa.types.is_timestamp(values.type):
                    _check_timestamps(path, values)
    if field.type.root in NESTED_ROOTS:
        # The library ignores the offset of a sliced struct's null bitmap.
        return pa.chunked_array([_unsliced(chunk) for chunk in column.chunks], column.type)
    return column


def _unsliced(chunk: pa.Array) -> pa.Array:
    return chunk.take(np.arange(len(chunk))) if chunk.offset else chunk


def _check_timestamps(path: str, values: pa.Array) -> None:
    bounds = pc.min_max(values)
    low, high = bounds["min"].value, bounds["max"].value
    per_second = _TICKS_PER_SECOND[values.type.unit]
    nanos_per_tick = _TICKS_PER_SECOND["ns"] // per_second
    if low is None or high is None:
        return
    if low * nanos_per_tick < -(2**63) or high * nanos_per_tick >= 2**63:
        raise InvalidInputError(
            f"orc files hold timestamps from 1677-09-21 to 2262-04-11: column={path} fix='file.format=parquet'"
        )
    if low >= 0:
        return
    ticks = values.drop_null().view(pa.int64()).to_numpy()
    if bool(np.any((ticks < 0) & (ticks % per_second != 0))):
        raise InvalidInputError(
            f"orc files hold timestamps before 1970 in whole seconds only: column={path} fix='file.format=parquet'"
        )


def read_orc(
    source: pa.NativeFile,
    fields: Sequence[DataField],
    *,
    limit: BatchLimit,
    keep: KeepRows | None = None,
    keep_fields: Sequence[DataField] = (),
    verify: bool = True,
) -> Iterator[FileRows]:
    """All rows; see ``interface.ReadFile``. Arrow does not show statistics of stripes.

    A stripe is in memory at a time; where the first rows are wide, as it is in the file, and decoded batch by batch. So
    a file whose first rows are narrow and later ones wide has larger batches.
    """
    first = 0
    for batch in _batches(source, fields, limit):
        yield FileRows(first, batch)
        first += batch.num_rows


def _batches(source: pa.NativeFile, fields: Sequence[DataField], limit: BatchLimit) -> Iterator[pa.RecordBatch]:
    file = orc.ORCFile(source)
    available = file.schema.names
    names = [field.name for field in fields if field.name in available]
    # Without a column the library loses the row count.
    read = names or available[:1]
    rows = _rows_of_batch(source, file.schema, names, limit)
    if rows < limit.rows:
        yield from _scanned(source, names, rows)
        return
    for stripe_index in range(file.nstripes):
        stripe: Any = file.read_stripe(stripe_index, columns=read)
        stripe = stripe.select(names)
        for start in range(0, stripe.num_rows, limit.rows):
            yield from pieces_within(stripe.slice(start, limit.rows), limit.size_bytes)


def _rows_of_batch(source: pa.NativeFile, schema: pa.Schema, names: Sequence[str], limit: BatchLimit) -> int:
    """Rows of a batch by the first ones: the format's own statistics are not to be had."""
    if all(schema.field(name).type.num_fields == 0 and _is_fixed(schema.field(name).type) for name in names):
        return limit.rows
    first = next(_scanned(source, names, _FIRST_ROWS), None)
    if first is None or not first.num_rows:
        return limit.rows
    return rows_within(first.nbytes / first.num_rows, most_rows=limit.rows, most_bytes=limit.size_bytes // _COPIES)


@cache
def _share_freed_memory() -> None:
    """Let all threads allocate from one arena of glibc, and large buffers be returned as soon as they are freed.

    The library does not use Arrow's memory pool, and decodes in any thread: each would keep what it has freed. C
    libraries without these settings are left as they are.
    """
    with suppress(AttributeError, OSError, TypeError):
        library = ctypes.CDLL(None)
        library.mallopt(_ARENA_MAX, 1)
        library.mallopt(_MMAP_THRESHOLD, _OWN_PAGES)


def _give_back_freed_memory() -> None:
    """Without it, each thread that has ever written keeps what one writer of many columns takes: 400 kB a column."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _is_fixed(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_decimal(kind))


def _scanned(source: pa.NativeFile, names: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Batches that are decoded one by one, unlike those of ``ORCFile``."""
    from pyarrow import dataset  # tens of megabytes: only for wide rows

    _share_freed_memory()
    source.seek(0)
    fragment = dataset.OrcFileFormat().make_fragment(source)
    scanner = fragment.scanner(
        columns=list(names), batch_size=rows, use_threads=False, batch_readahead=0, fragment_readahead=0
    )
    for batch in scanner.to_batches():
        if batch.num_rows:
            yield batch


ORC: Final = FileFormat(name="orc", writer=OrcFileWriter, reader=read_orc)
"""Apache ORC."""
