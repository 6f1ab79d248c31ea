"""Which columns of tables the columns of a frame come from: pure, from Spark's analyzed plan as JSON.

A plan is a list of nodes in pre-order; so is each expression in it. A column is an attribute with an id, which a leaf
gives it, or an expression over attributes. Source of the kinds: OpenLineage, ColumnLineageDatasetFacet.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

DIRECT: Final = "DIRECT"
INDIRECT: Final = "INDIRECT"
_IDENTITY: Final = "IDENTITY"
_TRANSFORMATION: Final = "TRANSFORMATION"
_AGGREGATION: Final = "AGGREGATION"
_RANK: Final = (_IDENTITY, _TRANSFORMATION, _AGGREGATION)

Way = tuple[str, str]
"""Kind and subtype: how a column goes into another one."""
_SAME: Final[Way] = (DIRECT, _IDENTITY)
_COMPUTED: Final[Way] = (DIRECT, _TRANSFORMATION)
_Node = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class ColumnSource:
    """A column of a table."""

    warehouse: str
    table: str  # "database.table", or "database.table$branch_b"
    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFlow:
    """What the columns of a frame come from."""

    columns: Mapping[str, Mapping[ColumnSource, frozenset[Way]]]  # by name of the frame's column
    rows: Mapping[ColumnSource, frozenset[Way]]  # what decides which rows there are: filters, joins, groups, orders


@dataclass(frozen=True, slots=True)
class _Tree:
    """A node of a plan or of an expression."""

    node: _Node
    children: tuple["_Tree", ...]

    @property
    def kind(self) -> str:
        return str(self.node["class"]).rpartition(".")[2]


@dataclass
class _Plans:
    """The attributes of some plans."""

    sources: Mapping[int, tuple[str, str]]  # warehouse and table, by the id of any attribute of a leaf
    leaves: dict[int, ColumnSource] = field(default_factory=dict)
    made_of: dict[int, list[tuple[int, Way]]] = field(default_factory=dict)
    deciding: list[tuple[int, Way]] = field(default_factory=list)
    ctes: dict[int, list[int]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)

    # ---- plans

    def outputs(self, plan: _Tree) -> list[int]:
        """Note what a plan says; the ids of its columns, in their order."""
        if plan.kind == "WithCTE":
            at = plan.node["plan"]
            for each in (*(plan.children[index] for index in plan.node["cteDefs"]), plan.children[at]):
                found = self.outputs(each)
            return found
        below = [self.outputs(each) for each in plan.children]
        flat = [each for some in below for each in some]
        self._note_deciding(plan)
        match plan.kind:
            case "Project":
                return self._define(plan.node["projectList"])
            case "Aggregate":
                return self._define(plan.node["aggregateExpressions"])
            case "Join":
                is_left = any(word in str(plan.node["joinType"]) for word in ("LeftSemi", "LeftAnti"))
                return below[0] if is_left else flat
            case "Window":
                return [*flat, *self._define(plan.node["windowExpressions"])]
            case "Union" | "Except" | "Intersect":
                for other in below[1:]:
                    self._add_each(below[0], other)
                return below[0]
            case "Generate" | "Expand":
                return self._made_rows(plan, flat)
            case "CTERelationDef":
                self.ctes[plan.node["id"]] = flat
                return flat
            case "CTERelationRef":
                return self._add_each(self._attributes(plan.node["output"]), self.ctes.get(plan.node["cteId"], []))
            case _:
                return self._other(plan, flat)

    def _note_deciding(self, plan: _Tree) -> None:
        """What decides which rows there are, and how many."""
        match plan.kind:
            case "Aggregate":
                self._decide(plan.node["groupingExpressions"], "GROUP_BY")
            case "Filter":
                self._decide([plan.node["condition"]], "FILTER")
            case "Sort":
                self._decide(plan.node["order"], "SORT")
            case "Join" if plan.node.get("condition"):
                self._decide([plan.node["condition"]], "JOIN")

    def _made_rows(self, plan: _Tree, below: list[int]) -> list[int]:
        """Columns of nodes that make several rows of one."""
        if plan.kind == "Generate":
            made = self._attributes(plan.node["generatorOutput"])
            refs = [(ref, _combined(_COMPUTED, way)) for ref, way in self._refs(_tree(plan.node["generator"]))]
            for each in made:
                self._add(each, refs)
            return [*below, *made]
        made = self._attributes(plan.node["output"])
        for projection in plan.node["projections"]:
            for each, expression in zip(made, projection, strict=False):
                self._add(each, self._refs(_tree(expression)))
        return made

    def _add_each(self, made: list[int], sources: Sequence[int]) -> list[int]:
        """Columns that are those of another plan, in order."""
        for each, source in zip(made, sources, strict=False):
            self._add(each, [(source, _SAME)])
        return made

    def _other(self, plan: _Tree, below: list[int]) -> list[int]:
        """A leaf; a function of whole rows; or a node that passes its rows on."""
        given = plan.node.get("output")
        if not isinstance(given, list) or not given:
            return below
        made = self._attributes(given)
        if plan.children:
            for each in made:
                if each not in below:
                    self._add(each, [(source, _COMPUTED) for source in below])
            return made
        table = next((self.sources[each] for each in made if each in self.sources), None)
        if table is not None:
            for each in made:
                if each in self.made_of:  # of another plan, which continues here
                    continue
                self.leaves[each] = ColumnSource(warehouse=table[0], table=table[1], column=self.names[each])
        return made

    def _define(self, expressions: Sequence[Sequence[_Node]]) -> list[int]:
        found = []
        for each in map(_tree, expressions):
            at = int(each.node["exprId"]["id"])
            self.names[at] = each.node["name"]
            if each.kind != "AttributeReference":
                self._add(at, self._refs(each))
            found.append(at)
        return found

    def _attributes(self, expressions: Sequence[Sequence[_Node]]) -> list[int]:
        for (each,) in expressions:
            self.names[int(each["exprId"]["id"])] = each["name"]
        return [int(each["exprId"]["id"]) for (each,) in expressions]

    def _add(self, at: int, refs: Iterable[tuple[int, Way]]) -> None:
        self.made_of.setdefault(at, []).extend(refs)

    def _decide(self, expressions: Sequence[Sequence[_Node]], subtype: str) -> None:
        for each in expressions:
            self.deciding += [(ref, (INDIRECT, subtype)) for ref, _ in self._refs(_tree(each))]

    # ---- expressions

    def _refs(self, expression: _Tree) -> Iterator[tuple[int, Way]]:
        """The attributes that an expression is computed from."""
        if expression.kind == "AttributeReference":
            yield int(expression.node["exprId"]["id"]), _SAME
            return
        if isinstance(expression.node.get("plan"), list) and expression.node["plan"]:
            for each in self.outputs(_tree(expression.node["plan"])):
                yield each, _COMPUTED
        for at, child in enumerate(expression.children):
            way = _way_into(expression, at)
            for ref, inner in self._refs(child):
                yield ref, _combined(way, inner)

    def resolved(self, at: int, found: dict[int, dict[ColumnSource, set[Way]]]) -> dict[ColumnSource, set[Way]]:
        """The columns of tables that an attribute comes from; ``found`` keeps what is known."""
        if at in found:
            return found[at]
        here: dict[ColumnSource, set[Way]] = {}
        found[at] = here  # ends circles
        if at in self.leaves:
            here[self.leaves[at]] = {_SAME}
        for ref, way in self.made_of.get(at, ()):
            for source, ways in list(self.resolved(ref, found).items()):
                here.setdefault(source, set()).update(_combined(way, each) for each in ways)
        return here


def column_flow(
    plan: Sequence[_Node], sources: Mapping[int, tuple[str, str]], *, before: Sequence[Sequence[_Node]] = ()
) -> ColumnFlow:
    """The flow into the columns of a plan.

    Args:
        plan: nodes in pre-order.
        sources: warehouse and table of leaves, by the id of any of their attributes.
        before: plans whose attributes are leaves of this one: those of a streaming query, for its micro-batch.

    Raises:
        KeyError, TypeError, ValueError, IndexError, RecursionError: a plan of another shape.
    """
    plans = _Plans(sources=sources)
    for each in before:
        plans.outputs(_tree(each))
    top = plans.outputs(_tree(plan))
    found: dict[int, dict[ColumnSource, set[Way]]] = {}
    columns = {plans.names[at]: _frozen(plans.resolved(at, found)) for at in top}
    rows: dict[ColumnSource, set[Way]] = {}
    for ref, way in plans.deciding:
        for source in plans.resolved(ref, found):
            rows.setdefault(source, set()).add(way)
    return ColumnFlow(columns=columns, rows=_frozen(rows))


def _frozen(found: Mapping[ColumnSource, set[Way]]) -> dict[ColumnSource, frozenset[Way]]:
    return {source: frozenset(found[source]) for source in sorted(found)}


def _way_into(expression: _Tree, at: int) -> Way:
    """How a child goes into an expression."""
    kind, count = expression.kind, len(expression.children)
    if kind == "Alias":
        return _SAME
    if kind == "AggregateExpression":
        return DIRECT, _AGGREGATION
    if (kind == "If" and at == 0) or (kind == "CaseWhen" and at % 2 == 0 and at + 1 < count):
        return INDIRECT, "CONDITIONAL"
    if kind in ("If", "CaseWhen"):
        return _SAME if count == 1 else _COMPUTED
    if kind == "WindowExpression":
        return _COMPUTED if at == 0 else (INDIRECT, "WINDOW")
    return _COMPUTED


def _combined(outer: Way, inner: Way) -> Way:
    """The way through two steps: what is indirect once stays so."""
    if outer[0] == INDIRECT or inner[0] == INDIRECT:
        return outer if outer[0] == INDIRECT else inner
    return DIRECT, max(outer[1], inner[1], key=_RANK.index)


def _tree(nodes: Sequence[_Node]) -> _Tree:
    """The tree of nodes in pre-order."""
    tree, rest = _next_tree(nodes, 0)
    if rest != len(nodes):
        raise ValueError(f"nodes are left: read={rest} of={len(nodes)}")
    return tree


def _next_tree(nodes: Sequence[_Node], at: int) -> tuple[_Tree, int]:
    node, rest = nodes[at], at + 1
    children = []
    for _ in range(node["num-children"]):
        child, rest = _next_tree(nodes, rest)
        children.append(child)
    return _Tree(node, tuple(children)), rest
