"""The process of a stream's source connects to Spark before it imports, with the greeting of Spark's own."""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from pyspark.worker_util import get_sock_file_to_executor

from engine import worker_daemon
from engine.runtime import stream_worker
from engine.runtime.hidden_pandas import STREAM_RUNNER
from engine.runtime.installed_pyspark import prefer_installed_pyspark
from engine.spark.session import LAUNCHER, set_worker_python
from engine.spark.worker_server import ADDRESS

ROOT = Path(__file__).resolve().parents[3]
SECRET: Final = "a secret ä"
CONNECT = "import os, socket; socket.create_connection(('127.0.0.1', int(os.environ['PYTHON_WORKER_FACTORY_PORT'])))"
LATER: Final = frozenset({"pyspark", "py4j", "pyarrow", "numpy", "pandas", "confluent_kafka", "sqlglot", "orjson"})


@pytest.fixture
def spark_side() -> Iterator[socket.socket]:
    """Where Spark would wait for its workers."""
    with socket.create_server(("127.0.0.1", 0), backlog=16) as listening:
        listening.settimeout(60)
        yield listening


def environment(listening: socket.socket) -> dict[str, str]:
    address = {"PYTHON_WORKER_FACTORY_PORT": str(listening.getsockname()[1]), "PYTHON_WORKER_FACTORY_SECRET": SECRET}
    alone = {ADDRESS: "", "FLUVIAL_WORKER_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)}
    return {**os.environ, **address, **alone}


@contextmanager
def started(command: list[str], listening: socket.socket, **others: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command, env=environment(listening) | others, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def processor_ns(process: subprocess.Popen[str]) -> int:
    return int(Path(f"/proc/{process.pid}/schedstat").read_text().split()[0])


def greeting(listening: socket.socket) -> bytes:
    """Everything that a worker says until it closes the connection; its secret is accepted."""
    connection, _ = listening.accept()
    with connection, connection.makefile("rwb") as file:
        said = b""
        if listening.family == socket.AF_INET:
            said = file.read(4 + len(SECRET.encode()))
            file.write(b"\0\0\0\2ok")
            file.flush()
        return said + file.read()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # PySpark does not close its socket
@pytest.mark.parametrize("is_unix", [True, False])
def test_the_greeting_is_that_of_pyspark(is_unix: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[bytes] = []
    with socket.socket(socket.AF_UNIX if is_unix else socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.bind(str(tmp_path / "s") if is_unix else ("127.0.0.1", 0))
        listening.listen()
        listening.settimeout(60)
        if is_unix:
            monkeypatch.setenv("PYTHON_WORKER_FACTORY_SOCK_PATH", str(tmp_path / "s"))
        else:
            monkeypatch.setenv("PYTHON_WORKER_FACTORY_PORT", str(listening.getsockname()[1]))
            monkeypatch.setenv("PYTHON_WORKER_FACTORY_SECRET", SECRET)
        for connect in (lambda: get_sock_file_to_executor(timeout=None), stream_worker.connect):
            spark = threading.Thread(target=lambda: heard.append(greeting(listening)), daemon=True)
            spark.start()
            with connect():
                pass
            spark.join(60)
    assert len(heard) == 2
    assert heard[0] == heard[1] != b""


def test_nothing_large_is_imported_before_the_connection(spark_side: socket.socket) -> None:
    with started([LAUNCHER, "-m", STREAM_RUNNER], spark_side, PYTHONPROFILEIMPORTTIME="1") as process:
        connection, _ = spark_side.accept()
        with connection:
            connection.recv(4)  # it waits for the answer to its secret
            process.kill()
            assert process.stderr is not None
            noted = process.stderr.read()
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in noted.splitlines() if "|" in line}
    assert "socket" in imported
    assert imported & LATER == set()


def test_connecting_takes_little_more_than_starting_python(spark_side: socket.socket) -> None:
    """Spark's own module takes 20 times as much, and 80 times as much from its zip file."""
    used = []
    for command in ([sys.executable, "-c", CONNECT + "; input()"], [LAUNCHER, "-m", STREAM_RUNNER]):
        least = 1 << 62
        for _ in range(3):
            with started(command, spark_side) as process:
                connection, _ = spark_side.accept()
                with connection:
                    least = min(least, processor_ns(process))
        used.append(least)
    assert used[1] < 4 * used[0]


@pytest.mark.sweep
def test_six_sources_that_start_at_once_on_a_busy_machine_connect(spark_side: socket.socket) -> None:
    spark_side.settimeout(10)  # Spark's limit
    with ExitStack() as running:
        for _ in range(4 * (os.cpu_count() or 1)):
            running.enter_context(started([sys.executable, "-c", "while True: pass"], spark_side))
        for _ in range(6):
            running.enter_context(started([LAUNCHER, "-m", STREAM_RUNNER], spark_side))
        for _ in range(6):
            running.enter_context(spark_side.accept()[0])


@pytest.mark.parametrize(
    ("arguments", "run"),
    [
        (["-m", STREAM_RUNNER], "-m engine.runtime.stream_worker"),
        (["-m", "pyspark.daemon", "pyspark.sql.worker.create_data_source"], "-m engine.worker_daemon pyspark.sql."),
        (["-m", "pyspark.daemon", "pyspark.worker"], "-m pyspark.daemon pyspark.worker"),
        (["-m", "users.module", "a b"], "-m users.module a b"),
        (["-c", "pass"], "-c pass"),
    ],
)
def test_all_else_is_passed_to_the_interpreter(arguments: list[str], run: str) -> None:
    environment = {**os.environ, ADDRESS: "", "FLUVIAL_WORKER_PYTHON": "/bin/echo"}
    done = subprocess.run([LAUNCHER, *arguments], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(run)


def test_a_daemon_ends_a_task_quietly_when_spark_wants_no_more_rows() -> None:
    def closed_by_spark(*_: object) -> int:
        raise BrokenPipeError

    def failed(*_: object) -> int:
        raise ValueError("a mistake")

    assert worker_daemon.quiet(closed_by_spark)() != 0  # the process is not used again
    assert worker_daemon.quiet(lambda *arguments: len(arguments))(1, 2) == 2
    with pytest.raises(ValueError, match="a mistake"):
        worker_daemon.quiet(failed)()


def test_the_installed_pyspark_is_preferred_to_a_copy_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("pyspark", "py4j"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").touch()
    lib = tmp_path / "pyspark" / "python" / "lib"
    copies = [f"{lib}/pyspark.zip", f"{lib}/py4j-0.10-src.zip"]
    kept = [f"{lib}/other.zip", "/other/pyspark/python/lib/pyspark.zip", str(tmp_path), "/job/files.zip"]
    monkeypatch.setattr(sys, "path", [*copies, *kept])
    prefer_installed_pyspark()
    assert sys.path == kept
    (tmp_path / "py4j" / "__init__.py").unlink()
    monkeypatch.setattr(sys, "path", [*copies, *kept])
    prefer_installed_pyspark()
    assert sys.path == [copies[1], *kept]


@pytest.mark.parametrize(
    ("given", "environment", "is_launched"),
    [
        ({}, {}, True),
        ({"spark.master": "local[2]"}, {"PYSPARK_SUBMIT_ARGS": "--master yarn"}, True),
        ({"spark.master": "spark://host:7077"}, {}, False),
        ({"spark.master": "local-cluster[2,1,1024]"}, {}, False),
        ({}, {"PYSPARK_GATEWAY_PORT": "1"}, False),
        ({}, {"SPARK_CONF_DIR": "{home}"}, False),
    ],
)
def test_executors_elsewhere_need_no_launcher(
    given: dict[str, str],
    environment: dict[str, str],
    is_launched: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "spark-defaults.conf").touch()
    for key in (
        "PYSPARK_PYTHON",
        "SPARK_HOME",
        "SPARK_CONF_DIR",
        "PYSPARK_GATEWAY_PORT",
        "PYSPARK_SUBMIT_ARGS",
        "MASTER",
    ):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("FLUVIAL_WORKER_PYTHON", "earlier")
    monkeypatch.setenv("PYSPARK_DRIVER_PYTHON", "/users/python")
    for key, text in environment.items():
        monkeypatch.setenv(key, text.format(home=tmp_path))
    set_worker_python(given)
    assert os.environ["PYSPARK_PYTHON"] == (LAUNCHER if is_launched else sys.executable)
    assert os.environ["FLUVIAL_WORKER_PYTHON"] == (sys.executable if is_launched else "earlier")
    assert os.environ["PYSPARK_DRIVER_PYTHON"] == "/users/python"
