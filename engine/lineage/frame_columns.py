"""The columns that the columns of a Spark frame come from, by its analyzed plan; never an error.

In a micro-batch the frame begins at attributes of the query's plan, which the query has for the batch that runs.
"""

import json
import logging
from collections.abc import Iterable, Iterator
from typing import Any, Final

from engine.lineage.frame_sources import known_read, leaves_of
from engine.lineage.graph.columns import ColumnFlow, column_flow
from engine.lineage.origins import SourceRead
from engine.lineage.stream_job import QUERY_ID
from engine.runtime.spark_internals import jvm_frame, jvm_session
from filestore.layout.branch_names import on_branch_name

logger = logging.getLogger("fluvial.openlineage")

_LONGEST_PLAN: Final = 4 << 20  # characters; longer ones take seconds
_FILES: Final = "LogicalRelation"
_BRANCH_KEYS: Final = ("branch", "scan.branch")


def columns_of_frame(frame: Any, reads: Iterable[SourceRead]) -> ColumnFlow | None:
    """Where the columns of a frame come from; None when its plan does not say.

    Args:
        frame: a Spark frame, or any other rows.
        reads: what it reads, for the warehouses of the tables that its plan names.
    """
    try:
        inside = jvm_frame(frame)
        if inside is None:
            return None
        plans = [inside.queryExecution().analyzed(), *_plans_of_query(frame)]
        warehouses = {each.table: each.warehouse for each in reads}
        sources = dict(_sources([leaf for plan in plans for leaf in leaves_of(plan)], warehouses))
        texts = [str(plan.toJSON()) for plan in plans] if sources else []
        if not texts or sum(map(len, texts)) > _LONGEST_PLAN:
            return None
        first, *before = (json.loads(each) for each in texts)
        return column_flow(first, sources, before=before)
    except Exception as error:  # noqa: BLE001  (plans are internal to Spark; a write does not depend on them)
        logger.debug("columns of a frame are unknown: reason=%s: %s", type(error).__name__, error)
        return None


def _plans_of_query(frame: Any) -> Iterator[Any]:
    """The plan of the running batch of a streaming query, if the frame is its micro-batch."""
    query_id = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
    if query_id is None:
        return
    for each in jvm_session(frame.sparkSession).sharedState().activeStreamingQueries().values():
        if each.id().toString() == query_id and each.lastExecution() is not None:
            yield each.lastExecution().analyzed()


def _sources(leaves: list[Any], warehouses: dict[str, str]) -> Iterator[tuple[int, tuple[str, str]]]:
    """The id of an attribute of each leaf that is known, and the warehouse and table that it reads."""
    files: list[tuple[Any, tuple[str, str]]] = []  # what Spark reads for a table, as other leaves have it, too
    for is_known in (True, False):
        for leaf in leaves:
            read = known_read(leaf)
            if (read is not None) is not is_known or leaf.output().isEmpty():
                continue
            table = (read.warehouse, read.table) if read is not None else _named_table(leaf) or _same_files(leaf, files)
            if table is None:
                continue
            if leaf.getClass().getSimpleName() == _FILES:
                files.append((leaf.relation(), table))
            yield int(leaf.output().head().exprId().id()), (warehouses.get(table[1], table[0]), table[1])


def _same_files(leaf: Any, files: list[tuple[Any, tuple[str, str]]]) -> tuple[str, str] | None:
    """The table of a leaf that Spark has copied, with other attributes, because a query names a frame twice."""
    if leaf.getClass().getSimpleName() != _FILES:
        return None
    return next((table for relation, table in files if leaf.relation().equals(relation)), None)


def _named_table(leaf: Any) -> tuple[str, str] | None:
    """The table of a leaf of ``format("fluvial")``, by its options."""
    kind = leaf.getClass().getSimpleName()
    if not kind.startswith(("DataSourceV2", "StreamingDataSourceV2")):
        return None
    options = (leaf.relation() if kind == "StreamingDataSourceV2ScanRelation" else leaf).options()
    table, warehouse = options.get("table"), options.get("warehouse")
    if table is None or warehouse is None:
        return None
    branch = next((options.get(key) for key in _BRANCH_KEYS if options.get(key)), None)
    return str(warehouse), str(table) if branch is None or "$" in table else on_branch_name(str(table), str(branch))
