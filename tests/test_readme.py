"""What the README and the pages show is true: examples run; files, names, links and commands exist."""

import ast
import contextlib
import importlib
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import engine
from engine.cli.app import run_command
from tests.support.commands import parse_command, shown_commands

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
DOCS = sorted((ROOT / "docs").glob("*.md"))
ROOMS = [*sorted(ROOT.glob("engine/*/README.md")), ROOT / "filestore/README.md"]
USERS_PAGES = [README, ROOT / "CONTRIBUTING.md", *DOCS]
PAGES = [*USERS_PAGES, *ROOMS]
TEXT = {path: path.read_text(encoding="utf-8") for path in PAGES}
ALL = "\n".join(TEXT.values())
FOR_USERS = "\n".join(TEXT[path] for path in USERS_PAGES)
PACKAGES = "engine|filestore|logstore|lsm"

README_BYTES, PAGE_BYTES = 12_288, 16_000
LINE, TABLE_ROW = 120, 160
# words of a private dialect, which have standard ones; none of them is an option or a name in code
UNCLEAR = r"told|tells?|whoever|somebody|nobody|whose|for ever|anew|surely|shall|goes on|ours|theirs|mended"
TOURS = {
    "README.md": 2,
    "docs/keyless.md": 1,
    "docs/follow.md": 3,
    "docs/reading.md": 1,
    "docs/expectations.md": 1,
    "docs/merge-engines.md": 1,
    "docs/coming-from.md": 1,
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(text: str, language: str) -> list[str]:
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    return [body for found, body in fences if found == language]


def prose(text: str) -> str:
    """A page without its blocks of code, and without what is code in a line."""
    return re.sub(r"`[^`\n]*`", "``", re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE))


@pytest.mark.sweep
@pytest.mark.parametrize("page", TOURS)
def test_the_examples_run_word_for_word(page: str, tmp_path: Path) -> None:
    """FL-02, FL-82, TAG-01, TAG-02."""
    parts = re.findall(r"<!-- run by tests/test_readme.py -->\n```python\n(.*?)```", TEXT[ROOT / page], re.DOTALL)
    code = "".join(parts)
    assert len(parts) == TOURS[page]
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_example_that_says_so_is_run() -> None:
    found = {name_of(path): text.count("<!-- run by tests/test_readme.py -->") for path, text in TEXT.items()}
    assert {page: count for page, count in found.items() if count} == TOURS


