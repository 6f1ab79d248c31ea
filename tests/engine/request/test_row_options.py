"""Every option says what it decides, and one that decides about rows is honoured or refused."""

import ast
from pathlib import Path

import pytest

from filestore.options.option import Option
from filestore.options.parsing import text
from tests.support.row_options import OPTION_CLASSES, row_deciding_options

ROOT = Path(__file__).resolve().parents[3]


def test_an_option_that_does_not_say_what_it_decides_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="decides"):
        Option("a.key", text, None, "A key.")  # type: ignore[call-arg]


def test_every_class_of_options_is_known_to_the_tests() -> None:
    declared = {
        node.name
        for room in ("engine", "filestore", "logstore", "lsm")
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "OptionValues" for base in node.bases)
    }
    known = {base.__name__ for each in OPTION_CLASSES for base in each.__mro__}
    assert len(declared) > 15
    assert declared - known == set()


def test_places_merging_and_starts_decide_about_rows_and_addresses_do_not() -> None:
    deciding = row_deciding_options(*OPTION_CLASSES)
    assert {
        "merge-engine", "sequence.field", "ignore-delete", "branch", "scan.snapshot-id", "scan.tag-name", "consumer-id",
        "scan.fallback-branch", "log.scan", "changelog-producer", "dynamic-partition-overwrite", "filter", "columns",
        "fields.*.aggregate-function", "startingOffsets", "record-level.expire-time", "log.on-orphan-batch",
    } <= deciding.keys()  # fmt: skip
    assert deciding.keys().isdisjoint(
        {"warehouse", "uri", "commit.lock", "log.kafka.bootstrap.servers", "file.compression", "jdbc.password"}
    )
