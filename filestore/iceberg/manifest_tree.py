"""The manifests of a snapshot, and what becomes of them when files are added and removed.

A removed file costs the manifests that can hold it, by partition and bucket, and no others. Small manifests are merged.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from filestore.iceberg.entries import DATA, DELETES, FileKey, IcebergRecord, kept, key_of, removed
from filestore.iceberg.manifests import MOST_ENTRIES, ManifestForm, live_count, may_hold, packed_entries
from filestore.iceberg.visible_files import FileChanges, FilePlace
from lsm.errors import CorruptDataError

ReadEntries = Callable[[IcebergRecord], list[IcebergRecord]]
"""The live entries of a manifest, by its line in a list."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NextManifests:
    """The manifests of the next snapshot of one kind of content."""

    kept: list[IcebergRecord]  # lines of manifests that stay as they are
    written: list[list[IcebergRecord]]  # entries of new manifests
    removed: list[IcebergRecord]  # entries of files that are not there any more


def next_manifests(
    form: ManifestForm,
    before: Sequence[IcebergRecord],
    changes: FileChanges,
    content: int,
    *,
    snapshot_id: int,
    merge_count: int,
    read: ReadEntries,
) -> NextManifests:
    """The manifests after a commit.

    Args:
        form: of the table's manifests.
        before: lines of the manifests of the snapshot before, of every content.
        changes: of the commit.
        content: data files, or deletion vectors.
        snapshot_id: of the commit.
        merge_count: small manifests from which on they are merged.
        read: reads a manifest.

    Raises:
        CorruptDataError: a removed file is in no manifest, so they are not those of the snapshot before.
    """
    new, gone = (changes.data, changes.removed_data) if content == DATA else (changes.vectors, changes.removed_vectors)
    mine = [each for each in before if each["content"] == content and live_count(each) > 0]
    stay, written, taken = _without(form, mine, gone, snapshot_id, read)
    if len(taken) != len(gone):
        raise CorruptDataError(
            f"Iceberg manifests lack files of the snapshot before: snapshot={snapshot_id} "
            f"kind={'data' if content == DATA else 'vectors' if content == DELETES else content} "
            f"removed={len(gone)} found={len(taken)}"
        )
    small = [each for each in stay if live_count(each) <= MOST_ENTRIES // 2]
    if len(small) >= merge_count:
        paths = {each["manifest_path"] for each in small}
        stay = [each for each in stay if each["manifest_path"] not in paths]
        written += packed_entries(kept(entry) for each in small for entry in read(each))
    return NextManifests(kept=stay, written=[*written, *packed_entries(new)], removed=taken)


def _without(
    form: ManifestForm,
    manifests: Sequence[IcebergRecord],
    gone: Mapping[FileKey, FilePlace],
    snapshot_id: int,
    read: ReadEntries,
) -> tuple[list[IcebergRecord], list[list[IcebergRecord]], list[IcebergRecord]]:
    """Lines of manifests that stay, entries of those that are written again, and the entries of removed files."""
    stay: list[IcebergRecord] = []
    written: list[list[IcebergRecord]] = []
    taken: list[IcebergRecord] = []
    places = set(gone.values())
    for manifest in manifests:
        if len(taken) == len(gone) or not may_hold(form, manifest, places):
            stay.append(manifest)
            continue
        entries = read(manifest)
        here = [entry for entry in entries if key_of(entry["data_file"]) in gone]
        if not here:
            stay.append(manifest)
            continue
        taken += here
        written.append(
            [removed(entry, snapshot_id) if key_of(entry["data_file"]) in gone else kept(entry) for entry in entries]
        )
    return stay, written, taken
