"""The list of findings is true: each names a test that exists."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_finding_has_a_test() -> None:
    lines = Path(__file__).with_name("FINDINGS.md").read_text(encoding="utf-8").splitlines()
    rows = [line for line in lines if line.startswith("| ") and not line.startswith("| finding")]
    assert len(rows) > 35
    assert [row for row in rows if "::test_" not in row and "| M (" not in row] == []
    named = [each.split("::") for row in rows for each in re.findall(r"`(tests/\S+::\w+)`", row)]
    assert [f"{path}::{name}" for path, name in named if f"def {name}(" not in (ROOT / path).read_text("utf-8")] == []
