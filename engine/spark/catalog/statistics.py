"""What Spark's optimizer is given of a scan: bytes of the files that it reads, and what ANALYZE found."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from engine.read.batch_plan import BatchPlan
from engine.spark.catalog.proxy import Proxy, called
from engine.spark_internals.catalog import SparkInside
from filestore.maintenance.table_statistics import TableStatistics, statistics_of
from filestore.types.data_types import TIMESTAMP_ROOTS, DataType
from lsm.errors import CorruptDataError, UnavailableError

_WHOLE: Final = frozenset({"TINYINT", "SMALLINT", "INT", "BIGINT", "DATE"})
_FLOATS: Final = frozenset({"FLOAT", "DOUBLE"})


class ScanStatistics(Proxy):
    """Statistics of one scan; for an unknown value Spark assumes a large table."""

    def __init__(self, inside: SparkInside, plan: BatchPlan | None, names: Sequence[str], share: float) -> None:
        """Statistics from the files of a plan.

        Args:
            inside: of the JVM.
            plan: what is read; None: nothing is known.
            names: of the columns that are read.
            share: of the bytes of a row that these columns have.
        """
        super().__init__(inside)
        self._size_bytes = None if plan is None else round(sum(each.size_bytes for each in plan.splits) * share)
        self._found = None if plan is None else _analyzed(plan)
        self._types = {} if plan is None else {name: plan.table.schema.field(name).type for name in names}

    @called
    def sizeInBytes(self) -> Any:
        """Spark's: of the columns that are read, in the files that are."""
        return _whole(self.inside, self._size_bytes)

    @called
    def numRows(self) -> Any:
        """Spark's: of the whole table, since Spark estimates its conditions by itself."""
        return _whole(self.inside, None if self._found is None else self._found.row_count)

    @called
    def columnStats(self) -> Any:
        """Spark's: by column."""
        made = self.inside.named("java.util.HashMap")()
        column = self.inside.named("org.apache.spark.sql.connector.expressions.Expressions").column
        for name, kind in self._types.items():
            found = None if self._found is None else self._found.columns.get(name)
            if found is not None:
                made.put(column(name), _ColumnStatistics(self.inside, found, kind))
        return made

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("org.apache.spark.sql.connector.read.Statistics",)


class _ColumnStatistics(Proxy):
    """Statistics of one column, from its file; a missing value is unknown."""

    def __init__(self, inside: SparkInside, found: Mapping[str, Any], kind: DataType) -> None:
        super().__init__(inside)
        self._found = found
        self._type = kind

    @called
    def distinctCount(self) -> Any:
        return _whole(self.inside, self._found.get("distinctCount"))

    @called
    def nullCount(self) -> Any:
        return _whole(self.inside, self._found.get("nullCount"))

    @called
    def avgLen(self) -> Any:
        return _whole(self.inside, self._found.get("avgLen"))

    @called
    def maxLen(self) -> Any:
        return _whole(self.inside, self._found.get("maxLen"))

    @called
    def min(self) -> Any:
        return self._end("min")

    @called
    def max(self) -> Any:
        return self._end("max")

    @called
    def histogram(self) -> Any:
        return self.inside.named("java.util.Optional").empty()

    def _end(self, name: str) -> Any:
        text, optional = self._found.get(name), self.inside.named("java.util.Optional")
        value = None if text is None else bound_value(text, self._type)
        if value is None:
            return optional.empty()
        if isinstance(value, Decimal):
            return optional.of(self.inside.named("java.math.BigDecimal")(str(value)))
        return optional.of(value)

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = ("org.apache.spark.sql.connector.read.colstats.ColumnStatistics",)


def bound_value(text: str, kind: DataType) -> int | float | Decimal | None:
    """A least or greatest value of a file of statistics as Spark's optimizer counts with it; None: it cannot."""
    with suppress(ValueError, ArithmeticError, pa.ArrowInvalid):
        if kind.root in _WHOLE:
            return int(text)
        if kind.root in _FLOATS:
            return float(text)
        if kind.root == "DECIMAL":
            return Decimal(text)
        if kind.root in TIMESTAMP_ROOTS:
            return int(pa.scalar(text).cast(pa.timestamp("us")).value)
    return None


def _analyzed(plan: BatchPlan) -> TableStatistics | None:
    """A query does not fail for want of statistics."""
    if plan.has_changes or any(piece.is_fallback or piece.log_range is not None for piece in plan.pieces):
        return None
    with suppress(CorruptDataError, UnavailableError, FileNotFoundError):
        return statistics_of(plan.table.store, plan.snapshot)
    return None


def _whole(inside: SparkInside, value: int | None) -> Any:
    optional = inside.named("java.util.OptionalLong")
    return optional.empty() if value is None else optional.of(value)
