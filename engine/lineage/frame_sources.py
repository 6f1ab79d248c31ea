"""The tables that a Spark frame reads, and their snapshots: found by the leaves of its plan.

A frame of ``table_frame`` is recognised by the attributes of its leaves, and anything computed from it, by SQL or in
Python, has the same leaves. For ``spark.read.format("fluvial")`` Spark is asked for the partitions, which it plans once
for each ``load()`` and caches: the first one has the read. A frame that went through files, ``checkpoint()`` or an RDD
has other leaves and is not recognised.
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
    """The tables that a frame reads, each once, sorted; inspects the frame's plan if a leaf is not remembered."""
    found, needs_plan = [], False
    for leaf in _leaves(frame):
        known = [_known[each] for each in _attribute_ids(leaf) if each in _known]
        found += known[:1]
        needs_plan = needs_plan or (not known and _is_fluvial(leaf))
    return newest_reads([*found, *(_planned_reads(frame) if needs_plan else ())])


def known_read(leaf: Any) -> SourceRead | None:
    """What a leaf of a plan reads, if it is remembered."""
    return next((_known[each] for each in _attribute_ids(leaf) if each in _known), None)


def _leaves(frame: DataFrame) -> list[Any]:
    inside = jvm_frame(frame)
    return [] if inside is None else leaves_of(inside.queryExecution().analyzed())


def leaves_of(plan: Any) -> list[Any]:
    """The leaves of a plan and of its subqueries."""
    return [leaf for each in (plan, *_each(plan.subqueriesAll())) for leaf in _each(each.collectLeaves())]


def _attribute_ids(leaf: Any) -> list[int]:
    """The id of the first attribute, which identifies a leaf."""
    output = leaf.output()
    return [int(output.head().exprId().id())] if output.nonEmpty() else []


def _is_fluvial(leaf: Any) -> bool:
    return bool(leaf.getClass().getSimpleName() == _RELATION and leaf.table().name() == _FORMAT)


def _planned_reads(frame: DataFrame) -> list[SourceRead]:
    """What the scans of the frame's physical plan read."""
    try:
        plan = jvm_frame(frame).queryExecution().executedPlan()
        scans = [each for each in _nodes(plan) if each.getClass().getSimpleName() == _SCAN]
        found = [_read_of(each) for each in scans if each.table().name() == _FORMAT]
    except Py4JError as error:  # the plan is internal to Spark and may change between versions
        logger.warning("lineage cannot determine what a frame reads: reason=%s", error)
        return []
    return [each for each in found if each is not None]


def _nodes(plan: Any) -> Iterator[Any]:
    """Every node of a physical plan, including wrapped ones."""
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
