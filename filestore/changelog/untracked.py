"""Untracked partitions: streams do not get their changes, which are only in the files.

The table option ``change-tracking.untracked-partitions`` lists them as a JSON list of values by column:
``[{"dt": "2026-01-31", "hour": "7"}]``.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson
import pyarrow as pa

from filestore.options.table_options import TableOptions
from filestore.predicate.predicate import And, Compare, CompareOp, IsNull, Or, Predicate
from filestore.table_store import TableStore
from filestore.types.casts import cast_array
from filestore.types.data_types import STRING
from lsm.errors import InvalidInputError
from lsm.keys.keys import internal_value

UNTRACKED_KEY: Final = "change-tracking.untracked-partitions"
PartitionTexts = Mapping[str, str | None]


def untracked_partitions(options: TableOptions) -> list[PartitionTexts]:
    """Value texts by partition column. Raises: InvalidInputError for an option that is not such a list."""
    text = options.change_tracking_untracked_partitions
    if text is None:
        return []
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _unreadable(text) from error
    if not isinstance(found, list) or not all(isinstance(each, dict) and each for each in found):
        raise _unreadable(text)
    return found


def with_tracking(options: TableOptions, partition: PartitionTexts, *, is_tracked: bool) -> str | None:
    """The option's text with one partition added or removed; None: the list is empty."""
    others = [each for each in untracked_partitions(options) if dict(each) != dict(partition)]
    left = others if is_tracked else [*others, dict(partition)]
    return orjson.dumps(left).decode() if left else None


def untracked_rows(store: TableStore) -> Predicate | None:
    """A predicate for rows in untracked partitions; None: no rows."""
    partitions = [_of_partition(store, each) for each in untracked_partitions(store.options)]
    if not partitions:
        return None
    return partitions[0] if len(partitions) == 1 else Or(parts=tuple(partitions))


def is_untracked(store: TableStore, options: TableOptions, partition: bytes) -> bool:
    """Whether a partition is untracked.

    Args:
        store: the table.
        options: options of the table, of the newest schema version if that matters.
        partition: BinaryRow bytes.
    """
    untracked = untracked_partitions(options)
    if not untracked:
        return False
    values = dict(zip(store.schema.partition_keys, store.partition_values(partition), strict=True))
    return any(all(values[name] == _value(store, name, text) for name, text in each.items()) for each in untracked)


def _of_partition(store: TableStore, partition: PartitionTexts) -> Predicate:
    parts: Sequence[Predicate] = [_equals(name, _value(store, name, text)) for name, text in partition.items()]
    return parts[0] if len(parts) == 1 else And(parts=tuple(parts))


def _equals(name: str, value: object) -> Predicate:
    return IsNull(column=name) if value is None else Compare(column=name, op=CompareOp.EQ, value=value)


def _value(store: TableStore, name: str, text: str | None) -> object:
    if name not in store.schema.partition_keys:
        raise InvalidInputError(
            f"not a partition column: option={UNTRACKED_KEY} column={name} "
            f"partition_columns={list(store.schema.partition_keys)}"
        )
    if text is None or text == store.options.partition_default_name:
        return None
    return internal_value(cast_array(pa.array([text], pa.string()), STRING, store.schema.field(name).type)[0])


def _unreadable(text: str) -> InvalidInputError:
    return InvalidInputError(
        f"not a list of partitions: option={UNTRACKED_KEY} value={text} "
        "fix=ALTER TABLE ... PARTITION (...) SET ('change-tracking'='false')"
    )
