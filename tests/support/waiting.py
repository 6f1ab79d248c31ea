"""Waiting for what a cluster confirms before it shows it."""

import time
from collections.abc import Callable
from typing import TypeVar

Read = TypeVar("Read")


def eventually(read: Callable[[], Read], expected: Read, timeout_s: float = 20) -> None:
    """Read until the result is the expected one; after the time-out the last result is compared.

    A broker confirms a change of settings before the metadata it answers from holds it.
    """
    deadline = time.monotonic() + timeout_s
    while (last := read()) != expected and time.monotonic() < deadline:
        time.sleep(0.02)
    assert last == expected


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """Look again and again; a broker acts when it comes to it."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
