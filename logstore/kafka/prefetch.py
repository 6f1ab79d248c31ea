"""Prefetching in a thread: the next batches are fetched while the current one is processed."""

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, TypeVar

T = TypeVar("T")

_LOOK_S: Final = 0.1  # how soon an abandoned thread stops


def prefetched(source: Iterator[T], *, depth: int) -> Iterator[T]:
    """The items of an iterator, up to ``depth`` of them prefetched in another thread; errors are raised in order.

    A consumer that stops early stops the thread, which closes the source. Without a depth there is no thread.
    """
    if not depth:
        yield from source
        return
    waiting: queue.Queue[tuple[str, T | BaseException | None]] = queue.Queue(maxsize=depth)
    is_abandoned = threading.Event()

    def put(what: str, item: T | BaseException | None) -> bool:
        while not is_abandoned.is_set():
            with suppress(queue.Full):
                waiting.put((what, item), timeout=_LOOK_S)
                return True
        return False

    def produce() -> None:
        try:
            for item in source:
                if not put("item", item):
                    break
            else:
                put("end", None)
        except BaseException as error:  # noqa: BLE001 - re-raised in the consumer
            put("error", error)
        finally:
            close = getattr(source, "close", None)
            if close is not None:
                close()

    thread = threading.Thread(target=produce, name="fluvial-prefetch", daemon=True)
    thread.start()
    try:
        while True:
            what, item = waiting.get()
            if what == "end":
                return
            if what == "error":
                assert isinstance(item, BaseException)
                raise item
            yield item  # type: ignore[misc]
    finally:
        is_abandoned.set()
        thread.join()
