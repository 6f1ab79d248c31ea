"""Processes of Spark's workers that are forked from one that has imported everything are as those that are started."""

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import psutil
import pyspark
import pytest
from pyspark.sql import SparkSession

from engine.spark.session import LAUNCHER
from engine.spark.worker_server import ADDRESS, WorkerServer, may_fork
from tests.support.waiting import wait_until

SPARK_HOME: Final = str(Path(pyspark.__file__).resolve().parent)
CLIENT: Final = str(Path(LAUNCHER).parents[1] / "spark" / "worker_client.py")
MODULE: Final = "engine.worker_daemon"
# What the process does that is asked for: the work is named by its first argument.
SERVER: Final = """
import json, os, socket, sys, time
from engine.spark.worker_server import WorkerServer
def work():
    if sys.argv[1] == "facts":
        reported = {"directory": os.getcwd(), "arguments": sys.argv[1:], "path": sys.path}
        reported["input"] = sys.stdin.readline()
        reported |= {"hash": hash("a text"), "environment": dict(os.environ), "parent": os.getppid()}
        print(json.dumps(reported))
        print("an error", file=sys.stderr)
    elif sys.argv[1] == "wait":
        print(os.getpid(), flush=True)
        time.sleep(60)
    sys.exit(int(sys.argv[2]))
if len(sys.argv) > 2 and sys.argv[1] != "serve":
    work()
found = WorkerServer(socket.socket(fileno=int(sys.argv[2])), {"engine.worker_daemon": work}).serve(0)
if found is not None:
    found()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[subprocess.Popen[bytes]]:
    """A server of ``SERVER``; `args[-1]` is its address."""
    address = str(tmp_path_factory.mktemp("server") / "s")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address)
        listening.listen()
        number = listening.fileno()
        command = [sys.executable, "-c", SERVER, "serve", str(number), address]
        running = subprocess.Popen(command, env=environment(), stdin=subprocess.PIPE, pass_fds=[number])
    yield running
    running.kill()
    running.wait()
    assert running.stdin is not None
    running.stdin.close()


def environment(**more: str) -> dict[str, str]:
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "PYTEST", "FLUVIAL", "SPARK"))
    }
    return kept | {"PYTHONHASHSEED": "7", "PYTHONPATH": os.getcwd()} | more


@contextmanager
def asked(command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, **options) as process:
        yield process
        process.kill()


def of_client(server: subprocess.Popen[bytes], *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", CLIENT, str(server.args[-1]), "-m", MODULE, *arguments]  # type: ignore[index]


@pytest.mark.sweep
def test_a_forked_process_finds_what_a_started_one_finds(server: subprocess.Popen[bytes], tmp_path: Path) -> None:
    """Issue 13: environment, directory, arguments, module path, streams, hashes of texts, exit code."""
    given = environment(SPARK_BUFFER_SIZE="1", PYTHON_WORKER_FACTORY_SECRET="ä")
    reported = []
    for command in (of_client(server, "facts", "3"), [sys.executable, "-c", SERVER, "facts", "3"]):
        with asked(command, env=given, cwd=tmp_path) as process:
            out, error = process.communicate("a line\n", timeout=60)
        assert (process.returncode, error) == (3, "an error\n")
        reported.append(json.loads(out))
    assert reported[0].pop("parent") == server.pid != reported[1].pop("parent")
    assert reported[0]["path"].pop(0) == str(tmp_path)
    assert reported[1]["path"].pop(0) == ""  # of -c
    assert reported[0] == reported[1]
    assert (reported[0]["input"], reported[0]["environment"]["PYTHON_WORKER_FACTORY_SECRET"]) == ("a line\n", "ä")


@pytest.mark.parametrize("ended", ["client", "process"])
def test_client_and_process_end_together(server: subprocess.Popen[bytes], ended: str) -> None:
    with asked(of_client(server, "wait", "0"), env=environment()) as process:
        assert process.stdout is not None
        forked = psutil.Process(int(process.stdout.readline()))
        if ended == "client":
            process.send_signal(signal.SIGTERM)
            forked.wait(30)
        else:
            forked.kill()
            assert process.wait(30) != 0
    assert server.poll() is None


def test_a_server_that_is_asked_in_vain_or_has_ended_leaves_the_start_to_python(
    server: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """The module that starts is the real one, which says where it listens."""
    for address in (str(server.args[-1]), str(tmp_path / "none")):  # type: ignore[index]
        command = [sys.executable, "-I", "-S", CLIENT, address, "-m", "this", "x"]
        done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True)
        assert "Namespaces" in done.stdout


def test_nothing_is_forked_for_a_client_that_did_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has started Python by then: of two daemons with one output, Spark would read the port of the one that ends."""
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    text = json.dumps({"module": MODULE, "environment": dict(os.environ)}).encode()
    client, accepted = socket.socketpair()
    with accepted, open(os.devnull, "rb") as stream:
        with client:
            socket.send_fds(client, [struct.pack("!I", len(text))], [stream.fileno()] * 3)
            client.sendall(text)
        server = WorkerServer(accepted, {MODULE: lambda: pytest.fail("worked")})
        with closing(server), pytest.raises(BrokenPipeError):
            server._answer(accepted)


