"""The house: rooms of a size to hold in the head, one definition for a name, one word for a thing, no dead reference.

In the manner of TigerBeetle's tidy: each rule names what to do instead.
"""

import ast
import importlib
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Final

import pytest

from tests.support.house_counts import FILES, MODULES, PACKAGES, ROOT, for_one, private_in, private_outside, tree

pytestmark = pytest.mark.xdist_group("house")  # all modules are parsed once, by the process of these tests

# Modules that one other module imports: too many still; the number falls with each that is folded.
FOR_ONE: Final = 140

# Public doors of a package: a program of a user imports these from the package itself.
DOORS: Final = {"engine", "engine.checkpoint.admission", "engine.dialect", "engine.procedures"}

# Modules of the library with one duty here, and the module that has it.
ONE_HOME: Final = {"difflib": "lsm.nearest_names"}

ERRORS_BY_WORDS: Final = {
    "engine.runtime.spark_messages": "errors of tasks and jobs reach the driver as text",
    "engine.simulation.history": "an oracle compares what a message says with what was done",
    "engine.simulation.invariants": "the same",
    "filestore.iceberg.rest_catalog": "pyiceberg has one class for all answers of a catalog",
    "filestore.io.hdfs_files": "WebHDFS has one class of Java's for several refusals",
    "filestore.io.object_store": "obstore has one class for answers without a code of HTTP",
    "filestore.maintenance.row_verification": "a path that a message has is not added again",
}
"""Modules that look for words in an error, each with its reason."""

# Names that several modules may define: each module has its own logger, type variable or entry point.
EACH_ITS_OWN: Final = {"logger", "main", "T", "RowsT"}

# What users call, named as what it carries out in a lower room.
SAME_AS_WHAT_THEY_CALL: Final = ("engine.procedures", "engine.cli.commands", "engine.versions.branches")

WORDS: Final = {
    r"told": "emitted, reported, notified",
    r"tells": "emits, reports",
    r"whoever": "callers, a reader, a writer",
    r"somebody": "another writer, another process",
    r"nobody": "no one, no writer, no reader",
    r"anew": "again",
    r"surely": "certainly, or nothing",
    r"shall": "must",
    r"for ever": "permanently",
    r"goes on": "continues",
    r"is over": "has ended",
    r"put aside": "dead-lettered",
    r"theirs": "the name of the system",
    r"ours": "Fluvial's",
    r"\w+: whose\.": "a full noun phrase",
}
"""Words of a private dialect, as patterns, and what an engineer elsewhere would write."""

REFERENCES: Final = {
    r"\breports/\w+\.md": "say the fact, or name FORMAT.md",
    r"\bdesign\.md\b": "say the fact, or name FORMAT.md",
    r"\bpaimon-format\.md\b": "say the fact, or name FORMAT.md",
    r"\b[Dd]ecisions? \d+": "name the README of the room",
    r"\b(?:FL|TAG|LN|BR|SP|CDC)-\d+\b": "requirements stand in the docstring of the test that shows them",
}
"""What no reader of the repository can follow, as patterns, and what to write instead."""


def defined(statements: list[ast.stmt]) -> Iterator[str]:
    """The names that a module's own statements define."""
    for each in statements:
        match each:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Assign(targets=targets):
                yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.If() | ast.Try():
                yield from defined([node for node in ast.iter_child_nodes(each) if isinstance(node, ast.stmt)])
            case _:
                pass


def imported(module: ast.Module) -> Iterator[str]:
    """The names of modules that one imports."""
    for node in ast.walk(module):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module


@cache
def definitions() -> dict[str, set[str]]:
    """The names that each module defines."""
    return {module: set(defined(tree(path).body)) for module, path in MODULES.items()}


def test_fewer_modules_exist_for_one_other() -> None:
    """A module is a door or has two importers: what serves one other alone is a part of it."""
    found = len(for_one())
    assert found <= FOR_ONE, "fold the new ones into the modules that they serve"
    assert found >= FOR_ONE - 15, "set FOR_ONE to what is left"


@pytest.mark.sweep
def test_one_package_names_what_is_not_public_in_spark() -> None:
    assert private_outside() == [], "a function of engine.spark_internals, with a probe and another way or an error"


