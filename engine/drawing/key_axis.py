"""The axis of a bucket's picture: where its keys lie, from 0 on the left to 1 on the right.

Numbers and times are placed by value. Other keys, and numbers of which most rows are in a sliver of the range, are
placed by rows: the distance of two keys is the estimated share of rows between them. The rows of a file are spread over
its range in proportion to the keys' distance as text. Only where no row count is known do ranks decide.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from filestore.types.data_types import INTEGER_ROOTS, TEXT_ROOTS, TIMESTAMP_ROOTS, DataField
from lsm.keys.keys import KeyTuple
from lsm.levels import SortedFile, SortedRun

_NUMBERS: Final = frozenset({"DECIMAL", "FLOAT", "DOUBLE", "TIME"}) | TIMESTAMP_ROOTS
_COUNTED: Final = INTEGER_ROOTS | {"DATE"}  # each value has a successor: n ends where n + 1 begins
_SIGN: Final = 1 << 63
_LETTERS: Final = 12  # of a text that decide about its place
_SLIVER: Final = 0.02  # of the axis
_MOST_ROWS: Final = 0.9

Scale = Literal["value", "rows", "rank"]
SCALE_WORDS: Final[dict[Scale, str]] = {"value": "by value", "rows": "by rows", "rank": "by rank"}
Floats = npt.NDArray[np.float64]
_Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A part of the axis in which a read of any key merges the same number of runs."""

    start: float
    end: float
    runs: int


@dataclass(frozen=True, kw_only=True)
class KeyAxis:
    """The places of all first and last keys of a bucket's files, the *ends*, in key order."""

    scale: Scale
    ranks: dict[KeyTuple, int]
    lefts: Floats  # where the key of a rank begins
    rights: Floats  # where it ends; > left for keys that have a width of their own

    @classmethod
    def of(cls, runs: Sequence[SortedRun], fields: Sequence[DataField]) -> "KeyAxis":
        """The axis for the runs of a bucket.

        Args:
            runs: at least one.
            fields: the key columns, in the order of the keys' parts.
        """
        files = [file for run in runs for file in run.files]
        ends = sorted({end for file in files for end in (file.min_key, file.max_key)})
        ranks = {end: rank for rank, end in enumerate(ends)}
        rows, scale = _rows_of_cells(files, ranks, _gaps(ends, fields)), "rows"
        places = _by_value(ends, fields)
        if places is not None and not _is_skewed(rows, places):
            return cls(scale="value", ranks=ranks, lefts=places[0], rights=places[1])
        if not rows.any():
            rows, scale = np.ones_like(rows), "rank"
        borders = np.concatenate([[0.0], np.cumsum(rows)]) / rows.sum()
        return cls(scale=scale, ranks=ranks, lefts=borders[0:-1:2], rights=borders[1::2])  # type: ignore[arg-type]

    def span(self, first: KeyTuple, last: KeyTuple) -> tuple[float, float]:
        """Begin and end of a range of keys, both of them ends of files."""
        return float(self.lefts[self.ranks[first]]), float(self.rights[self.ranks[last]])

    def overlap(self, runs: Sequence[SortedRun]) -> tuple[Stretch, ...]:
        """How many runs a read merges, along the axis from 0 to 1; stretches without a width are left out."""
        steps: _Counts = np.zeros(2 * len(self.ranks), np.int64)
        for run in runs:
            for file in run.files:
                steps[2 * self.ranks[file.min_key]] += 1
                steps[2 * self.ranks[file.max_key] + 1] -= 1
        counts = np.cumsum(steps)[:-1]
        borders = np.stack([self.lefts, self.rights], axis=1).ravel()
        found: list[Stretch] = []
        for start, end, count in zip(borders[:-1].tolist(), borders[1:].tolist(), counts.tolist(), strict=True):
            if found and found[-1].runs == count:
                found[-1] = Stretch(start=found[-1].start, end=end, runs=count)
            elif end > start:
                found.append(Stretch(start=start, end=end, runs=count))
        return tuple(found)


