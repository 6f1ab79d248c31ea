"""Whose a text is while Fluvial itself asks Spark."""

import threading
from typing import Final

_entered: Final = threading.local()


class AsSpark:
    """A block in which the texts of this thread are Spark's: Fluvial has put its own tables in."""

    def __enter__(self) -> None:
        self._before = self.is_entered()
        _entered.is_set = True

    def __exit__(self, *error: object) -> None:
        _entered.is_set = self._before

    @staticmethod
    def is_entered() -> bool:
        """Whether this thread is in such a block."""
        return bool(getattr(_entered, "is_set", False))
