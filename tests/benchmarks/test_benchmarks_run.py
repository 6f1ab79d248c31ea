"""Every benchmark runs, on next to nothing, and prints lines that can be kept and compared."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(path.stem for path in (ROOT / "benchmarks").glob("bench_*.py"))

pytestmark = [pytest.mark.broker, pytest.mark.interop]  # pypaimon is the peer of one of them


def source_of(name: str) -> str:
    return (ROOT / "benchmarks" / f"{name}.py").read_text(encoding="utf-8")


def figures(line: Any) -> Iterator[float]:
    """Every number in a line, however deep; not what something adds: that is noise where little is measured."""
    if isinstance(line, dict):
        for name, value in line.items():
            if not name.startswith("added_"):
                yield from figures(value)
    elif isinstance(line, int | float) and not isinstance(line, bool):
        yield line


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.spark if "Spark" in source_of(name) else ()) for name in NAMES]
)
def test_its_lines_say_what_was_measured_where_and_beside_what(name: str) -> None:
    command = [sys.executable, "-m", f"benchmarks.{name}", "--tiny"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
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
