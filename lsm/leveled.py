"""Placeholder until the leveled strategy lands."""


class LeveledCompaction:
    """To be replaced."""

    def __init__(self, **_: object) -> None:
        raise NotImplementedError
