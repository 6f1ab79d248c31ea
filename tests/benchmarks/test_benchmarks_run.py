"""Every benchmark runs, on next to nothing, and prints lines that can be kept and compared."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(path.stem for path in (ROOT / "benchmarks").glob("bench_*.py"))
AT_ONCE = 2

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.interop]  # pypaimon is the peer of one of them

Outcome = subprocess.CompletedProcess[str]


@pytest.fixture(scope="module")
def outcome() -> Iterator[Callable[[str], Outcome]]:
    """Runs all of them at once, as far as a small machine can; gives the outcome of one."""

    def run(name: str) -> Outcome:
        command = [sys.executable, "-m", f"benchmarks.{name}", "--tiny"]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        longest_first = sorted(NAMES, key=lambda name: "Spark" not in source_of(name))
        running: dict[str, Future[Outcome]] = {name: pool.submit(run, name) for name in longest_first}
        yield lambda name: running[name].result()


def source_of(name: str) -> str:
    return (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")


def figures(line: Any) -> Iterator[float]:
    """Every number in a line, however deep."""
    if isinstance(line, dict):
        for value in line.values():
            yield from figures(value)
    elif isinstance(line, int | float) and not isinstance(line, bool):
        yield line


@pytest.mark.parametrize("name", NAMES)
def test_its_lines_say_what_was_measured_where_and_beside_what(name: str, outcome: Callable[[str], Outcome]) -> None:
    done = outcome(name)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines
    for line in lines:
        assert line.keys() >= {"benchmark", "commit", "machine", "rows", "peer"}
        assert line["rows"] > 0
        assert "cores" in line["machine"]
        assert all(number >= 0 for number in figures(line))
        if "seconds" in line:
            assert line.keys() >= {"rows_per_s", "peer_rows_per_s", "ratio", "cpu_ratio", "peak_memory_bytes"}
            assert line["peer"] in line["seconds"]
        for facts in [line, *(value for value in line.values() if isinstance(value, dict))]:
            assert ("budget" in facts) == ("met" in facts)
