"""The page about lineage does what it says, from top to bottom."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[3] / "docs/lineage.md"


@pytest.mark.sweep
def test_the_page_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """LN-01 to LN-06, LN-26 to LN-28, LN-35, LN-67 to LN-71."""
    monkeypatch.chdir(tmp_path)
    parts = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(parts) == 7
    exec(compile("\n".join(parts), PAGE.name, "exec"), {})
