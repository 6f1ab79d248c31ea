"""Extracts objects with arbitrary member names (maps) from whole batches of JSON records, by structure alone.

Arrow's JSON reader needs to know the member names in advance. So the positions of all brackets, colons and commas
outside strings are taken from the bytes, with the nesting depth at each; these give the spans of every member
of every object, without a loop over records. The records must be valid JSON: only then is structure sufficient.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from logstore.json.arrow_bytes import running_sum, texts_between, value_bytes
from lsm.keys.words import BoolArray, IndexArray

_QUOTE, _BACKSLASH, _COLON, _COMMA, _OPENING_BRACE = b'"\\:,{'
_IS_STRUCTURE: Final = np.isin(np.arange(256), list(b"{}[]:,"))
_DEPTH_STEP: Final = np.zeros(256, np.int8)
_DEPTH_STEP[list(b"{[")] = 1
_DEPTH_STEP[list(b"}]")] = -1


class UnscannableError(ValueError):
    """The scan does not support how the records are formatted (white space, escapes, duplicates): read one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapMembers:
    """The members of one object per record, flattened."""

    offsets: NDArray[np.int32]  # (n + 1,) int32: members of record i are offsets[i] .. offsets[i + 1]
    is_null: BoolArray  # (n,) whether the record has no such object
    keys: pa.Array  # JSON text of the names, quoted
    values: pa.Array  # JSON text of the values


class JsonScan:
    """The structure of a batch of JSON objects.

    Args:
        texts: (n,) string without nulls, one JSON object each.
    """

    def __init__(self, texts: pa.Array) -> None:
        self._offsets, self._data = value_bytes(texts)
        data = self._data
        self._backslashes = np.flatnonzero(data == _BACKSLASH)
        quotes = np.flatnonzero(data == _QUOTE)
        if self._backslashes.size:
            quotes = quotes[~np.isin(quotes, self._escaped_positions(), assume_unique=True)]
        self._quotes = quotes
        is_quote = np.zeros(data.size, np.uint8)
        is_quote[quotes] = 1
        is_inside_string = np.cumsum(is_quote, dtype=np.uint8) & 1  # opening quote included; wraparound keeps parity
        tokens = np.flatnonzero(_IS_STRUCTURE[data])
        self._tokens = tokens[is_inside_string[tokens] == 0]
        self._kinds = data[self._tokens]
        steps = _DEPTH_STEP[self._kinds]
        self._depths = np.cumsum(steps, dtype=np.int32)  # after the token
        self._is_closing = steps < 0

    def members(self, path: tuple[str, ...]) -> MapMembers:
        """Members of the object at a path of member names, in every record.

        Raises:
            UnscannableError: read the records one by one.
        """
        opening, closing = self._spans(path)
        depth = len(path) + 1
        colons, span_of_colon = self._colons_within(opening, closing, depth)
        is_end = ((self._kinds == _COMMA) & (self._depths == depth)) | (self._is_closing & (self._depths == depth - 1))
        ends = np.flatnonzero(is_end)
        value_ends = self._tokens[ends[np.searchsorted(ends, colons)]]
        record_of_span = self._record_of(self._tokens[opening])
        if np.any(record_of_span[1:] == record_of_span[:-1]):
            raise UnscannableError(f"a member occurs twice: path={'.'.join(path)}")
        record_count = len(self._offsets) - 1
        is_null = np.ones(record_count, bool)
        is_null[record_of_span] = False
        counts = np.bincount(record_of_span[span_of_colon], minlength=record_count)
        key_starts, key_ends = self._tokens[colons - 1] + 1, self._tokens[colons]
        return MapMembers(
            offsets=running_sum(counts).astype(np.int32),
            is_null=is_null,
            keys=texts_between(self._data, key_starts, key_ends).cast(pa.string()),
            values=texts_between(self._data, key_ends + 1, value_ends).cast(pa.string()),
        )

    def _spans(self, path: tuple[str, ...]) -> tuple[IndexArray, IndexArray]:
        """Token indices of the braces of the object at the path, for the records that have it."""
        opening = np.flatnonzero((self._kinds == _OPENING_BRACE) & (self._depths == 1))
        closing = np.flatnonzero(self._is_closing & (self._depths == 0))
        for depth, name in enumerate(path, start=1):
            colons, _ = self._colons_within(opening, closing, depth)
            colons = colons[self._is_named(colons, name)]
            first_bytes = self._data[self._tokens[colons] + 1]
            if not np.all((first_bytes == _OPENING_BRACE) | (first_bytes == ord("n"))):
                raise UnscannableError(f"a member is not an object, or follows a space: path={'.'.join(path)}")
            opening = colons[first_bytes == _OPENING_BRACE] + 1
            all_closing = np.flatnonzero(self._is_closing & (self._depths == depth))
            closing = all_closing[np.searchsorted(all_closing, opening)]
        return opening, closing

    def _colons_within(self, opening: IndexArray, closing: IndexArray, depth: int) -> tuple[IndexArray, IndexArray]:
        """Token indices of the colons of the given objects, and the index of the object of each."""
        colons = np.flatnonzero((self._kinds == _COLON) & (self._depths == depth))
        if opening.size == 0:
            return colons[:0], colons[:0]
        span = np.searchsorted(opening, colons) - 1
        is_within = (span >= 0) & (colons < closing[span])
        return colons[is_within], span[is_within]

    def _is_named(self, colons: IndexArray, name: str) -> BoolArray:
        """Whether the member before each colon has this name."""
        ends = self._tokens[colons] - 1  # positions of the closing quotes
        if np.any(self._data[ends] != _QUOTE):
            raise UnscannableError("white space before a colon")
        starts = self._quotes[np.searchsorted(self._quotes, ends) - 1] + 1
        if self._backslashes.size:
            escapes = np.searchsorted(self._backslashes, ends) - np.searchsorted(self._backslashes, starts)
            if np.any(escapes):
                raise UnscannableError("a member name holds an escape")
        expected = np.frombuffer(name.encode(), np.uint8)
        is_named: BoolArray = ends - starts == expected.size
        windows = self._data[starts[is_named][:, None] + np.arange(expected.size)]
        is_named[is_named] = np.all(windows == expected, axis=1)
        return is_named

    def _escaped_positions(self) -> IndexArray:
        """Positions right after an odd number of backslashes."""
        runs = self._backslashes
        is_last = np.append(np.diff(runs) != 1, True)
        last_indices = np.flatnonzero(is_last)
        lengths = np.diff(last_indices, prepend=-1)
        positions: IndexArray = runs[last_indices[lengths % 2 == 1]] + 1
        return positions

    def _record_of(self, positions: IndexArray) -> IndexArray:
        return np.searchsorted(self._offsets, positions, side="right") - 1
