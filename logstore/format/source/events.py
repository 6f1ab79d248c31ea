"""Events as they were read, made ready: without placeholders, in the types of the columns, in the order of records."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from logstore.format.envelopes import Envelopes
from logstore.format.source.column_values import ColumnPlan
from logstore.format.source.ranges import Refusal
from logstore.format.source.unavailable import mask_column, placeholders, without
from logstore.json.arrow_bytes import rows_where
from logstore.json.reading import BadRecord
from lsm.keys.words import BoolArray, IndexArray
from lsm.row_kind import RowKind


def at(events: Envelopes, indices: IndexArray) -> Envelopes:
    """The same events of records at these places."""
    return replace(
        events,
        indices=indices[events.indices],
        bad=tuple(replace(record, index=int(indices[record.index])) for record in events.bad),
        truncates=tuple(int(indices[index]) for index in events.truncates),
    )


def without_placeholders(events: Envelopes, placeholder: str, has_old_key: BoolArray | None) -> Envelopes:
    """Null for values that updates left out, before anything is converted, and where they were.

    Args:
        events: as they were read.
        placeholder: stands for a value.
        has_old_key: (records,) whether each is the second half of an update that changes the key; None: none is.
    """
    is_update = events.kinds == RowKind.UPDATE_AFTER
    if has_old_key is not None:
        is_update |= (events.kinds == RowKind.INSERT) & has_old_key[events.indices]
    if not is_update.any():
        return events
    names = [field.name for field in events.after.type]
    columns = events.after.flatten()
    masks = {name: placeholders(column, placeholder) & is_update for name, column in zip(names, columns, strict=True)}
    marked = mask_column(masks, len(is_update))
    if marked is None:
        return events
    kept = [without(column, masks[name]) for name, column in zip(names, columns, strict=True)]
    missing = events.after.is_null() if events.after.null_count else None
    after = pa.StructArray.from_arrays(kept, fields=list(events.after.type), mask=missing)
    return replace(events, after=after, unavailable=marked)


def converted(events: Envelopes, plan: ColumnPlan) -> Envelopes:
    """Rows in the types of the columns; events with a value that cannot be converted are bad."""
    if plan.step is None:
        return events
    before, after = plan.converted(events.before), plan.converted(events.after)
    refused = [
        Refusal(each.mask, f"{side}: {each.reason}")
        for side, rows in (("before", before), ("after", after))
        for each in rows.refused
    ]
    if not refused:
        return replace(events, before=before.values, after=after.values)
    reasons: dict[int, str] = {}
    for each in refused:
        for row in np.flatnonzero(each.mask).tolist():
            reasons.setdefault(row, each.reason)
    bad = [BadRecord(index=int(events.indices[row]), reason=reason) for row, reason in reasons.items()]
    kept = np.ones(len(events.kinds), bool)
    kept[list(reasons)] = False
    readable = replace(events, before=before.values, after=after.values)
    return replace(_kept(readable, kept), bad=tuple(sorted([*events.bad, *bad], key=lambda record: record.index)))


def events_without(events: Envelopes, indices: IndexArray) -> Envelopes:
    """The events but those of some records."""
    kept = ~np.isin(events.indices, indices)
    return events if kept.all() else _kept(events, kept)


def _kept(events: Envelopes, kept: BoolArray) -> Envelopes:
    """The events that the mask has; bad records and truncates stay."""
    return replace(
        events,
        before=rows_where(events.before, kept),
        after=rows_where(events.after, kept),
        kinds=events.kinds[kept],
        indices=events.indices[kept],
        unavailable=None if events.unavailable is None else rows_where(events.unavailable, kept),
    )


def in_record_order(found: Sequence[Envelopes]) -> Envelopes:
    """The events of several groups of records, ordered by record; at least one group."""
    bad = tuple(record for envelopes in found for record in envelopes.bad)
    truncates = tuple(sorted(index for envelopes in found for index in envelopes.truncates))
    found = [envelopes for envelopes in found if len(envelopes.indices)] or found[:1]
    if len(found) == 1:
        return replace(found[0], bad=bad, truncates=truncates)
    indices = np.concatenate([envelopes.indices for envelopes in found])
    order = np.argsort(indices)
    before, after = (
        pa.concat_arrays(sides).take(pa.array(order)) for sides in ([e.before for e in found], [e.after for e in found])
    )
    kinds = np.concatenate([envelopes.kinds for envelopes in found])[order]
    unavailable = masks([(each.unavailable, len(each.indices)) for each in found])
    return Envelopes(
        before=before,
        after=after,
        kinds=kinds,
        indices=indices[order],
        bad=bad,
        truncates=truncates,
        unavailable=None if unavailable is None else unavailable.take(pa.array(order)),
    )


def masks(parts: Sequence[tuple[pa.Array | None, int]]) -> pa.Array | None:
    """The masks of adjacent parts of given lengths; None: no part has one."""
    if all(mask is None for mask, _ in parts):
        return None
    kind = pa.list_(pa.string())
    return pa.concat_arrays([pa.nulls(count, kind) if mask is None else mask.cast(kind) for mask, count in parts])
