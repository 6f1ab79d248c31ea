"""The pieces of a plan: each reads itself, in any task, independently of the others."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from engine.runtime.task_host import TaskHost
from filestore.predicate.predicate import Predicate
from filestore.read.split_read import read_split
from filestore.scan.data_split import DataSplit
from filestore.table_view import TableView
from lsm.row_kind import ROW_KIND_SYMBOLS, RowKind

if TYPE_CHECKING:
    from engine.log.log_tail import TailSplit
    from filestore.changelog.snapshot_changes import ChangeSplit
    from filestore.diff.table_diff import TableDiff
    from logstore.offsets import LogRange

_NEW: Final = pa.array([RowKind.INSERT, RowKind.UPDATE_AFTER], pa.int8())


class Piece(ABC):
    """What one task reads. Picklable; a piece of a filtered plan is read only together with that filter."""

    __slots__ = ()

    @abstractmethod
    def read(self, table: TableView, columns: Sequence[str], filter: Predicate | None) -> Iterator[pa.RecordBatch]:
        """The rows; no batch is empty.

        Args:
            table: opened with the schema of the rows.
            columns: to return, in this order.
            filter: rows for which it is not true are left out.
        """

    @property
    @abstractmethod
    def splits(self) -> "Sequence[DataSplit | ChangeSplit]":
        """The files that are read."""

    @abstractmethod
    def merge_reasons(self, table: TableView) -> Iterator[str]:
        """Why Spark cannot scan the files itself, in words."""

    @property
    def is_fallback(self) -> bool:
        """Whether the rows come from the fallback branch."""
        return False

    @property
    def own_split(self) -> DataSplit | None:
        """The files, when the rows are those of files of the table itself and nothing else."""
        return None

    @property
    def log_range(self) -> "LogRange | None":
        """The part of the log that is merged over the files."""
        return None

    def plain_files(self, table: TableView) -> tuple[TableView, DataSplit] | None:
        """The files and the branch that has them, when the rows are those of files and nothing else."""
        return None


@dataclass(frozen=True, slots=True)
class FilePiece(Piece):
    """Files of the table."""

    split: DataSplit

    def read(self, table: TableView, columns: Sequence[str], filter: Predicate | None) -> Iterator[pa.RecordBatch]:
        """The rows of the files."""
        return read_split(table, self.split, columns=columns, filter=filter)

    @property
    def splits(self) -> Sequence[DataSplit]:
        """The one split."""
        return (self.split,)

    def merge_reasons(self, table: TableView) -> Iterator[str]:
        """What the files need beside a scan."""
        return _merge_reasons(table, self.split)

    @property
    def own_split(self) -> DataSplit | None:
        """The split."""
        return self.split

    def plain_files(self, table: TableView) -> tuple[TableView, DataSplit] | None:
        """The split, of the table itself."""
        return table, self.split


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackPiece(Piece):
    """Files of the fallback branch."""

    table: TableView  # with the schema of that branch
    split: DataSplit

    def read(self, table: TableView, columns: Sequence[str], filter: Predicate | None) -> Iterator[pa.RecordBatch]:
        """The rows of the files, with the table's own nullability."""
        schema = table.schema.arrow_schema_of(columns)
        for rows in read_split(self.table, self.split, columns=columns, filter=filter):
            # a batch without columns has a number of rows that is not in its arrays
            yield pa.RecordBatch.from_arrays(rows.columns, schema=schema) if columns else rows

    @property
    def splits(self) -> Sequence[DataSplit]:
        """The one split."""
        return (self.split,)

    def merge_reasons(self, table: TableView) -> Iterator[str]:
        """What the files need beside a scan."""
        return _merge_reasons(self.table, self.split)

    @property
    def is_fallback(self) -> bool:
        """Always."""
        return True

    def plain_files(self, table: TableView) -> tuple[TableView, DataSplit] | None:
        """The split, of the fallback branch."""
        return self.table, self.split


