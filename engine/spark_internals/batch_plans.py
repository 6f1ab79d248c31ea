"""What Spark planned for a micro-batch: where nothing stands between the source and ``foreachBatch``, its scan.

Spark has no public word for this. On a release whose plans have other members py4j raises, and Spark reads the batch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from pyspark.sql import DataFrame

from engine.spark_internals.session import jvm_frame, jvm_query

_FILES: Final = "org.apache.spark.sql.execution.datasources"
_PARQUET: Final = f"{_FILES}.parquet.ParquetFileFormat"
_OF_LISTING: Final = {
    "maxfilespertrigger", "maxbytespertrigger", "latestfirst", "filenameonly", "maxfileage", "maxcachedfiles",
    "cleansource", "sourcearchivedir", "sourcecleaner.numthreads", "basepath", "path", "pathglobfilter",
    "recursivefilelookup", "modifiedbefore", "modifiedafter", "__globpaths__",
}  # fmt: skip
"""Options that choose files; any other may change what is read of them."""
_AS_STORED: Final = {
    "spark.sql.files.ignoreCorruptFiles": "false",
    "spark.sql.files.ignoreMissingFiles": "false",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96RebaseModeInRead": "CORRECTED",
    "spark.sql.parquet.int96TimestampConversion": "false",
    "spark.sql.parquet.fieldId.read.enabled": "false",
}
"""Spark's settings, and their defaults, with which a file's values are the rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountedScan:
    row_metric: Any

    def count(self, rows: int) -> None:
        """Let the progress of the query say that so many rows were read, as it says when Spark reads them."""
        self.row_metric.add(rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceScan(_CountedScan):
    """A micro-batch that is the rows of one Python source as they are, before Spark reads them."""

    source: str  # the name given to ``format``
    options: Mapping[str, str] = field(repr=False)  # may hold passwords
    partitions: Sequence[bytes]  # pickled, in the frame's order


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetScan(_CountedScan):
    """A micro-batch that is the rows of Parquet files of this machine as they are, before Spark reads them."""

    paths: Sequence[str]  # in the order in which the source found the files
    source: str = "parquet"


def batch_scan(frame: DataFrame, query_id: str | None) -> SourceScan | ParquetScan | None:
    """What a frame given to ``foreachBatch`` is read from; None: several sources, another one, or something between.

    Args:
        frame: in a call by the query.
        query_id: of the query that runs.

    Raises:
        Py4JError: plans of this release of Spark have other members.
    """
    query = jvm_query(frame.sparkSession, query_id)
    given = jvm_frame(frame).queryExecution().analyzed()
    if query is None or given.getClass().getSimpleName() != "LogicalRDD":
        return None
    batch = query.lastExecution()
    relation = batch.optimizedPlan()
    kind = relation.getClass().getSimpleName()
    if kind not in ("StreamingDataSourceV2ScanRelation", "LogicalRelation"):
        return None
    leaves = batch.executedPlan().collectLeaves()
    if leaves.size() != 1 or not given.rdd().equals(batch.toRdd()):
        return None
    scan = leaves.apply(0)
    if kind == "LogicalRelation":
        return _parquet_scan(frame, relation.relation(), scan)
    return _source_scan(relation.relation(), scan)


def _source_scan(relation: Any, scan: Any) -> SourceScan | None:
    if scan.getClass().getSimpleName() != "MicroBatchScanExec":
        return None
    planned = scan.inputPartitions()
    partitions = [planned.apply(number) for number in range(planned.size())]
    if any(each.getClass().getSimpleName() != "PythonStreamingInputPartition" for each in partitions):
        return None
    given_options = relation.options().asCaseSensitiveMap()
    return SourceScan(
        source=relation.table().name(),
        options={key: given_options[key] for key in given_options},
        partitions=[bytes(each.pickedPartition()) for each in partitions],
        row_metric=scan.metrics().apply("numOutputRows"),
    )


def _parquet_scan(frame: DataFrame, relation: Any, scan: Any) -> ParquetScan | None:
    if (
        scan.getClass().getSimpleName() != "FileSourceScanExec"
        or relation.fileFormat().getClass().getName() != _PARQUET
    ):
        return None
    if relation.partitionSchema().size() or relation.bucketSpec().isDefined():
        return None
    options = relation.options().keys().mkString("\n")
    if not {key.lower() for key in options.split("\n") if key} <= _OF_LISTING:
        return None
    conf = frame.sparkSession.conf
    if any(conf.get(key) != value for key, value in _AS_STORED.items()):
        return None
    paths = [path_of_url(each) for each in relation.location().inputFiles()]
    found = [each for each in paths if each is not None]
    if len(found) < len(paths):
        return None
    return ParquetScan(paths=found, row_metric=scan.metrics().apply("numOutputRows"))


def path_of_url(url: str) -> str | None:
    """The path of a file of this machine by its URL; None: the file is elsewhere."""
    parts = urlsplit(url)
    return unquote(parts.path) if parts.scheme == "file" and not parts.netloc else None
