"""Pages of pictures in a real browser: at two widths, light and dark, with its clicks and its wheel."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from engine.drawing.lineage_page import lineage_page
from engine.drawing.model import picture_of
from engine.drawing.page import html_page
from engine.lineage.graph.graph import GraphNode, LineageGraph
from engine.lineage.graph.lateness import Lateness
from engine.lineage.graph.view import LineageView
from engine.lineage.store.entities import DataLineage
from filestore.tag.tags import create_tag
from tests.engine.drawing.test_graphs import LONG, warehouse
from tests.stores.chromium import Chromium
from tests.support.shown_pages import check_page, middle
from tests.support.tables import key_table, rows

NOW = datetime(2026, 11, 22, 9, 20, 49)
WINDOWS = [(width, is_dark) for width in (1280, 1920) for is_dark in (False, True)]


def _view(graph: LineageGraph, root: GraphNode | None = None) -> LineageView:
    """With the newest barrier of each job, and every third input late."""
    reads, writes, late = [], [], {}
    for at, (start, end) in enumerate(graph.edges):
        job, table = (start, end) if start.kind == "job" else (end, start)
        database, _, name = table.name.partition(".")
        row = DataLineage(job.name, 1_000_000 + at, database, name, 1_234_567, NOW + timedelta(seconds=at))
        (writes if start is job else reads).append(row)
        if start is table and at % 3 == 0:
            late[start, end] = Lateness(snapshots=12, is_at_least=False, age_ms=2_400_000)
    return LineageView(root=root, graph=graph, sources=tuple(reads), sinks=tuple(writes), late=late)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Pages of a table of nine buckets, of one bucket, of a catalog of 40 tables and of one with a long name."""
    schema = pa.schema([("day", pa.string()), ("shop", pa.string()), ("v", pa.int64())])
    many = key_table(schema=schema, primary_key=("day", "shop"), partition_by=("day",), bucket="1")
    for turn in range(3):
        days = [f"2026-11-22-{day:03}-and-a-long-name" for day in range(9)]
        data = {"day": days, "shop": [f"a shop with a long name {turn}"] * 9, "v": [turn] * 9}
        many.write(pa.table(data, schema=many.schema.arrow_schema))
    one = key_table(bucket="1", **{"write-only": "true"})
    for keys in ((1, 500), (600, 900), (500, 600), *((key, key + 40) for key in range(0, 900, 60))):
        one.write(rows(*((key, 0) for key in keys)))
    create_tag(one.store, "end of the day")
    table, job = GraphNode("table", LONG), GraphNode("job", "etl")
    graph = warehouse(40, 2)
    found = {
        "buckets": html_page(picture_of(many.store)),
        "bucket": html_page(picture_of(one.store)),
        "catalog": lineage_page(_view(graph)),
        "far": lineage_page(_view(graph, graph.nodes[-1])),
        "long": lineage_page(_view(LineageGraph.of([(table, job), (job, GraphNode("table", "dw.t"))]), table)),
    }
    directory = tmp_path_factory.mktemp("pages")
    for name, page in found.items():
        (directory / f"{name}.html").write_text(page, encoding="utf-8")
    return {name: directory / f"{name}.html" for name in found}


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("width", "is_dark"), WINDOWS)
def test_words_are_in_their_boxes_apart_and_legible(
    browser: Chromium, pages: dict[str, Path], width: int, is_dark: bool
) -> None:
    """Issue 16 point 12: of the pictures of tables and of lineage; and no page scrolls sideways."""
    for name, page in pages.items():
        browser.show(page, width=width, is_dark=is_dark)
        kinds = ("panel",) if name.startswith("bucket") else ("table", "job")
        [picture] = check_page(browser, *kinds, is_dark=is_dark)
        assert len(picture.words) > 3, name


