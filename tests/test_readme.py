"""What the README and the pages that it links to show is true: its example runs, files and commands exist."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.cli.app import run_command

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAGES = "\n".join(
    path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted(ROOT.glob("engine/*/README.md")), ROOT / "filestore/README.md")
)


def test_the_examples_run_word_for_word(tmp_path: Path) -> None:
    """FL-02, FL-82, TAG-01, TAG-02."""
    parts = re.findall(r"<!-- run by tests/test_readme.py -->\n```python\n(.*?)```", README, re.DOTALL)
    code = "".join(parts)
    assert len(parts) == 3
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "path", sorted(set(re.findall(r"[`(]((?:engine|lsm|filestore|logstore|tests|conf)/[\w/.@-]+)[`)]", PAGES)))
)
def test_a_file_that_it_names_exists(path: str) -> None:
    assert (ROOT / path).exists()


@pytest.mark.parametrize("command", sorted(set(re.findall(r"^\$ fluvial ([a-z][\w-]*)", PAGES, re.MULTILINE))))
def test_a_command_that_it_shows_exists(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command([command, "--help"]) == 0, capsys.readouterr().err


@pytest.mark.parametrize("job", ["conf/orders.yaml", "conf/flights.yaml", "conf/events.yaml"])
def test_the_job_files_are_valid(job: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["validate", str(ROOT / job)]) == 0, capsys.readouterr().err
