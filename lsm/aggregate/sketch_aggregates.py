"""Unions of bitmaps and sketches stored in binary columns.

The formats are those of Paimon for Java: Roaring's portable format (rbm32), that of Java's
Roaring64Bitmap (rbm64), and Apache DataSketches' compact forms (theta_sketch, hll_sketch). No operand is null, every
key has at least one, a single one is kept unchanged. Source: Paimon FieldRoaringBitmap32Agg, FieldRoaringBitmap64Agg,
FieldThetaSketchAgg, FieldHllSketchAgg.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap

from lsm.aggregate.operands import Operands
from lsm.errors import InvalidInputError

# ---- The serialized form of Java's Roaring64Bitmap, which differs from Roaring's portable 64-bit format
# Numbers are grouped by their upper 48 bits. A radix tree over these (ART) names a container for each group, which
# holds the lower 16 bits as runs, as a bitmap or as a list. The tree is written node by node, parents first, keys in
# unsigned order. Source: RoaringBitmap 1.2.1, HighLowContainer, Art, Node4 to Node256, LeafNode, Containers.


Bitmap64 = Mapping[int, NDArray[np.uint16]]
"""Upper 48 bits, as an unsigned number, to the lower 16 bits, ascending."""

_NODE4, _NODE16, _NODE48, _NODE256, _LEAF = range(5)
_BODY_BYTES: Final = {_NODE4: 4, _NODE16: 16, _NODE48: 256, _NODE256: 32, _LEAF: 14}
_RUNS, _BITS, _LIST = range(3)
_NOT_TRIMMED: Final = 0xFE
_KEY_BYTES: Final = 6
_MOST_LISTED: Final = 4096  # a longer list is larger than a bitmap


def bitmap64_of(data: bytes) -> Bitmap64:
    """Deserialize. Raises: ValueError when the bytes are not a Roaring64Bitmap."""
    try:
        return _read(data)
    except (struct.error, IndexError, KeyError) as error:
        raise ValueError(f"not a serialized Roaring64Bitmap: size={len(data)}") from error


def union64(sets: Sequence[Bitmap64]) -> Bitmap64:
    """The union of the sets."""
    groups: dict[int, list[NDArray[np.uint16]]] = {}
    for each in sets:
        for key, low in each.items():
            groups.setdefault(key, []).append(low)
    return {key: low[0] if len(low) == 1 else np.unique(np.concatenate(low)) for key, low in groups.items()}


def bitmap64_bytes(numbers: Bitmap64) -> bytes:
    """Serialize."""
    if not numbers:
        return b"\0"
    keys = sorted(numbers)
    places = {key.to_bytes(_KEY_BYTES, "big"): index for index, key in enumerate(keys)}
    parts = [b"\1", struct.pack("<q", len(keys)), *_nodes(sorted(places), places, 0)]
    parts.append(struct.pack("<iBi", 1, _NOT_TRIMMED, len(keys)))
    for key in keys:
        low = numbers[key]
        is_list = len(low) <= _MOST_LISTED
        parts.append(struct.pack("<BBi", 1, _LIST if is_list else _BITS, len(low)))
        parts.append(low.astype("<u2").tobytes() if is_list else _bits_of(low, 1 << 16))
    parts.append(struct.pack("<qii", len(keys), 0, len(keys) - 1))
    return b"".join(parts)


def _read(data: bytes) -> Bitmap64:
    if data[0] == 0:
        return {}
    at, pending = 9, 1
    groups: dict[int, int] = {}  # upper bits by container
    while pending:
        kind, count, prefix = struct.unpack_from("<BhB", data, at)
        at += 4 + prefix
        if kind == _LEAF:
            groups[struct.unpack_from("<q", data, at + _KEY_BYTES)[0]] = int.from_bytes(
                data[at : at + _KEY_BYTES], "big"
            )
            pending -= 1
        else:
            pending += count - 1
        at += _BODY_BYTES[kind]
    numbers = {}
    (arrays,) = struct.unpack_from("<i", data, at)
    at += 4
    for outer in range(arrays):
        (size,) = struct.unpack_from("<i", data, at + 1)
        at += 5
        for inner in range(size):
            at += 1
            if data[at - 1]:
                low, at = _container(data, at)
                numbers[groups[outer << 32 | inner]] = low
    return numbers


def _container(data: bytes, at: int) -> tuple[NDArray[np.uint16], int]:
    """The numbers of a container, and the offset of the next one."""
    kind, count = struct.unpack_from("<Bi", data, at)
    at += 5
    if kind == _LIST:
        return _words(data, at, count), at + 2 * count
    if kind == _BITS:
        bits = np.unpackbits(np.frombuffer(data, np.uint8, 8192, at), bitorder="little")
        return np.flatnonzero(bits).astype(np.uint16), at + 8192
    (runs,) = struct.unpack_from("<H", data, at)
    starts, lengths = _words(data, at + 2, 2 * runs).reshape(-1, 2).T.astype(np.int64)
    sizes = lengths + 1
    numbers = np.arange(sizes.sum()) + np.repeat(starts - (np.cumsum(sizes) - sizes), sizes)
    return numbers.astype(np.uint16), at + 2 + 4 * runs


def _words(data: bytes, at: int, count: int) -> NDArray[np.uint16]:
    if at + 2 * count > len(data):
        raise IndexError(at)
    return np.frombuffer(data, "<u2", count, at).astype(np.uint16)


def _nodes(keys: Sequence[bytes], places: Mapping[bytes, int], depth: int) -> Iterator[bytes]:
    """The subtree of sorted keys that share their first `depth` bytes, node by node."""
    if len(keys) == 1:
        yield struct.pack("<BhB", _LEAF, 0, 0) + keys[0] + struct.pack("<q", places[keys[0]])
        return
    first, last, end = keys[0], keys[-1], depth
    while first[end] == last[end]:
        end += 1
    children: dict[int, list[bytes]] = {}
    for key in keys:
        children.setdefault(key[end], []).append(key)
    kind = next(kind for kind, capacity in enumerate((4, 16, 48, 256)) if len(children) <= capacity)
    yield struct.pack("<BhB", kind, len(children), end - depth) + first[depth:end] + _body(kind, list(children))
    for below in children.values():
        yield from _nodes(below, places, end + 1)


def _body(kind: int, labels: Sequence[int]) -> bytes:
    """The child labels of a node. Java longs are written little-endian, so each group of eight bytes is reversed."""
    if kind == _NODE4:
        return bytes(labels).ljust(4, b"\0")[::-1]
    if kind == _NODE16:
        both = bytes(labels).ljust(16, b"\0")
        return both[7::-1] + both[:7:-1]
    if kind == _NODE48:
        index = np.full(256, 0xFF, np.uint8)
        index[list(labels)] = np.arange(len(labels))
        return index.reshape(32, 8)[:, ::-1].tobytes()
    return _bits_of(np.array(labels), 256)


def _bits_of(numbers: NDArray[np.integer], size: int) -> bytes:
    bits = np.zeros(size, np.bool_)
    bits[numbers] = True
    return np.packbits(bits, bitorder="little").tobytes()


# ---- Unions of bitmaps and sketches stored in binary columns


def bitmaps32(operands: Operands) -> pa.Array:
    """(k,) unions of sets of 32-bit numbers."""

    def union(sets: Sequence[bytes]) -> bytes:
        united = BitMap.union(*(BitMap.deserialize(each) for each in sets))
        united.run_optimize()
        return bytes(united.serialize())

    return _united(operands, union)


def bitmaps64(operands: Operands) -> pa.Array:
    """(k,) unions of sets of 64-bit numbers."""
    return _united(operands, lambda sets: bitmap64_bytes(union64([bitmap64_of(each) for each in sets])))


def theta_sketches(operands: Operands) -> pa.Array:
    """(k,) unions of theta sketches."""
    sketches = _datasketches("theta_sketch")

    def union(parts: Sequence[bytes]) -> bytes:
        united = sketches.theta_union()
        for part in parts:
            united.update(sketches.compact_theta_sketch.deserialize(part))
        return bytes(united.get_result().serialize())

    return _united(operands, union)


def hll_sketches(operands: Operands) -> pa.Array:
    """(k,) unions of HLL sketches, as HLL_4 (four bits per bucket)."""
    sketches = _datasketches("hll_sketch")

    def union(parts: Sequence[bytes]) -> bytes:
        read = [sketches.hll_sketch.deserialize(part) for part in parts]
        united = sketches.hll_union(min(each.lg_config_k for each in read))
        for each in read:
            united.update(each)
        return bytes(united.get_result(sketches.tgt_hll_type.HLL_4).serialize_compact())

    return _united(operands, union)


def _united(operands: Operands, union: Callable[[Sequence[bytes]], bytes]) -> pa.Array:
    values = operands.values.to_pylist()
    united = []
    for first, last in zip(operands.keys.firsts.tolist(), operands.keys.lasts.tolist(), strict=True):
        try:
            united.append(values[first] if first == last else union(values[first : last + 1]))
        except (ValueError, RuntimeError, IndexError) as error:
            raise InvalidInputError(f"the bytes cannot be deserialized: {error}") from error
    return pa.array(united, operands.values.type)


def _datasketches(function: str) -> Any:
    try:
        import datasketches
    except ImportError as error:
        raise InvalidInputError(f"{function} needs Apache DataSketches: fix='pip install fluvial[sketches]'") from error
    return datasketches
