"""The columns that the columns of a Spark frame come from, by its analyzed plan; never an error.

In a micro-batch the frame begins at attributes of the query's plan, which the query has for the batch that runs.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from engine.lineage.frame_sources import known_read
from engine.lineage.graph.columns import ColumnFlow, column_flow
from engine.lineage.origins import SourceRead
from engine.lineage.stream_job import QUERY_ID
from engine.spark_internals.frame_plans import PlanLeaf, frame_plan, running_plan
from filestore.layout.branch_names import on_branch_name

logger = logging.getLogger("fluvial.openlineage")

_LONGEST_PLAN: Final = 4 << 20  # characters; longer ones take seconds
_BRANCH_KEYS: Final = ("branch", "scan.branch")


def columns_of_frame(frame: Any, reads: Iterable[SourceRead]) -> ColumnFlow | None:
    """Where the columns of a frame come from; None when its plan does not say.

    Args:
        frame: a Spark frame, or any other rows.
        reads: what it reads, for the warehouses of the tables that its plan names.
    """
    try:
        plan = frame_plan(frame)
        if plan is None:
            return None
        # in a micro-batch, the frame begins where the plan of the query's running batch ends
        running = running_plan(frame, frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID))
        plans = [plan] if running is None else [plan, running]
        warehouses = {each.table: each.warehouse for each in reads}
        sources = dict(_sources([leaf for plan in plans for leaf in plan.leaves()], warehouses))
        texts = [plan.as_json() for plan in plans] if sources else []
        if not texts or sum(map(len, texts)) > _LONGEST_PLAN:
            return None
        first, *before = (json.loads(each) for each in texts)
        return column_flow(first, sources, before=before)
    except Exception as error:  # noqa: BLE001  (plans are internal to Spark; a write does not depend on them)
        logger.debug("columns of a frame are unknown: reason=%s: %s", type(error).__name__, error)
        return None


def _sources(leaves: Sequence[PlanLeaf], warehouses: dict[str, str]) -> Iterator[tuple[int, tuple[str, str]]]:
    """The id of an attribute of each leaf that is known, and the warehouse and table that it reads."""
    files: list[tuple[PlanLeaf, tuple[str, str]]] = []  # what Spark reads for a table, as other leaves have it, too
    for is_known in (True, False):
        for leaf in leaves:
            read = known_read(leaf)
            if (read is not None) is not is_known or leaf.attribute_id is None:
                continue
            table = (read.warehouse, read.table) if read is not None else _named_table(leaf)
            table = table or next((table for known, table in files if leaf.has_files_of(known)), None)
            if table is None:
                continue
            if leaf.is_files:
                files.append((leaf, table))
            yield leaf.attribute_id, (warehouses.get(table[1], table[0]), table[1])


def _named_table(leaf: PlanLeaf) -> tuple[str, str] | None:
    """The table of a leaf of ``format("fluvial")``, by its options."""
    options = leaf.options
    table, warehouse = (None, None) if options is None else (options.get("table"), options.get("warehouse"))
    if table is None or warehouse is None:
        return None
    branch = next((options.get(key) for key in _BRANCH_KEYS if options.get(key)), None)
    return str(warehouse), str(table) if branch is None or "$" in table else on_branch_name(str(table), str(branch))
