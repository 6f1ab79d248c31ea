"""The command that runs benchmarks."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("argument", "code", "text"), [("--help", 0, "merge_read"), ("nothing", 2, "no such benchmark: nothing known=")]
)
def test_what_is_no_benchmark_starts_none(argument: str, code: int, text: str) -> None:
    command = [sys.executable, "-m", "benchmarks", argument]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, text in done.stdout + done.stderr) == (code, True)
