"""The pages in a real browser: at three widths, light and dark, and as they change by themselves."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from engine import Catalog
from engine.cdc.state import CdcTableState, Parked, StateFiles
from engine.runtime.step_file import TimedStep
from engine.table import Table
from filestore.tag.tags import create_tag
from tests.stores.chromium import Chromium
from tests.support.consoles import TOKEN, Client, running
from tests.support.rows import id_rows
from tests.support.warehouses import new_table

PARKED: Final = "/parked?file=0&name=crm&table=orders"
PAGES: Final = (
    "/",
    "/table/shop/orders",
    "/table/shop/orders/data?at=3&before=1",
    "/table/shop/orders/changes",
    "/lineage",
    "/what-if?table=shop.orders&snapshot=2",
    "/jobs",
    "/job?file=0&name=visits",
    PARKED,
)
JOB: Final = """
name: night
warehouse: {place}
tables:
  web.visits: {{columns: {{visit: BIGINT}}, options: {{log.system: none}}}}
pipelines:
- name: visits
  source: {{format: json, options: {{path: "{place}/events"}}}}
  target: web.visits
  checkpoint: {place}/checkpoints/visits
  options: {{trace.directory: "{place}/trace"}}
cdc:
- name: crm
  database: crm
  source: {{options: {{subscribePattern: 'crm[.].*', kafka.bootstrap.servers: "127.0.0.1:1"}}}}
