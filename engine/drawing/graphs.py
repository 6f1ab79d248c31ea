"""Lineage graphs drawn from left to right: tables as boxes, jobs as rounded boxes, each as wide as its words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from engine.drawing.letters import balanced, text_width, widest
from engine.drawing.svg import Canvas
from engine.lineage.graph.graph import Edge, GraphNode, LineageGraph, layout
from engine.lineage.graph.view import label_of

_MARGIN: Final = 32.0
_TITLE: Final = 13.0  # size of the font
_FACT: Final = 10.5
_TITLE_ROOM: Final = 280.0  # of a line; longer names are wrapped
_FACT_ROOM: Final = 300.0
_TITLE_LINE: Final = 17.0
_FACT_LINE: Final = 15.0
_PADDING: Final = 14.0
_NARROWEST: Final = 110.0
_LOWEST: Final = 40.0
_GAP: Final = 68.0  # between columns
_SPACE: Final = 18.0  # between boxes of a column
_LEAST_WIDTH: Final = 640.0
_TOP: Final = 96.0
_LANE: Final = 12.0  # of an edge below the boxes
_HEAD: Final = 7.0  # of an arrow
_CURVE: Final = 14  # points of an edge


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPicture:
    """A graph to draw."""

    title: str
    headline: str
    graph: LineageGraph
    roots: frozenset[GraphNode] = frozenset()  # the nodes that the graph was computed for
    beside: tuple[Edge, ...] = ()  # drawn as well: further inputs of the graph's jobs
    facts: Mapping[GraphNode, Sequence[str]] = field(default_factory=dict)  # lines below a node's name
    late: Mapping[Edge, str] = field(default_factory=dict)  # how far a job is behind a table
    links: Mapping[GraphNode, str] = field(default_factory=dict)  # address of a node's link


@dataclass(frozen=True, slots=True, kw_only=True)
class _Words:
    """The lines of a box."""

    title: Sequence[str]
    facts: Sequence[str]
    late: Sequence[str]

    @property
    def width(self) -> float:
        """Width of the box."""
        rows = max(widest(self.title, _TITLE, strong=True), widest([*self.facts, *self.late], _FACT))
        return max(_NARROWEST, rows + 2 * _PADDING)

    @property
    def height(self) -> float:
        """Height of the box."""
        lines = _TITLE_LINE * len(self.title) + _FACT_LINE * (len(self.facts) + len(self.late))
        return max(_LOWEST, lines + _PADDING)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where a box is, or where an edge passes a column."""

    x: float
    middle: float  # of its height
    width: float
    height: float  # 0 for an edge


def graph_svg(picture: GraphPicture) -> str:
    """The picture as an SVG document."""
    whole = LineageGraph.of([*picture.graph.edges, *picture.beside], picture.graph.nodes)
    drawn = layout(whole)
    words = {node: _words(picture, node) for node in whole.nodes}
    places, right, bottom = _places(drawn.columns, words)
    heading = widest([picture.title], 24, strong=True), widest([picture.headline], 12.5)
    canvas = Canvas(max(right, *heading, _LEAST_WIDTH - _MARGIN) + _MARGIN)
    canvas.label(_MARGIN, 46, picture.title, size=24, kind="strong")
    canvas.label(_MARGIN, 68, picture.headline, size=12.5, kind="soft")
    lanes = 0  # edges that close a cycle pass below the boxes
    for edge, way in sorted(drawn.ways.items(), key=lambda item: item[0] in picture.late):
        path = [places[node] for node in way]
        late = picture.late.get(edge, "")
        if path[-1].x > path[0].x:
            _draw_line(canvas, _forward(path), late)
        else:
            _draw_line(canvas, _around(path[0], path[-1], bottom, lane=lanes), late)
            lanes += 1
    known = {*picture.graph.nodes}
    for node in whole.nodes:
        kind = f"{node.kind}{' root' if node in picture.roots else '' if node in known else ' beside'}"
        if node in picture.links:
            with canvas.link(picture.links[node]):
                _draw_node(canvas, node, words[node], places[node], kind)
        else:
            _draw_node(canvas, node, words[node], places[node], kind)
    return canvas.finished(bottom + 20 + _LANE * lanes, picture.title)


