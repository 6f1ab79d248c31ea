"""What docs/architecture.md and CONTRIBUTING.md name exists, and an option that is added as the recipe says is one."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from textwrap import dedent, indent
from typing import Final

import pytest

from engine.request.writer_options import WriterOptions
from filestore.options.catalog_options import CatalogOptions
from filestore.options.table_options import TableOptions
from tests.support.house_counts import FILES, PACKAGES, ROOT, tree
from tests.support.markdown import quoted, sections, table

pytestmark = pytest.mark.xdist_group("house")  # modules are parsed once, by the process of these tests

ARCHITECTURE: Final = ROOT / "docs/architecture.md"
CONTRIBUTING: Final = ROOT / "CONTRIBUTING.md"
PAGES: Final = (ARCHITECTURE, CONTRIBUTING)
TEXT: Final = {page: page.read_text(encoding="utf-8") for page in PAGES}
FORMAT: Final = (ROOT / "FORMAT.md").read_text(encoding="utf-8")
MOST_LINES: Final = 300

OF_OTHERS: Final = {
    "spark.sql", "spark.table", "df.writeTo", "CALL", "functools.lru_cache", "Args", "key=value", "fix=",
}  # fmt: skip
"""Words of Spark, SQL, Python and messages that the pages put in backquotes."""

COMMANDS: Final = ("fluvial ", ".venv/bin/", "CALL sys.", "format(")
PATH: Final = re.compile(rf"(?:{'|'.join([*PACKAGES, 'tests', 'docs', 'conf', 'benchmarks'])})(?:/[\w.-]+)*/?")
NAME: Final = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)?(?:\(\))?")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def of_product(word: str) -> list[Path]:
    """The modules of the product that a path means."""
    path = ROOT / word
    return sorted(path.rglob("*.py")) if path.is_dir() else [path] if path.suffix == ".py" else []


@cache
def members(path: Path) -> dict[str, set[str]]:
    """What a module defines, and what each of its classes does."""

    def names(body: list[ast.stmt]) -> set[str]:
        found: set[str] = set()
        for each in body:
            if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found.add(each.name)
            elif isinstance(each, ast.AnnAssign | ast.Assign):
                targets = each.targets if isinstance(each, ast.Assign) else [each.target]
                found |= {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
        return found

    module = tree(path) if path in FILES else ast.parse(path.read_text(encoding="utf-8"))
    found = {"": names(module.body)}
    for node in module.body:
        if isinstance(node, ast.ClassDef):
            attributes = {
                each.attr
                for each in ast.walk(node)
                if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
            }
            found[node.name] = names(node.body) | attributes
    return found


@cache
def nodes_with(word: str) -> list[tuple[Path, ast.AST]]:
    """The syntax of the modules that have a word in their text; the others are not parsed."""
    found = [path for path in FILES if word in path.read_text(encoding="utf-8") and "simulation" not in path.parts]
    return [(path, node) for path in found for node in ast.walk(tree(path))]


def is_defined(word: str, modules: list[Path]) -> bool:
    owner, _, member = word.removesuffix("()").rpartition(".")
    return any(member in members(path).get(owner, ()) for path in modules)


def is_file_of_a_table(word: str) -> bool:
    """Whether FORMAT.md has such a file or directory; ``<n>`` is a number there too."""
    stem = re.sub(r"<\w+>.*", "", word)
    return "/" in word and bool(re.fullmatch(r"[\w./-]+", stem)) and stem in FORMAT


def unknown(page: Path) -> list[str]:
    """Words in backquotes that are nothing; a name is one of the modules that its section names."""
    options = {key for kind in (TableOptions, CatalogOptions, WriterOptions) for key in kind.declared}
    targets = {*re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)}
    found = []
    for heading, section in sections(TEXT[page]).items():
        words = quoted(section)
        modules = [path for word in words if PATH.fullmatch(word) for path in of_product(word)]
        for word in words:
            is_known = (
                word in OF_OTHERS | options
                or (PATH.fullmatch(word) and (ROOT / word).exists())
                or (ROOT / word).is_file()
                or (NAME.fullmatch(word) and is_defined(word, modules))
                or (word.startswith("make ") and word.split()[1] in targets)
                or word.startswith(COMMANDS)
                or word in thread_names()
                or is_file_of_a_table(word)
            )
            if not is_known:
                found.append(f"{heading}: {word}")
    return found


@pytest.mark.sweep
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_what_a_page_names_exists(page: Path) -> None:
    """Options are declared, files of a table are in FORMAT.md; the words of commands are read by ``test_readme``."""
    assert len(quoted(TEXT[page])) > 100
    assert unknown(page) == []


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("`StreamSink.closed` of `engine/write/sink.py`", "StreamSink.closed"),
        ("`engine/write/sink.py`\n## There\n`StreamSink`", "StreamSink"),
        ("`threading` of `engine/write/housekeeping.py`", "threading"),
        ("`fluvial-expiries`", "fluvial-expiries"),
        ("`engine/write/sinks.py`", "engine/write/sinks.py"),
        ("the option `write-buffer-sizes`", "write-buffer-sizes"),
        ("the directory `snapshots-of/`", "snapshots-of/"),
        ("`make tests`", "make tests"),
    ],
)
def test_what_does_not_exist_is_found(text: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TEXT, ARCHITECTURE, f"# Page\n{text}\n")
    assert [each.partition(": ")[2] for each in unknown(ARCHITECTURE)] == [wrong]


def test_the_whole_system_is_one_page_that_the_index_names() -> None:
    assert len(TEXT[ARCHITECTURE].splitlines()) <= MOST_LINES
    assert "](architecture.md)" in (ROOT / "docs/README.md").read_text(encoding="utf-8")
    assert "](../CONTRIBUTING.md)" in (ROOT / "docs/README.md").read_text(encoding="utf-8")


def drawn_layers() -> dict[str, list[set[str]]]:
    """The rooms in the picture, by package, from above: ``a > b | c`` are two layers."""
    (picture,) = re.findall(r"^```text\n(.*?)^```$", TEXT[ARCHITECTURE], re.DOTALL | re.MULTILINE)
    found: dict[str, list[set[str]]] = {}
    package = ""
    for line in picture.splitlines():
        package = line[:11].strip() or package
        rooms = re.split(r" {3,}", line[11:])[0]
        if not rooms.startswith("v "):  # an arrow between two packages
            layers = re.split(r"\s*>\s*", rooms.strip().removesuffix(">").strip())
            found.setdefault(package, []).extend({*re.split(r"\s*\|\s*", each.strip())} for each in layers)
    return found


def test_the_picture_has_every_room_in_the_order_of_the_contract() -> None:
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    layers = {
        each["containers"][0]: [{*re.split(r"\s*\|\s*", layer)} for layer in each["layers"]]
        for each in tools["importlinter"]["contracts"]
        if "containers" in each
    }
    assert {*layers} == {*PACKAGES}
    assert drawn_layers() == layers


@cache
def thread_names() -> set[str]:
    """The names of the threads that the product starts; a part that is filled in is ``*``."""
    found = set()
    for _, node in nodes_with("fluvial-"):
        if isinstance(node, ast.keyword) and node.arg in ("name", "thread_name_prefix"):
            parts = node.value.values if isinstance(node.value, ast.JoinedStr) else [node.value]
            text = "".join(str(each.value) if isinstance(each, ast.Constant) else "*" for each in parts)
            found |= {text} if text.startswith("fluvial-") else set()
    return found


def test_the_page_lists_every_thread_and_who_joins_it() -> None:
    rows = table(sections(TEXT[ARCHITECTURE])["Threads"])
    listed = {word for row in rows for word in quoted(row[0])}
    assert listed == thread_names()
    assert all(len(row) == 3 and row[2] for row in rows)


def numbers_of(path: Path) -> dict[str, str]:
    """The constants of a module that are whole numbers."""
    return dict(re.findall(r"^(\w+)(?:: Final)? = (\d+)$", path.read_text(encoding="utf-8"), re.MULTILINE))


def test_the_page_lists_every_cache_of_bytes_and_the_others_hold_no_more_than_it_says() -> None:
    text = sections(TEXT[ARCHITECTURE])["Caches and bounds"]
    listed = {path for row in table(text) for word in quoted(row[0]) for path in of_product(word)}
    calls = [(path, node) for word in ("ByteCache(", "lru_cache") for path, node in nodes_with(word)]
    calls = [(path, node) for path, node in calls if isinstance(node, ast.Call)]
    assert {path for path, node in calls if ast.unparse(node.func) == "ByteCache"} <= listed
    (most,) = re.findall(r"at most ([\d,]+)", text)
    bounds = [
        numbers_of(path).get(bound, bound)
        for path, node in calls
        if ast.unparse(node.func) == "lru_cache"
        for bound in [ast.unparse((*node.args, *(each.value for each in node.keywords))[0])]
    ]
    assert len(bounds) > 10
    assert [each for each in bounds if int(each) > int(most.replace(",", ""))] == []


def test_every_step_that_may_crash_says_who_completes_it() -> None:
    rows = table(sections(TEXT[ARCHITECTURE])["Crashes"])
    assert len(rows) >= 12
    assert [row for row in rows if len(row) != 3 or not all(row)] == []


# ---- the recipes

RECIPES: Final = (
    "An option of tables", "A statement of SQL", "A merge engine", "A type", "A command", "A procedure", "A catalog",
)  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_names_the_files_to_touch_in_their_order(recipe: str) -> None:
    text = sections(TEXT[CONTRIBUTING])[recipe]
    steps = re.findall(r"^(\d+)\. (.*(?:\n   .*)*)", text, re.MULTILINE)
    assert [int(number) for number, _ in steps] == [*range(1, len(steps) + 1)]
    assert len(steps) >= 3
    paths = [[word for word in quoted(step) if PATH.fullmatch(word)] for _, step in steps]
    assert all(paths), "each step names a file"
    assert any(word.startswith("tests/") for each in paths for word in each), "a test is a step"


def declaration() -> str:
    """The declaration that the recipe for an option shows."""
    (code,) = re.findall(r" *```python\n(.*?) *```", sections(TEXT[CONTRIBUTING])["An option of tables"], re.DOTALL)
    return dedent(str(code))


PROBE: Final = """
import sys
from engine.cli.commands.config import reference
from engine.deploy.config.json_schema import schema_text
from filestore.options.table_options import TableOptions
from lsm.errors import InvalidInputError

