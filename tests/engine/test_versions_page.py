"""The page about versions does what it says: the blocks of each section run, one after the other."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "engine/versions/README.md"


def sections() -> dict[str, str]:
    """The Python of each section that has some, by heading."""
    _, *parts = re.split(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    code = {
        heading: "\n".join(re.findall(r"```python\n(.*?)```", body, re.DOTALL))
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    }
    return {heading: text for heading, text in code.items() if text}


@pytest.mark.parametrize("heading", sections())
def test_a_section_runs(
    heading: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    code = sections()[heading]
    monkeypatch.chdir(tmp_path)
    given = {}
    if re.search(r"\bspark\b", code):
        given["spark"] = request.getfixturevalue("spark")
    if re.search(r"\bbrokers\b", code):
        given["brokers"] = request.getfixturevalue("broker").bootstrap_servers
    exec(compile(code, f"{PAGE.name}: {heading}", "exec"), given)
