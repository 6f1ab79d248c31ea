"""The lists of findings are true: each names a test that exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("room", "least"), [("soak", 38), ("flink", 10)])
def test_each_finding_has_a_test(room: str, least: int) -> None:
    lines = (ROOT / "tests" / room / "FINDINGS.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| finding")]
    assert len(rows) >= least
    assert [row for row in rows if "::test_" not in row and "| M (" not in row] == []
    named = [each.split("::") for row in rows for each in re.findall(r"`(tests/\S+::\w+)`", row)]
    assert [f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text("utf-8")] == []
