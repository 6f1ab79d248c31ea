"""JSON records to columns: a whole batch in one call of Arrow's reader, record by record only where that fails.

The reader gets an explicit schema, so that numbers are exact from text to column. Types that it does not support are
read as related ones (dates as strings) and converted by kernels. A batch that it rejects is halved until the odd
records are isolated with a few neighbours, and these are read by ``json.reading`` with a reason for each refusal. Both
paths accept the same input and give the same results.

Source: measured behaviour of ``pyarrow.json`` 26; RFC 8259.
"""

import re
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from numpy.typing import NDArray

from logstore.json.arrow_bytes import decimals_of_bytes, narrowed_decimals, running_sum, texts_between, value_bytes
from logstore.json.base64_text import base64_values
from logstore.json.reading import (
    GUESSED_DAYS,
    MILLIS_PER_DAY,
    NON_FINITE,
    UNITS_PER_DAY,
    BadRecord,
    Reading,
    UnreadableError,
    parsed,
    value_of,
)
from lsm.errors import InvalidInputError
from lsm.keys.words import BoolArray, IndexArray

# ---- Extracts objects with arbitrary member names (maps) from whole batches of JSON records, by structure alone.
#
# Arrow's JSON reader needs to know the member names in advance. So the positions of all brackets, colons and
# commas outside strings are taken from the bytes, with the nesting depth at each; these give the spans of every
# member of every object, without a loop over records. The records must be valid JSON: only then is structure
# sufficient.


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


# ---- Detects numbers like 2e-324 in JSON text: for these, Arrow's decimal reader exceeds its table of powers of ten
# Every batch with a decimal column is searched, so the usual case, no negative exponent at all, takes only
# four passes over the bytes. Source: measured behaviour of ``pyarrow.json`` 26.


_PART_BYTES: Final = 1 << 18  # bytes per pass: fits the CPU cache
_LARGE_EXPONENT: Final = re.compile(rb'-(?:[0-9]{3,}|[4-9][0-9])["\s,}\]]')


def holds_tiny_decimals(text: pa.Buffer) -> bool:
    """Whether a JSON text may contain a number with an exponent of -40 or less, inside strings or not."""
    data = np.frombuffer(text, np.uint8)
    if not _holds_negative_exponent(data):
        return False
    dashes = _positions(data, ord("-"))
    dashes = dashes[(data[dashes - 1] | 0x20 == ord("e")) & (dashes + 3 < data.size)]
    digits = data[dashes[:, None] + np.arange(1, 4)]
    is_digit = (digits >= ord("0")) & (digits <= ord("9"))
    is_large = is_digit[:, 0] & is_digit[:, 1] & ((digits[:, 0] >= ord("4")) | is_digit[:, 2])
    return any(_LARGE_EXPONENT.match(memoryview(text), position) for position in dashes[is_large].tolist())


def _holds_negative_exponent(data: NDArray[np.uint8]) -> bool:
    for start in range(0, len(data) - 1, _PART_BYTES):
        part = data[start : start + _PART_BYTES + 1]  # one byte more: the two bytes may lie in two parts
        if np.any((part[1:] == ord("-")) & (part[:-1] | 0x20 == ord("e"))):
            return True
    return False


