"""How Spark asks the reader of a stream where a batch ends: with its start and a limit, before 4.2 with neither.

Readers of Fluvial implement the former. For an older Spark ``fitting_reader`` makes the latter out of one: the start of
a batch is what the query's checkpoint has recorded last.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from engine.checkpoint.checkpoint_files import recorded_offsets
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_ADMISSION = True
except ImportError:
    HAS_ADMISSION = False

    class ReadLimit:  # type: ignore[no-redef]
        """How much a batch may have."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """Everything there is."""

    @dataclass(frozen=True, slots=True)
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """At most so many rows."""

        max_rows: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A reader that ends where its source ended when the query began."""


__all__ = [
    "CHECKPOINT",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "fitting_reader",
    "without_checkpoint",
]

CHECKPOINT: Final = "checkpointLocation"
"""Option of ``readStream`` with which a source on a Spark before 4.2 knows where its query stands."""


def without_checkpoint(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a stream without the one that ``fitting_reader`` takes."""
    return {key: value for key, value in options.items() if key.lower() != CHECKPOINT.lower()}


def fitting_reader(
    reader: DataSourceStreamReader, options: Mapping[str, str], *, has_admission: bool = HAS_ADMISSION
) -> DataSourceStreamReader:
    """The reader as this release of Spark calls it.

    Args:
        reader: of the stream, with ``latestOffset(start, limit)``.
        options: given to ``readStream``.
        has_admission: whether Spark gives a start and a limit.

    Raises:
        InvalidInputError: it gives neither, and the options have no checkpoint.
    """
    if has_admission:
        return reader
    location = next((value for key, value in options.items() if key.lower() == CHECKPOINT.lower()), None)
    if location is None:
        raise InvalidInputError(
            f"before 4.2 Spark does not tell a source where its query stands: spark={pyspark.__version__} "
            f"option={CHECKPOINT} fix='give readStream the checkpointLocation of writeStream too, or use Spark 4.2'"
        )
    return _PlainReader(reader, location)


class _PlainReader(DataSourceStreamReader):
    """Asks a reader for ends with its own limit, from where the checkpoint says that its query is."""

    def __init__(self, reader: Any, location: str) -> None:
        self._reader: Any = reader
        self._location = location

    def initialOffset(self) -> dict[str, Any]:
        """The reader's."""
        return dict(self._reader.initialOffset())

    def latestOffset(self) -> dict[str, Any]:
        """The end of the next batch; equal to its start when there is nothing to deliver.

        Raises:
            InvalidInputError: the query has several sources, and nothing says which one this is.
        """
        recorded = recorded_offsets(self._location)
        if len(recorded) > 1:
            raise InvalidInputError(
                f"a query with several sources needs Spark 4.2: spark={pyspark.__version__} sources={len(recorded)} "
                "fix=one query for each source"
            )
        start = recorded[0] if recorded and recorded[0] is not None else self.initialOffset()
        return dict(self._reader.latestOffset(start, self._reader.getDefaultReadLimit()))

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        """The reader's."""
        return self._reader.partitions(start, end)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        """The reader's."""
        yield from self._reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """The reader's."""
        self._reader.commit(end)

    def stop(self) -> None:
        """The reader's."""
        self._reader.stop()
