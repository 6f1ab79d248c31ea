"""Which tables a Spark frame reads, and at which snapshots: found by the leaves of its plan.

A frame that ``table_frame`` made is known by the attributes of its leaves, and whatever is computed from it, by SQL or
in Python, has the same leaves. What goes through files, ``checkpoint()`` or an RDD has others, and is not known.
"""

from collections import OrderedDict
from typing import Any, Final

from pyspark.sql import DataFrame

from engine.lineage.origins import SourceRead, newest_reads
from filestore.warehouse import warehouse_path
from lsm.errors import InvalidInputError

_MOST_KEPT: Final = 10_000
_known: Final[OrderedDict[int, SourceRead]] = OrderedDict()
_RELATION: Final = "DataSourceV2Relation"
_FORMAT: Final = "fluvial"


def note_frame(frame: DataFrame, read: SourceRead) -> None:
    """Remember what a frame reads."""
    for leaf in _leaves(frame):
        for attribute_id in _attribute_ids(leaf):
            _known[attribute_id] = read
    while len(_known) > _MOST_KEPT:
        _known.popitem(last=False)


def reads_of_frame(frame: DataFrame) -> tuple[SourceRead, ...]:
    """The tables that a frame reads, each once, sorted; of ``format("fluvial")`` only those that name a snapshot."""
    found = []
    for leaf in _leaves(frame):
        known = [_known[each] for each in _attribute_ids(leaf) if each in _known]
        found += known[:1] or _named_read(leaf)
    return newest_reads(found)


def _leaves(frame: DataFrame) -> list[Any]:
    jdf = getattr(frame, "_jdf", None)  # a frame of Spark Connect has none
    if jdf is None:
        return []
    leaves = jdf.queryExecution().analyzed().collectLeaves()
    return [leaves.apply(index) for index in range(leaves.size())]


def _attribute_ids(leaf: Any) -> list[int]:
    """Of the first attribute: it tells a leaf from every other."""
    output = leaf.output()
    return [int(output.head().exprId().id())] if output.nonEmpty() else []


def _named_read(leaf: Any) -> list[SourceRead]:
    """What the options of ``spark.read.format("fluvial")`` say."""
    if leaf.getClass().getSimpleName() != _RELATION or leaf.table().name() != _FORMAT:
        return []
    options = leaf.options()
    warehouse, table, snapshot = (options.get(key) for key in ("warehouse", "table", "scan.snapshot-id"))
    if not warehouse or not table or not snapshot or not str(snapshot).isdigit():
        return []
    try:
        root = warehouse_path(warehouse)
    except InvalidInputError:
        return []
    return [SourceRead(warehouse=root, table=table, snapshot_id=int(snapshot))]
