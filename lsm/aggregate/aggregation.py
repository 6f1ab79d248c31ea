"""The aggregation merge engine: every column reduces the values of a key by its own aggregate function."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from lsm.aggregate.aggregates import FieldAggregate
from lsm.aggregate.operands import OperandKeys, Operands
from lsm.keys.key_groups import KeyGroups, fold_keys, is_retract, without_retracts
from lsm.keys.words import BoolArray, IndexArray
from lsm.row_kind import SEQUENCE_NUMBER, RowKind

_LAST_VALUE: Final = FieldAggregate(function="last_value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """Folds the rows of a key column by column. The result is an insert: a retract undoes values, the row remains.

    A retract that comes before what it undoes counts like any other, wherever compactions fall.
    """

    key_names: tuple[str, ...]
    fields: Mapping[str, FieldAggregate] = field(default_factory=dict)
    default: FieldAggregate = FieldAggregate()  # noqa: RUF009  frozen, so it can be shared
    sequence_names: tuple[str, ...] = ()  # these keep the newest value
    remove_record_on_delete: bool = False  # -D discards earlier rows; as the newest row it removes the key

    def merge(self, rows: pa.Table, order: IndexArray, starts: BoolArray, *, drop_deletes: bool) -> pa.Table:
        """One row per key; see MergeFunction.

        Raises:
            InvalidInputError: a function does not support retracts or the column's type, or the result overflows the
                type.
        """
        groups = KeyGroups.of(rows, order, starts)
        return self._folded(rows, groups, settles=drop_deletes, drop_deletes=drop_deletes)

    def single(self, rows: pa.Table, *, drop_deletes: bool) -> pa.Table:
        """The rows; if retracts are to be dropped, as what they are without older rows."""
        return without_retracts(self.settled(rows)) if drop_deletes else rows

    def settled(self, rows: pa.Table) -> pa.Table:
        """The rows; a retract is what it takes back from nothing: of a sum, less than nothing."""
        if is_retract(rows) is None:
            return rows
        return self._folded(rows, KeyGroups.single(rows), settles=True, drop_deletes=False)

    def _folded(self, rows: pa.Table, groups: KeyGroups, *, settles: bool, drop_deletes: bool) -> pa.Table:
        settles = settles and self._takes_retracts
        return fold_keys(rows, groups, lambda keys: _Fold.of(self, keys), settles=settles, drop_deletes=drop_deletes)

    @property
    def _takes_retracts(self) -> bool:
        """Whether a retract says something, and no function refuses it: other writers may leave such ones alone."""
        return not self._ignores_retracts and all(each.supports_retracts for each in self.fields.values())

    @property
    def _ignores_retracts(self) -> bool:
        return bool(self.fields) and all(each.ignore_retract for each in self.fields.values())

    def aggregate_of(self, name: str) -> FieldAggregate:
        """The aggregate of a non-key column."""
        return _LAST_VALUE if name in self.sequence_names else self.fields.get(name, self.default)


@dataclass(frozen=True, slots=True)
class _Fold:
    """See ``Fold``."""

    merge: Aggregation
    newest: IndexArray  # (k,) rows
    kinds: NDArray[np.int8]
    rows: IndexArray  # (m,) rows to fold
    keys: OperandKeys
    retracts: BoolArray  # (m,)

    @classmethod
    def of(cls, merge: Aggregation, groups: KeyGroups) -> Self:
        order, numbers, retracts = groups.order, groups.keys, groups.retracts
        kinds = np.full(groups.key_count, RowKind.INSERT, np.int8)
        if merge.remove_record_on_delete:
            # The values of a -D row itself remain, and later rows are aggregated onto them, as in Paimon.
            positions = np.arange(len(order))
            removed_at = groups.last_position(groups.kinds == RowKind.DELETE)[numbers]
            alive = positions >= removed_at
            retracts = (retracts & (positions > removed_at))[alive]
            order, numbers = order[alive], numbers[alive]
            kinds[groups.kinds[groups.lasts] == RowKind.DELETE] = RowKind.DELETE
        if merge._ignores_retracts:  # several are no row, as one is none
            kinds[groups.last_position(~groups.retracts) < 0] = RowKind.DELETE
        keys = OperandKeys(numbers, groups.key_count)
        return cls(merge, groups.order[groups.lasts], kinds, order, keys, retracts)

    def column(self, name: str, values: pa.Array) -> IndexArray | pa.Array:
        if name == SEQUENCE_NUMBER or name in self.merge.key_names:
            return self.newest
        operands = Operands(column=values, rows=self.rows, keys=self.keys, retracts=self.retracts)
        return self.merge.aggregate_of(name).fold(name, operands)
