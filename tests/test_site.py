"""The site of ``make docs``: every page of the repository, as a browser shows it."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import engine
from tests.stores.chromium import Chromium

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
CONFIG = ROOT / "conf" / "site"


def build(source: Path, target: Path) -> str:
    """Build as ``make docs`` does; returns what was printed."""
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "--builder", "html"]
    command += ["--doctree-dir", str(target / ".made"), "--conf-dir", str(CONFIG), str(source), str(target / "0.9.0")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".venv-docs")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of all versions: the present pages as 0.9.0, and what an earlier build left as 0.10.0."""
    target = tmp_path_factory.mktemp("site")
    (target / "0.10.0").mkdir()
    (target / "0.10.0" / "index.html").touch()
    assert build(ROOT, target) == ""
    return target


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    with Chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.mark.long
def test_every_page_can_be_read_at_each_width(site: Path, browser: Chromium) -> None:
    """On a phone too: nothing is wider than the window, but what scrolls by itself."""
    for page in [*PAGES, CONFIG / "api.md", ROOT / "FORMAT.md"]:
        shown = (site / "0.9.0" / page.relative_to(ROOT)).with_suffix(".html")
        for width in (390, 1280):
            browser.show(shown, width=width)
            assert browser.ask("document.documentElement.scrollWidth") <= width, (page.name, width)
            assert browser.complaints() == []


@pytest.mark.long
def test_every_page_is_in_the_navigation_below_the_heading_of_the_index(site: Path, browser: Chromium) -> None:
    browser.show(site / "0.9.0" / "docs" / "sql.html", width=1280)
    shown = browser.ask(
        """[...document.querySelectorAll(".sidebar-tree .caption")].map(caption => [caption.textContent,
        [...caption.nextElementSibling.querySelectorAll("a")].map(link => link.getAttribute("href"))])"""
    )
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    assert [heading for heading, _ in shown] == [*re.findall(r"^## (.+)", index, re.MULTILINE), "Reference"]
    linked = {Path(link).stem for _, links in shown for link in links}
    assert {page.stem for page in PAGES} - linked == {"sql"}, "the page itself has the link #"


@pytest.mark.long
def test_words_are_found_and_versions_are_listed_newest_first(site: Path, browser: Chromium) -> None:
    browser.show(site / "0.9.0" / "search.html", width=1280)
    index = (site / "0.9.0" / "searchindex.js").read_text(encoding="utf-8")
    terms = json.loads(index.removeprefix("Search.setIndex(").removesuffix(")"))["terms"]
    assert {"savepoint", "debezium", "tombston"} <= terms.keys()
    browser.show(site / "index.html", width=390)
    assert browser.ask("[...document.links].map(link => link.textContent)") == ["0.10.0", "0.9.0"]
    (first,) = re.findall(r'href="([^"]+)"', (site / "0.9.0" / "index.html").read_text(encoding="utf-8"))
    assert (site / "0.9.0" / first).is_file()


@pytest.mark.long
def test_the_reference_has_every_public_name(site: Path) -> None:
    text = (site / "0.9.0" / "conf" / "site" / "api.html").read_text(encoding="utf-8")
    shown = set(re.findall(r'id="fluvial\.(\w+)"', text))
    assert set(engine.__all__) - shown == set()


@pytest.mark.long
def test_a_link_to_a_page_that_is_not_there_fails_the_build(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "README.md").write_text("# Pages\n\n## Begin\n\n[none](none.md) [part](#no-such-part)\n")
    said = build(tmp_path, tmp_path / "site")
    assert "none" in said
    assert "no-such-part" in said