@pytest.mark.parametrize(
    "text",
    [
        "frame._jdf",
        "getattr(frame, '_jdf', None)",
        "from py4j.protocol import Py4JError",
        "import py4j",
        "from pyspark import util",
        "from pyspark.util import _load_from_socket",
        "from pyspark.sql.classic.dataframe import DataFrame",
        "plan.queryExecution()",
        "JVM_CLASS = 'org.apache.spark.sql.catalyst.parser.ParserInterface'",
        "importlib.import_module('pyspark.daemon')",
    ],
)
def test_what_is_not_public_in_spark_is_found(text: str) -> None:
    assert [*private_in(ast.parse(text))]


@pytest.mark.parametrize(
    "text",
    [
        "'frame._jdf is not public'",
        "from pyspark import SparkContext, StorageLevel",
        "from pyspark.sql import types as T",
        "self._job._joined",
        "SCAN = 'org.apache.spark.sql.connector.read.Scan'",
        "conf = 'spark.pyspark.driver.python'",
    ],
)
def test_what_is_public_in_spark_is_not(text: str) -> None:
    assert [*private_in(ast.parse(text))] == []


def test_the_tests_lie_in_rooms_of_the_same_names() -> None:
    rooms = {path.parent.relative_to(ROOT) for path in FILES}
    tests = {
        path.parent.relative_to(ROOT / "tests")
        for name in PACKAGES
        for path in (ROOT / "tests" / name).rglob("test_*.py")
    }
    assert sorted(map(str, tests - rooms)) == []


@pytest.mark.parametrize(("module", "home"), ONE_HOME.items())
def test_one_module_alone_uses_what_has_one_duty(module: str, home: str) -> None:
    users = {name for name, path in MODULES.items() if {*imported(tree(path))} & {module}}
    assert users == {home}


def test_errors_are_known_by_class_and_not_by_their_words() -> None:
    """Words of Spark's errors are read in one module; those of libraries without classes or codes where they come."""
    found = set()
    for module, path in MODULES.items():
        for node in ast.walk(tree(path)):
            is_search = isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn)
            if is_search and "str(error)" in map(ast.unparse, node.comparators):
                found.add(module)
    assert found == ERRORS_BY_WORDS.keys()


@pytest.mark.sweep
def test_a_public_name_is_defined_once() -> None:
    homes = defaultdict(set)
    for module, names in definitions().items():
        if not module.startswith(SAME_AS_WHAT_THEY_CALL):
            for name in names:
                if not name.startswith("_") and name not in EACH_ITS_OWN:
                    homes[name].add(module)
    assert {name: sorted(found) for name, found in homes.items() if len(found) > 1} == {}


@pytest.mark.sweep
def test_a_name_is_imported_from_where_it_is_defined() -> None:
    found = []
    for path in FILES:
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module in MODULES and node.module not in DOORS:
                for alias in node.names:
                    if f"{node.module}.{alias.name}" not in MODULES and alias.name not in definitions()[node.module]:
                        found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {alias.name} from {node.module}")
    assert found == []


def matches(patterns: dict[str, str]) -> list[str]:
    found = []
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        for pattern, instead in patterns.items():
            for match in re.finditer(rf"(?i)(?<![\w.]){pattern}(?!\w)", text):
                line = text.count("\n", 0, match.start()) + 1
                found.append(f"{path.relative_to(ROOT)}:{line}: {match.group()!r}: {instead}")
    return found


@pytest.mark.sweep
def test_the_words_are_those_of_the_field() -> None:
    assert matches(WORDS) == []


@pytest.mark.sweep
def test_no_module_refers_to_what_is_not_in_the_repository() -> None:
    assert matches(REFERENCES) == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("told", "the changes are told"), ("goes on", "the query goes on"), (r"\w+: whose\.", "store: whose.")],
)
def test_a_word_is_found_in_a_sentence(pattern: str, text: str) -> None:
    assert re.search(rf"(?<![\w.]){pattern}(?!\w)", text)


def test_what_workers_preload_exists() -> None:
    """An import that fails there is suppressed: every task would only be slower by what it imports."""
    daemon = importlib.import_module("engine.worker_daemon")
    preloaded = {*daemon.PRELOADED, *daemon.modules_for([daemon.LOOKUP]), *daemon.modules_for([daemon.CREATION])}
    ours = [name for name in preloaded if name.partition(".")[0] in PACKAGES]
    assert ours
    assert set(ours) <= MODULES.keys()
    for name in preloaded:
        importlib.import_module(name)
