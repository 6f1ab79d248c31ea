"""One process that has imported what Spark's Python workers need, and forks each daemon that Spark asks for.

Spark starts a process of Python for each kind of work: one streaming query needs seven or eight, each of which takes a
second of processor time for the same imports. In a local session ``worker-python`` has them forked here instead, by
``worker_client``; it starts Python as ever where there is no server, or where the server refuses, which it does for
an environment that acts on imports and is not its own.

The server ends with the process that made the session. Nothing here starts a thread, because the process is forked.
"""

import atexit
import contextlib
import json
import os
import selectors
import shutil
import signal
import socket
import struct
import sys
import tempfile
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final

import pyspark

from engine.runtime.installed_pyspark import prefer_installed_pyspark

ADDRESS: Final = "FLUVIAL_WORKER_SERVER"
"""Environment: where the server listens."""

_LATER: Final = ("PYTHON_", "PYTHONUNBUFFERED", "PYSPARK_", "_PYSPARK_", "SPARK_", "_SPARK_", "FLUVIAL_WORKER_")
_SHELL: Final = ("_", "PWD", "OLDPWD", "SHLVL")  # of Spark's scripts
_PATH: Final = "PYTHONPATH"
_DEFAULTS: Final = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}  # Spark's, for its workers
_STREAMS: Final = 3  # standard input, output and error
_LENGTH: Final = struct.Struct("!I")
_REFUSED, _READY, _GO = b"0", b"1", b"2"
_PATIENCE_S: Final = 10.0

_servers: dict[int, int] = {}
"""The server of this process: process id, and the file descriptor whose closing ends the server."""


