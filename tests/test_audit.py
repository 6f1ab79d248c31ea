"""``make audit`` without a network: every file of pins is asked about, and every answer counts."""

import os
import re
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from engine.preflight import components
from tests.test_tidy import ROOT

FILES = sorted(path.name for path in (ROOT / "conf").glob("*constraints.txt"))
AUDITOR = """#!{python}
import sys
pins = sys.argv[sys.argv.index("--requirement") + 1]
with open({asked!r}, "a") as file:
    print(*sys.argv[1:], file=file)
sys.exit({answers!r}.get(pins.rpartition("/")[2]))
"""


ADVISORY = "Found 1 known vulnerability in 1 package"
NO_NETWORK = "Failed to establish a new connection: Network is unreachable"


def audited(place: Path, answers: dict[str, str]) -> tuple[int, list[str]]:
    """The exit code, and the arguments of each call, with an auditor that fails with these texts, by file."""
    asked = place / "asked"
    auditor = place / "venv" / "bin" / "python"
    auditor.parent.mkdir(parents=True)
    auditor.write_text(AUDITOR.format(python=sys.executable, asked=str(asked), answers=answers))
    auditor.chmod(auditor.stat().st_mode | stat.S_IXUSR)
    (place / "venv" / ".stamp").touch()
    command = ["make", "--silent", "audit", f"AUDIT={place / 'venv'}", f"PYTHON={sys.executable}", "ARGS=-s osv"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, asked.read_text().splitlines()


def pins_of(call: str) -> str:
    words = call.split()
    return words[words.index("--requirement") + 1].rpartition("/")[2]


@pytest.mark.sweep
def test_every_file_of_pins_is_audited_strictly(tmp_path: Path) -> None:
    code, calls = audited(tmp_path, {})
    assert code == 0
    assert sorted(map(pins_of, calls)) == FILES
    for call in calls:
        assert call.startswith("-m pip_audit --strict --no-deps --disable-pip ")
        assert call.endswith(" -s osv")


@pytest.mark.sweep
def test_an_advisory_fails_the_command_and_the_others_are_audited_too(tmp_path: Path) -> None:
    code, calls = audited(tmp_path, {"constraints.txt": ADVISORY})
    assert code != 0
    assert sorted(map(pins_of, calls)) == FILES


def test_a_service_that_is_not_reached_is_asked_once_and_is_no_good_answer(tmp_path: Path) -> None:
    code, calls = audited(tmp_path, dict.fromkeys(FILES, NO_NETWORK))
    assert code != 0
    assert len(calls) == 1


@pytest.mark.parametrize("name", FILES)
def test_a_line_of_pins_is_one_version_of_one_package(name: str) -> None:
    """What names no version is not audited: without packages of packages there is nothing that would find it."""
    for line in (ROOT / "conf" / name).read_text().splitlines():
        text = line.partition("#")[0].strip()
        if text:
            (version,) = Requirement(text).specifier
            assert version.operator == "==", line
            assert "*" not in version.version, line


def test_the_list_of_what_is_fetched_has_every_pin_with_a_hash() -> None:
    """An SBOM that lacks a package says that there is none."""
    found = components(str(ROOT))
    by_kind = Counter(str(each["purl"]).partition("/")[0].removeprefix("pkg:") for each in found)
    pins = {line for name in FILES for line in (ROOT / "conf" / name).read_text().splitlines() if "==" in line}
    assert by_kind["pypi"] >= len({re.sub(r"[-_.]+", "-", pin).lower() for pin in pins}) > 150
    locks = [*(ROOT / "conf").glob("*.lock"), *(ROOT / "engine").glob("*/*.lock")]
    archives = {line for lock in locks for line in lock.read_text().splitlines() if line and line[0] != "#"}
    assert by_kind["generic"] == len(archives) > 200
    assert by_kind["npm"] > 100
    assert all(re.fullmatch(r"[0-9a-f]{64}|[0-9a-f]{128}", each["hashes"][0]["content"]) for each in found)  # type: ignore[index]
