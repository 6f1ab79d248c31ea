"""Rows measured in bytes: what keeps memory bounded where a row may have a megabyte as well as ten bytes."""

from collections.abc import Iterator
from typing import Final, TypeVar

import pyarrow as pa

_WIDE_BYTES: Final = 4096

_Rows = TypeVar("_Rows", pa.Table, pa.RecordBatch)


def rows_within(row_bytes: float, *, most_rows: int, most_bytes: int) -> int:
    """How many rows of an average size fit into a number of rows and of bytes; at least one."""
    return most_rows if row_bytes * most_rows <= most_bytes else max(int(most_bytes / row_bytes), 1)


def pieces_within(rows: _Rows, most_bytes: int) -> Iterator[_Rows]:
    """Slices of the rows, in order and none empty, of at most so many bytes; a larger single row is a slice."""
    for piece, _ in sized_pieces(rows, most_bytes):
        yield piece


def sized_pieces(rows: _Rows, most_bytes: int) -> Iterator[tuple[_Rows, int]]:
    """``pieces_within``, each with its bytes, which take a while to count."""
    count, size_bytes = rows.num_rows, rows.nbytes
    if count > 1 and size_bytes > most_bytes:
        yield from sized_pieces(rows.slice(0, count // 2), most_bytes)
        yield from sized_pieces(rows.slice(count // 2), most_bytes)
    elif count:
        yield rows, size_bytes


def release_after(row_bytes: float) -> None:
    """Return the memory of such rows, if they were wide, to the system once they are freed.

    The allocator keeps what it may use again, but large values of many sizes rarely fit where others were. Of narrow
    rows they do, and returning memory would cost more than it is worth.
    """
    if row_bytes > _WIDE_BYTES:
        pa.default_memory_pool().release_unused()