def _by_value(ends: Sequence[KeyTuple], fields: Sequence[DataField]) -> tuple[Floats, Floats] | None:
    """Left and right places of keys of one number or time; None for others, and where there is one value only.

    Leading columns in which all keys are the same do not count.
    """
    at = next((at for at in range(len(fields)) if ends[0][at] != ends[-1][at]), None)
    if at is None or at != len(fields) - 1 or fields[at].type.root not in _NUMBERS | _COUNTED:
        return None
    values = [_number(end[at], fields[at]) for end in ends]
    width = int(fields[at].type.root in _COUNTED)
    low, whole = values[0], values[-1] + width - values[0]
    if not whole > 0:  # 0.0 and -0.0 are two keys
        return None
    lefts = np.array([float((value - low) / whole) for value in values])
    rights = np.array([float((value + width - low) / whole) for value in values])
    return (lefts, rights) if np.isfinite(lefts).all() and np.isfinite(rights).all() else None


def _number(value: Any, field: DataField) -> Any:
    """The number that a part of a key stands for; see ``lsm.keys.keys.comparable``."""
    if field.type.root not in ("FLOAT", "DOUBLE"):
        return value
    bits = int(value)
    bits ^= _SIGN if bits & _SIGN else 0xFFFF_FFFF_FFFF_FFFF
    return float(np.array([bits], np.uint64).view(np.float64)[0])


def _is_skewed(rows: Floats, places: tuple[Floats, Floats]) -> bool:
    """Whether nearly all rows are in a sliver of the axis, where files could not be distinguished."""
    borders = np.stack(places, axis=1).ravel()
    widths = np.diff(borders)
    densest = np.argsort(-rows / np.maximum(widths, 1e-12))
    most = np.searchsorted(np.cumsum(rows[densest]), _MOST_ROWS * rows.sum()) + 1
    return bool(rows.any() and widths[densest[:most]].sum() < _SLIVER)


def _rows_of_cells(files: Sequence[SortedFile], ranks: dict[KeyTuple, int], gaps: Floats) -> Floats:
    """Estimated rows of each cell of the axis: the cells are the ends, and the gaps between them, in turn."""
    rows = np.zeros(2 * len(ranks) - 1)
    upto = np.concatenate([[0.0], np.cumsum(gaps)])
    for file in files:
        first, last = ranks[file.min_key], ranks[file.max_key]
        if first == last:
            rows[2 * first] += file.row_count
        else:
            share = file.row_count / (upto[last] - upto[first])
            rows[2 * first + 1 : 2 * last : 2] += share * gaps[first:last]
    return rows


def _gaps(ends: Sequence[KeyTuple], fields: Sequence[DataField]) -> Floats:
    """The distances of neighbouring keys, > 0: those of the first column in which two keys differ."""
    columns = [_numbers([end[at] for end in ends], field) for at, field in enumerate(fields)]
    found = np.ones(len(ends) - 1)
    for place, (left, right) in enumerate(pairwise(ends)):
        at = next(at for at in range(len(fields)) if left[at] != right[at])
        found[place] = columns[at][place + 1] - columns[at][place]
    gaps: Floats = np.maximum(found, 1e-9)
    return gaps


def _numbers(values: Sequence[Any], field: DataField) -> Floats:
    """Values as numbers from 0 to 1, in their order."""
    root = field.type.root
    if root in _NUMBERS | _COUNTED:
        numbers = [_number(value, field) for value in values]
        low = min(numbers)
        whole = max(numbers) - low
        found = np.array([float((each - low) / whole) if whole else 0.0 for each in numbers])
        finite: Floats = np.nan_to_num(found, nan=0.0, posinf=1.0, neginf=0.0)
        return finite
    texts = [value.encode() if root in TEXT_ROOTS and isinstance(value, str) else value for value in values]
    if all(isinstance(each, bytes) for each in texts):
        return _digits(texts)
    return np.array([float(value) if isinstance(value, bool | int) else 0.0 for value in values])


def _digits(texts: Sequence[bytes]) -> Floats:
    """Texts as fractions: behind what all have in common, each letter is a digit among the letters that are there."""
    low, high = min(texts), max(texts)
    common = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    tails = [text[common : common + _LETTERS] for text in texts]
    letters = sorted({letter for tail in tails for letter in tail})
    digit = {letter: at + 1 for at, letter in enumerate(letters)}  # 0: the text has ended
    base = float(len(letters) + 1)
    return np.array([sum(digit[letter] / base ** (at + 1) for at, letter in enumerate(tail)) for tail in tails])