(option,) = (each for each in TableOptions.declared.values() if each.attribute == sys.argv[1])
parsed, absent = TableOptions.parse({option.key: " 3 "}), TableOptions.parse({})
print(parsed[option], getattr(parsed, sys.argv[1]), absent[option])
print([line for line in reference().splitlines() if line.startswith(f"| `{option.key}` |")])
print(schema_text().count(f'"{option.key}"'))
try:
    TableOptions.parse({option.key: "x"})
except InvalidInputError as error:
    print(error)
"""


@pytest.mark.sweep
def test_an_option_that_is_declared_as_the_recipe_says_is_in_force_and_on_the_page(tmp_path: Path) -> None:
    """In a copy that differs by this declaration alone."""
    where = ROOT / "filestore/options/table/commits.py"
    for package in PACKAGES:
        (tmp_path / package).symlink_to(ROOT / package)
    (tmp_path / "filestore").unlink()
    (tmp_path / "filestore").mkdir()
    for each in (ROOT / "filestore").iterdir():
        if each.name != "options":
            (tmp_path / "filestore" / each.name).symlink_to(each)
    shutil.copytree(ROOT / "filestore/options", tmp_path / "filestore/options")
    text, begins = where.read_text(encoding="utf-8"), "    commit_user_prefix = Option("
    assert text.count(begins) == 1
    added = text.replace(begins, indent(declaration(), "    ") + begins)
    (tmp_path / where.relative_to(ROOT)).write_text(added, encoding="utf-8")

    attribute = declaration().partition(" = ")[0]
    done = subprocess.run(
        [sys.executable, "-c", PROBE, attribute], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    values, rows, in_schema, refusal = done.stdout.splitlines()
    assert (values, int(in_schema) > 0) == ("3 3 None", True)
    (row,) = ast.literal_eval(rows)
    assert "| storage |" in row
    assert "An example of a recipe." in row
    assert re.search(r"option=commit\.example-count value='x' expected=.* fix=", refusal)
