"""The partitions of a snapshot, and the selection of some by users.

Partitions are selected by ``dt=2024-01-31,hour=7;dt=2024-02-01`` (some columns, values as written in SQL or
in directory names) or by a condition on partition columns. Omitted columns match every value.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.commit.table_commit import CommitResult, TableCommit
from filestore.layout.paths import partition_path
from filestore.manifest.entries import ManifestEntry
from filestore.predicate.evaluation import filter_mask
from filestore.predicate.literals import compare
from filestore.predicate.predicate import And, CompareOp, IsNull, Or, Predicate, columns_of
from filestore.scan.snapshot_files import live_files
from filestore.schema.row_counts import seen_schema
from filestore.snapshot.change_tracking import ChangeSource
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from filestore.types.data_types import arrow_type
from filestore.types.text_values import LiteralMismatchError
from lsm.errors import InvalidInputError


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """Statistics of one partition."""

    partition: bytes  # BinaryRow with arity prefix
    path: str  # "dt=2024-01-31/hour=7"; empty if the table is not partitioned
    file_count: int
    row_count: int  # deletes and older versions included
    size_bytes: int
    last_update_ms: int  # creation time of its newest file: local wall clock as if it were UTC


def list_partitions(store: TableStore, snapshot: Snapshot | None) -> list[PartitionState]:
    """The partitions with live files, sorted by path."""
    groups: dict[bytes, list[ManifestEntry]] = {}
    for entry in live_files(store, snapshot):
        groups.setdefault(entry.partition, []).append(entry)
    states = [
        PartitionState(
            partition=partition,
            path=path_of(store, partition),
            file_count=len(entries),
            row_count=sum(entry.file.row_count for entry in entries),
            size_bytes=sum(entry.file.size_bytes for entry in entries),
            last_update_ms=max(entry.file.creation_time_ms or 0 for entry in entries),
        )
        for partition, entries in groups.items()
    ]
    return sorted(states, key=lambda each: each.path)


def path_of(store: TableStore, partition: bytes) -> str:
    """Directory of a partition, relative to the table's; empty if the table is not partitioned."""
    fields = store.schema.partition_fields
    return partition_path(store.partition_values(partition), fields, store.options) if fields else ""


def partition_predicate(store: TableStore, *, partitions: str | None, where: str | None) -> Predicate | None:
    """The predicate for a user's selection; None: every partition.

    Args:
        store: the table.
        partitions: ``k=v,k=v;k=v``.
        where: SQL condition on partition columns.

    Raises:
        InvalidInputError: both are given, a column is not a partition column, or a value does not fit its type.
    """
    if partitions is not None and where is not None:
        raise InvalidInputError(f"give partitions or where, not both: partitions={partitions!r} where={where!r}")
    if where is not None:
        from filestore.predicate.parser import parse_filter  # sqlglot is slow to import

        predicate = parse_filter(where, seen_schema(store.schema))
        others = sorted(columns_of(predicate) - {*store.schema.partition_keys})
        if others:
            raise InvalidInputError(_not_a_partition_column(store, others[0]))
        return predicate
    if partitions is None:
        return None
    specs = [_spec(store, text) for text in partitions.split(";") if text.strip()]
    if not specs:
        raise InvalidInputError(f"no partition is given: partitions={partitions!r} fix='write k=v,k=v;k=v'")
    return Or(parts=tuple(specs)) if len(specs) > 1 else specs[0]


def select_partitions(
    store: TableStore, partitions: Collection[bytes], predicate: Predicate | None
) -> frozenset[bytes]:
    """The given partitions that satisfy a predicate on partition columns; None selects all."""
    given = sorted(partitions)
    if predicate is None or not given:
        return frozenset(given)
    fields = store.schema.partition_fields
    values = [store.partition_values(each) for each in given]
    columns = [pa.array([row[index] for row in values], arrow_type(each.type)) for index, each in enumerate(fields)]
    rows = pa.RecordBatch.from_arrays(columns, names=[each.name for each in fields])
    mask = filter_mask(predicate, rows).to_pylist()
    return frozenset(each for each, is_selected in zip(given, mask, strict=True) if is_selected)


def drop_partitions(
    store: TableStore, partitions: Iterable[bytes], *, properties: Mapping[str, str] | None = None
) -> CommitResult:
    """Drop partitions in one commit, including rows that others add to them before it.

    Streams get the removed rows from the files, unless the table does not track changes.

    Raises:
        ConflictError: the commit lost too many races: call again.
        OutcomeUnknownError: the commit may be visible.
    """
    dropped = frozenset(partitions)
    committable = Committable(
        identifier=BATCH_IDENTIFIER,
        properties=properties or {},
        changes=ChangeSource.FILES if store.options.change_tracking else ChangeSource.NONE,
    )
    return TableCommit(store, store.new_commit_user()).overwrite(committable, replaces=dropped.__contains__)


def _spec(store: TableStore, text: str) -> Predicate:
    parts: list[Predicate] = []
    for part in text.split(","):
        name, equals, value = (each.strip() for each in part.partition("="))
        if not equals:
            raise InvalidInputError(f"a partition must be column=value: found={part.strip()!r} in={text.strip()!r}")
        if name not in store.schema.partition_keys:
            raise InvalidInputError(_not_a_partition_column(store, name))
        parts.append(_equals(store, name, _unquoted(value)))
    return And(parts=tuple(parts)) if len(parts) > 1 else parts[0]


def _equals(store: TableStore, name: str, text: str) -> Predicate:
    field = store.schema.field(name)
    if text == store.options.partition_default_name:
        return IsNull(column=name)
    try:
        return compare(name, (), field.type, CompareOp.EQ, text)
    except LiteralMismatchError as error:
        raise InvalidInputError(f"not a value of the partition column: column={name} value={text!r} {error}") from error


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _not_a_partition_column(store: TableStore, name: str) -> str:
    return (
        f"not a partition column: table={store.name} column={name} "
        f"partition_columns={list(store.schema.partition_keys)}"
    )
