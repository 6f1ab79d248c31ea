"""What a running job uses, sampled: memory, files, sockets, threads of its processes; files of its tables; topics."""

import contextlib
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka.admin import AdminClient

from tests.support.kills.processes import Tree

MB: Final = float(2**20)
ALLOWED: Final = {
    "driver rss MB": 40.0,
    "driver threads": 8.0,
    "driver fds": 15.0,
    "jvm rss MB": 200.0,
    "jvm heap MB": 40.0,
    "jvm threads": 40.0,
    "jvm fds": 40.0,
    "workers rss MB": 60.0,
    "processes": 3.0,
    "sockets": 30.0,
    "table files": 40.0,
    "checkpoint files": 60.0,
    "temporary files": 60.0,
    "topics": 0.0,
    "broker rss MB": 150.0,
}
"""The growth of a floor, within one life behind its warm-up, that is none."""
OUTLIVE: Final = frozenset({"table files", "checkpoint files", "topics", "broker rss MB"})
"""What is not of the job's processes: a kill does not end its life."""


def sample(tree: Tree, broker: psutil.Process, admin: AdminClient, home: Path) -> dict[str, float]:
    """The values of this moment; those of processes that are not there are left out."""
    found: dict[str, float] = {}
    members = tree.members()
    jvm = next((each for each in members if _name(each).startswith("java")), None)
    for name, process in (("driver", _driver(tree)), ("jvm", jvm)):
        with contextlib.suppress(psutil.Error):
            if process is not None:
                found[f"{name} rss MB"] = process.memory_info().rss / MB
                found[f"{name} threads"] = process.num_threads()
                found[f"{name} fds"] = process.num_fds()
    if jvm is not None and (heap := _live_heap(jvm.pid)) is not None:
        found["jvm heap MB"] = heap
    others = [each for each in members if each.pid not in (tree.process.pid, jvm.pid if jvm else None)]
    found["workers rss MB"] = sum(_rss(each) for each in others) / MB
    found["processes"] = len(members)
    found["sockets"] = sum(_sockets(each) for each in members)
    found["table files"] = _count(home / "warehouse")
    found["checkpoint files"] = _count(home / "checkpoints")
    found["temporary files"] = _count(home / "tmp")
    with contextlib.suppress(psutil.Error):
        found["broker rss MB"] = broker.memory_info().rss / MB
    with contextlib.suppress(Exception):  # a broker that is away or frozen
        found["topics"] = len(admin.list_topics(timeout=1).topics)
    return found


def _driver(tree: Tree) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(tree.process.pid)
    return None


def _name(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return process.name()
    return ""


def _rss(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return process.memory_info().rss
    return 0


def _sockets(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return len(process.net_connections(kind="tcp"))
    return 0


def _count(root: Path) -> int:
    """Files below a directory, while others make and delete them."""

    def files(directory: Path) -> Iterable[int]:
        with contextlib.suppress(OSError):
            for each in directory.iterdir():
                yield sum(files(each)) if each.is_dir() and not each.is_symlink() else 1

    return sum(files(root))


def _live_heap(pid: int) -> float | None:
    """What is on the heap, garbage too: its floor is what lives."""
    try:
        said = subprocess.run(
            ["jcmd", str(pid), "GC.heap_info"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    used = re.search(r"used (\d+)K", said.stdout)
    return None if used is None else int(used[1]) / 1024
