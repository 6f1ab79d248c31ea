"""Drivers, their children, and a standalone cluster of Spark: started, frozen and killed by their process ids."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pyspark

from tests.stores.processes import free_port

REPOSITORY = Path(__file__).parents[3]
SPARK = Path(pyspark.__file__).parent
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_EXECUTOR = "CoarseGrainedExecutorBackend"


class Tree:
    """A process and all that it has started since, also what outlived its parent."""

    def __init__(self, command: list[str], log: Path, *, cwd: Path) -> None:
        self.log = log
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command, stdout=output, stderr=output, start_new_session=True, env=environment, cwd=cwd
            )

    @property
    def exit_code(self) -> int | None:
        return self.process.poll()

    def members(self) -> list[psutil.Process]:
        """Of the session of the first process: daemons have process groups of their own, and stay in it."""
        found = []
        for each in psutil.process_iter():
            with contextlib.suppress(ProcessLookupError, psutil.Error):
                if os.getsid(each.pid) == self.process.pid and each.status() != psutil.STATUS_ZOMBIE:
                    found.append(each)
        return found

    def signal(self, what: signal.Signals) -> None:
        send(what, self.members())

    def freeze(self) -> None:
        """Stop every process; twice, for those that one of them has just started."""
        self.signal(signal.SIGSTOP)
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """All of them, also stopped ones."""
        while self.members():
            self.signal(signal.SIGKILL)
            time.sleep(0.02)
        self.process.wait()

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]


def send(what: signal.Signals, processes: Iterable[psutil.Process]) -> None:
    """To those that have not ended: Spark's Python processes come and go."""
    for each in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.send_signal(what)


def name_of(process: psutil.Process) -> str:
    """Empty: it has ended."""
    with contextlib.suppress(psutil.Error):
        return process.name()
    return ""


class Cluster:
    """A master and two workers, each a process; executors are processes of their own below a worker."""

    def __init__(self, root: Path, *, cores: int = 4) -> None:
        self.address = f"spark://127.0.0.1:{free_port()}"
        self._root, self._cores = root, cores
        self._trees: list[Tree] = []

    @property
    def conf(self) -> dict[str, str]:
        """Of a session on it: two executors with two cores each, so that two drivers fit; workers of this checkout."""
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.cores.max": "4",
            "spark.executor.cores": "2",
            "spark.executor.memory": "700m",
            "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
            "spark.deploy.maxExecutorRetries": "-1",
            "spark.sql.shuffle.partitions": "2",
        }

    def start(self) -> None:
        port = self.address.rpartition(":")[2]
        self._run("master", _MASTER, "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
        for number in range(2):
            work = ["--webui-port", "0", "--work-dir", str(self._root / f"work{number}")]
            resources = ["--cores", str(self._cores), "--memory", "4g"]
            self._run(f"worker{number}", _WORKER, "--host", "127.0.0.1", *resources, *work, self.address)
        until(lambda: self._trees[0].tail().count("Registering worker") >= 2, 120, lambda: self._trees[0].tail())

    def kill_executors(self, worker: int) -> int:
        """Those of one worker; how many there were."""
        count = 0
        for each in self._trees[1 + worker].members():
            with contextlib.suppress(psutil.Error):
                if any(_EXECUTOR in word for word in each.cmdline()):
                    each.kill()
                    count += 1
        return count

    def stop(self) -> None:
        for tree in reversed(self._trees):
            tree.kill()

    def _run(self, name: str, *arguments: str) -> None:
        command = [str(SPARK / "bin" / "spark-class"), *arguments]
        self._trees.append(Tree(command, self._root / f"{name}.log", cwd=self._root))


@contextmanager
def killed_at_the_end(trees: Iterable[Tree]) -> Iterator[None]:
    """Whatever happens, no process stays."""
    try:
        yield
    finally:
        for tree in trees:
            tree.kill()


def until(condition: Callable[[], bool], seconds: float, said: Callable[[], str]) -> None:
    """Wait; a condition that takes long is asked less often. Raises: AssertionError with what the caller says."""
    deadline = time.monotonic() + seconds
    asked = time.monotonic()
    while not condition():
        now = time.monotonic()
        assert now < deadline, said()
        time.sleep(max(0.02, 2 * (now - asked)))
        asked = time.monotonic()


def python(module: str, *arguments: str) -> list[str]:
    """The command that runs a module of this checkout."""
    return [sys.executable, "-m", module, *arguments]