def start_worker_server(environment: MutableMapping[str, str]) -> None:
    """Start the server of this process unless it runs, and name it in an environment that the JVM will inherit.

    Where there can be none (no such sockets, a path that is too long), workers start one by one.

    Args:
        environment: of this process; changed.
    """
    if ADDRESS in environment and any(map(_is_running, _servers)):
        return
    environment.pop(ADDRESS, None)
    with contextlib.suppress(OSError, AttributeError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        directory = tempfile.mkdtemp(prefix="fluvial-workers-")  # of this user alone
        atexit.register(shutil.rmtree, directory, ignore_errors=True)
        listening.bind(f"{directory}/s")
        listening.listen(64)
        listening.set_inheritable(True)
        end, kept = os.pipe()
        # not `Popen`, which warns of processes that outlive it: this one is to run until the JVM has ended
        pid = os.posix_spawn(
            sys.executable,
            [sys.executable, "-m", "engine.spark.worker_server", str(listening.fileno()), directory],
            {**_DEFAULTS, **environment, "PYTHONUNBUFFERED": "YES"},
            file_actions=[(os.POSIX_SPAWN_DUP2, end, 0), (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)],
        )
        os.close(end)
        _servers[pid] = kept
        environment[ADDRESS] = f"{directory}/s"


def _is_running(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False  # it has been waited for, or is of the process that this one was forked from


def may_fork(wanted: Mapping[str, str], own: Mapping[str, str], spark_home: str) -> bool:
    """Whether a process with this environment would have imported the same, so that a copy of this one is as good.

    Args:
        wanted: environment that Spark gives the process.
        own: that of the server.
        spark_home: of the installed PySpark, whose copies in zip files and jars Spark adds to the module path.
    """
    names = {name for name in (*wanted, *own) if not name.startswith(_LATER) and name not in (*_SHELL, _PATH)}
    return all(wanted.get(name, _DEFAULTS.get(name)) == own.get(name, _DEFAULTS.get(name)) for name in names) and (
        _paths(wanted, spark_home) == _paths(own, spark_home)
    )


def _paths(environment: Mapping[str, str], spark_home: str) -> list[str]:
    found = [entry for entry in environment.get(_PATH, "").split(os.pathsep) if entry]
    return [entry for entry in dict.fromkeys(found) if not os.path.realpath(entry).startswith(spark_home + os.sep)]


class WorkerServer:
    """Forks. The parent stays in `serve`; a child leaves it with the work that it is to do."""

    def __init__(self, listening: socket.socket, works: Mapping[str, Callable[[], None]]) -> None:
        """Nothing is forked yet.

        Args:
            listening: where clients connect.
            works: the functions for the modules that may be asked for.
        """
        self._listening, self._works = listening, works
        self._own = dict(os.environ)
        self._spark_home = os.path.realpath(os.path.dirname(pyspark.__file__))
        self._clients: dict[int, socket.socket] = {}  # by the process that was forked for it
        self._selector = selectors.DefaultSelector()
        self._ended, self._wakes = socket.socketpair()

    def serve(self, parent: int) -> Callable[[], None] | None:
        """Serve until `parent`, a descriptor, is closed by the other side; None then, and its work in a child."""
        self._wakes.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes.fileno())
        for watched in (parent, self._ended, self._listening):
            self._selector.register(watched, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj == parent:
                    return None
                if key.fileobj is self._ended:
                    self._ended.recv(4096)
                    self._report()
                elif key.fileobj is self._listening:
                    client, _ = self._listening.accept()
                    with contextlib.suppress(OSError, ValueError, struct.error):  # a client that was killed
                        work = self._answer(client)
                        if work is not None:
                            return work
                    if client not in self._clients.values():
                        client.close()
                else:
                    self._end(key.data)

    def close(self) -> None:
        """Close what it has opened, not where clients connect."""
        for each in (self._selector, self._ended, self._wakes):
            each.close()

    def _answer(self, client: socket.socket) -> Callable[[], None] | None:
        client.settimeout(_PATIENCE_S)
        streams, request = _received(client)
        try:
            work = self._works.get(request.get("module", ""))
            if (
                work is None
                or len(streams) != _STREAMS
                or not may_fork(request["environment"], self._own, self._spark_home)
            ):
                client.sendall(_REFUSED)
                return None
            client.sendall(_READY)
            if client.recv(1) != _GO:  # it did not wait, and has started Python
                return None
            pid = os.fork()
            if pid == 0:
                self._become(streams, request)
                client.close()
                return work
            self._clients[pid] = client
            self._selector.register(client, selectors.EVENT_READ, pid)
            return None
        finally:
            for each in streams:
                os.close(each)

    def _become(self, streams: Sequence[int], request: Mapping[str, Any]) -> None:
        """In the child: what a new process would find."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.close()
        for opened in (self._listening, *self._clients.values()):
            opened.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        with contextlib.suppress(OSError):
            os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.argv[:] = [request["module"], *request["arguments"]]
        if not sys.flags.safe_path:
            sys.path[0] = request["directory"]

    def _report(self) -> None:
        """Give the clients of processes that have ended their exit codes."""
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                client = self._clients.pop(ended[0], None)
                if client is not None:
                    self._selector.unregister(client)
                    with contextlib.suppress(OSError):
                        client.sendall(bytes([os.waitstatus_to_exitcode(ended[1]) & 0xFF]))
                    client.close()

    def _end(self, pid: int) -> None:
        """The client has gone: Spark has ended it."""
        client = self._clients.pop(pid)
        self._selector.unregister(client)
        client.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)


def _received(client: socket.socket) -> tuple[list[int], dict[str, Any]]:
    head, streams, _, _ = socket.recv_fds(client, _LENGTH.size, _STREAMS)
    with client.makefile("rb") as file:
        (length,) = _LENGTH.unpack(head)
        found: dict[str, Any] = json.loads(file.read(length))
    return streams, found


def main() -> None:
    """Import, then serve the socket whose descriptor is the first argument until standard input is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the terminal: Spark's workers ignore it too
    listening = socket.socket(fileno=int(sys.argv[1]))
    prefer_installed_pyspark()
    from engine import worker_daemon
    from engine.runtime import stream_worker

    worker_daemon.preload()
    works = {"engine.worker_daemon": worker_daemon.main, "engine.runtime.stream_worker": stream_worker.main}
    directory, parent = sys.argv[2], os.dup(0)
    work = WorkerServer(listening, works).serve(parent)
    os.close(parent)
    if work is None:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        work()


if __name__ == "__main__":
    main()
