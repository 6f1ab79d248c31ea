"""Numbers that Arrow's reader of decimals would misread."""

import pyarrow as pa
import pytest

from logstore.json.decoding import _PART_BYTES, holds_tiny_decimals


@pytest.mark.parametrize(
    ("number", "is_tiny"),
    [("2e-324", True), ("2E-40", True), ("1.5e-100", True), ("2e-39", False), ("2e+324", False), ("2e-4", False)],
)
def test_a_number_is_found_wherever_it_stands(number: str, *, is_tiny: bool) -> None:
    """Also where the text is looked at in parts and the exponent lies over their border."""
    for before in (0, _PART_BYTES - 7, *range(_PART_BYTES - 3, _PART_BYTES + 2), 3 * _PART_BYTES - 2):
        text = b" " * (before - 1) + b"[" + number.encode() + b"]" + b" " * 9
        assert holds_tiny_decimals(pa.py_buffer(text)) == is_tiny, before


@pytest.mark.parametrize("text", [b"", b"-", b"e-", b"2e-", b"2e-4", b"some-thing e-mail e-400", b"1-400,"])
def test_what_only_looks_like_one(text: bytes) -> None:
    """Ends of the text, words, and dashes without an exponent."""
    assert not holds_tiny_decimals(pa.py_buffer(text))
