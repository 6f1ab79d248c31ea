"""The buckets of a merge with their files on both sides and in the common state."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from filestore.branch.key_merge import takes_changes
from filestore.branch.key_places import KeyPlace
from filestore.branch.merge_files import Vectors
from filestore.branch.merge_history import MergeStart
from filestore.branch.merge_plan import (
    BucketPlace,
    MergeOutcome,
    PlaceChange,
    SideChanges,
    bucket_counts,
    by_place,
    place_change,
)
from filestore.index.index_manifest import HASH, index_files
from filestore.manifest.entries import ManifestEntry
from filestore.manifest.lists import DELETION_VECTORS, IndexManifestEntry, vectors_of
from filestore.scan.bucket_states import BucketState
from filestore.scan.snapshot_files import live_files_of_partitions, vector_places
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import ConflictError, InvalidInputError

_MOST_CHANGE_FILES = 200  # of a bucket that are merged at once; with more the states are compared


@dataclass(slots=True)
class _Side:
    """The state of one side in the partitions that the branch changed."""

    files: Mapping[BucketPlace, Sequence[ManifestEntry]]
    indexes: Mapping[BucketPlace, Sequence[IndexManifestEntry]]

    @classmethod
    def at(cls, store: TableStore, snapshot: Snapshot | None, partitions: set[bytes]) -> "_Side":
        indexes: defaultdict[BucketPlace, list[IndexManifestEntry]] = defaultdict(list)
        for entry in index_files(store, snapshot):
            if entry.index_type not in (DELETION_VECTORS, HASH):
                raise InvalidInputError(
                    f"cannot merge a table with an index of this type: table={store.name} type={entry.index_type} "
                    "fix=fast_forward, or replace_main_branch"
                )
            if entry.partition in partitions:
                indexes[entry.partition, entry.bucket].append(entry)
        files = by_place(live_files_of_partitions(store, snapshot, partitions)) if partitions else {}
        return cls(files, dict(indexes))

    def vectors(self, place: BucketPlace) -> tuple[IndexManifestEntry, ...]:
        return tuple(each for each in self.indexes.get(place, ()) if each.index_vectors)

    def state(self, place: BucketPlace) -> BucketState | None:
        entries = self.files.get(place, ())
        return None if not entries else state_of(place[1], entries, self.vectors(place))


def state_of(bucket: int, entries: Sequence[ManifestEntry], indexes: Sequence[IndexManifestEntry] = ()) -> BucketState:
    """The files of a bucket."""
    files = tuple(entry.file for entry in entries)
    return BucketState(
        bucket=bucket,
        total_buckets=entries[0].total_buckets,
        files=files,
        deletion_vectors=vectors_of(files, indexes),
    )


@dataclass(slots=True)
class MergePlaces:
    """The buckets and keys to merge, bucket by bucket."""

    main: TableStore
    branch: TableStore
    start: MergeStart
    latest: Snapshot | None = field(kw_only=True)
    newest: Snapshot = field(kw_only=True)
    decided: Mapping[BucketPlace, MergeOutcome] = field(kw_only=True)
    _main: _Side = field(init=False)
    _branch: _Side = field(init=False)
    _base: _Side = field(init=False)

    def __post_init__(self) -> None:
        partitions = {partition for partition, _ in self.decided}
        reads_base = any(each in (MergeOutcome.KEYS, MergeOutcome.FILES) for each in self.decided.values())
        reads_base = reads_base or self.main.has_dynamic_buckets
        self._main = _Side.at(self.main, self.latest, partitions)
        self._branch = _Side.at(self.branch, self.newest, partitions)
        self._base = _Side.at(self.branch, self.start.base, partitions if reads_base else set())

    def check(self) -> None:
        """Raises: InvalidInputError, ConflictError: some bucket cannot be merged."""
        partitions = {partition for partition, _ in self.decided}
        entries = [each for side in (self._main, self._branch) for group in side.files.values() for each in group]
        counts = {*self.start.main.bucket_counts, *self.start.branch.bucket_counts, *bucket_counts(entries)}
        known: dict[bytes, int] = {}
        for partition, count in counts:
            if partition in partitions and known.setdefault(partition, count) != count:
                raise InvalidInputError(
                    f"a partition was rescaled since the branch began: table={self.main.name} "
                    f"branch={self.branch.paths.branch} partition={self.main.partition_values(partition)} "
                    f"buckets={sorted({count, known[partition]})} fix=write the branch's rows to main"
                )
        needs_base = any(each is MergeOutcome.KEYS for each in self.decided.values()) or self.main.has_dynamic_buckets
        if needs_base and not self.start.is_known:
            raise ConflictError(
                f"both sides changed rows, and the state that was merged last has expired: table={self.main.name} "
                f"branch={self.branch.paths.branch} fix=write the branch's rows to main, or replace_main_branch"
            )

    def by_files(self) -> Iterator[tuple[BucketPlace, PlaceChange, Vectors]]:
        """The changes of buckets that are merged by files; unchanged ones are omitted."""
        added = by_place(self.start.branch.added)
        for place, outcome in sorted(self.decided.items()):
            if outcome in (MergeOutcome.KEYS, MergeOutcome.CONFLICT) or self.main.has_dynamic_buckets:
                continue
            here, there = self._main.files.get(place, ()), self._branch.files.get(place, ())
            if not here and not there:
                continue
            branch_vectors = vectors_of([each.file for each in there], self._branch.vectors(place))
            vectors = Vectors(main=self._main.vectors(place), branch=branch_vectors)
            deletes = bool(vector_places(branch_vectors)) and outcome is not MergeOutcome.ADD
            change = place_change(
                outcome,
                base=self._base.files.get(place, ()),
                main=here,
                branch=there,
                added=added.get(place, ()),
                deletes_rows=deletes,
            )
            if change:
                yield place, change, vectors

    def by_key(self, target: TableStore) -> Iterator[KeyPlace]:
        """The buckets that are merged by key."""
        if self.main.has_dynamic_buckets:
            for partition in sorted({partition for partition, _ in self.decided}):
                yield self._whole(partition)
            return
        for place, outcome in sorted(self.decided.items()):
            if outcome is MergeOutcome.KEYS:
                yield self._place(place, target)

    def _place(self, place: BucketPlace, target: TableStore) -> KeyPlace:
        changes = self._changes(place) if takes_changes(target) else None
        return KeyPlace(
            partition=place[0],
            base=_states([self._base.state(place)]),
            main=_states([self._main.state(place)]),
            branch=_states([self._branch.state(place)]),
            main_changes=None if changes is None else changes[0],
            branch_changes=None if changes is None else changes[1],
            indexes=self._main.vectors(place),
        )

    def _whole(self, partition: bytes) -> KeyPlace:
        """All buckets of a partition: a new key may have got different ones on both sides."""

        def states(side: _Side) -> tuple[BucketState, ...]:
            return _states(side.state(place) for place in sorted(side.files) if place[0] == partition)

        indexes = [each for place, group in self._main.indexes.items() if place[0] == partition for each in group]
        return KeyPlace(
            partition=partition,
            base=states(self._base),
            main=states(self._main),
            branch=states(self._branch),
            indexes=tuple(indexes),
        )

    def _changes(self, place: BucketPlace) -> tuple[tuple[BucketState, ...], tuple[BucketState, ...]] | None:
        """The files with the changed rows of both sides; None when the states must be compared."""
        start = self.start
        if start.since_merge is None or place in start.main.changed - start.since_merge.changed:
            return None
        sides = [_only_added(place, side) for side in (start.main, start.branch)]
        found = [each for each in sides if each is not None]
        base = self._base.files.get(place, ())
        if len(found) < 2 or len(_added_at(place, start.main)) != len(_added_at(place, start.since_merge)):
            return None
        highest = max((each.file.max_sequence_number for each in base), default=-1)
        rows = sum(each.file.row_count for group in found for each in group)
        states = sum(
            each.file.row_count for side in (self._base, self._main, self._branch) for each in side.files.get(place, ())
        )
        if rows > states or any(len(group) > _MOST_CHANGE_FILES or not _follow(group, highest) for group in found):
            return None
        one, two = ((state_of(place[1], group),) for group in found)
        return one, two


def _added_at(place: BucketPlace, side: SideChanges) -> list[ManifestEntry]:
    return [each for each in side.added if (each.partition, each.bucket) == place]


def _only_added(place: BucketPlace, side: SideChanges) -> list[ManifestEntry] | None:
    return _added_at(place, side) if place in side.only_added else None


def _follow(entries: Sequence[ManifestEntry], highest: int) -> bool:
    """Whether the rows of files are newer than all that was there before them."""
    for entry in entries:
        if entry.file.min_sequence_number <= highest:
            return False
        highest = max(highest, entry.file.max_sequence_number)
    return True


def _states(found: Iterable[BucketState | None]) -> tuple[BucketState, ...]:
    return tuple(each for each in found if each is not None)
