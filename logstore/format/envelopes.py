"""Change envelopes ``{"before": row, "after": row, "op": code}`` of Flink's debezium-json and of Debezium events.

Source: Debezium "Data change events"; Flink ``DebeziumJsonDeserializationSchema``.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from logstore.json.arrow_bytes import flags, rows_where
from logstore.json.decoding import decode_objects
from logstore.json.reading import BadRecord, Reading, reading_of
from lsm.keys.words import BoolArray, IndexArray
from lsm.row_kind import RowKind

KindArray = NDArray[np.int8]

_KINDS_OF_OPERATION: Final = {"c": RowKind.INSERT, "r": RowKind.INSERT, "u": RowKind.UPDATE_AFTER, "d": RowKind.DELETE}
_OPERATIONS: Final = pa.array(list(_KINDS_OF_OPERATION))
_KINDS: Final = np.array(list(_KINDS_OF_OPERATION.values()), np.int8)
_UNKNOWN: Final = np.int8(-1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelopes:
    """The readable envelopes of a batch, in order, and the bad records."""

    before: pa.StructArray
    after: pa.StructArray
    kinds: KindArray  # (n,) RowKind
    indices: IndexArray  # (n,) index of the record of each envelope
    bad: tuple[BadRecord, ...]
    truncates: tuple[int, ...] = ()  # indices of truncate events, which are no envelopes of rows
    unavailable: pa.Array | None = None  # (n,) list<string>: columns whose value was left out; None: nowhere


def read_envelopes(
    texts: pa.Array,
    row: Reading,
    *,
    needs_before: bool = False,
    allows_keyed_delete: bool = False,
    takes_truncates: bool = False,
) -> Envelopes:
    """Read one envelope per record.

    Args:
        texts: (n,) string or binary without nulls.
        row: reading of the struct in ``before`` and ``after``.
        needs_before: updates without the row before are bad records.
        allows_keyed_delete: deletes without the row before are accepted, because the caller knows the key.
        takes_truncates: truncate events are listed; else they are bad records.
    """
    envelope_type = pa.struct([("before", row.type), ("after", row.type), ("op", pa.string())])
    decoded = decode_objects(texts, Reading(type=envelope_type, children=(row, row, reading_of(pa.string()))))
    before, after, operations = decoded.rows.flatten()
    operation_indices = np.asarray(pc.index_in(operations, _OPERATIONS).fill_null(-1))
    kinds = np.append(_KINDS, _UNKNOWN)[operation_indices]
    has_before, has_after = flags(before.is_valid()), flags(after.is_valid())
    is_delete, is_update = kinds == RowKind.DELETE, kinds == RowKind.UPDATE_AFTER
    lacks_before = ~has_before & ((is_delete & (not allows_keyed_delete)) | (is_update & needs_before))
    left_out = (kinds == _UNKNOWN) | lacks_before | (~has_after & ~is_delete)
    is_truncate = flags(pc.equal(operations, "t")) if takes_truncates else np.zeros(len(kinds), bool)
    bad = list(decoded.bad)
    for row_index in np.flatnonzero(left_out & ~is_truncate).tolist():
        reason = _reason(operations[row_index].as_py(), is_before_missing=bool(lacks_before[row_index]))
        bad.append(BadRecord(index=int(decoded.indices[row_index]), reason=reason))
    return Envelopes(
        before=rows_where(before, ~left_out),
        after=rows_where(after, ~left_out),
        kinds=kinds[~left_out],
        indices=decoded.indices[~left_out],
        bad=tuple(sorted(bad, key=lambda record: record.index)),
        truncates=tuple(decoded.indices[is_truncate].tolist()),
    )


def pick_sides(envelopes: Envelopes, takes_before: BoolArray) -> list[pa.Array]:
    """The columns of the row before where `takes_before`, else of the row after."""
    if not takes_before.any():
        return list(envelopes.after.flatten())
    if takes_before.all():
        return list(envelopes.before.flatten())
    mask = pa.array(takes_before)
    sides = zip(envelopes.before.flatten(), envelopes.after.flatten(), strict=True)
    return [pc.if_else(mask, before, after) for before, after in sides]


def _reason(operation: str | None, *, is_before_missing: bool) -> str:
    if operation is None:
        return "not a change event: 'op' is missing"
    if operation == "t":
        return (
            "a truncate event cannot become row changes: op=t fix='fluvial cdc run applies it, and so do "
            "jobs and truncates=emit where a topic with one partition fills a table as it is; or set "
            "skipped.operations=t at the connector'"
        )
    if operation not in _KINDS_OF_OPERATION:
        return f"unknown operation: op={operation} expected=c,r,u,d"
    side = "before" if is_before_missing else "after"
    hint = ", the source must log full rows (PostgreSQL: REPLICA IDENTITY FULL)" if is_before_missing else ""
    return f"'{side}' is missing: op={operation}{hint}"
