"""How Sphinx makes the site: ``make docs``. The pages are those of the repository, with their links as they are."""

import re
import sys
import tomllib
from html import escape
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
INDEX: Final = "docs/README"
_SECTION: Final = re.compile(r"^## (.+?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_PAGE: Final = re.compile(r"\]\((\.\./)?([\w-]+)\.md\)")

sys.path[:0] = [str(ROOT / "engine" / "plugin"), str(ROOT)]

project = "Fluvial"
release = version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = INDEX
include_patterns = ["*.md", "docs/*.md", "conf/site/*.md"]
templates_path = ["templates"]
myst_heading_anchors = 4
autodoc_typehints = "signature"
autodoc_member_order = "alphabetical"
html_theme = "furo"
html_title = f"Fluvial {version}"
html_copy_source = False
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
        "versions.html",
    ]
}


def navigation(index: str) -> str:
    """The trees of contents of an index: of each section its pages, in its order, under its heading.

    Args:
        index: text of the page, with a table of links in each section

    Returns:
        Directives to be added to the page. The last section gets the Python API and what the repository's root has.
    """
    trees = []
    for heading, body in _SECTION.findall(index):
        pages = [f"/{name}" if above else f"/docs/{name}" for above, name in _PAGE.findall(body)]
        trees.append((heading, pages))
    trees.append(("Reference", ["/conf/site/api", "/FORMAT", "/CHANGELOG", "/SECURITY", "/README"]))
    return "".join(
        "\n".join(["", "```{toctree}", ":hidden:", f":caption: {heading}", "", *pages, "```", ""])
        for heading, pages in trees
    )


def versions_page(versions: list[str]) -> str:
    """The page above all versions: a link to each, the newest first."""
    links = "".join(f'<li><a href="{escape(each)}/index.html">{escape(each)}</a></li>' for each in versions)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Fluvial</title><h1>Fluvial</h1><ul>{links}</ul>'
    )


def _add_navigation(_: object, name: str, source: list[str]) -> None:
    if name == INDEX:
        source[0] += navigation(source[0])


def _add_entries(app: Any, failure: Exception | None) -> None:
    """Write what leads to the first page: ``index.html`` of this version, and the list of versions above it."""
    if failure is None and app.builder.name == "html":
        target = Path(app.outdir)
        (target / "index.html").write_text(
            f'<!doctype html><meta charset="utf-8"><meta http-equiv="refresh" content="0; url={INDEX}.html">'
            f'<title>Fluvial</title><a href="{INDEX}.html">Fluvial</a>\n',
            encoding="utf-8",
        )
        built = [each.parent.name for each in target.parent.glob("*/index.html")]
        newest = sorted(built, key=lambda name: [int(part) for part in re.findall(r"\d+", name)], reverse=True)
        (target.parent / "index.html").write_text(versions_page(newest), encoding="utf-8")


def setup(app: Any) -> None:
    """Connect the steps above; Sphinx calls it."""
    app.connect("source-read", _add_navigation)
    app.connect("build-finished", _add_entries)
