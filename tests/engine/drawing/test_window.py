"""What pages of pictures are in a browser's window, by what is written in them."""

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from engine.drawing.graphs import graph_svg
from engine.drawing.lineage_page import lineage_page, lineage_picture
from engine.drawing.model import picture_of
from engine.drawing.page import html_page, svg_page
from engine.drawing.script import DETAILS, ZOOM
from engine.lineage.graph.graph import GraphNode, LineageGraph
from engine.lineage.graph.view import LineageView
from filestore.table import FileTable
from tests.support.pictures import SVG
from tests.support.tables import key_table, rows


@pytest.fixture(scope="module")
def table() -> FileTable:
    found = key_table(bucket="1")
    found.write(rows((1, 1), (2, 2)))
    return found


def chain(tables: int) -> LineageView:
    nodes = [GraphNode("job" if at % 2 else "table", f"dw.stage_{at}") for at in range(2 * tables - 1)]
    return LineageView(graph=LineageGraph.of(list(pairwise(nodes)), nodes), root=None)


def smallest(svg: str) -> float:
    return min(float(each.get("font-size", "")) for each in ET.fromstring(svg).iter(f"{SVG}text"))


@pytest.mark.parametrize(("window", "least"), [(1280, 9.0), (1920, 11.0)])
def test_no_word_of_a_table_is_too_small(table: FileTable, window: int, least: float) -> None:
    """The picture is as wide as the window, up to 1600 pixels."""
    svg = svg_page(picture_of(table.store))
    [most] = re.findall(r"svg\{[^}]*width:min\(100%,(\d+)px\)", html_page(picture_of(table.store)))
    width = float(ET.fromstring(svg).get("width", ""))
    assert smallest(svg) * min(window, int(most)) / width >= least


@pytest.mark.parametrize("tables", [2, 6, 40])
def test_no_word_of_a_graph_is_too_small(tables: int) -> None:
    """A graph is as large as it was drawn and scrolls, or is made a little smaller to fit: never below 0.85."""
    view = chain(tables)
    [least] = re.findall(r"if \(whole >= ([\d.]+)\) zoom", lineage_page(view))
    assert smallest(graph_svg(lineage_picture(view))) * float(least) >= 8.5
    assert ".scroll svg{display:block;margin:0 auto;max-width:none}" in lineage_page(view)


@pytest.mark.parametrize("script", [DETAILS, ZOOM], ids=["details", "zoom"])
def test_a_script_finds_what_it_looks_for(table: FileTable, script: str) -> None:
    """Else a click would do nothing; and pages are light or dark as the browser is."""
    page = lineage_page(chain(2)) if script is ZOOM else html_page(picture_of(table.store))
    assert script in page
    names = re.findall(r'getElementById\("([^"]+)"\)', script)
    assert names
    assert all(f'id="{name}"' in page for name in names)
    assert "prefers-color-scheme: dark" in page


def test_every_box_that_can_be_clicked_has_the_lines_that_are_shown(table: FileTable) -> None:
    svg = ET.fromstring(svg_page(picture_of(table.store)))
    boxes = [each for each in svg.iter(f"{SVG}rect") if "f" in each.get("class", "").split()]
    assert boxes
    assert all((each.findtext(f"{SVG}title") or "").count("\n") for each in boxes)
