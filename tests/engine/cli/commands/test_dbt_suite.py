"""dbt's own tests of adapters, with dbt-spark on a server of Fluvial's tables: see ``tests/peers/dbt_classes.py``."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.engine.cli.commands.test_serve import PROJECT, ROOT, Server, serving

CLASSES = ROOT / "tests/peers/dbt_classes.py"
PASSED = {"few": 2, "basic": 13, "seeds": 6, "unit tests": 3, "types": 5, "utils": 33, "schemas": 5}
"""How many tests of each group pass; no other outcome is allowed."""
IN_EVERY_RUN = {"few", "schemas"}
"""The groups of ``make test-all``; the others take a quarter of an hour, and are for ``make soak``."""
pytestmark = [pytest.mark.spark, pytest.mark.sweep, pytest.mark.xdist_group("dbt"), pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from serving(tmp_path_factory.mktemp("dbt"), "--trust-clients")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "group", [pytest.param(each, marks=[] if each in IN_EVERY_RUN else pytest.mark.soak) for each in PASSED]
)
def test_classes_of_dbts_suite_pass(server: Server, tmp_path: Path, group: str) -> None:
    shutil.copy(CLASSES, tmp_path / "test_suite.py")
    shutil.copy(PROJECT / "macros" / "fluvial.sql", tmp_path)
    report = tmp_path / "report.xml"
    python = ROOT / ".venv-dbt" / "bin" / "python"
    plain = ["-p", "no:cacheprovider", "-W", "ignore", "--tb=short", "--show-capture=no", "--rootdir", str(tmp_path)]
    command = [str(python), "-m", "pytest", "-q", "-p", "dbt.tests.fixtures.project", f"--junitxml={report}", *plain]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'made'}", "test_suite.py"],
        env={**os.environ, "FLUVIAL_PORT": str(server.port), "FLUVIAL_DBT_GROUP": group},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=1800,
    )
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-1000:]
    (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    counts = {each: int(suite.get(each, "0")) for each in ("tests", "failures", "errors", "skipped")}
    assert counts == {"tests": PASSED[group], "failures": 0, "errors": 0, "skipped": 0}


def test_the_page_says_how_many_pass() -> None:
    page = (ROOT / "docs/serve.md").read_text(encoding="utf-8")
    said = [int(number) for number in re.findall(r"^\| [^|]+ \| (\d+) \|$", page, re.MULTILINE)]
    assert said == [*(count for group, count in PASSED.items() if group != "few"), 0]