def test_a_client_that_is_cut_off_disturbs_no_other(server: subprocess.Popen[bytes]) -> None:
    for part in (b"", b"\0", b"\0\0\0\2{", b"\0\0\0\2{}", b"\0\0\0\2no"):
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(server.args[-1]))  # type: ignore[index]
            client.sendall(part)
    with asked(of_client(server, "exit", "5"), env=environment()) as process:
        assert process.wait(60) == 5


@pytest.mark.sweep
def test_it_ends_with_its_parent(tmp_path: Path) -> None:
    script = f"""
import os, sys
from engine.spark.worker_server import ADDRESS, start_worker_server
start_worker_server(os.environ)
first = os.environ[ADDRESS]
start_worker_server(os.environ)
assert os.environ[ADDRESS] == first
print(first, flush=True)
os.kill(os.getpid(), {int(signal.SIGKILL)})
"""
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    address = Path(done.stdout.strip())
    wait_until(lambda: not address.parent.exists(), "the server did not end", 60)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, True),
        ({"SPARK_BUFFER_SIZE": "1", "PYTHON_WORKER_FACTORY_PORT": "1", "PYTHONUNBUFFERED": "YES"}, True),
        ({"PYTHONPATH": f"{SPARK_HOME}/python/lib/pyspark.zip:{SPARK_HOME}/jars/a.jar:/mine"}, True),
        ({"PYTHONPATH": "/users:/mine"}, False),
        ({"PYTHONPATH": "/mine/users.zip:/mine"}, False),
        ({"PYTHONHASHSEED": "1"}, False),
        ({"OMP_NUM_THREADS": "1"}, True),
        ({"OMP_NUM_THREADS": "4"}, False),
        ({"ARROW_DEFAULT_MEMORY_POOL": "system"}, False),
        ({"HOME": None}, False),
    ],
)
def test_an_environment_that_acts_on_imports_is_refused(change: dict[str, str | None], expected: bool) -> None:
    own = {"HOME": "/mine", "PYTHONPATH": "/mine", "PYTHONHASHSEED": "0"}
    wanted = {key: value for key, value in (own | change).items() if value is not None}
    assert may_fork(wanted, own, SPARK_HOME) is expected


@pytest.mark.spark
def test_the_workers_of_a_session_are_forked(spark: SparkSession) -> None:
    """The daemon of tasks is the server's child, which so has imported everything."""

    def parent(_: Any) -> Any:
        import os  # runs in another process

        import psutil
        import pyarrow as pa

        yield pa.RecordBatch.from_pydict({"line": [" ".join(psutil.Process(os.getppid()).parent().cmdline())]})

    [found] = spark.range(0, 1, 1, 1).mapInArrow(parent, "line string").collect()
    assert "engine.spark.worker_server" in found.line
    assert Path(os.environ[ADDRESS]).exists()
