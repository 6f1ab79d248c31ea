"""Unions of bitmaps and sketches stored in binary columns.

The formats are those of Paimon for Java: Roaring's portable format (rbm32), that of Java's
Roaring64Bitmap (rbm64), and Apache DataSketches' compact forms (theta_sketch, hll_sketch). No operand is null, every
key has at least one, a single one is kept unchanged. Source: Paimon FieldRoaringBitmap32Agg, FieldRoaringBitmap64Agg,
FieldThetaSketchAgg, FieldHllSketchAgg.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from pyroaring import BitMap

from lsm.aggregate.java_bitmaps import bitmap64_bytes, bitmap64_of, union64
from lsm.aggregate.operands import Operands
from lsm.errors import InvalidInputError


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
