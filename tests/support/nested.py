"""A pytest of its own, on tests that a test wrote: for plugins of this suite."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.markdown import ROOT


def run_pytest(directory: Path, *arguments: str) -> str:
    """What it prints over the tests of a directory, with no plugin but those of the arguments; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments, str(directory)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""},
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
