"""Type the week as a person would: ``python -m tests.story [--long]`` prints code, seconds and answer of each line."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.story.place import prepare
from tests.story.week import LONG, SHORT, steps


def main() -> int:
    """How many lines are answered otherwise than written down."""
    wrong = 0
    with tempfile.TemporaryDirectory(prefix="fluvial-story-") as directory:
        prepare(Path(directory))
        here = os.pathsep.join(map(os.path.abspath, sys.path))
        environment = {**os.environ, "FLUVIAL_WAREHOUSE": "lake", "PYTHONPATH": here}
        for line, code, words in steps(SHORT + (LONG.lstrip() if "--long" in sys.argv[1:] else "")):
            command = line.replace("fluvial", f"{sys.executable} -m engine.cli", 1)
            start_s = time.monotonic()
            done = subprocess.run(
                ["sh", "-c", command], cwd=directory, env=environment, capture_output=True, text=True, check=False
            )
            seconds = time.monotonic() - start_s
            is_right = done.returncode == code and words in done.stderr
            wrong += not is_right
            first = next(iter(done.stderr.splitlines()), "")
            print(f"{'' if is_right else 'WRONG '}$ {line}\n  {done.returncode} {seconds:.1f}s {first}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