@dataclass(frozen=True, slots=True)
class TailPiece(Piece):
    """A bucket with the tail of its log."""

    tail: "TailSplit"

    def read(self, table: TableView, columns: Sequence[str], filter: Predicate | None) -> Iterator[pa.RecordBatch]:
        """The rows at the end of the log's range."""
        from engine.log.log_tail import read_tail_split

        return read_tail_split(table, self.tail, columns=columns, filter=filter)

    @property
    def splits(self) -> Sequence[DataSplit]:
        """The files under the log."""
        return self.tail.splits

    def merge_reasons(self, table: TableView) -> Iterator[str]:
        """The log."""
        yield "the log is merged over the files"

    @property
    def log_range(self) -> "LogRange | None":
        """Range of the bucket's log."""
        return self.tail.log_range


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffPiece(Piece):
    """Changes between two states: with ``_row_kind`` among the columns all of them, else the rows that are new.

    Source: Paimon's incremental reads with scan mode diff.
    """

    diff: "TableDiff"
    split: "ChangeSplit"

    def read(self, table: TableView, columns: Sequence[str], filter: Predicate | None) -> Iterator[pa.RecordBatch]:
        """The rows as the later state has them, or with ``_row_kind`` all changes."""
        from engine.types.rows import ROW_KIND_COLUMN
        from filestore.predicate.evaluation import filter_mask

        for rows, kinds in self.diff.read(self.split):
            chosen = np.ones(rows.num_rows, np.bool_)
            if ROW_KIND_COLUMN not in columns:
                chosen = pc.is_in(kinds, _NEW).to_numpy(zero_copy_only=False)
            if filter is not None:
                chosen = chosen & filter_mask(filter, rows).fill_null(False).to_numpy(zero_copy_only=False)
            kept, kept_kinds = rows.filter(pa.array(chosen)), kinds.filter(pa.array(chosen))
            if kept.num_rows:
                texts = ROW_KIND_SYMBOLS.take(kept_kinds)
                yield _with_constant(kept, ROW_KIND_COLUMN, texts).select(list(columns))

    @property
    def splits(self) -> "Sequence[ChangeSplit]":
        """The one split."""
        return (self.split,)

    def merge_reasons(self, table: TableView) -> Iterator[str]:
        """The comparison."""
        yield "two states are compared"


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceReader:
    """Reads pieces of one plan, in the columns that are wanted. Picklable: tasks call it."""

    table: TableView  # opened with the schema of the rows
    names: tuple[str, ...]  # of the table and of the constants, in the order wanted; of a difference also _row_kind
    filter: Predicate | None
    constants: Mapping[str, pa.Scalar]  # columns that are not the table's, with one value in all rows
    host: TaskHost = field(default_factory=TaskHost.here)

    def __call__(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        """The rows of a piece; no batch is empty."""
        self.host.check(self.table.store)
        columns = [name for name in self.names if name not in self.constants]
        batches = piece.read(self.table, columns, self.filter)
        if len(columns) == len(self.names):
            yield from batches
            return
        for batch in batches:
            full = batch
            for name in self.names:
                if name in self.constants:
                    full = _with_constant(full, name, pa.repeat(self.constants[name], len(batch)))
            yield full.select(list(self.names))


def constant_field(name: str, value_type: pa.DataType) -> pa.Field:
    """The Arrow field of a column that is not the table's; a row always has a kind."""
    from engine.types.rows import ROW_KIND_COLUMN

    return pa.field(name, value_type, nullable=name != ROW_KIND_COLUMN)


def _with_constant(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    return batch.append_column(constant_field(name, values.type), values)


def _merge_reasons(table: TableView, split: DataSplit) -> Iterator[str]:
    if split.needs_merge:
        yield "key ranges overlap"
    elif not split.raw_convertible and not split.deletion_vectors:
        yield "files hold deletes"
    if split.deletion_vectors:
        yield "deletion vectors"
    if any(not file.file_name.endswith(".parquet") for file in split.files):
        yield "files are not Parquet"
    if split.raw_convertible and any(file.schema_id != table.schema.id for file in split.files):
        yield "columns have changed since"
