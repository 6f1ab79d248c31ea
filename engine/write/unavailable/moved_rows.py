"""From which row each row of a batch has the values that it lacks: the one before it of its key, or of its old key."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.hashing.buckets import bucket_ids
from filestore.table_view import TableView
from filestore.types.data_types import arrow_type
from logstore.format.source.old_keys import deleted_column, is_old_key, old_key_columns
from lsm.errors import InvalidInputError
from lsm.keys.key_groups import one_chunk
from lsm.keys.keys import key_order
from lsm.keys.words import BoolArray, IndexArray


class MovedBetweenTasksError(InvalidInputError):
    """A row needs the values of one that another task has: a single task can write the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRows:
    """The rows whose values are those of a row with another key."""

    is_moved: BoolArray  # (rows,)
    rows: IndexArray  # (m,) ascending; those of ``is_moved`` with a whole key
    keys: pa.Table  # (m,) the old keys
    deleted: str | None  # the column that marks deleted rows; None: deletes are rows of their kind

    @classmethod
    def of(cls, marks: pa.Array | None, rows: pa.RecordBatch, table: TableView, task_count: int) -> "MovedRows | None":
        """The rows that have old keys in their marks; None: there are none. Raises: MovedBetweenTasksError."""
        if marks is None:
            return None
        marks = marks.combine_chunks() if isinstance(marks, pa.ChunkedArray) else marks
        parents, entries = np.asarray(pc.list_parent_indices(marks)), pc.list_flatten(marks).cast(pa.string())
        here = is_old_key(entries)
        if not here.any():
            return None
        parents, entries = parents[here], entries.filter(pa.array(here))
        is_moved = np.zeros(rows.num_rows, bool)
        is_moved[parents] = True
        fields = [pa.field(each, arrow_type(table.schema.field(each).type)) for each in table.schema.primary_keys]
        keys, places = old_key_columns(entries, parents, fields)
        if task_count > 1 and len(places):
            is_here = _tasks(keys, table, task_count) == _tasks(rows.take(pa.array(places)), table, task_count)
            if not is_here.all():
                raise MovedBetweenTasksError(
                    f"rows have values of rows that another task has: table={table.name} tasks={task_count} "
                    f"rows={np.count_nonzero(~is_here)} fix='write the batch in one task'"
                )
        old = pa.Table.from_batches([keys])
        return cls(is_moved=is_moved, rows=places, keys=old, deleted=deleted_column(entries))


@dataclass(frozen=True, slots=True, kw_only=True)
class Chains:
    """Rows as nodes that point to the row before them.

    Nodes are the rows; for each key what was there before these rows, from ``count`` on; for each key what a delete
    before these rows removed, from ``former`` on; and ``nowhere``.
    """

    count: int
    former: int
    nowhere: int
    previous: IndexArray  # (nodes,) the node before each; that of others than rows is itself
    is_delete: BoolArray  # (rows,)
    first_of_group: IndexArray  # (keys,) a row, or ``count`` and the number of an old key

    @classmethod
    def of(cls, keys: pa.Table, count: int, is_delete: BoolArray, moved: MovedRows | None) -> "Chains":
        """The chains of rows in their order.

        Args:
            keys: of ``count`` rows, then the old keys.
            count: of rows.
            is_delete: (count,).
            moved: whose old keys they are.
        """
        order, starts = key_order([one_chunk(column) for column in keys.columns], presorted=False)
        first_of_group, total = order[starts], len(order)
        groups = np.empty(total, np.int64)
        groups[order] = np.cumsum(starts) - 1
        is_row = np.arange(total) < count
        if moved is not None:  # an old key stands directly before its row
            position = np.concatenate([np.arange(count), moved.rows])
            order = np.lexsort((is_row, position, groups))
            starts = np.append(True, np.diff(groups[order]) != 0)
        group_count = len(first_of_group)
        former, nowhere = count + group_count, count + 2 * group_count
        prior = _newest_before(order, starts, is_row, count + groups)
        previous = np.append(prior[:count], np.arange(count, nowhere + 1))
        if moved is not None:
            living = _newest_before(
                order, starts, is_row & ~np.append(is_delete, np.zeros(total - count, bool)), count + groups
            )
            at = prior[count:]
            is_here = at < count
            removes = is_here & is_delete[np.minimum(at, count - 1)]
            source = np.where(
                removes, living[np.where(is_here, at, 0)], np.where(is_here, nowhere, at - count + former)
            )
            previous[np.flatnonzero(moved.is_moved)] = nowhere
            previous[moved.rows] = source if moved.deleted is None else at
        return cls(
            count=count, former=former, nowhere=nowhere, previous=previous, is_delete=is_delete,
            first_of_group=first_of_group,
        )  # fmt: skip

    def sources(self, mask: BoolArray) -> IndexArray:
        """(rows,) the node that has the value which a row lacks; of other rows themselves."""
        nodes = np.arange(self.nowhere + 1)
        lacks = np.append(mask, np.zeros(len(nodes) - self.count, bool))
        link = np.where(lacks, self.previous, nodes)
        while not np.array_equal(further := link[link], link):
            link = further
        return link[: self.count]


def _newest_before(order: IndexArray, starts: BoolArray, is_candidate: BoolArray, other: IndexArray) -> IndexArray:
    """(n,) the newest candidate before each in its group, ``other`` where there is none."""
    places = np.arange(len(order))
    newest = np.append(-1, np.maximum.accumulate(np.where(is_candidate[order], places, -1))[:-1])
    first = np.maximum.accumulate(np.where(starts, places, 0))
    found = np.empty(len(order), np.int64)
    found[order] = np.where(newest >= first, order[newest], other[order])
    return found


def _tasks(rows: pa.RecordBatch, table: TableView, task_count: int) -> IndexArray:
    fields = [table.schema.field(name) for name in table.schema.bucket_keys]
    columns = [rows.column(field.name) for field in fields]
    options = table.options
    buckets = bucket_ids(columns, [field.type for field in fields], options.bucket, function=options.bucket_function)
    return np.asarray(buckets, np.int64) % task_count
