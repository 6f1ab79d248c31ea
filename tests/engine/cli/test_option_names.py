"""Errors and helps name options that exist."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.kafka.options import SourceValues
from engine.request.place_options import PlaceOptions, RowOptions
from engine.request.writer_options import WriterOptions
from filestore.options.catalog_options import CATALOG_ALIASES, CatalogOptions
from filestore.options.rules import ALIASES, ELSEWHERE, FREE_PREFIXES
from filestore.options.table.columns import FieldOptions
from filestore.options.table_options import TableOptions

ROOT = Path(__file__).resolve().parents[3]
KINDS = (TableOptions, CatalogOptions, SourceValues, WriterOptions, PlaceOptions, RowOptions)
KNOWN = {*ALIASES, *CATALOG_ALIASES, *ELSEWHERE, *(key for kind in KINDS for key in kind.declared)}
GROUPS = {key.split(".")[0] for key in KNOWN if "." in key} - {"file", "path", "value", "pipeline", "fields"}
# keys of a group as a whole, of Kafka's clients, of Spark; and words with a dot that are no options
BESIDE = re.compile(
    r"(log\.)?kafka\.(topic$|[a-z])|source\.(signals|connector|dsn|flattened)$|schema\.(json|registry$)|key\.key|type\.[a-z]|.*\.(py|json|yaml|sqlite|md|avro|parquet|db|[*])$"
)
WORD = re.compile(r"(?<![\w./$\"-])[a-z][a-z0-9]*(?:-[a-z0-9]+)*(?:\.[a-z][a-z0-9-]*)+(?![\w/(])")


def named(path: Path) -> Iterator[str]:
    """The words that look like options in the messages of errors, and wherever a fix is named."""
    for node in ast.walk(ast.parse(path.read_text())):
        is_error = isinstance(node, ast.Call) and re.search(r"Error$|problem$", ast.unparse(node.func))
        if is_error or isinstance(node, ast.JoinedStr | ast.Constant):
            parts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant)]
            text = "{}".join(each for each in parts if isinstance(each, str))
            if is_error or "fix=" in text:
                yield from (word for word in WORD.findall(text) if word.split(".")[0] in GROUPS)


@pytest.mark.long
@pytest.mark.sweep
def test_errors_name_options_that_exist() -> None:
    suffixes = tuple(f".{suffix}" for suffix in FieldOptions.declared)
    found = {
        f"{path.relative_to(ROOT)}: {word}"
        for package in ("engine", "filestore", "logstore")
        for path in (ROOT / package).rglob("*.py")
        for word in named(path)
        if word not in KNOWN and not word.startswith(FREE_PREFIXES) and not word.endswith(suffixes)
        if not BESIDE.fullmatch(word) and not any(key.startswith(f"{word}.") for key in KNOWN)
    }
    assert found == set()


@pytest.mark.sweep
def test_the_words_of_a_message_are_found() -> None:
    """Else the test above looks at nothing."""
    words = {word for path in (ROOT / "filestore").rglob("*.py") for word in named(path)}
    assert {"log.system", "log.changelog-mode", "sequence.field"} <= words
    assert len(words) > 20
