"""Which of two rows with one key is newer.

By the table's sequence fields if it has some (null is oldest), then by ``_SEQUENCE_NUMBER``, then a retract is older
than an add. Which file or level a row lies in says nothing. Source: Paimon format notes 6.4.3.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lsm.key_groups import one_chunk
from lsm.keys import order_by_sequence
from lsm.row_kind import SEQUENCE_NUMBER, VALUE_KIND
from lsm.words import BoolArray, IndexArray


def newest_last(
    rows: pa.Table, order: IndexArray, starts: BoolArray, sequence_names: Sequence[str], *, descending: bool = False
) -> IndexArray:
    """The order with the rows of each key from oldest to newest.

    Args:
        rows: has the sequence fields, ``_SEQUENCE_NUMBER`` and ``_VALUE_KIND``.
        order: (n,) rows in key order.
        starts: (n,) whether an ordered row starts a new key.
        sequence_names: the table's sequence fields, most significant first.
        descending: of the sequence fields the smaller value is newer.
    """
    columns = [one_chunk(rows.column(name)) for name in (*sequence_names, SEQUENCE_NUMBER)]
    is_retract = pc.bit_wise_and(one_chunk(rows.column(VALUE_KIND)), pa.scalar(1, pa.int8()))
    directions = [descending] * len(sequence_names) + [False, True]
    return order_by_sequence(order, starts, [*columns, is_retract], descending=directions)
