"""Where new data files go: into the directory of their bucket, or to one of the table's external places.

At an external place a table has a directory of its own, ``<root>/<database>.db/<table>/<id>``, in which buckets lie as
in the table: tables with one root would else share ``bucket-0``, and clean up each other's files. Readers of Paimon
take the whole path from the manifest. Source: Paimon ExternalPathProvider and its kinds.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from filestore.hashing.murmur import murmur3
from filestore.io.places import is_below, local_path
from filestore.layout.paths import escape_path
from filestore.options.table.places import ExternalPlaces


class NewFilePaths:
    """Gives each new file of one bucket its path."""

    def __init__(
        self, bucket_dir: str, *, outside: Sequence[str] = (), weights: Sequence[int] = (), is_hashed: bool = False
    ) -> None:
        """A place in the table's directory, or at external places.

        Args:
            bucket_dir: the bucket's directory in the table.
            outside: its directories at external places; none: files go to ``bucket_dir``.
            weights: as in ``ExternalPlaces``.
            is_hashed: likewise.
        """
        self.bucket_dir = bucket_dir
        self._outside = tuple(outside)
        self._limits = tuple(accumulate(weights))
        self._is_hashed = is_hashed
        self._turn: int | None = None  # of the last file; the first one's depends on its name

    def external_path(self, name: str) -> str | None:
        """The whole path of a new file with this name; None: in ``bucket_dir``. The next file may go elsewhere."""
        if not self._outside:
            return None
        found = murmur3(name.encode())
        inner = f"/{_hash_directories(found)}" if self._is_hashed else ""
        return f"{self._outside[self._chosen(found)]}{inner}/{name}"

    def _chosen(self, hashed: int) -> int:
        if self._limits:
            return bisect_right(self._limits, hashed * self._limits[-1] >> 32)
        self._turn = (hashed if self._turn is None else self._turn + 1) % len(self._outside)
        return self._turn


def own_directories(places: ExternalPlaces, *, table: str, table_id: str) -> tuple[str, ...]:
    """A table's own directory at each of its external places.

    Args:
        places: of the table.
        table: ``db.table``.
        table_id: see ``uuid_of``; a table that gets the name of another one has other directories.
    """
    own = _directory_of(table)
    roots = (root if root.endswith(f"/{own}") else f"{root}/{own}" for root in places.roots)
    return tuple(f"{root}/{escape_path(table_id)}" for root in roots)


def is_in_directory_of(table: str, path: str, allowed: Sequence[str]) -> bool:
    """Whether a path lies below an allowed root in a directory of the name of this table, ``db.table``."""
    return is_below(path, allowed) and f"/{_directory_of(table)}/" in local_path(path)


def directory_of_name(table: str, path: str) -> str:
    """The directory of the table's name that a path lies in, see ``is_in_directory_of``."""
    own = f"/{_directory_of(table)}/"
    before, _, _ = local_path(path).partition(own)
    return f"{before}{own}".rstrip("/")


def _directory_of(table: str) -> str:
    database, _, name = table.partition(".")
    return f"{database}.db/{name}"


def _hash_directories(hashed: int) -> str:
    """Directories by a hash, over which object stores spread their load: ``1011/1111/1010/01000111``."""
    return f"{hashed >> 16 & 15:04b}/{hashed >> 12 & 15:04b}/{hashed >> 8 & 15:04b}/{hashed & 255:08b}"
