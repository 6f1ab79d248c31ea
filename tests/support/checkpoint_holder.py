"""Another process that holds a checkpoint."""

import subprocess
import sys
from pathlib import Path

HOLDER = """
import sys, time
from engine.write.run_lock import held_checkpoints
with held_checkpoints([sys.argv[1]]) as is_held:
    print(is_held, flush=True)
    time.sleep(600)
"""


def holder(location: Path) -> "subprocess.Popen[str]":
    """Another process that holds a checkpoint."""
    found = subprocess.Popen([sys.executable, "-c", HOLDER, str(location)], stdout=subprocess.PIPE, text=True)
    assert found.stdout is not None
    with found.stdout as said:
        assert said.readline() == "True\n"
    return found
