"""What grows: a series of samples is split into parts, and a floor that rises from part to part is a leak.

Most of what is sampled is a saw-tooth (a heap between collections, files between expiries), so its floors are
compared and not its values; a warm-up is left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

PARTS: Final = 4
"""Of a life behind its warm-up."""
WARM_UP: Final = 0.4
"""Of a life: caches fill, classes are loaded, the first snapshots expire."""
SETTLED_S: Final = 600.0
"""Of a warm-up: by then everything that has a bound is full."""
SHORTEST_S: Final = 240.0
"""A life that ends before says nothing."""

Series = Sequence[tuple[float, float]]
"""Seconds and values, by time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Slope:
    """How the floor of one series moved through its longest life."""

    floors: tuple[float, ...]  # of each part; () when no life was long enough
    allowed: float  # growth that is none

    @property
    def growth(self) -> float:
        """From the first floor to the last."""
        return self.floors[-1] - self.floors[0] if self.floors else 0.0

    @property
    def is_leak(self) -> bool:
        """Whether every floor is above the one before, and the last by more than is allowed above the first."""
        rises = all(after > before for before, after in zip(self.floors, self.floors[1:], strict=False))
        return bool(self.floors) and rises and self.growth > self.allowed


def slope_of(lives: Sequence[Series], *, allowed: float, at_first: float | None = None) -> Slope:
    """The slope of a series.

    Args:
        lives: of the process, one after another; what outlives processes has one.
        allowed: growth from the first floor to the last that is none.
        at_first: the same where the warm-up was shorter than ``SETTLED_S``; None: ``allowed``.
    """
    longest = max(lives, key=seconds_of, default=())
    if seconds_of(longest) < SHORTEST_S:
        return Slope(floors=(), allowed=allowed)
    first_s, last_s = longest[0][0], longest[-1][0]
    start_s = first_s + WARM_UP * (last_s - first_s)
    if at_first is not None and start_s - first_s < SETTLED_S:
        allowed = at_first
    width_s = (last_s - start_s) / PARTS
    parts: list[list[float]] = [[] for _ in range(PARTS)]
    for at_s, value in longest:
        if at_s >= start_s:
            parts[min(int((at_s - start_s) / width_s), PARTS - 1)].append(value)
    return Slope(floors=tuple(min(part) for part in parts) if all(parts) else (), allowed=allowed)


def leaks(slopes: Mapping[str, Slope]) -> list[str]:
    """What grows, as lines for a person."""
    return [
        f"{name} grows: floors={' → '.join(f'{floor:g}' for floor in slope.floors)} allowed={slope.allowed:g}"
        for name, slope in slopes.items()
        if slope.is_leak
    ]


def seconds_of(series: Series) -> float:
    """From its first sample to its last."""
    return series[-1][0] - series[0][0] if len(series) > 1 else 0.0
