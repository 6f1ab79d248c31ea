"""Attempts of tasks that write data files, and the one process that has the files of each.

Spark runs a task again when it fails and, speculatively, when it is slow; of those that finish it hands one to the
committing process. It does not say which attempts it dropped, and a killed one cannot clean up. So each attempt leaves
a note beside the staged rows before its first file: ``staging/<commit user>/<batch>/<id>.files``, empty, and with the
files' paths once it is done. The names of its files begin with its id.

Files of an attempt belong to the process that creates ``<id>.claim`` beside the note while the note is there: the
committing process, which publishes or discards them; else a cleaner, which deletes them and the note. So no file that
may be published is deleted, and no file that may be deleted is published.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, Self

from filestore.io.file_io import delete_leftover
from filestore.manifest.commit_message import CommitMessage
from filestore.table_store import TableStore
from lsm.errors import CorruptDataError, FluvialError

_NOTE: Final = ".files"
_CLAIM: Final = ".claim"
_ID_CHARACTERS: Final = 24  # of a UUID that every name of an attempt begins with; a number follows


@dataclass(slots=True)
class AttemptNames:
    """UUIDs that begin with an attempt's id and end with a number, as a ``NameSource``."""

    attempt: str
    count: int = field(default=0)

    def uuid(self) -> str:
        """36 characters, lower case, with dashes."""
        self.count += 1
        return f"{self.attempt}{self.count:012x}"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskAttempt:
    """One attempt of one task. Picklable."""

    place: str  # of its note and claim, from the table's directory and without their endings
    id: str  # start of a UUID

    @classmethod
    def begin(cls, store: TableStore, directory: str) -> Self:
        """Leave the note of a new attempt.

        Args:
            store: of the table.
            directory: of the batch's staged rows, from the table's directory.
        """
        attempt = store.names.uuid()[:_ID_CHARACTERS]
        begun = cls(place=f"{directory}/{attempt}", id=attempt)
        store.io.write_new(begun._path(store, _NOTE), b"")
        return begun

    def named(self, store: TableStore) -> TableStore:
        """The table, whose new files get names of this attempt."""
        return replace(store, names=AttemptNames(self.id))

    def note(self, store: TableStore, messages: Iterable[CommitMessage]) -> None:
        """Write the paths of the attempt's files into its note, after all files are written."""
        store.io.replace(self._path(store, _NOTE), json.dumps(_paths(store, messages)).encode())

    def claim(self, store: TableStore) -> None:
        """Take the files, to publish or discard them.

        Raises: CorruptDataError: a cleaner has deleted the files.
        """
        is_first = store.io.create_exclusive(self._path(store, _CLAIM), b"")
        if is_first and store.io.exists(self._path(store, _NOTE)):
            return
        if is_first:
            delete_leftover(store.io, self._path(store, _CLAIM))
        raise CorruptDataError(
            f"files of a task are gone: table={store.name} attempt={self.place} fix=start the query or job again"
        )

    def delete(self, store: TableStore) -> None:
        """Delete the files and the note, unless another process has them."""
        directory = self.place.rpartition("/")[0]
        _delete(store, f"{store.paths.root}/{directory}", self.id, ())

    def _path(self, store: TableStore, ending: str) -> str:
        return f"{store.paths.root}/{self.place}{ending}"


def delete_attempts(store: TableStore, directory: str) -> None:
    """Delete the files of all attempts that have a note in a directory and no owner; what cannot be deleted stays.

    Files of an attempt that was killed are looked for where the other attempts of its batch have some.
    """
    with suppress(FluvialError, OSError):
        names = store.io.list_names(directory)
        noted = [name.removesuffix(_NOTE) for name in names if name.endswith(_NOTE)]
        orphaned = [each for each in noted if f"{each}{_CLAIM}" not in names]
        known: Sequence[str] | None = None
        for attempt in orphaned:
            if known is None:
                known = [path for each in noted for path in _noted(store, f"{directory}/{each}")]
            _delete(store, directory, attempt, known)


def _delete(store: TableStore, directory: str, attempt: str, known: Sequence[str]) -> None:
    """Delete what an attempt wrote; ``known``: paths of files of its batch, perhaps in the same directories."""
    place = f"{directory}/{attempt}"
    with suppress(FluvialError, OSError):
        if not store.io.exists(f"{place}{_NOTE}") or not store.io.create_exclusive(f"{place}{_CLAIM}", b""):
            return
        paths = _noted(store, place) or _named_like(store, attempt, known)
        for path in paths:
            with suppress(FluvialError, OSError):
                store.delete_file(_full(store, path))
        store.io.delete(f"{place}{_NOTE}")  # before the claim: a claim from now on misses it
        store.io.delete(f"{place}{_CLAIM}")


def _named_like(store: TableStore, attempt: str, known: Sequence[str]) -> list[str]:
    """Files of an attempt in the directories of other files."""
    directories = sorted({path.rpartition("/")[0] for path in known})
    found = [f"{each}/{name}" for each in directories for name in store.io.list_names(_full(store, each))]
    return [path for path in found if attempt in path.rpartition("/")[2]]


def _noted(store: TableStore, place: str) -> list[str]:
    try:
        body = store.io.read_bytes(f"{place}{_NOTE}")
    except FileNotFoundError:
        return []
    return [str(path) for path in json.loads(body)] if body else []


def _full(store: TableStore, path: str) -> str:
    """A path of ``_paths`` as files are opened by it."""
    return path if path.startswith("/") or "://" in path else f"{store.paths.root}/{path}"


def _paths(store: TableStore, messages: Iterable[CommitMessage]) -> list[str]:
    """Paths of the files of some messages: relative to the table's directory, or whole ones of files outside it."""
    return [
        path.removeprefix(f"{store.paths.root}/")
        for message in messages
        for file in (*message.new_files, *message.changelog_files)
        for path in store.file_paths(message.partition, message.bucket, file)
    ]
