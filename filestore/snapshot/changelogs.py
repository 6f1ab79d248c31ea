"""Changelogs that outlived their snapshots: ``changelog/changelog-<id>``, each a copy of a snapshot file.

Files of the state were deleted; files of its changes exist, see ``filestore.refs.file_references.changelog_files``.
Source: Paimon ChangelogManager.
"""

from filestore.io.file_io import FileIO
from filestore.layout.paths import CHANGELOG_PREFIX, TablePaths
from filestore.snapshot.snapshot import Snapshot


def changelog_ids(io: FileIO, paths: TablePaths) -> list[int]:
    """Ids of the snapshots with a changelog, ascending."""
    names = io.list_names(paths.changelog_dir)
    numbers = (name.removeprefix(CHANGELOG_PREFIX) for name in names if name.startswith(CHANGELOG_PREFIX))
    return sorted(int(number) for number in numbers if number.isascii() and number.isdigit())


def find_changelog(io: FileIO, paths: TablePaths, snapshot_id: int) -> Snapshot | None:
    """The snapshot of a changelog; None: there is no such changelog. Raises: CorruptDataError."""
    path = paths.changelog(snapshot_id)
    try:
        return Snapshot.from_json(io.read_bytes(path), source=path)
    except FileNotFoundError:
        return None


def changelog_as_of(io: FileIO, paths: TablePaths, time_ms: int) -> Snapshot | None:
    """The newest one of a commit until a time, epoch milliseconds; None: there is none. Raises: CorruptDataError."""
    found = (find_changelog(io, paths, each) for each in reversed(changelog_ids(io, paths)))
    return next((each for each in found if each is not None and each.time_ms <= time_ms), None)
