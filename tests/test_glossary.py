"""docs/glossary.md: each term is in use, and no word that it replaces is."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.markdown import ROOT, sections, table

GLOSSARY = ROOT / "docs" / "glossary.md"
ROWS = [row for text in sections(GLOSSARY.read_text(encoding="utf-8")).values() for row in table(text)]
REPLACED = sorted({phrase for row in ROWS for phrase in re.findall(r'"([^"]+)"', row[-1])})
GENERATED = {"options.md"}
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def texts_about_code(path: Path) -> list[str]:
    """The texts of a module that describe it, its classes, functions and names."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    values = [node.value for node in nodes if isinstance(node, ast.Expr)]
    return [each.value for each in values if isinstance(each, ast.Constant) and isinstance(each.value, str)]


@cache
def all_texts() -> dict[str, str]:
    """The docstrings of each module, and the prose of each page, by path; one space between words."""
    found = {}
    for package in ("engine", "filestore", "logstore", "lsm"):
        for path in sorted((ROOT / package).rglob("*.py")):
            found[path.relative_to(ROOT).as_posix()] = "\n".join(texts_about_code(path))
    for page in PAGES:
        if page != GLOSSARY and page.name not in GENERATED:
            text = page.read_text(encoding="utf-8")
            found[page.relative_to(ROOT).as_posix()] = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return {name: " ".join(text.split()) for name, text in found.items()}


def names_with(words: str) -> list[str]:
    pattern = re.compile(rf"(?i)(?<![\w-]){re.escape(words)}(?![\w-])")
    return [name for name, text in all_texts().items() if pattern.search(text)]


def test_each_term_is_there_once_and_is_used_in_the_code() -> None:
    terms = [row[0] for row in ROWS]
    assert len(terms) > 60
    assert sorted({*terms}) == sorted(terms)
    code = re.compile(r"\.py$")
    used = {term for term in terms for form in (term, f"{term}s") if any(map(code.search, names_with(form)))}
    assert sorted({*terms} - used) == []


@pytest.mark.parametrize("phrase", REPLACED)
def test_no_docstring_and_no_page_has_a_phrase_that_a_term_replaces(phrase: str) -> None:
    assert names_with(phrase) == []
