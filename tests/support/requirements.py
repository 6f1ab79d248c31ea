"""The 403 statements of the five founding documents, with the tests that show each: ``tests/requirements.tsv``.

``python -m tests.support.requirements`` prints the table: number, statement, the document's own words, verdict, tests.
``… FL-33`` prints one, and ``… --documents DIRECTORY`` those that do not stand literally in the documents there.
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
DOCUMENTS: Final = {"TAG": "000", "SP": "001", "BR": "002", "FL": "003", "LN": "004"}
NUMBERED: Final = re.compile(
    r"\b(?P<series>TAG|SP|BR|FL|LN)-(?P<first>\d+)(?:\s*(?:to|\.\.)\s*(?:TAG|SP|BR|FL|LN)-(?P<last>\d+))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One statement."""

    number: str  # such as FL-33
    statement: str
    written: str  # by the document, literally but for its line ends
    verdict: str  # "true", or "otherwise: " and what a user has instead


def requirements() -> list[Requirement]:
    """All, in the order of the documents."""
    lines = FILE.read_text(encoding="utf-8").splitlines()[1:]
    parts = (line.split("\t") for line in lines)
    return [
        Requirement(number=number, statement=statement, written=written, verdict=verdict)
        for number, statement, written, verdict in parts
    ]


def as_written(number: str, **names: str) -> str:
    """The document's own words, with names put in: ``as_written("TAG-11", name="eod")`` fills in ``<name>``."""
    (text,) = (each.written for each in requirements() if each.number == number)
    for name, value in names.items():
        text = text.replace(f"<{name.replace('_', ' ')}>", value)
    return text


def misquoted(documents: Path) -> list[str]:
    """The numbers whose words do not stand in the documents ``000_*`` to ``004_*`` of a directory."""
    found = {series: "".join(map(_words, documents.glob(f"{number}_*"))) for series, number in DOCUMENTS.items()}
    found["SP"] += found["TAG"]  # of savepoints both speak
    return [each.number for each in requirements() if _line(each.written) not in found[each.number.partition("-")[0]]]


def _words(document: Path) -> str:
    return _line(document.read_text(encoding="utf-8"))


def _line(text: str) -> str:
    return " ".join(text.split())


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
    """Print some, or all; the exit code is 1 when there is none, or when words are not those of the documents."""
    if wanted[:1] == ["--documents"]:
        wrong = misquoted(Path(wanted[1]))
        print(f"not in the documents: {', '.join(wrong)}" if wrong else "all stand in the documents")
        return int(bool(wrong))
    shown = [each for each in requirements() if not wanted or each.number in wanted]
    tests = shown_by()
    for each in shown:
        print(f"{each.number}  {each.statement}\n    written: {each.written}\n    {each.verdict}")
        for test in tests.get(each.number, ()):
            print(f"    {test}")
    return 0 if shown else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
