"""Signals that stop a command."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def stop_on_signals(stop: threading.Event, signals: Sequence[signal.Signals]) -> Iterator[None]:
    """The first signal sets ``stop``, the second one raises KeyboardInterrupt. Main thread only."""
    is_stopping = False

    def handle(_number: int, _frame: object) -> None:
        nonlocal is_stopping
        if is_stopping:
            raise KeyboardInterrupt
        is_stopping = True
        # in another thread: the main thread may be waiting for the event while holding its lock
        threading.Thread(target=stop.set).start()

    before = {each: signal.signal(each, handle) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