def _positions(data: NDArray[np.uint8], byte: int) -> IndexArray:
    """Positions of a rare byte, searched eight bytes at a time, which is several times faster."""
    found = np.zeros(-(-len(data) // 8) * 8, np.bool_)
    np.equal(data, byte, out=found[: len(data)])
    words = np.flatnonzero(found.view(np.uint64))
    inside, bytes_of_word = np.nonzero(found.reshape(-1, 8)[words])
    return words[inside] * 8 + bytes_of_word


# ---- JSON records to columns: a whole batch in one call of Arrow's reader, record by record only where that fails


_FEW_RECORDS: Final = 64  # up to this many, reading one by one is cheaper than another call of the reader
_MAX_LINES_BYTES: Final = 1 << 30
_BLOCK_BYTES: Final = 1 << 20  # parsed by one thread
_MEMBER: Final = re.compile(rb'"([^"\\]*(?:\\.[^"\\]*)*)"\s*:\s*([-0-9"tf])')
_GUESSED_BYTES: Final = 4 << 20  # of a block, by which columns of numbers are known; else it is read in halves
_REFUSALS: Final = (pa.ArrowInvalid, pa.ArrowCapacityError, UnscannableError, InvalidInputError)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedObjects:
    """The readable records of a batch, in order, and the bad ones."""

    rows: pa.StructArray
    indices: IndexArray  # (rows,) index of the record of each row
    bad: tuple[BadRecord, ...]


def decode_objects(texts: pa.Array, reading: Reading) -> DecodedObjects:
    """Read one JSON object per record.

    Args:
        texts: (n,) string or binary without nulls.
        reading: reading of a struct; unknown members are ignored, missing members are null.

    Returns:
        one row per readable record; the JSON value ``null`` gives a null row.
    """
    pieces: list[pa.Array] = []
    indices: list[IndexArray] = []
    bad: list[BadRecord] = []
    pending = [(0, len(texts))] if len(texts) else []
    while pending:
        start, stop = pending.pop()
        piece = texts.slice(start, stop - start)
        try:
            pieces.append(_read_all(piece, reading))
            indices.append(np.arange(start, stop))
        except _REFUSALS:
            if stop - start > _FEW_RECORDS and not reading.is_read_one_by_one:
                middle = (start + stop) // 2
                pending += [(middle, stop), (start, middle)]
                continue
            rows, good, refused = _read_each(piece, reading, start)
            pieces.append(rows)
            indices.append(good)
            bad += refused
    rows = pa.concat_arrays(pieces) if pieces else pa.array([], reading.type)
    return DecodedObjects(
        rows=rows, indices=np.concatenate([*indices, np.zeros(0, np.int64)]).astype(np.int64), bad=tuple(bad)
    )


def _read_each(texts: pa.Array, reading: Reading, first_index: int) -> tuple[pa.Array, IndexArray, list[BadRecord]]:
    values, good, bad = [], [], []
    for index, raw in enumerate(texts.cast(pa.binary()).to_pylist(), start=first_index):
        try:
            values.append(value_of(parsed(_decoded(raw)), reading))
            good.append(index)
        except UnreadableError as error:
            bad.append(BadRecord(index=index, reason=str(error)))
    return pa.array(values, reading.type), np.array(good, np.int64), bad


def _decoded(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise UnreadableError(f"not UTF-8: {error}") from error


def _read_all(texts: pa.Array, reading: Reading) -> pa.Array:
    """Every record at once. Raises one of `_REFUSALS` when that is not possible."""
    if reading.is_read_one_by_one:
        raise UnscannableError("records with such maps are read one by one")
    texts = _bracketed(texts.cast(pa.string()))  # the cast checks that the bytes are UTF-8
    lines = _lines(texts)
    if reading.has_decimals and holds_tiny_decimals(lines):
        raise UnscannableError("Arrow's reader misreads decimals with such exponents")
    numeric_columns = _columns_with_numbers(lines, reading)
    wire = _wire_type(reading, numeric_columns)
    try:
        rows = _parsed_lines(lines, wire, len(texts))
    except _REFUSALS:
        normalized_lines = _normalized(texts, lines, reading)
        if normalized_lines is None:
            raise
        rows = _parsed_lines(normalized_lines, wire, len(texts))
    scan = JsonScan(texts) if reading.has_maps else None
    return _converted(rows, reading, numeric_columns, path=(), scan=scan)


def _parsed_lines(lines: pa.Buffer, wire: pa.StructType, record_count: int) -> pa.StructArray:
    is_large = lines.size > 2 * _BLOCK_BYTES
    table = pyarrow.json.read_json(
        lines,
        read_options=pyarrow.json.ReadOptions(
            use_threads=is_large, block_size=_BLOCK_BYTES if is_large else lines.size + 1
        ),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema(list(wire)), unexpected_field_behavior="ignore"
        ),
    )
    if table.num_rows != record_count:
        raise UnscannableError(f"records are not one document each: records={record_count} documents={table.num_rows}")
    if wire.num_fields == 0:
        return pa.array([{}] * record_count, wire)
    return pa.StructArray.from_arrays([column.combine_chunks() for column in table.columns], fields=list(wire))


def _bracketed(texts: pa.Array) -> pa.Array:
    """The records, trimmed if needed, which must begin with ``{`` and end with ``}``.

    Then no record is blank, and no document can span two records (after ``}``, JSON never allows ``{``): if
    there are as many documents as records, each record is exactly one.
    """
    if _all_bracketed(texts):
        return texts
    texts = pc.ascii_trim_whitespace(texts)
    if not _all_bracketed(texts):
        raise UnscannableError("a record is not a JSON object")
    return texts


def _normalized(texts: pa.Array, lines: pa.Buffer, reading: Reading) -> pa.Buffer | None:
    """The records normalized for Arrow's reader; None if there is nothing to change.

    Replaces line feeds within records by spaces, and removes the quotes of NaN and infinities of float members.
    """
    before = normalized = lines.to_pybytes()
    if normalized.count(b"\n") != len(texts) - 1:
        normalized = _lines(pc.replace_substring(texts, "\n", " ")).to_pybytes()  # never inside a JSON string
    names = {name for name, leaf in reading.leaves if pa.types.is_floating(leaf.type)}
    for text in NON_FINITE:
        quoted = f'"{text}"'
        if quoted.encode() in normalized:
            for name in names:
                normalized = normalized.replace(f'"{name}":{quoted}'.encode(), f'"{name}":{text}'.encode())
    return None if normalized == before else pa.py_buffer(normalized)


def _all_bracketed(texts: pa.Array) -> bool:
    return _every(pc.starts_with(texts, "{")) and _every(pc.ends_with(texts, "}"))


def _lines(texts: pa.Array) -> pa.Buffer:
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    lines = pc.binary_join(whole, "\n")[0].as_buffer()
    if lines.size > _MAX_LINES_BYTES:
        raise UnscannableError(f"too much for one block: bytes={lines.size}")
    return lines


def _columns_with_numbers(lines: pa.Buffer, reading: Reading) -> frozenset[str]:
    """Lenient columns that hold numbers, judged by their first value; a wrong guess is refused later, not misread."""
    missing = {name.encode(): name for name in reading.number_names}
    found = []
    for match in _MEMBER.finditer(lines, 0, _GUESSED_BYTES) if missing else ():
        name = missing.pop(match[1], None)
        if name is not None and match[2] in b"-0123456789":
            found.append(name)
        if not missing:
            break
    return frozenset(found)


def _wire_type(reading: Reading, numeric: frozenset[str], name: str = "") -> pa.DataType:
    """The type to request from Arrow's reader."""
    data_type = reading.type
    if pa.types.is_struct(data_type):
        named = zip(data_type, reading.children, strict=True)
        return pa.struct(
            [(f.name, _wire_type(child, numeric, f.name)) for f, child in named if not pa.types.is_map(f.type)]
        )
    if pa.types.is_list(data_type):
        return pa.list_(_wire_type(reading.children[0], numeric, name))
    if name in numeric and reading.may_be_number:
        return pa.int64()
    if (
        pa.types.is_date(data_type)
        or pa.types.is_time(data_type)
        or pa.types.is_binary(data_type)
        or reading.unscaled_scale is not None
    ):
        return pa.string()
    if pa.types.is_decimal(data_type) and data_type.precision + data_type.scale > 38:
        return pa.decimal256(38, data_type.scale)  # Arrow's reader does not detect overflow of 128 bits when scaling up
    return data_type


def _converted(
    array: pa.Array, reading: Reading, numeric: frozenset[str], *, path: tuple[str, ...], scan: JsonScan | None
) -> pa.Array:
    """The reader's result converted to the column's type."""
    data_type = reading.type
    if pa.types.is_struct(data_type):
        return _converted_struct(array, reading, numeric, path=path, scan=scan)
    if pa.types.is_list(data_type):
        elements = _converted(array.values, reading.children[0], numeric, path=path, scan=scan)
        return pa.ListArray.from_arrays(
            _plain_offsets(array), elements, type=data_type, mask=array.is_null() if array.null_count else None
        )
    if array.type == data_type:
        if pa.types.is_decimal(data_type):
            array.validate(full=True)  # the reader accepts numbers that fit 128 bits but not the column's precision
        return array
    if pa.types.is_integer(array.type):
        return _from_numbers(array, reading)
    if pa.types.is_date(data_type):
        return array.cast(data_type)
    if pa.types.is_time(data_type):
        return _times(array, reading)
    if pa.types.is_decimal(data_type) and pa.types.is_decimal(array.type):
        return narrowed_decimals(array, data_type)
    values = base64_values(array)
    if pa.types.is_binary(data_type):
        return values
    return decimals_of_bytes(values, scale=int(reading.unscaled_scale or 0), data_type=data_type)


def _converted_struct(
    array: pa.Array, reading: Reading, numeric: frozenset[str], *, path: tuple[str, ...], scan: JsonScan | None
) -> pa.Array:
    children = []
    for field, child in zip(reading.type, reading.children, strict=True):
        field_path = (*path, field.name)
        if pa.types.is_map(field.type):
            assert scan is not None, "a reading with maps is read with a scan"
            children.append(_map_of(scan, field_path, child))
        else:
            children.append(_converted(array.field(field.name), child, numeric, path=field_path, scan=scan))
    mask = array.is_null() if array.null_count else None
    if not children:
        return pa.array(
            [{}] * len(array), reading.type, mask=None if mask is None else mask.to_numpy(zero_copy_only=False)
        )
    return pa.StructArray.from_arrays(children, fields=list(reading.type), mask=mask)


def _plain_offsets(array: pa.ListArray) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(array) + 1, [None, array.buffers()[1]])


def _map_of(scan: JsonScan, path: tuple[str, ...], reading: Reading) -> pa.Array:
    found = scan.members(path)
    key_reading, item_reading = reading.children
    key_text = pc.binary_join_element_wise('{"k":', found.keys, ',"v":', found.values, "}", "")
    entry_type = pa.struct([("k", pa.string()), ("v", item_reading.type)])
    entry_reading = Reading(type=entry_type, children=(Reading(type=pa.string()), item_reading))
    if len(key_text):
        entries = _read_all(key_text, entry_reading)
        keys, items = _keys(entries.field("k"), key_reading), entries.field("v")
    else:
        keys, items = pa.array([], key_reading.type), pa.array([], item_reading.type)
    records = np.repeat(np.arange(len(found.is_null)), np.diff(found.offsets))
    entries_of_keys = records * (len(keys) + 1) + np.asarray(keys.dictionary_encode().indices)
    if np.unique(entries_of_keys).size != len(keys):
        raise UnscannableError("a key occurs twice in one map: the last one wins")
    mask = pa.array(found.is_null) if found.is_null.any() else None
    return pa.MapArray.from_arrays(pa.array(found.offsets), keys, items, type=reading.type, mask=mask)


def _keys(texts: pa.Array, reading: Reading) -> pa.Array:
    """Map keys from their JSON strings."""
    if pa.types.is_string(reading.type):
        return texts
    if pa.types.is_date(reading.type):
        return texts.cast(reading.type)
    if not _every(pc.match_substring_regex(texts, r"^(-?[1-9][0-9]*|0)$")):
        raise UnscannableError("a map key is not an integer")
    return texts.cast(reading.type)


def _from_numbers(numbers: pa.Array, reading: Reading) -> pa.Array:
    data_type = reading.type
    if pa.types.is_boolean(data_type):
        if not _every(pc.is_in(numbers, pa.array([0, 1, None], pa.int64()))):
            raise UnscannableError("a boolean is neither 0 nor 1")
        return numbers.cast(data_type)
    unit = str(reading.number_unit)
    if pa.types.is_time(data_type):
        return _times_from_numbers(numbers, unit, reading)
    if reading.is_unit_guessed:
        near = pc.less(pc.abs(numbers), GUESSED_DAYS * UNITS_PER_DAY[unit])
        if not _every(pc.or_(pc.invert(near), pc.equal(numbers, 0))):
            raise UnscannableError("the unit of a moment near 1970 is a wrong guess")
    moments = numbers.cast(pa.int32()).view(pa.date32()) if unit == "D" else numbers.view(pa.timestamp(unit))
    if pa.types.is_timestamp(data_type):
        return moments.cast(pa.timestamp(data_type.unit)).view(data_type)
    days = moments.cast(pa.date32())
    if unit != "D" and not _every(pc.equal(days.cast(moments.type), moments)):
        raise UnscannableError("a date has a time of day")
    return days


def _times_from_numbers(numbers: pa.Array, unit: str, reading: Reading) -> pa.Array:
    if not _every(pc.and_(pc.greater_equal(numbers, 0), pc.less(numbers, UNITS_PER_DAY[unit]))):
        raise UnscannableError("a time lies outside of the day")
    if unit == "s":
        return pc.multiply(numbers, 1000).cast(pa.int32()).view(pa.time32("ms"))
    return _whole_millis(numbers, UNITS_PER_DAY[unit] // MILLIS_PER_DAY, reading)


def _times(texts: pa.Array, reading: Reading) -> pa.Array:
    if pc.any(pc.ends_with(texts, "Z")).as_py():
        texts = pc.replace_substring_regex(texts, "Z$", "")
    moments = pc.binary_join_element_wise("1970-01-01 ", texts, "").cast(pa.timestamp("ns"))
    return _whole_millis(moments.view(pa.int64()), 10**6, reading)


def _whole_millis(numbers: pa.Array, per_milli: int, reading: Reading) -> pa.Array:
    """Times of day in milliseconds. Of a log, finer digits are cut off as Flink does; a source refuses them."""
    millis = pc.divide(numbers, per_milli)
    if reading.lenient and not _every(pc.equal(pc.multiply(millis, per_milli), numbers)):
        raise UnscannableError("a time is finer than a millisecond")
    return millis.cast(pa.int32()).view(pa.time32("ms"))


def _every(mask: pa.Array) -> bool:
    """True if no value is false; nulls are ignored."""
    return bool(pc.all(mask).as_py() is not False)
