"""Files with deletion vectors for Spark's own scan: it reads them, and a bitmap of their rows drops the deleted ones.

Spark knows the file and the number of each row that it scans (``_metadata``). The bitmaps of all files are one array of
words, which a subquery gives to every task; a file has its place in it. Nothing goes through Python, and columns that a
query does not want are not read.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from engine.types.quoting import quoted
from filestore.index.deletion_vectors import Positions
from filestore.options.table.common import MIB
from filestore.scan.data_split import DataSplit
from filestore.table_store import TableStore

_FILE, _FIRST, _END, _ROW, _METADATA = (
    "_deleted_of_file",
    "_first_word_of_file",
    "_rows_of_bitmap",
    "_row_of_file",
    "_metadata",
)
_WORD_SHIFT: Final = 6
_WORD_BITS: Final = 1 << _WORD_SHIFT
_NO_WORD: Final = 0  # the first one, of no row: for rows behind the last deleted one of their file
_MOST_BYTES: Final = 64 * MIB  # of bitmaps, in the memory of the driver and of every executor
_MOST_CASES: Final = 16  # files; among more, a hash finds a file's place sooner


@dataclass(frozen=True, slots=True, kw_only=True)
class ScannedFile:
    """A file of a scan."""

    name: str
    size_bytes: int
    deleted: Positions


def drops_in_spark(splits: Sequence[DataSplit], names: Collection[str]) -> bool:
    """Whether Spark should scan files with deletion vectors: bitmaps fit into memory, and no column hides a name.

    Args:
        splits: with deletion vectors, of rows that need nothing else.
        names: of the columns that are read.
    """
    hidden = {_FILE, _FIRST, _END, _ROW, _METADATA} & {name.lower() for name in names}
    return not hidden and sum(each.row_count for each in splits) // 8 <= _MOST_BYTES


def has_only_deletions(split: DataSplit, store: TableStore) -> bool:
    """Whether the rows of a split are those of its files but for those that deletion vectors delete."""
    is_whole = split.expiry_moment_ms is None and not store.counts_rows
    return bool(split.deletion_vectors) and not split.needs_merge and is_whole


def are_cases(file_count: int) -> bool:
    """Whether the query names so many files one by one; a scan of files without deleted rows is then no scan more."""
    return file_count <= _MOST_CASES


def without_deleted(
    spark: SparkSession, frame: DataFrame, files: Sequence[ScannedFile], names: Sequence[str]
) -> DataFrame:
    """The rows of a scan that are not deleted.

    Args:
        spark: the session.
        frame: a scan of Parquet files, each of which is among ``files``.
        files: at least one.
        names: of the columns to return.
    """
    # most rows are of the files with the last deleted ones: they are compared first
    files = sorted(files, key=lambda file: int(file.deleted[-1]) if len(file.deleted) else -1, reverse=True)
    bitmaps = [words_of(file.deleted) for file in files]
    sizes = [len(words) for words in bitmaps]
    firsts = (_NO_WORD + 1 + np.cumsum([0, *sizes[:-1]])).tolist()
    words = np.concatenate([np.zeros(1, np.int64), *bitmaps])
    array = spark.createDataFrame(pa.table({"words": pa.array([words], pa.list_(pa.int64()))})).scalar()
    if are_cases(len(files)):
        return frame.where(_is_left(array, _case(files, firsts, sizes), f"{_METADATA}.row_index"))
    places = spark.createDataFrame(
        pa.table(
            {
                _FILE: [file.name for file in files],
                _FIRST: pa.array(firsts, pa.int64()),
                _END: pa.array([_WORD_BITS * size for size in sizes], pa.int64()),
            }
        )
    )
    chosen = [quoted(name) for name in names]
    found = frame.selectExpr(*chosen, f"{_METADATA}.file_name as {_FILE}", f"{_METADATA}.row_index as {_ROW}")
    joined = found.join(F.broadcast(places), on=_FILE, how="left")
    word = _word(_ROW, _FIRST, f"coalesce({_END}, {_unknown(_FILE)})")
    return joined.where(_is_left(array, word, _ROW)).selectExpr(*chosen)


def _case(files: Sequence[ScannedFile], firsts: Sequence[int], sizes: Sequence[int]) -> str:
    """The number of a row's word, by the size of its file: names are long, and differ in their last letters only."""
    row = f"{_METADATA}.row_index"
    has_sizes = len({file.size_bytes for file in files}) == len(files)
    cases = " ".join(
        f"when {file.size_bytes if has_sizes else _text(file.name)} then {_word(row, first, _WORD_BITS * size)}"
        for file, first, size in zip(files, firsts, sizes, strict=True)
    )
    file = f"{_METADATA}.{'file_size' if has_sizes else 'file_name'}"
    return f"case {file} {cases} else {_unknown(f'{_METADATA}.file_name')} end"


def _word(row: str, first: object, end: object) -> str:
    return f"if({row} < {end}, {first} + shiftright({row}, {_WORD_SHIFT}), {_NO_WORD}L)"


def _is_left(array: Column, word: str, row: str) -> Column:
    bit = F.expr(f"cast({row} & {_WORD_BITS - 1} as int)")
    return F.getbit(F.get(array, F.expr(f"cast({word} as int)")), bit) == 0


def _text(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _unknown(file: str) -> str:
    return f"cast(raise_error(concat('a file without its deletion vector: file=', {file})) as bigint)"


def words_of(positions: Positions) -> NDArray[np.int64]:
    """A bitmap as 64-bit words: bit b of word w is row 64 w + b; rows after the last word are not deleted."""
    size = (int(positions[-1]) // _WORD_BITS + 1) if len(positions) else 0
    bits = np.zeros(size * _WORD_BITS, np.uint8)
    bits[positions] = 1
    return np.packbits(bits, bitorder="little").view("<i8").astype(np.int64)