"""
WINDOWS: Final = [(width, is_dark) for width in (1280, 1920, 390) for is_dark in (False, True)]
# Of each text in the page: its size, its colour, the colour under it; and whether the window has it, or it scrolls.
_TEXTS: Final = """[...document.querySelectorAll("h1, h2, p, a, td, th, dt, dd, label, button, summary, span, small")]
  .filter(each => each.getClientRects().length && each.textContent.trim()).map(each => {
    let under = each, fill = "rgba(0, 0, 0, 0)";
    while (fill === "rgba(0, 0, 0, 0)" && under !== null) {
      fill = getComputedStyle(under).backgroundColor;
      under = under.parentElement;
    }
    const style = getComputedStyle(each), box = each.getBoundingClientRect();
    const scrolls = each.closest(".scroll") !== null;
    return {words: each.textContent.trim().slice(0, 60), size: parseFloat(style.fontSize), color: style.color, fill,
            fits: scrolls || (box.left >= 0 && box.right <= innerWidth + 1)};
  })"""


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    place = tmp_path_factory.mktemp("warehouse")
    catalog = Catalog(str(place), options={"table-lineage": "true", "data-lineage": "true"})
    made = new_table(catalog, name="shop.orders", options={"bucket": "2", "write-only": "true"})
    for number in range(4):
        made.write(id_rows([*range(number, number + 30)], f"v{number}"), options={"pipeline.name": "etl"})
    create_tag(made.store, "eod")
    new_table(catalog, name="shop.a-table-with-a-long-name-that-no-one-would-choose-twice-in-a-life")
    return made


@pytest.fixture(scope="module")
def job_file(table: Table) -> Path:
    """Of a pipeline with a trace, and a database with a parked table; its brokers are away."""
    place = Path(table.store.paths.root).parents[1]
    trace = TimedStep(table="web.visits", batch=7, step="", at_us=0, process="host/1", thread=1)
    steps = [("batch-given", 0), ("rows-collected", 11_000), ("table-committed", 38_000), ("batch-done", 41_000)]
    (place / "trace").mkdir()
    (place / "trace" / "host-1.steps.jsonl").write_text(
        "".join(f"{replace(trace, step=step, at_us=us, facts={'rows': 7}).to_json()}\n" for step, us in steps)
    )
    parked = Parked(since_ms=1, reason=f"a reason {'as long as they are ' * 9}", batch_id=3, offsets={("crm.t", 0): 5})
    state_files_in(place).put("orders", CdcTableState(parked=parked))
    path = place / "job.yaml"
    path.write_text(JOB.format(place=place))
    return path


def state_files_in(place: Path) -> StateFiles:
    catalog = Catalog(str(place))
    return StateFiles(catalog.file_io, catalog.warehouse, "crm")


@pytest.fixture(scope="module")
def client(job_file: Path) -> Iterator[Client]:
    with running(job_file.parent, job_files=(str(job_file),), allows_actions=True) as found:
        yield found


def address(client: Client, path: str) -> str:
    mark = "&" if "?" in path else "?"
    return f"http://127.0.0.1:{client.port}{path}{mark}token={TOKEN}"


def luminance(colour: str) -> float:
    parts = [float(each) / 255 for each in colour[colour.index("(") + 1 : -1].split(",")[:3]]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("width", "is_dark"), WINDOWS)
def test_pages_are_legible_and_do_not_scroll_sideways(
    browser: Chromium, client: Client, width: int, is_dark: bool
) -> None:
    for path in PAGES:
        browser.show(address(client, path), width=width, is_dark=is_dark)
        assert browser.complaints() == [], path
        assert "token" not in browser.ask("location.href")
        assert browser.ask("document.documentElement.scrollWidth <= innerWidth"), path
        assert (luminance(browser.ask("getComputedStyle(document.body).backgroundColor")) < 0.1) is is_dark
        found = browser.ask(_TEXTS)
        assert len(found) > 4
        for each in found:
            lower, higher = sorted((luminance(each["color"]), luminance(each["fill"])))
            assert (higher + 0.05) / (lower + 0.05) >= 4.5, (path, each)
            assert each["size"] >= 12, (path, each)
            assert each["fits"], (path, each)


def test_a_page_changes_by_itself_and_keeps_what_is_open(browser: Chromium, client: Client, table: Table) -> None:
    browser.show(address(client, "/table/shop/orders"), width=1280)
    browser.ask("document.getElementById('options').open = true")
    shown = "document.querySelector('#snapshots td').textContent"
    newest = int(browser.ask(shown))
    table.write(id_rows([1]))
    wait_for(browser, f"{shown} === '{newest + 1}'")
    assert browser.ask("document.getElementById('options').open")
    assert not browser.ask("document.getElementById('columns').open")
    assert browser.complaints() == []


def test_a_slider_goes_back_and_a_comparison_explains_it(browser: Chromium, client: Client) -> None:
    browser.show(address(client, "/table/shop/orders/data"), width=1280)
    slider = "document.querySelector('input[name=at][type=range]')"
    for event in ("input", "change"):
        browser.ask(f"{slider}.value = 2, {slider}.dispatchEvent(new Event('{event}', {{bubbles: true}}))")
    wait_for(browser, "location.search.startsWith('?at=2&')")
    wait_for(browser, "document.querySelector('#rows small')?.textContent === 'snapshot 2, 31 rows'")
    browser.ask(
        "[...document.querySelectorAll('#state a')].find(each => each.textContent === 'what it changed').click()"
    )
    wait_for(browser, "location.search === '?at=2&before=1'")
    wait_for(browser, "document.querySelectorAll('#rows .add, #rows .old').length > 60")
    assert browser.complaints() == []


def test_a_button_of_a_page_resumes_a_parked_table(browser: Chromium, client: Client, job_file: Path) -> None:
    """What a browser sends of a page without referrers is admitted; changes come into an open page by themselves."""
    browser.show(address(client, PARKED), width=1280)
    assert browser.ask("document.forms.length") == 2
    assert browser.ask("document.forms[1].elements.until.value") == ""
    browser.ask("document.forms[0].querySelector('button').click()")
    wait_for(browser, "document.getElementById('asked') !== null")
    assert browser.ask("location.pathname + location.search") == PARKED
    [request] = state_files_in(job_file.parent).requests()
    assert (request.action, request.table) == ("resume", "orders")
    state_files_in(job_file.parent).answered(request)
    wait_for(browser, "document.getElementById('asked') === null")
    assert browser.complaints() == []


def wait_for(browser: Chromium, condition: str, timeout_s: float = 60) -> None:
    end_s = time.monotonic() + timeout_s
    while not browser.ask(condition):
        assert time.monotonic() < end_s, condition
        time.sleep(0.1)
