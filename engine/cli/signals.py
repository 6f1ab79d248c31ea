"""Signals that ask a command to come to an end."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def asks_for_an_end(stop: threading.Event, signals: Sequence[signal.Signals]) -> Iterator[None]:
    """The first of these signals sets ``stop``, the second one interrupts as Ctrl-C does. For the main thread."""
    asked = False

    def ask(_number: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        # by another thread, as the main thread may be waiting for the event, and hold its lock
        threading.Thread(target=stop.set).start()

    before = {each: signal.signal(each, ask) for each in signals}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
