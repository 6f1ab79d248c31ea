"""sqlglot's private members: those that the dialect uses exist, and one class alone uses them."""

import ast
from pathlib import Path

import pytest
import sqlglot
from sqlglot.parsers.spark import SparkParser

from engine.dialect.grammar import dialect
from engine.dialect.grammar.dialect import FluvialParser

MODULE = Path(dialect.__file__)
PARSER = next(
    node
    for node in ast.walk(ast.parse(MODULE.read_text()))
    if isinstance(node, ast.ClassDef) and node.name == FluvialParser.__name__
)


def private_names(node: ast.AST) -> set[str]:
    """Names behind a point that begin with one underscore."""
    found = {each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)}
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def names_of_others(node: ast.AST) -> set[str]:
    """Private names of objects that are not ``self``."""
    found = (each for each in ast.walk(node) if isinstance(each, ast.Attribute))
    return {each.attr for each in found if ast.unparse(each.value) not in ("self", "cls")}


OWN = {"_source", "_parse_table_options", "_give_options", "_parse_bare_version"}
DEFINED = {each.name for each in PARSER.body if isinstance(each, ast.FunctionDef) and each.name.startswith("_")}
USED = sorted((private_names(PARSER) | DEFINED) - OWN)


@pytest.mark.parametrize("name", USED)
def test_the_parser_has_the_private_members_that_the_dialect_extends(name: str) -> None:
    assert hasattr(SparkParser(), name), f"sqlglot {sqlglot.__version__} has no SparkParser.{name}"


def test_the_dialects_own_names_hide_none_of_sqlglot() -> None:
    assert [name for name in OWN if hasattr(SparkParser(), name)] == []


@pytest.mark.sweep
def test_no_other_class_touches_them() -> None:
    found = {
        f"{path.name}: {name}"
        for path in MODULE.parents[2].rglob("*.py")
        for node in ast.parse(path.read_text()).body
        if not (path == MODULE and isinstance(node, ast.ClassDef) and node.name == PARSER.name)
        for name in names_of_others(node) & {*USED}
    }
    assert sorted(found) == []
