"""Starting a server of a test session, and ending it with the session."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

# Between fork and exec: ask the kernel for a SIGTERM when the parent dies, and give up when it has died already.
_DIE_WITH_PARENT = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15);"
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(
    command: Sequence[str],
    log_file: Path,
    is_up: Callable[[], bool],
    *,
    environment: Mapping[str, str] | None = None,
    **how: Any,
) -> subprocess.Popen[bytes]:
    """The process, when it answers. A session of its own, so that Ctrl-C leaves ending it to us."""
    if sys.platform == "linux" and not how:
        command = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
            **how,
        )
    deadline = time.monotonic() + 60
    while not is_up():
        assert process.poll() is None, log_file.read_text()
        assert time.monotonic() < deadline, log_file.read_text()
        time.sleep(0.05)
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """End it, and wait until it has."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
