"""The names in the metadata of VARIANT values: each row has a list of them, and objects name fields by places in it.

Source: parquet-format VariantEncoding, "Metadata encoding".
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from filestore.variant.ragged import cut_out, flat_bytes, malformed, numbers_at, places_from, starts_of
from lsm.keys.words import IndexArray

_VERSION = 1


@dataclass(frozen=True, slots=True)
class NameLists:
    """The different lists of names of a column, L of them with E names together, of which N are different.

    Names have numbers in the order of their bytes, which is the order of the fields of an object.
    """

    of_row: IndexArray  # (n,) the list of each row; -1: the row is null
    names: pa.Array  # (N,) in order
    entries: IndexArray  # (E,) the number of each name, list after list
    starts: IndexArray  # (L + 1,) where each list begins
    _pairs: IndexArray  # (E,) list and number as one, in order
    _places: IndexArray  # (E,) the place in its list of each of them

    @classmethod
    def of(cls, metadata: pa.Array) -> "NameLists":
        """Those of a column of metadata. Raises: CorruptDataError: one has another version or ends too early."""
        lists = metadata.cast(pa.large_binary()).dictionary_encode()
        if isinstance(lists, pa.ChunkedArray):
            lists = lists.combine_chunks()
        data, offsets = flat_bytes(lists.dictionary)
        begins, ends = offsets[:-1], offsets[1:]
        if (begins == ends).any():
            raise malformed("it has no metadata")
        heads = data[begins].astype(np.int64)
        if (heads & 15 != _VERSION).any():
            raise malformed("its metadata has another version")
        widths = (heads >> 6) + 1
        counts = numbers_at(data, begins + 1, widths)
        if (begins + 1 + widths * (counts + 2) > ends).any():
            raise malformed("its metadata ends too early")
        offset_count = counts + 1
        inside = numbers_at(
            data, places_from(begins + 1 + widths, offset_count, widths), np.repeat(widths, offset_count)
        )
        texts = inside + np.repeat(begins + 1 + widths * (counts + 2), offset_count)
        if (texts > np.repeat(ends, offset_count)).any():
            raise malformed("its metadata ends too early")
        rows = starts_of(offset_count)
        firsts = np.delete(np.arange(rows[-1]), rows[1:] - 1)
        found = cut_out(data, texts[firsts], texts[firsts + 1])
        different = pc.unique(found)
        different = different.take(pc.array_sort_indices(different))
        entries = pc.index_in(found, different).to_numpy(zero_copy_only=False).astype(np.int64)
        pairs = np.repeat(np.arange(len(counts)), counts) * max(len(different), 1) + entries
        order = np.argsort(pairs, kind="stable")
        starts = starts_of(counts)
        places = np.arange(len(entries)) - np.repeat(starts[:-1], counts)
        of_row = pc.fill_null(lists.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        return cls(of_row, different, entries, starts, pairs[order], places[order])

    def number(self, name: str) -> int | None:
        """The number of a name; None: no row has it."""
        found = pc.index_in(pa.array([name.encode()], pa.large_binary()), self.names)[0].as_py()
        return None if found is None else int(found)

    def places(self, lists: IndexArray, numbers: IndexArray) -> IndexArray:
        """(n,) places of names in lists. Raises: CorruptDataError: a list has not the name."""
        wanted = lists * max(len(self.names), 1) + numbers
        found = np.searchsorted(self._pairs, wanted)
        if len(wanted) and (found.max() >= len(self._pairs) or (self._pairs[found] != wanted).any()):
            raise malformed("its metadata lacks the name of a shredded field")
        places: IndexArray = self._places[found]
        return places

    def numbers(self, lists: IndexArray, places: IndexArray) -> IndexArray:
        """(n,) numbers of names by places in lists. Raises: CorruptDataError: a list has no such place."""
        found = self.starts[lists] + places
        if (found >= self.starts[lists + 1]).any():
            raise malformed("a field has no name in its metadata")
        numbers: IndexArray = self.entries[found]
        return numbers
