"""Tests that share a server run in one process, whatever pytest and pytest-xdist agree on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TESTS = """
import os
import pytest

{mark}
@pytest.mark.parametrize("n", range(4))
def test_anything(n):
    with open(__file__ + ".pids", "a") as file:
        print(os.getpid(), file=file)
"""
SERVED = '@pytest.mark.xdist_group("server")'


@pytest.mark.sweep
def test_a_group_and_a_file_are_one_process_of_several(tmp_path: Path) -> None:
    """Issue 13, 7: a marker that nobody reads starts each server in each worker, and every test still passes."""
    for name, mark in (("one", SERVED), ("two", SERVED), ("three", ""), ("four", "")):
        (tmp_path / f"test_{name}.py").write_text(TESTS.format(mark=mark))
    plugins = ["-p", "xdist", "-p", "tests.support.groups", "-p", "no:cacheprovider"]
    asked = ["-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder", "-q", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, *asked],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {path.name.split(".")[0]: path.read_text().split() for path in tmp_path.glob("*.pids")}
    assert [len(pids) for pids in found.values()] == [4] * 4
    assert len({*found["test_one"], *found["test_two"]}) == 1
    assert {name: len({*pids}) for name, pids in found.items()} == dict.fromkeys(found, 1)
