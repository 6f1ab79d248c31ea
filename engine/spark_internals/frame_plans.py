"""The analysed plans of a frame: what its leaves read, and their texts."""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any, Final
from weakref import WeakValueDictionary

from pyspark import cloudpickle

from engine.spark_internals.session import jvm_frame, jvm_query

_RELATION: Final = "DataSourceV2Relation"
_SCAN: Final = "BatchScanExec"
_ADAPTIVE: Final = "AdaptiveSparkPlanExec"
_CACHED: Final = "InMemoryTableScanExec"
_FILES: Final = "LogicalRelation"
_OF_STREAM: Final = "StreamingDataSourceV2ScanRelation"
_PROXY: Final = "$Proxy"  # in the name of the JVM's class of an object in Python
_scans: Final[WeakValueDictionary[int, Any]] = WeakValueDictionary()  # in Python, by the hash codes that the JVM has
_SET: Final = "SetCommand"
_CLASS: Final = re.compile(r'"class":"org\.apache\.spark\.sql\.([\w.$]+)"')  # quotes in values are escaped


class PlanLeaf:
    """A leaf of an analysed plan. Every member raises Py4JError on a Spark whose plans have other members."""

    def __init__(self, node: Any) -> None:
        """Of an object of the JVM."""
        self._node = node

    @cached_property
    def attribute_id(self) -> int | None:
        """The id of the first attribute, which identifies a leaf; None: it has no attributes."""
        output = self._node.output()
        return int(output.head().exprId().id()) if output.nonEmpty() else None

    @cached_property
    def _kind(self) -> str:
        return str(self._node.getClass().getSimpleName())

    def may_read(self, table: str) -> bool:
        """Whether it reads a table of a name: from a catalog, or by the option ``table`` of a data source."""
        if self._kind != _RELATION:
            return False
        names = (self._node.table().name(), self.options.get("table"))
        return table.lower() in [str(each).lower() for each in names]

    def is_of(self, format_name: str) -> bool:
        """Whether it is a batch read of a data source."""
        return self._kind == _RELATION and bool(self._node.table().name() == format_name)

    @property
    def is_files(self) -> bool:
        """Whether it reads files."""
        return self._kind == _FILES

    def has_files_of(self, other: "PlanLeaf") -> bool:
        """Whether both read the same files: Spark copies a leaf of a frame that a query names twice."""
        return self.is_files and other.is_files and bool(self._node.relation().equals(other._node.relation()))

    @cached_property
    def options(self) -> Any:
        """The options of a data source's read, for ``get``; None: it is another leaf."""
        if not self._kind.startswith(("DataSourceV2", "StreamingDataSourceV2")):
            return None
        return (self._node.relation() if self._kind == _OF_STREAM else self._node).options()


class FramePlan:
    """An analysed plan."""

    def __init__(self, plan: Any) -> None:
        """Of an object of the JVM."""
        self._plan = plan

    def leaves(self) -> list[PlanLeaf]:
        """The leaves of the plan and of its subqueries."""
        plans = (self._plan, *_each(self._plan.subqueriesAll()))
        return [PlanLeaf(leaf) for plan in plans for leaf in _each(plan.collectLeaves())]

    def as_json(self) -> str:
        """The plan as Spark writes it."""
        return str(self._plan.toJSON())

    def node_names(self) -> list[str]:
        """The classes of all nodes and expressions, by their names in the package of Spark's SQL."""
        return _CLASS.findall(self.as_json())

    def key_that_is_set(self) -> str | None:
        """The key of a SET that gives it a value; None: another statement."""
        pair = self._plan.kv() if self._plan.getClass().getSimpleName() == _SET else None
        if pair is None or pair.isEmpty() or pair.get()._2().isEmpty():
            return None
        return str(pair.get()._1())


def frame_plan(frame: Any) -> FramePlan | None:
    """The plan of a frame; None with Spark Connect, or for other rows than a frame's."""
    query = frame_query(frame)
    return None if query is None else analysed_plan(query)


def analysed_plan(query: Any) -> FramePlan:
    """The analysed plan of a query of Spark's."""
    return FramePlan(query.analyzed())


def running_plan(frame: Any, query_id: str | None) -> FramePlan | None:
    """The plan of the batch that a streaming query runs; None: it does not run, or runs no batch.

    Args:
        frame: of the query's application.
        query_id: of the query; None: there is none.
    """
    query = None if query_id is None else jvm_query(frame.sparkSession, query_id)
    batch = None if query is None else query.lastExecution()
    return None if batch is None else FramePlan(batch.analyzed())


def note_scan(hash_code: int, scan: Any) -> None:
    """Remember a scan in Python that the JVM gets, for ``scanned``."""
    _scans[hash_code] = scan


def scanned(query: Any, format_name: str) -> list[Any]:
    """What the scans of a physical plan read, as Python gave it to Spark, also those of rows that are kept.

    Args:
        query: of Spark's, which has an analysed and a physical plan.
        format_name: a data source in Python: of each of its scans the first partition. Of a noted scan the scan.

    Raises:
        Py4JError: plans of this release of Spark have other members.
    """
    found = []
    for each in _nodes(query.executedPlan()):
        if each.getClass().getSimpleName() != _SCAN:
            continue
        if each.table().name() == format_name:
            parts = each.inputPartitions()
            found += [cloudpickle.loads(bytes(parts.head().pickedPartition()))] if parts.nonEmpty() else []
        elif _PROXY in each.scan().getClass().getName() and (scan := _scans.get(each.scan().hashCode())) is not None:
            found.append(scan)
    return found


def frame_query(frame: Any) -> Any:
    """Spark's query of a frame, for ``scanned``; None with Spark Connect, or for other rows than a frame's."""
    inside = jvm_frame(frame)
    return None if inside is None else inside.queryExecution()


def _nodes(plan: Any) -> Iterator[Any]:
    """Every node of a physical plan, including wrapped ones."""
    yield plan
    name = plan.getClass().getSimpleName()
    inner = [plan.inputPlan()] if name == _ADAPTIVE else [plan.relation().cachedPlan()] if name == _CACHED else []
    for each in (*_each(plan.children()), *_each(plan.subqueries()), *inner):
        yield from _nodes(each)


def _each(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]
