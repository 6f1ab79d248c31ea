"""A state of a table as a Spark frame.

Files that need no merging are given to Spark's own vectorised Parquet scan, so a compacted table reads as fast as
plain Parquet, with Spark's column pruning and push-down intact; also files with deletion vectors.
Only the rest goes through Python, which merges it.
"""

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from engine.lineage.frame_sources import note_frame
from engine.read.batch_plan import BatchPlan
from engine.read.pieces import Piece
from engine.runtime.spark_settings import spark_setting
from engine.spark_internals.session import empty_frame
from engine.types.quoting import quoted
from engine.types.rows import ROW_KIND_COLUMN
from engine.types.spark_arrow import to_spark_batch
from engine.types.spark_types import spark_schema
from filestore.datafile.shared_maps import may_share_columns
from filestore.format.statistics import FLOAT_ROOTS
from filestore.index.deletion_vectors import NO_POSITIONS, Positions, read_deletion_vectors
from filestore.index.file_index import index_file_of, uses_indexes
from filestore.manifest.entries import DataFileMeta
from filestore.manifest.lists import IndexManifestEntry, names_with_vectors, vectors_of
from filestore.options.table.common import MIB
from filestore.predicate.predicate import Predicate, columns_of
from filestore.read.split_read import may_hold_rows
from filestore.scan.data_split import DataSplit
from filestore.schema.table_schema import TableSchema
from filestore.table_store import TableStore
from filestore.table_view import TableView
from filestore.types.data_types import DataField, DataType

_FILE, _FIRST, _END, _ROW, _METADATA = (
    "_deleted_of_file",
    "_first_word_of_file",
    "_rows_of_bitmap",
    "_row_of_file",
    "_metadata",
)
# ---- Files with deletion vectors for Spark's own scan: it reads them, and a bitmap of their rows drops the deleted
# ones
#
# Spark knows the file and the number of each row that it scans (``_metadata``). The bitmaps of all files are one
# array of words, which a subquery gives to every task; a file has its place in it. Nothing goes through Python, and
# columns that a query does not want are not read.


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


# ---- A state of a table as a Spark frame


_LISTING_KEY: Final = "spark.sql.sources.parallelPartitionDiscovery.threshold"
_MOST_INDEXES: Final = 1000  # files; asking more would hold the driver up for longer than it is worth
_INDEXES_AT_ONCE: Final = 8
_MOST_LISTED: Final = "1000"  # paths; above it Spark's job with many tasks is faster
_SPARKS_LISTED: Final = 32  # that Spark lists without a job by itself


def table_frame(
    spark: SparkSession,
    plan: BatchPlan,
    *,
    columns: Sequence[str] | None = None,
    filter_text: str | None = None,
    constants: Mapping[str, pa.Scalar] | None = None,
    divided: "DividedPlan | None" = None,
) -> DataFrame:
    """The rows of a plan. The plan is fixed: a frame shows its state of the table permanently.

    Args:
        spark: the session.
        plan: made with the same filter.
        columns: names, in the wanted order; None is all.
        filter_text: what the plan was made for; applied to every row.
        constants: columns to add, with one value in all rows; of a difference each row has its own kind.
        divided: the plan, for the same columns; None: it is divided here.
    """
    schema, added = plan.table.schema, constants or {}
    names = list(columns or schema.column_names)
    schema.fields_of(names)
    wanted = {*names, *(columns_of(plan.filter) if plan.filter is not None else ())}
    read = [name for name in schema.column_names if name in wanted]
    kinds = [ROW_KIND_COLUMN] if plan.has_changes and ROW_KIND_COLUMN in added else []
    divided = divided or divided_plan(spark, plan, read)
    parts = []
    if divided.plain:
        parts.append(_scan(spark, divided.plain, schema, read, filter_text))
    if divided.vectored:
        scan = _scan(spark, list(divided.vectored), schema, read, filter_text)
        parts.append(without_deleted(spark, scan, divided.vectored_files(), read))
    if divided.rest:
        parts.append(_merged(spark, plan, divided.rest, [*read, *kinds]))
    if not parts:
        parts.append(empty_frame(spark, _schema_of(plan, [*read, *kinds])))
    frame = reduce(DataFrame.unionByName, parts)
    read_state = plan.source_read
    if read_state is not None:
        note_frame(frame, read_state)
    if not added:  # naming a column costs a millisecond
        return frame if names == read else frame.selectExpr(*map(quoted, names))
    chosen = [F.col(quoted(name)) for name in names]
    return frame.select(
        *chosen, *(F.col(name) if name in kinds else _literal(value).alias(name) for name, value in added.items())
    )


