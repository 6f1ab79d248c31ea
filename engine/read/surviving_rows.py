"""Files with deletion vectors for Spark's own scan: it reads them, and a bitmap for each file drops the deleted rows.

Spark knows the name of the file and the number of each row that it scans (``_metadata``). A few small bitmaps are
literals of the query, more are broadcast, so nothing goes through Python, and columns that a query does not want are
not read.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from engine.types.quoting import quoted
from filestore.index.deletion_vectors import Positions
from filestore.options.table.common import MIB
from filestore.scan.data_split import DataSplit
from filestore.table_store import TableStore

_FILE, _WORDS, _ROW, _METADATA = "_deleted_of_file", "_deleted_rows", "_row_of_file", "_metadata"
_WORD_BITS: Final = 64
_WIDE_ROW_BYTES: Final = 100  # in the files: of narrower rows merging in Python is as fast as the look into a bitmap
_MOST_BYTES: Final = 64 * MIB  # of bitmaps, in the memory of the driver and of every executor
_MOST_IN_PLAN: Final = 16  # files; among more, a hash finds a bitmap sooner
_ROWS_IN_PLAN: Final = 4_000_000  # of their files; larger bitmaps would make plans slow to print and to send


def drops_in_spark(splits: Sequence[DataSplit], names: Collection[str]) -> bool:
    """Whether Spark should scan files with deletion vectors: bitmaps are few, or rows wide; no column hides a name.

    Args:
        splits: with deletion vectors, of rows that need nothing else.
        names: of the columns that are read.
    """
    row_count, size_bytes = sum(each.row_count for each in splits), sum(each.size_bytes for each in splits)
    is_free = not {_FILE, _WORDS, _ROW, _METADATA} & {name.lower() for name in names}
    if fit_in_plan(sum(len(each.files) for each in splits), row_count):
        return is_free
    return is_free and row_count // 8 <= _MOST_BYTES and size_bytes >= row_count * _WIDE_ROW_BYTES


def has_only_deletions(split: DataSplit, store: TableStore) -> bool:
    """Whether the rows of a split are those of its files but for those that deletion vectors delete."""
    is_whole = split.expiry_moment_ms is None and not store.counts_rows
    return bool(split.deletion_vectors) and not split.needs_merge and is_whole


def fit_in_plan(file_count: int, row_count: int) -> bool:
    """Whether bitmaps of so many files and rows are literals of the query."""
    return file_count <= _MOST_IN_PLAN and row_count <= _ROWS_IN_PLAN


def without_deleted(
    spark: SparkSession, files: DataFrame, deleted: Mapping[str, Positions], names: Sequence[str]
) -> DataFrame:
    """The rows of a scan of files that are not deleted.

    Args:
        spark: the session.
        files: a scan of Parquet files, each of which is among ``deleted``.
        deleted: positions by the name of the file.
        names: of the columns to return.
    """
    if fit_in_plan(len(deleted), sum(int(each[-1]) for each in deleted.values() if len(each))):
        return files.where(_is_left(deleted))
    bitmaps = spark.createDataFrame(
        pa.table(
            {
                _FILE: pa.array(deleted, pa.string()),
                _WORDS: pa.array([words_of(positions) for positions in deleted.values()], pa.list_(pa.int64())),
            }
        )
    )
    chosen = [quoted(name) for name in names]
    found = files.selectExpr(*chosen, f"{_METADATA}.file_name as {_FILE}", f"{_METADATA}.row_index as {_ROW}")
    joined = found.join(F.broadcast(bitmaps), on=_FILE, how="left")
    return joined.where(_is_unset(f"coalesce({_WORDS}, {_unknown(_FILE)})", _ROW)).selectExpr(*chosen)


def _is_left(deleted: Mapping[str, Positions]) -> str:
    """The condition with bitmaps as literals: neither a job that broadcasts them nor a join of every row."""
    file = f"{_METADATA}.file_name"
    cases = " ".join(
        f"when {_text(name)} then from_json('{words_of(positions).tolist()}', 'array<bigint>')"
        for name, positions in deleted.items()
    )
    return _is_unset(f"case {file} {cases} else {_unknown(file)} end", f"{_METADATA}.row_index")


def _text(name: str) -> str:
    return "'" + name.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _unknown(file: str) -> str:
    return f"raise_error(concat('a file without its deletion vector: file=', {file}))"


def _is_unset(words: str, row: str) -> str:
    word = f"get({words}, cast({row} div {_WORD_BITS} as int))"  # null behind the last one
    return f"coalesce(getbit({word}, cast({row} % {_WORD_BITS} as int)), 0) = 0"


def words_of(positions: Positions) -> NDArray[np.int64]:
    """A bitmap as 64-bit words: bit b of word w is row 64 w + b; rows after the last word are not deleted."""
    size = (int(positions[-1]) // _WORD_BITS + 1) if len(positions) else 0
    bits = np.zeros(size * _WORD_BITS, np.uint8)
    bits[positions] = 1
    return np.packbits(bits, bitorder="little").view("<i8").astype(np.int64)
