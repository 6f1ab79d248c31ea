"""The notebooks of the pages run, and show what is stored in them."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "examples").glob("*.ipynb"))


def outputs_of(notebook: Path) -> list[list[dict[str, Any]]]:
    """The outputs of each cell of code; sizes of files and other long numbers as ``…``."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    texts = [json.dumps(cell["outputs"], ensure_ascii=False) for cell in cells if cell["cell_type"] == "code"]
    return [json.loads(re.sub(r"\b\d{3,}\b", "…", text)) for text in texts]


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_shows_what_is_stored_in_it(notebook: Path, tmp_path: Path) -> None:
    """After a change that is meant: ``PYTHONPATH=.venv-docs python -m tests.run_notebook docs/examples/NAME``."""
    copy = tmp_path / notebook.name
    shutil.copy(notebook, copy)
    paths = os.pathsep.join(str(ROOT / each) for each in (".venv-docs", "engine/plugin", "."))
    environment = {**os.environ, "PYTHONPATH": paths, "IPYTHONDIR": str(tmp_path / "ipython")}
    command = [sys.executable, "-m", "tests.run_notebook", str(copy)]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert outputs_of(copy) == outputs_of(notebook)


def test_there_are_notebooks() -> None:
    assert "quickstart.ipynb" in [path.name for path in NOTEBOOKS]
