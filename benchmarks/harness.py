"""Shared by all benchmarks: interleaved timing, facts about the machine, one JSON line.

    result = measure("json_encode", {"fluvial": fluvial, "orjson per row": peer}, rows=100_000)
    print(result.line(peer="orjson per row"))

The variants take turns inside of every round, so that what else the machine does touches all of them alike; compare
ratios of one line, not rows per second of two. A script prints exactly one line, which is kept beside the change that
claims its numbers.
"""

import gc
import json
import multiprocessing
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

REPOSITORY = Path(__file__).resolve().parent.parent

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Seconds of every variant in every round: on the clock, and of processor time in this process."""

    name: str
    rows: int
    seconds: Mapping[str, tuple[float, ...]]
    cpu_seconds: Mapping[str, tuple[float, ...]]

    def rows_per_s(self, variant: str) -> float:
        """From the median of the rounds."""
        return self.rows / statistics.median(self.seconds[variant])

    def rows_per_cpu_s(self, variant: str) -> float:
        """Likewise per second of processor time: steadier on a busy machine, and blind to other processes."""
        return self.rows / statistics.median(self.cpu_seconds[variant])

    def ratio(self, variant: str, peer: str) -> float:
        """How many times as fast as its peer a variant is: the median over the rounds."""
        return _median_ratio(self.seconds[variant], self.seconds[peer])

    def cpu_ratio(self, variant: str, peer: str) -> float:
        """The same of processor time."""
        return _median_ratio(self.cpu_seconds[variant], self.cpu_seconds[peer])

    def line(self, *, peer: str, variant: str | None = None, **facts: Any) -> str:
        """One JSON object: the first variant (or the one named) against its peer, and what else is worth keeping."""
        first = next(iter(self.seconds)) if variant is None else variant
        return json.dumps(
            {
                "benchmark": self.name,
                "commit": commit(),
                "machine": machine(),
                "rows": self.rows,
                "rows_per_s": round(self.rows_per_s(first)),
                "peer": peer,
                "peer_rows_per_s": round(self.rows_per_s(peer)),
                "ratio": round(self.ratio(first, peer), 2),
                "rows_per_cpu_s": round(self.rows_per_cpu_s(first)),
                "cpu_ratio": round(self.cpu_ratio(first, peer), 2),
                "seconds": {name: [round(value, 4) for value in values] for name, values in self.seconds.items()},
                "peak_memory_bytes": peak_memory_bytes(),
                **facts,
            }
        )


def measure(
    name: str,
    variants: Mapping[str, Callable[[], object]],
    *,
    rows: int,
    repeats: int = 5,
    warm_ups: int = 1,
    before_each: Callable[[], object] | None = None,
) -> Measurement:
    """Time variants of the same work, in turns.

    Args:
        name: of the benchmark.
        variants: by name, Fluvial first; each call does all the work once.
        rows: that one call works through.
        repeats: rounds that count; one with ``--tiny``.
        warm_ups: rounds that do not; none with ``--tiny``.
        before_each: untimed, before every call; to empty a directory, say.
    """
    warm_ups, repeats = sized((warm_ups, repeats), quick=(warm_ups, repeats), tiny=(0, 1))
    times: dict[str, list[tuple[float, float]]] = {variant: [] for variant in variants}
    for round_index in range(warm_ups + repeats):
        for variant, work in variants.items():
            if before_each is not None:
                before_each()
            elapsed = _timed(work)
            if round_index >= warm_ups:
                times[variant].append(elapsed)
    return Measurement(
        name=name,
        rows=rows,
        seconds={variant: tuple(wall for wall, _ in pairs) for variant, pairs in times.items()},
        cpu_seconds={variant: tuple(cpu for _, cpu in pairs) for variant, pairs in times.items()},
    )


def sized(full: T, *, quick: T, tiny: T) -> T:
    """What the command line asks for: all, ``--quick`` for a first figure, ``--tiny`` only to see that it runs."""
    settings = {"--tiny": tiny, "--quick": quick}
    return next((setting for flag, setting in settings.items() if flag in sys.argv[1:]), full)


def commit() -> str:
    """The commit that runs, with ``+`` when the work tree differs from it."""
    head = _git("rev-parse", "--short=12", "HEAD")
    return head + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")


def machine() -> str:
    """Processor, usable cores, memory, operating system and Python: enough not to compare what cannot be compared."""
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    cores = len(os.sched_getaffinity(0))
    return (
        f"{_processor()}, {cores} cores, {memory_gib:.0f} GiB, {platform.system()}, Python {platform.python_version()}"
    )


def peak_memory_bytes() -> int:
    """Most memory that this process has held so far."""
    # Linux lets the process that starts a program hand down its own peak in ru_maxrss; VmHWM starts over.
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildRun:
    """What a function did in a process of its own."""

    result: Any
    seconds: float
    peak_memory_bytes: int  # of the process, the interpreter and imports among it
    idle_memory_bytes: int  # of the process before the function was called


def run_in_child(function: Callable[..., Any], *arguments: Any) -> ChildRun:
    """Call a function in a fresh process, to see its own memory and nothing that an earlier variant has left.

    Args:
        function: importable by name; its result must be picklable.
    """
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        return pool.apply(_observed, (function, arguments))


def _observed(function: Callable[..., Any], arguments: tuple[Any, ...]) -> ChildRun:
    idle = peak_memory_bytes()
    start = time.perf_counter()
    result = function(*arguments)
    seconds = time.perf_counter() - start
    return ChildRun(result=result, seconds=seconds, peak_memory_bytes=peak_memory_bytes(), idle_memory_bytes=idle)


def _median_ratio(variant: Sequence[float], peer: Sequence[float]) -> float:
    return statistics.median(other / own for own, other in zip(variant, peer, strict=True))


def _timed(work: Callable[[], object]) -> tuple[float, float]:
    gc.collect()
    gc.disable()  # a collection inside of one variant would be charged to it alone
    try:
        start, cpu_start = time.perf_counter(), time.process_time()
        work()
        return time.perf_counter() - start, time.process_time() - cpu_start
    finally:
        gc.enable()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"git {' '.join(arguments)}: {done.stderr.strip()}", file=sys.stderr)
    return done.stdout.strip()
