"""Which tables a Spark frame reads, and at which snapshots: found by the leaves of its plan.

A frame that ``table_frame`` made is known by the attributes of its leaves, and whatever is computed from it, by SQL or
in Python, has the same leaves. Of ``spark.read.format("fluvial")`` Spark is asked for the partitions, which it plans
once for each ``load()`` and keeps: the first one says what it is of. What goes through files, ``checkpoint()`` or an
RDD has other leaves, and is not known.
"""

import logging
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import cloudpickle
from pyspark.sql import DataFrame

from engine.lineage.origins import SourceRead, newest_reads
from engine.runtime.spark_internals import jvm_frame

logger = logging.getLogger("fluvial.lineage")

_MOST_KEPT: Final = 10_000
_known: Final[OrderedDict[int, SourceRead]] = OrderedDict()
_RELATION: Final = "DataSourceV2Relation"
_SCAN: Final = "BatchScanExec"
_ADAPTIVE: Final = "AdaptiveSparkPlanExec"
_CACHED: Final = "InMemoryTableScanExec"
_FORMAT: Final = "fluvial"


def note_frame(frame: DataFrame, read: SourceRead) -> None:
    """Remember what a frame reads."""
    for leaf in _leaves(frame):
        for attribute_id in _attribute_ids(leaf):
            _known[attribute_id] = read
    while len(_known) > _MOST_KEPT:
        _known.popitem(last=False)


def reads_of_frame(frame: DataFrame) -> tuple[SourceRead, ...]:
    """The tables that a frame reads, each once, sorted; of one that has no such leaf it costs a look at its plan."""
    found, asks = [], False
    for leaf in _leaves(frame):
        known = [_known[each] for each in _attribute_ids(leaf) if each in _known]
        found += known[:1]
        asks = asks or (not known and _is_ours(leaf))
    return newest_reads([*found, *(_planned_reads(frame) if asks else ())])


def _leaves(frame: DataFrame) -> list[Any]:
    """Of the plan and of its subqueries."""
    inside = jvm_frame(frame)
    if inside is None:
        return []
    plan = inside.queryExecution().analyzed()
    return [leaf for each in (plan, *_each(plan.subqueriesAll())) for leaf in _each(each.collectLeaves())]


def _attribute_ids(leaf: Any) -> list[int]:
    """Of the first attribute: it tells a leaf from every other."""
    output = leaf.output()
    return [int(output.head().exprId().id())] if output.nonEmpty() else []


def _is_ours(leaf: Any) -> bool:
    return bool(leaf.getClass().getSimpleName() == _RELATION and leaf.table().name() == _FORMAT)


def _planned_reads(frame: DataFrame) -> list[SourceRead]:
    """What the scans of the frame's physical plan are of."""
    try:
        plan = jvm_frame(frame).queryExecution().executedPlan()
        scans = [each for each in _nodes(plan) if each.getClass().getSimpleName() == _SCAN]
        found = [_read_of(each) for each in scans if each.table().name() == _FORMAT]
    except Py4JError as error:  # the plan is Spark's own, and may look different in another version
        logger.warning("what a frame reads is not known to lineage: reason=%s", error)
        return []
    return [each for each in found if each is not None]


def _nodes(plan: Any) -> Iterator[Any]:
    """Every node of a physical plan, through what Spark wraps."""
    yield plan
    name = plan.getClass().getSimpleName()
    inner = [plan.inputPlan()] if name == _ADAPTIVE else [plan.relation().cachedPlan()] if name == _CACHED else []
    for each in (*_each(plan.children()), *_each(plan.subqueries()), *inner):
        yield from _nodes(each)


def _read_of(scan: Any) -> SourceRead | None:
    partitions = scan.inputPartitions()
    part = cloudpickle.loads(bytes(partitions.head().pickedPartition())) if partitions.nonEmpty() else None
    read: SourceRead | None = getattr(part, "source_read", None)
    return read


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
