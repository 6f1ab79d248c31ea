"""Changes under a filter on value columns: a row that stops matching is deleted, one that starts to is inserted.

It needs exact changes: every update as ``-U`` directly followed by its ``+U``, every delete with the deleted row.
"""

from dataclasses import replace

import numpy as np
import pyarrow as pa

from engine.types.row_changes import RowChanges
from lsm.row_kind import RowKind


def matching_changes(changes: RowChanges, matches: pa.Array) -> RowChanges:
    """The changes of the rows that match.

    Args:
        changes: (n,) exact ones, in order.
        matches: (n,) boolean; null: no.

    Returns:
        An update with one side that matches is that side, as ``-D`` or ``+I``; so is one whose other side is in another
        batch.
    """
    kinds, is_wanted = np.array(changes.kinds, np.int8), np.asarray(matches.fill_null(False), np.bool_)
    is_before, is_after = kinds == RowKind.UPDATE_BEFORE, kinds == RowKind.UPDATE_AFTER
    is_pair = is_before[:-1] & is_after[1:] & is_wanted[:-1] & is_wanted[1:]
    stays_before, stays_after = np.append(is_pair, False), np.append(False, is_pair)
    kinds[is_before & ~stays_before] = RowKind.DELETE
    kinds[is_after & ~stays_after] = RowKind.INSERT
    return replace(changes, kinds=pa.array(kinds)).taken(pa.array(is_wanted))
