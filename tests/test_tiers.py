"""What ``make test`` and ``make test-all`` leave to others, and what they keep."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.markdown import ROOT
from tests.support.nested import run_pytest
from tests.support.tiers import spread

TESTS = """
import pytest

@pytest.mark.sampled(2)
@pytest.mark.parametrize("letter", "abc")
@pytest.mark.parametrize("n", range(3))
def test_of_nine(n, letter): pass

@pytest.mark.sampled(4)
@pytest.mark.parametrize("n", range(3))
def test_of_three(n): pass

@pytest.mark.long
def test_long(): pass
"""
BUSY = """
import subprocess, sys, time

def test_quick(): pass

def test_busy():
    code = "import time\\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
"""
COLLECT = """
import json, sys, pytest

class Fixtures:
    def pytest_collection_finish(self, session):
        from tests.conftest import PROCESSES, needed_by
        found = {False: set(), True: set()}
        for item in session.items:
            found[item.get_closest_marker("long") is not None].update(PROCESSES.keys() & {*needed_by(item)})
        print("parts", json.dumps([sorted(names) for names in found.values()]))

sys.exit(pytest.main(["--collect-only", "-qq", "-m", "not soak", "tests"], [Fixtures()]))
"""


@given(cells=st.integers(1, 300), count=st.integers(1, 300))
def test_cells_are_kept_at_even_distances(cells: int, count: int) -> None:
    """Issue 13, 7."""
    kept = sorted(spread(cells, count))
    assert kept[0] == 0
    assert len(kept) == min(cells, count)
    ends = [*kept[1:], cells]
    distances = {end - place for place, end in zip(kept, ends, strict=True)}
    assert max(distances) - min(distances) <= 1
    assert min(distances) >= 1


@pytest.mark.sweep
def test_a_sampled_test_keeps_some_of_its_cells(tmp_path: Path) -> None:
    """Issue 13, 7."""
    (tmp_path / "test_any.py").write_text(TESTS)
    found = run_pytest(tmp_path, "-p", "tests.support.tiers", "-m", "not soak", "--collect-only")
    names = {line.partition("::")[2] for line in found.splitlines() if "::" in line}
    three = {f"test_of_three[{n}]" for n in range(3)}
    assert names == {"test_of_nine[0-a]", "test_of_nine[1-b]", "test_long", *three}


@pytest.mark.sweep
def test_costs_are_of_all_processes_of_a_test(tmp_path: Path) -> None:
    """Issue 13, 7: what a test starts is what makes it long."""
    (tmp_path / "test_any.py").write_text(BUSY)
    found = run_pytest(tmp_path, "-p", "xdist", "-n", "1", "-p", "tests.support.costs")
    costs = {name: float(cost) for cost, name in re.findall(r"^ +([\d.]+) test_any.py::(\w+)$", found, re.MULTILINE)}
    assert costs.keys() == {"test_busy", "test_quick"}
    assert costs["test_busy"] >= 0.5


@pytest.mark.long
def test_make_test_has_every_real_part() -> None:
    """Issue 13, 7: what is long are more cells and stories of a database, a cluster or a peer, never all of them."""
    command = [sys.executable, "-c", COLLECT]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in printed.splitlines() if line.startswith("parts ")]
    kept, left = map(set, json.loads(line.removeprefix("parts ")))
    assert {"spark", "broker", "flink", "java_peer", "postgres_source", "object_store"} <= kept
    assert left - kept == set()
