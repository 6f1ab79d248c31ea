"""The pages about versions do what they say: the blocks of each section run, one after the other."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGES = [ROOT / "docs" / name for name in ("versions.md", "branches.md", "savepoints.md")]
# relative paths in Spark are where its process began, so one begins in the directory that each section finds empty
IN_ONE_SESSION = """
import json, shutil, sys
from pathlib import Path
from engine import session
quiet = {"spark.ui.enabled": "false", "spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"}
spark = session("page", "local[2]", quiet)
for heading, code in json.loads(sys.stdin.read()).items():
    for left in Path.cwd().iterdir():
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    exec(compile(code, heading, "exec"), {"spark": spark})
    print("ran:", heading)
"""


def sections() -> dict[str, str]:
    """The Python of each section that has some, by heading."""
    text = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    _, *parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    code = {
        heading: "\n".join(re.findall(r"```python\n(.*?)```", body, re.DOTALL))
        for heading, body in zip(parts[::2], parts[1::2], strict=True)
    }
    return {heading: text for heading, text in code.items() if text}


def test_every_section_with_code_is_found() -> None:
    """A heading that occurs on two pages would hide a section."""
    code = [page.read_text(encoding="utf-8").count("```python") for page in PAGES]
    assert (len(sections()), sum(code)) == (7, 15)


def is_spark(code: str) -> bool:
    return re.search(r"\bspark\b", code) is not None


@pytest.mark.sweep
@pytest.mark.parametrize("heading", [heading for heading, code in sections().items() if not is_spark(code)])
def test_a_section_runs(heading: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """BR-04, BR-11, BR-13, BR-15, BR-16, BR-21, BR-24, BR-36, BR-37, BR-42; idea 11."""
    monkeypatch.chdir(tmp_path)
    exec(compile(sections()[heading], heading, "exec"), {})


@pytest.mark.long
@pytest.mark.spark
def test_the_sections_with_a_session_run(tmp_path: Path) -> None:
    """BR-01, BR-02, BR-03, BR-04, BR-14, BR-16, BR-32."""
    wanted = {heading: code for heading, code in sections().items() if is_spark(code)}
    done = subprocess.run(
        [sys.executable, "-c", IN_ONE_SESSION],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        input=json.dumps(wanted),
        capture_output=True,
        text=True,
        check=False,
    )
    ran = [line.removeprefix("ran: ") for line in done.stdout.splitlines() if line.startswith("ran: ")]
    assert (done.returncode, ran) == (0, list(wanted)), done.stderr[-5000:]
    assert len(ran) == 3


def test_the_page_says_what_cannot_name_a_tag() -> None:
    """TAG-15: the rule that a creation checks is documented."""
    assert "A tag cannot be named by a number" in PAGES[0].read_text(encoding="utf-8")
