"""Several processes that do the same thing at the same time."""

import multiprocessing
from collections.abc import Callable, Iterable
from typing import Any

_PRELOADED = ["filestore.catalog.catalog", "tests.support.tables"]


def race_of_processes(target: Callable[..., None], calls: Iterable[tuple[Any, ...]], **parts: Any) -> None:
    """One new process for each call, all started before the first is waited for; fails when any of them fails.

    They are forked from a server that has imported the table format, and that has no thread and no open file: the
    processes race at once, rather than after a second of imports each.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    processes = [context.Process(target=target, args=args, kwargs=parts) for args in calls]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(processes)
