"""What a running job uses, sampled: memory, files, sockets, threads of its processes; files of its tables; topics."""

import contextlib
import re
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import psutil
from confluent_kafka.admin import AdminClient

from tests.support.kills.processes import Tree, name_of

MB: Final = float(2**20)
ALLOWED: Final = {
    "driver rss MB": 15.0,
    "driver threads": 8.0,
    "driver fds": 15.0,
    "jvm rss MB": 200.0,
    "jvm heap MB": 25.0,
    "jvm threads": 40.0,
    "jvm fds": 40.0,
    "workers rss MB": 60.0,
    "processes": 3.0,
    "sockets": 30.0,
    "table snapshots": 40.0,
    **dict.fromkeys(("data files a snapshot", "manifests a snapshot", "manifest lists a snapshot"), 3.0),
    "other table files": 10.0,
    "checkpoint files": 60.0,
    "temporary files": 60.0,
    "topics": 0.0,
    "broker rss MB": 150.0,
}
"""The growth of a floor, within one life behind its warm-up, that is none."""
ALLOWED_AT_FIRST: Final = {"driver rss MB": 40.0, "jvm rss MB": 250.0, "jvm threads": 220.0, "checkpoint files": 440.0}
"""In a life whose warm-up is short: manifests are kept for ten minutes, Spark fills two pools of 100 threads, and keeps
the files of 100 batches of each query."""
OUTLIVE: Final = frozenset(
    {"checkpoint files", "topics", "broker rss MB", "other table files"}
    | {each for each in ALLOWED if "snapshot" in each}
)
"""What is not of the job's processes: a kill does not end its life."""
_KINDS: Final = {  # by how names begin, the longer ones first
    "data-": "data files",
    "changelog-": "data files",
    "manifest-list-": "manifest lists",
    "manifest-": "manifests",
    "snapshot-": "snapshot",
}


def sample(tree: Tree, broker: psutil.Process, admin: AdminClient, home: Path, *, with_heap: bool) -> dict[str, float]:
    """The values of this moment; those of processes that are not there are left out.

    Args:
        tree: the job's processes.
        broker: its broker.
        admin: of that broker.
        home: the directory of its tables and checkpoints.
        with_heap: also collect the JVM's garbage and count what lives: a pause of a tenth of a second.
    """
    found: dict[str, float] = {}
    members = tree.members()
    jvm = next((each for each in members if name_of(each).startswith("java")), None)
    for name, process in (("driver", _driver(tree)), ("jvm", jvm)):
        with contextlib.suppress(psutil.Error):
            if process is not None:
                found[f"{name} rss MB"] = process.memory_info().rss / MB
                found[f"{name} threads"] = process.num_threads()
                found[f"{name} fds"] = process.num_fds()
    if with_heap and jvm is not None and (heap := live_heap(_class_histogram(jvm.pid))) is not None:
        found["jvm heap MB"] = heap
    others = [each for each in members if each.pid not in (tree.process.pid, jvm.pid if jvm else None)]
    found["workers rss MB"] = sum(_rss(each) for each in others) / MB
    found["processes"] = len(members)
    found["sockets"] = sum(_sockets(each) for each in members)
    found |= table_files(map(_base_name, _files(home / "warehouse")))
    found["checkpoint files"] = len(_files(home / "checkpoints"))
    found["temporary files"] = len(_files(home / "tmp"))
    with contextlib.suppress(psutil.Error):
        found["broker rss MB"] = broker.memory_info().rss / MB
    with contextlib.suppress(Exception):  # a broker that is away or frozen
        found["topics"] = len(admin.list_topics(timeout=1).topics)
    return found


def _driver(tree: Tree) -> psutil.Process | None:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(tree.process.pid)
    return None


def _rss(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return process.memory_info().rss
    return 0


def _sockets(process: psutil.Process) -> int:
    with contextlib.suppress(psutil.Error):
        return len(process.net_connections(kind="tcp"))
    return 0


def table_files(names: Iterable[str]) -> dict[str, float]:
    """The files of tables by kind: how many snapshots there are follows the rate of commits, the rest follows them."""
    counts = Counter(next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix)), "") for name in names)
    snapshots = counts["snapshot"]
    found = {"table snapshots": float(snapshots), "other table files": float(counts[""])}
    for kind in {*_KINDS.values()} - {"snapshot"}:
        found[f"{kind} a snapshot"] = counts[kind] / max(1, snapshots)
    return found


def _base_name(path: Path) -> str:
    return path.name


def _files(root: Path) -> list[Path]:
    """Files below a directory, while others make and delete them."""
    found: list[Path] = []
    with contextlib.suppress(OSError):
        for each in root.iterdir():
            found += _files(each) if each.is_dir() and not each.is_symlink() else [each]
    return found


def live_heap(histogram: str) -> float | None:
    """MB of what lives on a heap, by ``jcmd GC.class_histogram``; None where it has no total.

    The heap's own figure counts garbage, and in a heap that is far from full the collector leaves old garbage for an
    hour: its floor rose by 53 MB while what lived was 68 MB after 120 batches and after 2,577.
    """
    total = re.search(r"^Total\s+\d+\s+(\d+)\s*$", histogram, re.MULTILINE)
    return None if total is None else int(total[1]) / MB


def _class_histogram(pid: int) -> str:
    """Of live objects, behind a full collection; empty when the process is gone or frozen."""
    command = ["jcmd", str(pid), "GC.class_histogram"]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        return subprocess.run(command, capture_output=True, text=True, timeout=10, check=False).stdout
    return ""
