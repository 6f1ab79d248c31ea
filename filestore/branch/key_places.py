"""The buckets that are merged by key: their states on both sides, and the conflicts that were found in them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from filestore.manifest.lists import IndexManifestEntry
from filestore.scan.bucket_states import BucketState, states_of_files
from filestore.table_store import TableStore
from lsm.levels import sections

LISTED: Final = 20
"""Conflicts of a merge that are listed; all are counted."""

ValuesByName = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyConflict:
    """A key that main and the branch changed differently. ValuesByName are those of the other columns; None: no row."""

    key: ValuesByName  # of a counted table the row, whose values are its count
    base: ValuesByName | None
    main: ValuesByName | None
    branch: ValuesByName | None


@dataclass(slots=True)
class Conflicts:
    """Keys that both sides changed differently."""

    count: int = 0
    first: list[KeyConflict] = field(default_factory=list)

    def add(self, other: "Conflicts") -> None:
        """Count the conflicts of another bucket too."""
        self.count += other.count
        self.first += other.first[: LISTED - len(self.first)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeTables:
    """The two sides of a merge, with the schema that main has afterwards."""

    main: TableStore  # also writes the result
    branch: TableStore  # reads files of the common state, too


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlace:
    """The unit of a merge: a bucket, or all buckets of a partition where keys are not bound to one bucket."""

    partition: bytes
    base: tuple[BucketState, ...]
    main: tuple[BucketState, ...]
    branch: tuple[BucketState, ...]
    main_changes: tuple[BucketState, ...] | None = None  # files with exactly the changed keys; None: not known
    branch_changes: tuple[BucketState, ...] | None = None
    indexes: tuple[IndexManifestEntry, ...] = ()  # main's index files of these buckets

    @property
    def version(self) -> object:
        """Equal for equal states of main."""
        files = [(each.bucket, file.file_name, file.level) for each in self.main for file in each.files]
        return self.partition, frozenset(files), tuple(self.indexes)


def narrowed_place(store: TableStore, place: KeyPlace) -> KeyPlace:
    """The files of the key ranges in which the branch differs from the base."""
    one, two = _versions(place.base), _versions(place.branch)
    different = {name for name in {*one, *two} if one.get(name) != two.get(name)}
    states = (*place.base, *place.main, *place.branch)
    files = {file.file_name: file for state in states for file in state.files}
    wanted: set[str] = set()
    for runs in sections(store.sorted_file(file) for file in files.values()):
        names = {file.file_name for run in runs for file in run.files}
        if names & different:
            wanted |= names
    return replace(
        place,
        base=states_of_files(place.base, wanted),
        main=states_of_files(place.main, wanted),
        branch=states_of_files(place.branch, wanted),
    )


def _versions(states: Iterable[BucketState]) -> Mapping[str, object]:
    found: dict[str, object] = {file.file_name: (state.bucket, file.level) for state in states for file in state.files}
    for state in states:
        for index in state.deletion_vectors:
            found |= {each.data_file_name: (index.file_name, each) for each in index.index_vectors}
    return found
