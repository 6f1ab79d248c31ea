"""The 403 statements of the five founding documents, with the tests that show each: ``tests/requirements.tsv``.

``python -m tests.support.requirements`` prints the table: number, statement, verdict, tests. ``… FL-33`` prints one.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

TESTS: Final = Path(__file__).parents[1]
FILE: Final = TESTS / "requirements.tsv"
NUMBERED: Final = re.compile(
    r"\b(?P<series>TAG|SP|BR|FL|LN)-(?P<first>\d+)(?:\s*(?:to|\.\.)\s*(?:TAG|SP|BR|FL|LN)-(?P<last>\d+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One statement."""

    number: str  # such as FL-33
    statement: str
    verdict: str  # "true", or "otherwise: " and what a user has instead


def requirements() -> list[Requirement]:
    """All, in the order of the documents."""
    lines = FILE.read_text(encoding="utf-8").splitlines()[1:]
    parts = (line.split("\t") for line in lines)
    return [Requirement(number=number, statement=statement, verdict=verdict) for number, statement, verdict in parts]


def numbers_in(text: str) -> Iterator[str]:
    """The numbers in a text, with those between the ends of a range."""
    for found in NUMBERED.finditer(text):
        first = int(found["first"])
        for number in range(first, int(found["last"] or first) + 1):
            yield f"{found['series']}-{number:02d}"


@cache
def shown_by() -> Mapping[str, list[str]]:
    """The tests whose docstring, or whose module's, names a number; as ``file::test``."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        if NUMBERED.search(text) is None:
            continue
        module = ast.parse(text)
        name = path.relative_to(TESTS.parent).as_posix()
        for number in numbers_in(ast.get_docstring(module) or ""):
            found[number].append(name)
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for number in numbers_in(ast.get_docstring(node) or ""):
                    found[number].append(f"{name}::{node.name}")
    return found


def main(wanted: list[str]) -> int:
    """Print some, or all; the exit code is 1 when there is none."""
    shown = [each for each in requirements() if not wanted or each.number in wanted]
    tests = shown_by()
    for each in shown:
        print(f"{each.number}  {each.statement}\n    {each.verdict}")
        for test in tests.get(each.number, ()):
            print(f"    {test}")
    return 0 if shown else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
