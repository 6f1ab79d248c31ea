"""Starting a server of a test session, and ending it with the session."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

# Between fork and exec: become another user, if one is named; ask the kernel for a SIGTERM when the parent dies, and
# give up when it has died already.
_DIE_WITH_PARENT = (
    "import ctypes, os, sys; user, group = map(int, sys.argv[2:4]);"
    "user < 0 or (os.setgroups([]), os.setgid(group), os.setuid(user)); ctypes.CDLL(None).prctl(1, 15);"
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execv(sys.argv[4], sys.argv[4:])"
)


def free_port() -> int:
    """A port of this machine that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def is_listening(port: int) -> bool:
    """Whether somebody on this machine takes connections."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def start(
    command: Sequence[str], log_file: Path, is_up: Callable[[], bool], *, user: tuple[int, int] = (-1, -1)
) -> subprocess.Popen[bytes]:
    """The process, when it answers. A session of its own, so that Ctrl-C leaves ending it to us.

    Args:
        command: the program and its arguments.
        log_file: gets what it prints.
        is_up: whether it answers.
        user: numbers of the user and group to run as; negative: ours.
    """
    if sys.platform == "linux":
        numbers = map(str, (os.getpid(), *user))
        command = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, *numbers, *command]
    with log_file.open("wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd=log_file.parent
        )
    deadline = time.monotonic() + 60
    while not is_up():
        assert process.poll() is None, log_file.read_text()
        assert time.monotonic() < deadline, log_file.read_text()
        time.sleep(0.05)
    return process


def end(process: subprocess.Popen[bytes], how: signal.Signals = signal.SIGTERM) -> None:
    """End it, and wait until it has."""
    process.send_signal(how)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