def test_each_link_of_a_catalog_shows_its_section_in_the_window(browser: Chromium, pages: dict[str, Path]) -> None:
    """Issue 16 point 12: every link has a target, and what it shows is legible too."""
    browser.show(pages["catalog"], width=1280)
    links = browser.ask("[...document.querySelectorAll('#graph a')].map(link => link.getAttribute('href'))")
    assert len(links) == len({*links}) == 40 + 32
    for link in links[::9]:
        browser.click(*middle(browser, f"#graph a[href='{link}'] rect"))
        assert browser.ask("location.hash") == link
        top, bottom = browser.ask(
            "(({top, bottom}) => [top, bottom])(document.querySelector('section:target').getBoundingClientRect())"
        )
        assert 0 <= top < 900 < bottom or 0 <= top < bottom <= 900, "the section is where the reader looks"
        pictures = check_page(browser, "table", "job", is_dark=False)
        assert len(pictures) == 2
        browser.click(*middle(browser, "section:target a"))
        assert browser.ask("location.hash") == "#graph"


def test_a_graph_is_made_larger_and_smaller_and_dragged(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.show(pages["catalog"], width=1280)
    size = "(({width, height}) => [width, height])(document.querySelector('#graph svg').getBoundingClientRect())"
    room = "[document.getElementById('graph').clientWidth, innerHeight - 48]"
    whole = browser.ask(size)
    assert whole[0] > 1280, "the graph would fit as it is"
    buttons = {name: f"#zoom button:nth-child({at})" for at, name in enumerate(["−", "+", "100 %", "fit"], start=1)}
    assert browser.ask("[...document.querySelectorAll('#zoom button')].map(each => each.textContent)") == [*buttons]
    browser.click(*middle(browser, buttons["+"]))
    assert browser.ask(size)[0] == pytest.approx(whole[0] * 1.25, rel=0.01)
    browser.click(*middle(browser, buttons["fit"]))
    assert all(one <= most + 1 for one, most in zip(browser.ask(size), browser.ask(room), strict=True))
    browser.click(*middle(browser, buttons["100 %"]))
    assert browser.ask(size) == pytest.approx(whole, rel=0.01)
    browser.turn_wheel(600, 400, -100, with_control=True)
    assert browser.ask(size)[0] == pytest.approx(whole[0] * 1.1, rel=0.01)
    place, link = "document.getElementById('graph').scrollLeft", "#graph a rect"
    x, y = middle(browser, link)
    before = browser.ask(place)
    browser.drag((x, y), (x + (90 if before > 100 else -90), y))
    assert abs(browser.ask(place) - before) == pytest.approx(90, abs=2)
    assert browser.ask("location.hash") == "", "a link was followed"


def test_the_table_that_was_asked_for_is_in_view(browser: Chromium, pages: dict[str, Path]) -> None:
    browser.show(pages["far"], width=1280)
    left, top, right, bottom = browser.ask(
        "(({left, top, right, bottom}) => [left, top, right, bottom])"
        "(document.querySelector('rect.root').getBoundingClientRect())"
    )
    assert 0 <= left < right <= 1280
    assert 48 <= top < bottom <= 900


def test_a_click_on_a_file_names_it_and_those_with_the_same_keys(browser: Chromium, pages: dict[str, Path]) -> None:
    """Issue 16 point 12: and Escape, the button or a click beside ends that."""
    browser.show(pages["bucket"], width=1280)
    tip = browser.ask("document.querySelector('rect.f[data-bucket] title').textContent").splitlines()
    panel, closed = "document.getElementById('details')", "document.getElementById('details').hidden"
    assert browser.ask(closed)
    for end in _ways_to_end(browser):
        browser.click(*middle(browser, "rect.f[data-bucket]"))
        said = browser.ask(f"{panel}.innerText")
        assert all(line in said for line in tip)
        assert "its keys are also in the range of:" in said
        near, dim = browser.ask(
            "[document.querySelectorAll('.f.near').length,"
            " [...document.querySelectorAll('rect.f[data-bucket]')]"
            ".filter(box => getComputedStyle(box).fillOpacity < 1).length]"
        )
        assert near > 0
        assert dim > 0
        left, top, right, bottom = browser.ask(
            f"(({{left, top, right, bottom}}) => [left, top, right, bottom])({panel}.getBoundingClientRect())"
        )
        assert (0 <= left < right <= 1280, 0 <= top < bottom <= 900) == (True, True)
        end()
        assert browser.ask(closed)
        assert browser.ask("document.querySelectorAll('.f.near, .f.chosen').length") == 0


def _ways_to_end(browser: Chromium) -> Iterator[Callable[[], None]]:
    yield lambda: browser.press("Escape")
    yield lambda: browser.click(*middle(browser, "#details button"))
    yield lambda: browser.click(5, 5)
