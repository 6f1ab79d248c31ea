"""The pages of the rooms are true: what they name exists, and every decision has its four lines."""

import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.support.markdown import ROOT, quoted

PACKAGES = ("engine", "filestore", "logstore", "lsm")
READMES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("README.md"))


def resolved(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


def dotted_names(page: Path) -> set[str]:
    """Names of modules in backquotes, whole: those of the room itself may stand without the way to it."""
    found = set()
    room = page.parent.relative_to(ROOT)
    modules = {path.stem for path in page.parent.glob("*.py")}
    for word in quoted(opening(page)):
        name = word.removesuffix("()")
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", name) or name.endswith(".py"):
            continue
        if name.split(".")[0] in PACKAGES:
            found.add(name)
        elif name.split(".")[0] in modules:
            found.add(".".join([*room.parts, name]))
    for word in quoted(page.read_text(encoding="utf-8")):
        if re.fullmatch(rf"({'|'.join(PACKAGES)})(\.[A-Za-z_]\w*)+", word):
            found.add(word)
    return found


def opening(page: Path) -> str:
    """What a page says before its first section."""
    return re.split(r"^## ", page.read_text(encoding="utf-8"), maxsplit=1, flags=re.MULTILINE)[0]


FILE = re.compile(rf"(?:{'|'.join([*PACKAGES, 'tests', 'conf', 'benchmarks'])})/[\w/.@-]+|[\w-]+\.(?:py|md)")


NAMING = [ROOT / "FORMAT.md", ROOT / "tests/README.md", *READMES]


@pytest.mark.parametrize("page", NAMING, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_modules_and_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert [name for name in sorted(dotted_names(page)) if not resolved(name)] == []
    words = {word for word in quoted(text) if FILE.fullmatch(word)}
    links = {target.split("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in target}
    missing = {word for word in words if not any((at / word).exists() for at in (ROOT, page.parent))}
    missing |= {link for link in links if link and not (page.parent / link).exists()}
    assert missing == set()


# ---- rooms and their decisions

ROOMS = sorted(
    path for package in PACKAGES for path in (ROOT / package).iterdir() if path.is_dir() and any(path.glob("*.py"))
)
DECISION = re.compile(
    r"\*\*[^*\n]+\*\*\nContext: [^\n]+\nChoice: [^\n]+\nRejected: [^\n]+\nRevisit when: [^\n]+",
)


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_room_says_what_it_is_for(room: Path) -> None:
    text = (room / "README.md").read_text(encoding="utf-8")
    first = text.splitlines()[0]
    assert first.startswith("# ")
    if "## Decisions" not in text:
        return
    decisions = [
        part for part in re.split(r"\n{2,}", text.partition("## Decisions\n")[2].partition("\n## ")[0]) if part.strip()
    ]
    assert decisions
    assert [part for part in decisions if not DECISION.fullmatch(part.strip())] == []
    assert [part.splitlines()[0] for part in decisions if len(part) > 660] == []


def test_no_page_refers_to_decisions_by_number() -> None:
    numbered = re.compile(r"decision \d+|FORMAT\.md,? \d+", re.IGNORECASE)
    assert [page for page in [ROOT / "FORMAT.md", *READMES] if numbered.search(page.read_text(encoding="utf-8"))] == []


CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
LAYERS = {
    contract["containers"][0]: [re.split(r" *\| *", layer) for layer in contract["layers"]]
    for contract in CONTRACTS
    if "containers" in contract
}


@pytest.mark.parametrize("room", ROOMS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_what_a_room_may_import_is_the_contract(room: Path) -> None:
    lines = re.findall(r"^May import: (.*)$", (room / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    package, name = room.relative_to(ROOT).parts
    if not lines:  # a page for users
        return
    layers = LAYERS[package]
    at = next(index for index, layer in enumerate(layers) if name in layer)
    (line,) = lines
    _, _, below = line.rpartition(f"in `{package}`, ")
    assert quoted(below if f"in `{package}`" in line else "") == (layers[at + 1] if at + 1 < len(layers) else [])
