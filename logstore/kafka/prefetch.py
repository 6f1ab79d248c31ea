"""One thread ahead: the next batches are fetched while the last one is worked on."""

import queue
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, TypeVar

T = TypeVar("T")

_LOOK_S: Final = 0.1  # how soon an abandoned producer notices


def prefetched(source: Iterator[T], *, depth: int) -> Iterator[T]:
    """The items of an iterator, up to ``depth`` of them made ahead in another thread; its errors come at their place.

    A consumer that stops early ends the thread; the source is closed in it.
    """
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
        except BaseException as error:  # noqa: BLE001 - raised again where it is waited for
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
