"""Tests that share a server run in one process, whatever pytest and pytest-xdist agree on."""

from pathlib import Path

import pytest

from tests.support.nested import run_pytest

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
    plugins = ["-p", "xdist", "-p", "tests.support.groups"]
    run_pytest(tmp_path, *plugins, "-n", "2", "--dist", "loadgroup", "--no-loadscope-reorder")
    found = {path.name.split(".")[0]: path.read_text().split() for path in tmp_path.glob("*.pids")}
    assert [len(pids) for pids in found.values()] == [4] * 4
    assert len({*found["test_one"], *found["test_two"]}) == 1
    assert {name: len({*pids}) for name, pids in found.items()} == dict.fromkeys(found, 1)
