"""The tables that a Spark frame reads, and their snapshots: found by the leaves of its plan.

A frame of ``table_frame`` is recognised by the attributes of its leaves, and anything computed from it, by SQL or in
Python, has the same leaves. For ``spark.read.format("fluvial")`` Spark is asked for the partitions, which it plans once
for each ``load()`` and caches: the first one has the read. A frame that went through files, ``checkpoint()`` or an RDD
has other leaves and is not recognised.
"""

import logging
from collections import OrderedDict
from typing import Any, Final

from pyspark.sql import DataFrame

from engine.lineage.origins import SourceRead, newest_reads
from engine.spark_internals.frame_plans import PlanLeaf, analysed_plan, frame_plan, frame_query, scanned
from engine.spark_internals.session import JvmError

logger = logging.getLogger("fluvial.lineage")

_MOST_KEPT: Final = 10_000
_known: Final[OrderedDict[int, SourceRead]] = OrderedDict()
_FORMAT: Final = "fluvial"


def note_frame(frame: DataFrame, read: SourceRead) -> None:
    """Remember what a frame reads."""
    for leaf in _leaves(frame):
        if leaf.attribute_id is not None:
            _known[leaf.attribute_id] = read
    while len(_known) > _MOST_KEPT:
        _known.popitem(last=False)


def reads_of_frame(frame: DataFrame) -> tuple[SourceRead, ...]:
    """The tables that a frame reads, each once, sorted; inspects the frame's plan if a leaf is not remembered."""
    leaves = _leaves(frame)
    found = [read for leaf in leaves if (read := known_read(leaf)) is not None]
    needs_plan = any(known_read(leaf) is None and leaf.is_of(_FORMAT) for leaf in leaves)
    return newest_reads([*found, *(_planned_reads(frame_query(frame)) if needs_plan else ())])


def states_read(query: Any, table: str) -> list[SourceRead]:
    """The states of a table that the leaves of a query's plan read, and of other tables.

    Args:
        query: of Spark's, with an analysed and a physical plan.
        table: ``database.table``, maybe with a branch.
    """
    leaves = analysed_plan(query).leaves()
    found = [read for leaf in leaves if (read := known_read(leaf)) is not None]
    needs_plan = any(known_read(leaf) is None and leaf.may_read(table) for leaf in leaves)
    return [*found, *(_planned_reads(query) if needs_plan else ())]


def known_read(leaf: PlanLeaf) -> SourceRead | None:
    """What a leaf of a plan reads, if it is remembered."""
    return None if leaf.attribute_id is None else _known.get(leaf.attribute_id)


def _leaves(frame: DataFrame) -> list[PlanLeaf]:
    plan = frame_plan(frame)
    return [] if plan is None else plan.leaves()


def _planned_reads(query: Any) -> list[SourceRead]:
    """What the scans of a query's physical plan read."""
    try:
        parts = scanned(query, _FORMAT)
    except JvmError as error:  # the plan is internal to Spark and may change between versions
        logger.warning("it is not known what a frame reads: reason=%s", error)
        return []
    return [read for part in parts if (read := getattr(part, "source_read", None)) is not None]
