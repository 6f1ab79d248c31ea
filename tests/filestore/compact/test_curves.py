"""Curves through a grid: every point once, and on Hilbert's each step goes to a neighbour."""

import numpy as np
import pytest

from filestore.compact.row_order import hilbert_places, z_places
from lsm.keys.words import WordArray


def grid(dimensions: int, bits: int) -> list[WordArray]:
    axes = np.meshgrid(*[np.arange(1 << bits, dtype=np.uint64)] * dimensions, indexing="ij")
    return [axis.ravel() for axis in axes]


@pytest.mark.parametrize(("dimensions", "bits"), [(2, 1), (2, 4), (2, 5), (3, 3), (4, 2)])
def test_each_point_has_one_place_and_hilbert_steps_to_neighbours(dimensions: int, bits: int) -> None:
    """Issue 20 point 7."""
    points = grid(dimensions, bits)
    for curve in (z_places, hilbert_places):
        assert sorted(curve(points, bits).tolist()) == list(range(1 << (dimensions * bits)))
    order = np.argsort(hilbert_places(points, bits))
    steps = np.abs(np.diff(np.array(points)[:, order].astype(np.int64), axis=1)).sum(axis=0)
    assert steps.tolist() == [1] * len(steps)


def test_z_order_takes_bits_in_turns() -> None:
    """Issue 20 point 7: the first column leads; 16 bits of four columns fill the word."""
    one, two = np.array([0b10, 0b01], np.uint64), np.array([0b01, 0b11], np.uint64)
    assert z_places([one, two], 2).tolist() == [0b1001, 0b0111]
    most = np.array([(1 << 16) - 1], np.uint64)
    assert z_places([most] * 4, 16).tolist() == [(1 << 64) - 1]
    assert z_places([most] + [most * 0] * 3, 16).tolist() == [0x8888_8888_8888_8888]
