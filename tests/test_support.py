"""What tests share has one home, checked as a property of the tests."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SUPPORT = TESTS / "support"
SUPPORT_FILES = sorted(path.name for path in SUPPORT.glob("*.py"))
MAX_FILES = 3


def is_fixture(node: ast.FunctionDef | ast.ClassDef) -> bool:
    return any("fixture" in ast.unparse(each) for each in node.decorator_list)


def helpers(source: str) -> set[str]:
    """Names of top-level functions and classes that are neither tests nor fixtures nor private."""
    return {
        node.name
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith(("test", "Test", "_"))
        and not is_fixture(node)
    }


def test_helpers_are_functions_and_classes_that_are_no_tests() -> None:
    functions = ["a", "_b", "test_c"]
    source = [f"def {name}(): ..." for name in functions] + ["@pytest.fixture", "def d(): ...", "class E: ..."]
    assert helpers("\n".join(source)) == {"a", "E"}


@pytest.mark.sweep
def test_a_helper_that_many_files_need_is_defined_in_support() -> None:
    """A name in more than a few files is one helper, which moves to tests/support, or several with a vague name.

    A package that is a program, such as the crossings, has the words of its own subject.
    """
    files = defaultdict(list)
    for path in sorted([*TESTS.rglob("test_*.py"), *SUPPORT.rglob("*.py")]):
        for name in helpers(path.read_text()):
            files[name].append(path.relative_to(TESTS).as_posix())
    repeated = {name: found for name, found in files.items() if len(found) > MAX_FILES}
    assert repeated == {}


@pytest.mark.parametrize("name", SUPPORT_FILES)
def test_support_says_what_it_is_for(name: str) -> None:
    tree = ast.parse((SUPPORT / name).read_text())
    assert ast.get_docstring(tree), name
    public = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name[0] != "_"]
    assert [node.name for node in public if not ast.get_docstring(node)] == []


def test_clients_of_brokers_are_silent() -> None:
    """librdkafka prints what it meets, such as a broker that a test stopped, into the middle of a run."""
    loud = [
        path.relative_to(TESTS).as_posix()
        for path in sorted(TESTS.rglob("*.py"))
        if re.search(r"(?<!\w)(Producer|Consumer|AdminClient)\(\s*\{", path.read_text())
    ]
    assert loud == []
