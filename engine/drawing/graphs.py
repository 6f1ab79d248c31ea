"""Lineage graphs drawn from left to right: tables as boxes, jobs as rounded boxes."""

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from engine.drawing.svg import Canvas
from engine.lineage.graph.graph import GraphNode, LineageGraph, layout

_MARGIN: Final = 32.0
_WIDTH: Final = 210.0  # of a box
_HEIGHT: Final = 44.0
_GAP: Final = 90.0  # between columns
_SPACE: Final = 18.0  # between boxes of a column
_LEAST_WIDTH: Final = 640.0
_HEAD: Final = 7.0  # of an arrow
_CURVE: Final = 14  # points of an edge

_PAGE_STYLE: Final = (
    ":root{color-scheme:light dark}body{margin:0;background:Canvas;font-family:Inter,'Segoe UI',Arial,sans-serif}"
    "svg{display:block;margin:0 auto;max-width:100%;height:auto} section{display:none} section:target{display:block}"
    "p{margin:8px 32px;opacity:.7;font-size:13px}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPicture:
    """A graph to draw."""

    title: str
    headline: str
    graph: LineageGraph
    roots: frozenset[GraphNode] = frozenset()  # the nodes that the graph was computed for
    facts: Mapping[GraphNode, str] | None = None  # a line of text below a node's name
    links: Mapping[GraphNode, str] | None = None  # address of a node's link


def graph_svg(picture: GraphPicture) -> str:
    """The picture as an SVG document."""
    drawn = layout(picture.graph)
    columns = drawn.columns
    width = max(len(columns) * (_WIDTH + _GAP) - _GAP + 2 * _MARGIN, _LEAST_WIDTH)
    canvas = Canvas(width)
    inner = width - 2 * _MARGIN
    canvas.label(_MARGIN, 46, picture.title, size=24, kind="strong", room=inner)
    canvas.label(_MARGIN, 68, picture.headline, size=12.5, kind="soft", room=inner)
    top, height = 96.0, max((sum(map(_room, column)) for column in columns), default=0.0)
    places: dict[GraphNode, tuple[float, float]] = {}  # left end of the horizontal centre line
    for at, column in enumerate(columns):
        y = top + (height - sum(map(_room, column))) / 2
        for node in column:
            places[node] = (_MARGIN + at * (_WIDTH + _GAP), y + (_room(node) - _SPACE) / 2)
            y += _room(node)
    for way in drawn.ways.values():
        _draw_way(canvas, [places[node] for node in way])
    for node in picture.graph.nodes:
        place = places[node]
        address = (picture.links or {}).get(node)
        if address is None:
            _draw_node(canvas, picture, node, place)
        else:
            with canvas.link(address):
                _draw_node(canvas, picture, node, place)
    return canvas.finished(top + height + 20, picture.title)


def graph_page(picture: GraphPicture, details: Sequence[tuple[str, GraphPicture]]) -> str:
    """The picture as a web page; a click on a node shows the detail that its link names.

    Args:
        picture: with links ``#name``.
        details: (name, picture) for every link.
    """
    parts = [
        f'<section id="{html.escape(name, quote=True)}">\n{graph_svg(detail)}</section>\n' for name, detail in details
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/><title>{html.escape(picture.title)}</title>\n'
        f"<style>{_PAGE_STYLE}</style></head>\n<body>\n{graph_svg(picture)}"
        "<p>Click on a table or a job to see its newest snapshots, or barriers, below.</p>\n"
        f"{''.join(parts)}</body></html>\n"
    )


def _draw_node(canvas: Canvas, picture: GraphPicture, node: GraphNode, place: tuple[float, float]) -> None:
    x, y = place[0], place[1] - _HEIGHT / 2
    fact = (picture.facts or {}).get(node, "")
    kind = f"{node.kind} root" if node in picture.roots else node.kind
    radius = _HEIGHT / 2 if node.kind == "job" else 5
    tip = f"{node.kind} {node.title}" + (f": {fact}" if fact else "")
    canvas.rect(x, y, _WIDTH, _HEIGHT, kind=kind, radius=radius, tip=tip)
    middle, room = x + _WIDTH / 2, _WIDTH - 24
    canvas.label(middle, y + (19 if fact else 27), node.title, size=13, kind="strong", anchor="middle", room=room)
    if fact:
        canvas.label(middle, y + 35, fact, size=10.5, kind="soft", anchor="middle", room=room)


def _room(node: GraphNode) -> float:
    """Height of a node in its column."""
    return _SPACE + (_HEIGHT if node.kind != "way" else 0.0)


def _draw_way(canvas: Canvas, places: Sequence[tuple[float, float]]) -> None:
    """From the right side of one box to the left side of another; over the top for an edge to the left."""
    points: list[tuple[float, float]] = []
    for (x1, y1), (x2, y2) in pairwise(places):
        points += _curve((x1 + _WIDTH, y1), (x2 - _HEAD, y2))
    x, y = points[-1]
    canvas.path(points, kind="edge")
    canvas.area([(x, y - 4), (x + _HEAD, y), (x, y + 4)], kind="head")


def _curve(start: tuple[float, float], end: tuple[float, float]) -> list[tuple[float, float]]:
    (x1, y1), (x2, y2) = start, end
    bend = max((x2 - x1) / 2, _GAP / 2)
    lift = 0.0 if x2 >= x1 else -(_HEIGHT + _SPACE)
    points = []
    for step in range(_CURVE + 1):
        t = step / _CURVE
        a, b, c, d = (1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3
        points.append(
            (a * x1 + b * (x1 + bend) + c * (x2 - bend) + d * x2, a * y1 + d * y2 + b * (y1 + lift) + c * (y2 + lift))
        )
    return points