@pytest.mark.parametrize("path", sorted(set(re.findall(rf"[`(]((?:{PACKAGES}|tests|conf|docs)/[\w/.@-]+)[`)]", ALL))))
def test_a_file_that_it_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize(("path", "name"), sorted(set(re.findall(r"`([\w/]+\.py)`\s\(`(\w+)`\)", TEXT[README]))))
def test_what_a_step_names_is_defined_there(path: str, name: str) -> None:
    assert re.search(rf"^(?:class|def) {name}\b", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def dotted_names() -> Iterator[str]:
    """Modules of ours, and what is in them, that pages name in a line or import in an example."""
    yield from re.findall(rf"`((?:{PACKAGES})(?:\.\w+)+)[`(]", ALL)
    for text in TEXT.values():
        for block in blocks(text, "python"):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and re.match(PACKAGES, node.module or ""):
                    yield from (f"{node.module}.{each.name}" for each in node.names)


@pytest.mark.parametrize("name", sorted(set(dotted_names())))
def test_a_name_in_python_exists(name: str) -> None:
    module, _, attribute = name.rpartition(".")
    if hasattr(importlib.import_module(module), attribute):
        return
    assert importlib.util.find_spec(name) is not None


@pytest.mark.parametrize("command", sorted({" ".join(words) for words in shown_commands(ALL)}))
def test_a_command_that_it_shows_is_one(command: str) -> None:
    words = next(words for words in shown_commands(ALL) if " ".join(words) == command)
    assert parse_command(words)


@pytest.mark.parametrize("command", sorted(set(re.findall(r"`fluvial ([a-z][\w-]+(?: [\w./-]+)*)`", FOR_USERS))))
def test_a_command_in_a_sentence_is_one(command: str) -> None:
    """It may leave out what the command needs to run."""
    with contextlib.suppress(click.MissingParameter):
        parse_command(command.split())


@pytest.mark.parametrize(("kind", "name"), sorted(set(re.findall(r"\b(Table|Catalog)\.(\w+)", FOR_USERS))))
def test_a_method_that_it_names_exists(kind: str, name: str) -> None:
    assert hasattr(getattr(engine, kind), name)


@pytest.mark.parametrize(
    "target",
    sorted(set(re.findall(r"(?:`|^\$ )make ([a-z-]+)", ALL, re.MULTILINE))),
    ids=lambda target: f"make {target}",
)
def test_a_target_of_make_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def benchmark_names() -> set[str]:
    """Benchmarks that lines name, and those in the last column of tables of figures."""
    named = set(re.findall(r"python -m benchmarks ([a-z_]+)", ALL))
    for path in (README, ROOT / "docs/benchmarks.md"):
        for table in re.findall(r"^\| what \|.*\n\|---.*\n((?:\|.*\n)+)", TEXT[path], re.MULTILINE):
            cells = [row.split("|")[-2] for row in table.splitlines()]
            named |= {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    return named


@pytest.mark.parametrize("name", sorted(benchmark_names()))
def test_a_figure_comes_from_a_benchmark(name: str) -> None:
    assert len(list((ROOT / "benchmarks").glob(f"*/bench_{name}.py"))) == 1


def option_names() -> set[str]:
    """What tables of options list in their first column; without placeholders and shortened names."""
    found: set[str] = set()
    for text in (TEXT[path] for path in USERS_PAGES):
        for table in re.findall(r"^\| option\b.*\n\|---.*\n((?:\|.*\n)+)", text, re.MULTILINE):
            cells = [row.split("|")[1] for row in table.splitlines()]
            found |= {name for cell in cells for name in re.findall(r"`([a-z0-9][\w.-]*)`", cell)}
    return found


@pytest.mark.sweep
def test_an_option_that_a_table_lists_is_one() -> None:
    code = "".join(path.read_text("utf-8") for name in PACKAGES.split("|") for path in (ROOT / name).rglob("*.py"))
    names = option_names()
    assert len(names) > 100
    assert sorted(name for name in names if f'{name}"' not in code) == []


def anchors(text: str) -> set[str]:
    """The anchors of headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links() -> list[tuple[str, str]]:
    found = {
        (name_of(path), link) for path, text in TEXT.items() for link in re.findall(r"\]\(([^)\s]+)\)", prose(text))
    }
    return sorted((page, link) for page, link in found if "://" not in link)


@pytest.mark.parametrize(("page", "link"), links())
def test_a_link_leads_somewhere(page: str, link: str) -> None:
    target, _, anchor = link.partition("#")
    path = ((ROOT / page).parent / target).resolve() if target else ROOT / page
    assert path.exists()
    assert not anchor or anchor in anchors(path.read_text(encoding="utf-8"))


WRITTEN = [path for path in USERS_PAGES if path != ROOT / "docs/options.md"]  # that one is generated


@pytest.mark.parametrize("page", [name_of(path) for path in WRITTEN])
def test_a_page_can_be_read(page: str) -> None:
    """Short enough, lines that fit a screen, in words that other projects use, without numbers of decisions."""
    text = TEXT[ROOT / page]
    assert len(text.encode()) <= (README_BYTES if page == "README.md" else PAGE_BYTES)
    too_long = [line for line in text.splitlines() if len(line) > (TABLE_ROW if line.startswith("|") else LINE)]
    assert too_long == []
    assert re.findall(rf"(?i)\b(?:{UNCLEAR})\b|\bdecisions? \d+", prose(text)) == []


def test_the_index_has_every_page() -> None:
    index = TEXT[ROOT / "docs/README.md"]
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", index))
    assert {path.name for path in DOCS} - {"README.md"} <= linked


def test_the_tree_has_every_room() -> None:
    tree = next(block for block in blocks(TEXT[README], "") if block.startswith("lsm/"))
    shown: dict[str, set[str]] = {}
    package = ""
    for line in tree.splitlines():
        package = line[:12].strip() or package
        shown.setdefault(package, set()).update(re.split(r" {3,}", line[12:])[0].split())
    for package in PACKAGES.split("|"):
        listed = shown[f"{package}/"]
        rooms = {path.relative_to(ROOT / package).parts[0] for path in (ROOT / package).glob("*/**/*.py")}
        assert rooms - listed == set(), package
        assert [name for name in listed if not (ROOT / package / name).exists()] == [], package


@pytest.mark.parametrize("job", ["conf/orders.yaml", "conf/flights.yaml", "conf/events.yaml"])
def test_the_job_files_are_valid(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["validate", str(ROOT / job)]) == 0, capsys.readouterr().err


@pytest.mark.sweep
def test_the_page_of_dependencies_is_that_of_the_project() -> None:
    """Each package once, each is imported somewhere, and the bounds are as the page says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    text = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")

    def names(given: list[str]) -> list[str]:
        return [re.split(r"[<>=\[]", each)[0] for each in given]

    hard = re.findall(r"^\| `([\w-]+)` \| [^|`]*(?:`[^|]*)?\|$", text, re.MULTILINE)
    assert hard == names(project["dependencies"])
    extras = re.findall(r"^\| `([\w-]+)` \| `([\w-]+)` \|", text, re.MULTILINE)
    wanted = {key: names(given) for key, given in project["optional-dependencies"].items() if key != "dev"}
    assert {extra: [package for each, package in extras if each == extra] for extra, _ in extras} == wanted
    modules = {"confluent-kafka": "confluent_kafka", "pyyaml": "yaml", "prometheus-client": "prometheus_client",
               "pillow": "PIL", "openlineage-python": "openlineage"}  # fmt: skip
    paths = [path for each in PACKAGES.split("|") for path in (ROOT / each).rglob("*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    packages = [*hard, *(package for _, package in extras)]  # drivers are imported by SQLAlchemy, the flights as a file
    named = [each for each in packages if re.search(rf"\b{modules.get(each, each)}\b", code)]
    assert named == packages
    wheel = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    bounded = {re.split(r"[<>=\[]", each)[0] for each in wheel if "<" in each}
    assert bounded == {"pyspark", "pandas", "sqlglot"}