def _words(picture: GraphPicture, node: GraphNode) -> _Words:
    late = [(start.name, words) for (start, end), words in sorted(picture.late.items()) if end == node]
    return _Words(
        title=balanced(label_of(node), _TITLE_ROOM, _TITLE, strong=True),
        facts=[line for fact in picture.facts.get(node, ()) for line in balanced(fact, _FACT_ROOM, _FACT)],
        late=[line for name, words in late for line in _late_lines(name, words)],
    )


def _late_lines(table: str, words: str) -> list[str]:
    """One line, or the name of the table above the rest."""
    whole = f"{table}: {words}"
    if text_width(whole, _FACT) <= _FACT_ROOM:
        return [whole]
    return [*balanced(f"{table}:", _FACT_ROOM, _FACT), *balanced(words, _FACT_ROOM, _FACT)]


def _places(
    columns: Sequence[Sequence[GraphNode]], words: Mapping[GraphNode, _Words]
) -> tuple[dict[GraphNode, _Place], float, float]:
    """The place of every node, and the right and lower end of all of them."""
    heights = {node: words[node].height if node in words else 0.0 for column in columns for node in column}
    tallest = max((sum(heights[node] + _SPACE for node in column) for column in columns), default=0.0)
    places: dict[GraphNode, _Place] = {}
    x = _MARGIN
    for column in columns:
        width = max((words[node].width for node in column if node in words), default=0.0)
        y = _TOP + (tallest - sum(heights[node] + _SPACE for node in column)) / 2
        for node in column:
            places[node] = _Place(x=x, middle=y + heights[node] / 2, width=width, height=heights[node])
            y += heights[node] + _SPACE
        x += width + _GAP
    return places, x - _GAP, _TOP + tallest


def _draw_node(canvas: Canvas, node: GraphNode, words: _Words, place: _Place, kind: str) -> None:
    top = place.middle - place.height / 2
    radius = min(place.height / 2, 20) if node.kind == "job" else 5
    tip = "\n".join([f"{node.kind} {node.title}", *words.facts, *words.late])
    canvas.rect(place.x, top, place.width, place.height, kind=kind, radius=radius, tip=tip)
    centre = place.x + place.width / 2
    lines = len(words.facts) + len(words.late)
    y = place.middle - (_TITLE_LINE * len(words.title) + _FACT_LINE * lines) / 2
    for line in words.title:
        canvas.label(centre, y + 12.5, line, size=_TITLE, kind="strong", anchor="middle")
        y += _TITLE_LINE
    for shown, colour in ((words.facts, "soft"), (words.late, "late")):
        for line in shown:
            canvas.label(centre, y + 11, line, size=_FACT, kind=colour, anchor="middle")
            y += _FACT_LINE


def _draw_line(canvas: Canvas, points: list[tuple[float, float]], late: str) -> None:
    x, y = points[-1]
    canvas.path(points, kind="lateness edge" if late else "edge", tip=late)
    canvas.area([(x, y - 4), (x + _HEAD, y), (x, y + 4)], kind="late" if late else "head")


def _forward(places: Sequence[_Place]) -> list[tuple[float, float]]:
    """From the right side of one box to the left side of another, over the places where the edge passes columns."""
    points: list[tuple[float, float]] = []
    for start, end in pairwise(places):
        points += _curve((start.x + start.width, start.middle), (end.x - _HEAD, end.middle))
    return points


def _around(start: _Place, end: _Place, bottom: float, *, lane: int) -> list[tuple[float, float]]:
    """To a box on the left: below all boxes, each edge on a lane of its own."""
    aside = 16.0 + 4 * (lane % 3)
    right, left, low = start.x + start.width + aside, end.x - aside, bottom + _LANE * (lane + 0.5)
    begin, finish = (start.x + start.width, start.middle), (end.x - _HEAD, end.middle)
    return [begin, (right, start.middle), (right, low), (left, low), (left, end.middle), finish]


def _curve(start: tuple[float, float], end: tuple[float, float]) -> list[tuple[float, float]]:
    (x1, y1), (x2, y2) = start, end
    bend = (x2 - x1) / 2
    points = []
    for step in range(_CURVE + 1):
        t = step / _CURVE
        a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
        points.append((a * x1 + b * (x1 + bend) + c * (x2 - bend) + d * x2, (a + b) * y1 + (c + d) * y2))
    return points
