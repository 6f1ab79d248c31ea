"""Every benchmark runs, on next to nothing, and prints lines that can be kept and compared."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = sorted(f"{path.parent.name}.{path.stem}" for path in (ROOT / "benchmarks").glob("*/bench_*.py"))

pytestmark = [  # pypaimon is the peer of one of them
    pytest.mark.broker,
    pytest.mark.interop,
    pytest.mark.xdist_group("benchmarks"),
]


@pytest.fixture(scope="module")
def run_benchmark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], str]]:
    """Runs one on next to nothing and gives what it prints; all in one process, see runner.py."""
    log = tmp_path_factory.mktemp("benchmarks") / "log"
    command = [sys.executable, "-m", "tests.benchmarks.runner"]
    with log.open("wb") as errors:
        process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert process.stdin is not None
    assert process.stdout is not None
    with process, process.stdin as requests, process.stdout as answers:

        def run(name: str) -> str:
            print(name, file=requests, flush=True)
            line = answers.readline()
            assert line, f"the process of the benchmarks ended: {log.read_text()[-3000:]}"
            answer = json.loads(line)
            assert answer["error"] == "", answer["error"] + log.read_text()[-3000:]
            return str(answer["printed"])

        yield run


def source_of(name: str) -> str:
    return (ROOT / "benchmarks" / f"{name.replace('.', '/')}.py").read_text(encoding="utf-8")


def figures(line: Any) -> Iterator[float]:
    """Every number in a line, however deep; not what something adds: that is noise where little is measured."""
    if isinstance(line, dict):
        for name, value in line.items():
            if not name.startswith("added_"):
                yield from figures(value)
    elif isinstance(line, int | float) and not isinstance(line, bool):
        yield line


def marks_of(name: str) -> tuple[pytest.MarkDecorator, ...]:
    """What starts Spark or Flink takes long."""
    needed = source_of(name)
    return (
        *((pytest.mark.spark,) if "Spark" in needed else ()),
        *((pytest.mark.long,) if "Spark" in needed or "Flink" in needed else ()),
    )


@pytest.mark.sampled(8)
@pytest.mark.parametrize("name", [pytest.param(name, marks=marks_of(name)) for name in NAMES])
def test_its_lines_say_what_was_measured_where_and_beside_what(name: str, run_benchmark: Callable[[str], str]) -> None:
    check_lines(run_benchmark(name))


def check_lines(printed: str) -> None:
    lines = [json.loads(line) for line in printed.splitlines()]
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


def test_each_runs_by_its_name_in_a_process_of_its_own() -> None:
    """One does here; that the others begin in the same way is read in their text."""
    begins = '\n\nif __name__ == "__main__":\n    main()\n'
    assert [name for name in NAMES if not source_of(name).endswith(begins)] == []
    command = [sys.executable, "-m", "benchmarks.logstore.bench_json_encode", "--tiny"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    check_lines(done.stdout)