def _literal(value: pa.Scalar) -> Any:
    return F.lit(value.as_py()).cast("bigint" if pa.types.is_integer(value.type) else "string")


def spark_opens(spark: SparkSession, root: str) -> bool:
    """Whether Spark's own scan reaches the table: object stores only where Hadoop has a file system for them."""
    scheme = urlsplit(root).scheme
    return not scheme or spark.conf.get(f"spark.hadoop.fs.{scheme}.impl", None) is not None


def _scan(
    spark: SparkSession, paths: Sequence[str], schema: TableSchema, names: Sequence[str], filter_text: str | None
) -> DataFrame:
    fields = schema.fields_of(names)
    # not listed in a job of its own, which costs more than the looks unless files are far
    with listed_here(spark, paths):
        frame = spark.read.schema(spark_schema(fields)).parquet(*paths)
    if any(_floats_of(field) for field in fields):
        frame = frame.select(*map(_beside_footers, fields))
    return frame.filter(F.expr(filter_text)) if filter_text else frame


def _beside_footers(field: DataField) -> Column:
    """A column as it is, by which Spark's scan skips no rows where it may hold NaN.

    Footers of pyarrow, of older files and those of pypaimon, leave NaN out of the bounds; in Spark's conditions it is
    the greatest value.
    """
    column = F.col(quoted(field.name))
    floats = _floats_of(field)
    for path, data_type in floats:
        inside = F.col(".".join(map(quoted, (field.name, *path))))
        value = F.nanvl(inside, F.lit(math.nan).cast(data_type.root.lower()))
        column = column.withField(".".join(map(quoted, path)), value) if path else value
    return column.alias(field.name) if floats else column


def _floats_of(field: DataField) -> list[tuple[tuple[str, ...], DataType]]:
    """The floating point numbers of a column with which Spark compares constants: path in the column, and type."""
    if field.type.root in FLOAT_ROOTS:
        return [((), field.type)]
    inner = field.type.fields if field.type.root == "ROW" else ()
    return [((each.name, *path), data_type) for each in inner for path, data_type in _floats_of(each)]


_PlacedFile = tuple[TableStore, DataSplit, DataFileMeta]


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedPlan:
    """Who reads what."""

    plain: Sequence[str]  # paths for Spark's own scan
    vectored: Mapping[str, _PlacedFile]  # likewise, of files some rows of which are deleted, and of few others
    rest: Sequence[Piece]  # for Fluvial

    @property
    def is_scan(self) -> bool:
        """Whether the rows are those of whole files, and of nothing else."""
        return bool(self.plain) and not self.vectored and not self.rest

    def vectored_files(self) -> Sequence[ScannedFile]:
        """The files of ``vectored`` with their deleted positions. Raises: CorruptDataError."""
        placed = self.vectored.values()
        entries: dict[str, tuple[TableStore, list[IndexManifestEntry]]] = {}
        for store, split, file in placed:
            _, own = entries.setdefault(store.paths.branch_root, (store, []))
            own += vectors_of([file], split.deletion_vectors)
        deleted: dict[str, Positions] = {}
        for store, own in entries.values():
            deleted |= read_deletion_vectors(store, own)
        return [
            ScannedFile(
                name=file.file_name, size_bytes=file.size_bytes, deleted=deleted.get(file.file_name, NO_POSITIONS)
            )
            for _, _, file in placed
        ]


def listed_here(spark: SparkSession, paths: Sequence[str]) -> AbstractContextManager[None]:
    """Around the making of Spark's scan of files: it looks at files here, and not in a job, if they are few."""
    return spark_setting(spark, _LISTING_KEY, _MOST_LISTED) if len(paths) > _SPARKS_LISTED else nullcontext()


