"""Random histories of versions and lineage against their oracles, with seeds that no run had before.

``python -m tests.histories --seconds 3600``: prints one line of JSON at the end, or when a signal ends it, and fails
when a history did. A failed one is repeated by ``--only '<kind>' --first <seed> --count 1``.
"""

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from tests.engine.lineage import test_truth
from tests.filestore.branch import test_branch_histories, test_merge_by_key
from tests.filestore.evolution import test_older_states
from tests.filestore.refs import test_file_references


def _lineage(seed: int) -> object:
    with tempfile.TemporaryDirectory() as home:
        return test_truth.lineage_history(Path(home), seed)


KINDS: Mapping[str, Callable[[int], object]] = {
    **{f"branches {kind}": partial(test_branch_histories.history, kind) for kind in test_branch_histories.OPTIONS},
    **{
        f"nested {kind}": partial(test_branch_histories.history, kind, nests=True)
        for kind in test_branch_histories.OPTIONS
    },
    **{f"merges {kind}": partial(test_merge_by_key.merges_by_key, kind) for kind in test_merge_by_key.KINDS},
    **{
        f"references {kind}": partial(test_file_references.references_history, kind)
        for kind in test_file_references.OPTIONS
    },
    "schemas": test_older_states.schema_history,
    "lineage": _lineage,
}


def histories_of(
    kinds: Mapping[str, Callable[[int], object]], *, first: int, count: int, seconds: float
) -> dict[str, object]:
    """Each seed once for each kind, until enough of them or the time is over, or an interrupt.

    Returns:
        How many histories of each kind were run, which failed as ``"<kind> <seed>"``, the first and the next seed, and
        the processor time in seconds.
    """
    done, failed = dict.fromkeys(kinds, 0), []
    until_s, seed = time.monotonic() + seconds, first
    with suppress(KeyboardInterrupt):
        while seed < first + count and time.monotonic() < until_s:
            for kind, history in kinds.items():
                try:
                    history(seed)
                except Exception:  # noqa: BLE001 - the next one is another history
                    failed.append(f"{kind} {seed}")
                    print(f"failed: {kind} {seed}\n{traceback.format_exc()}", file=sys.stderr, flush=True)
                done[kind] += 1
            seed += 1
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = round(used.ru_utime + used.ru_stime, 1)
    return {"histories": sum(done.values()), "by_kind": done, "failed": failed, "first": first, "next": seed,
            "cpu_s": cpu_s}  # fmt: skip


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """SIGTERM is an interrupt as well; so is SIGINT, which a shell ignores for what it starts in the background."""
    before = {each: signal.signal(each, signal.default_int_handler) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for ending, handler in before.items():
            signal.signal(ending, handler)


def main(arguments: list[str]) -> int:
    """Returns 1 if a history failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="how long (default: ten minutes)")
    parser.add_argument("--count", type=int, default=sys.maxsize, help="seeds at most (default: as time allows)")
    parser.add_argument("--first", type=int, default=int(time.time()), help="the first seed (default: the time)")
    parser.add_argument("--only", default="", help="kinds whose name begins so: " + ", ".join(KINDS))
    given = parser.parse_args(arguments)
    kinds = {name: history for name, history in KINDS.items() if name.startswith(given.only)}
    if not kinds:
        parser.error(f"no kind begins so: {given.only!r}")
    os.fsync = lambda descriptor: None  # no history cuts the power
    with ended_by_signals():
        found = histories_of(kinds, first=given.first, count=given.count, seconds=given.seconds)
    print(json.dumps(found))
    return 1 if found["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
