"""The files of a plan as rows of manifests; some at a time become objects, when a reader looks at them.

A file as an object is 1 kB and 5 µs, so a plan of very many keeps the last blocks of them only.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from threading import Lock
from typing import Final, overload

import numpy as np

from filestore.manifest.entries import DataFileMeta, ManifestEntry
from filestore.manifest.live_rows import ChosenEntries
from lsm.keys.words import IndexArray

BLOCK_FILES: Final = 4096
_BLOCKS: Final = 2  # that are kept

EntriesOf = Callable[[Iterable[ChosenEntries]], list[ManifestEntry]]
"""Entries as objects; see ``ManifestStore.entries_of``."""


class FileBlocks:
    """Live files in the order of a plan. May be used by several threads."""

    def __init__(self, entries_of: EntriesOf, parts: Sequence[ChosenEntries], order: IndexArray) -> None:
        """``order`` (n,) has the places of the files in the parts, counted through all of them."""
        self._entries_of = entries_of
        self._parts = parts
        self._ends = np.cumsum([len(each) for each in parts])
        self._order = order
        self._known: OrderedDict[int, list[DataFileMeta]] = OrderedDict()
        self._lock = Lock()

    def between(self, first: int, stop: int) -> list[DataFileMeta]:
        """The files from one place in the order up to another."""
        found: list[DataFileMeta] = []
        for number in range(first // BLOCK_FILES, -(-stop // BLOCK_FILES)):
            start = number * BLOCK_FILES
            found += self._block(number)[max(first - start, 0) : stop - start]
        return found

    def _block(self, number: int) -> list[DataFileMeta]:
        with self._lock:
            known = self._known.get(number)
            if known is None:
                known = self._known[number] = self._made(number * BLOCK_FILES)
                while len(self._known) > _BLOCKS:
                    self._known.popitem(last=False)
            else:
                self._known.move_to_end(number)
            return known

    def _made(self, start: int) -> list[DataFileMeta]:
        places = self._order[start : start + BLOCK_FILES]
        in_order = np.argsort(places, kind="stable")
        places = places[in_order]
        numbers = np.searchsorted(self._ends, places, side="right")
        chosen = []
        for number in np.unique(numbers).tolist():
            part = self._parts[number]
            rows = places[numbers == number] - (self._ends[number] - len(part))
            chosen.append(ChosenEntries(part.columns, part.rows[rows]))
        made = np.empty(len(places), object)
        made[in_order] = [entry.file for entry in self._entries_of(chosen)]
        files: list[DataFileMeta] = made.tolist()
        return files


class PlannedFiles(Sequence[DataFileMeta]):
    """Some files that follow each other in ``FileBlocks``; equal to, and pickled as, a tuple of them."""

    __slots__ = ("_blocks", "_first", "_stop")

    def __init__(self, blocks: FileBlocks, first: int, stop: int) -> None:
        self._blocks, self._first, self._stop = blocks, first, stop

    def __len__(self) -> int:
        return self._stop - self._first

    @overload
    def __getitem__(self, index: int) -> DataFileMeta: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[DataFileMeta, ...]: ...

    def __getitem__(self, index: int | slice) -> DataFileMeta | tuple[DataFileMeta, ...]:
        return self._files()[index]

    def __iter__(self) -> Iterator[DataFileMeta]:
        return iter(self._files())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | PlannedFiles) and self._files() == tuple(other)

    def __hash__(self) -> int:
        return hash(self._files())

    def __repr__(self) -> str:
        return repr(self._files())

    def __reduce__(self) -> tuple[type, tuple[list[DataFileMeta]]]:
        return tuple, (list(self._files()),)

    def _files(self) -> tuple[DataFileMeta, ...]:
        return tuple(self._blocks.between(self._first, self._stop))