def divided_plan(spark: SparkSession, plan: BatchPlan, names: Sequence[str]) -> DividedPlan:
    """What Spark's own scan reads of a plan, and what Fluvial does.

    Args:
        spark: the session that reads.
        plan: of the table.
        names: of the columns that are read.
    """
    if not spark_opens(spark, plan.table.store.paths.root):
        return DividedPlan(plain=[], vectored={}, rest=plan.pieces)
    plain: list[_PlacedFile] = []
    vectored: list[tuple[Piece, TableStore, DataSplit]] = []
    rest: list[Piece] = []
    for piece in plan.pieces:
        found = piece.plain_files(plan.table)
        if found is None or not all(_spark_can_read(found[0], file, names) for file in found[1].files):
            rest.append(piece)
        elif found[1].raw_convertible and not found[1].deletion_vectors:
            plain.extend((found[0].store, found[1], file) for file in found[1].files)
        elif has_only_deletions(found[1], found[0].store):
            vectored.append((piece, found[0].store, found[1]))
        else:
            rest.append(piece)
    if not drops_in_spark([split for _, _, split in vectored], names):
        rest += [piece for piece, _, _ in vectored]
        vectored = []
    with_vectors: list[_PlacedFile] = []
    for _, store, split in vectored:
        named = names_with_vectors(split.deletion_vectors)
        for file in split.files:
            (with_vectors if file.file_name in named else plain).append((store, split, file))
    together = [*with_vectors, *plain]
    if with_vectors and are_cases(len(together)):
        with_vectors, plain = together, []  # a second scan costs more than looking for what is not deleted
    return DividedPlan(
        plain=[_path(each) for each in _without_useless(plain, plan.filter)],
        vectored={_path(each): each for each in _without_useless(with_vectors, plan.filter)},
        rest=rest,
    )


def _path(placed: _PlacedFile) -> str:
    store, split, file = placed
    path = store.file_path(split.partition, split.bucket, file)
    return f"file://{path}" if path.startswith("/") else path


def _without_useless(plain: Sequence[_PlacedFile], predicate: Predicate | None) -> Sequence[_PlacedFile]:
    """The files that no file index rules out; Spark does not know such indexes, so they are read before."""

    def is_useful(each: _PlacedFile) -> bool:
        store, split, file = each
        return may_hold_rows(store, split.partition, split.bucket, file, predicate)

    indexed = sum(index_file_of(file) is not None for _, _, file in plain)
    if not plain or not 0 < indexed <= _MOST_INDEXES or not uses_indexes(predicate, plain[0][0].options):
        return plain
    with ThreadPoolExecutor(min(indexed, _INDEXES_AT_ONCE), thread_name_prefix="fluvial-index") as pool:
        return [each for each, is_kept in zip(plain, pool.map(is_useful, plain), strict=True) if is_kept]


def _spark_can_read(table: TableView, file: DataFileMeta, names: Sequence[str]) -> bool:
    """Whether Spark's Parquet scan gives exactly the rows of the file that Fluvial's would."""
    if not file.file_name.endswith(".parquet"):
        return False
    then = table.store.schema_of(file.schema_id)
    return all(_unchanged(then, table.store.schema, name) for name in names)


def _unchanged(then: TableSchema, now: TableSchema, name: str) -> bool:
    """A column is the same in both schemas, and Spark reads the Parquet form of its type as Fluvial does."""
    field = now.field(name)
    old = next((each for each in then.fields if each.id == field.id), None)
    if old is None or old.name != name or old.type != field.type or field.type.root in ("TIME", "MULTISET"):
        return False
    return not (field.type.root == "MAP" and (may_share_columns(then, name) or may_share_columns(now, name)))


def _merged(spark: SparkSession, plan: BatchPlan, pieces: Sequence[Piece], names: Sequence[str]) -> DataFrame:
    return pieces_frame(spark, pieces, _schema_of(plan, names), plan.reader(names), name=plan.summary(pieces))


def _schema_of(plan: BatchPlan, names: Sequence[str]) -> StructType:
    schema = spark_schema(plan.table.schema.fields_of([name for name in names if name != ROW_KIND_COLUMN]))
    return schema.add(ROW_KIND_COLUMN, StringType(), nullable=False) if ROW_KIND_COLUMN in names else schema


def pieces_frame(
    spark: SparkSession,
    pieces: Sequence[Any],
    schema: StructType,
    read: Callable[[Any], Iterator[pa.RecordBatch]],
    *,
    name: str,
) -> DataFrame:
    """What tasks read, one piece each, in any order.

    Args:
        spark: the session.
        pieces: of anything that can be pickled.
        schema: of the rows.
        read: the rows of a piece; called in tasks, so it can be pickled too.
        name: what Spark's plan says of it.
    """
    slots = spark.range(0, len(pieces), 1, max(1, len(pieces))).select(F.col("id").alias("_piece"))
    return slots.mapInArrow(_PieceTask(pieces, read, name), schema)


class _PieceTask:
    """What a Spark task runs: reads the pieces whose numbers it is given."""

    def __init__(self, pieces: Sequence[Any], read: Callable[[Any], Iterator[pa.RecordBatch]], name: str) -> None:
        self.__name__ = name  # of the function, in plans
        self._pieces = pieces
        self._read = read

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for slot in batch.column(0).to_pylist():
                for rows in self._read(self._pieces[slot]):
                    yield to_spark_batch(rows)
