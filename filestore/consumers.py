"""Named places of readers: the next snapshot that each of them needs, kept in the table so that expiry leaves it.

File ``consumer/consumer-<id>`` holds ``{"nextSnapshot": 7}``. Source: Paimon ``ConsumerManager``, ``Consumer``.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from filestore.effects import FileIO
from filestore.paths import TablePaths
from lsm.errors import CorruptDataError, InvalidInputError

_PREFIX: Final = "consumer-"
_ID: Final = re.compile(r"[^/\\\s]+")


class ConsumerStore:
    """The consumer files of one branch of a table."""

    def __init__(self, io: FileIO, paths: TablePaths) -> None:
        """Nothing is read yet."""
        self._io = io
        self._paths = paths

    def next_snapshot(self, consumer_id: str) -> int | None:
        """The first snapshot that a consumer still needs; None when there is no such consumer.

        Raises:
            CorruptDataError: its file cannot be read.
        """
        path = self._path(consumer_id)
        try:
            body = self._io.read_bytes(path)
        except FileNotFoundError:
            return None
        try:
            return int(json.loads(body)["nextSnapshot"])
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptDataError(f"place of a consumer cannot be read: file={path} content={body[:100]!r}") from error

    def list(self) -> Mapping[str, int]:
        """The next snapshot of every consumer, by its id."""
        names = [name for name in self._io.list_names(self._paths.consumer_dir) if name.startswith(_PREFIX)]
        found = {name.removeprefix(_PREFIX): self.next_snapshot(name.removeprefix(_PREFIX)) for name in sorted(names)}
        return {consumer_id: next_id for consumer_id, next_id in found.items() if next_id is not None}

    def write(self, consumer_id: str, next_id: int) -> None:
        """Note the next snapshot that a consumer needs; the file is replaced as a whole."""
        self._io.replace(self._path(consumer_id), json.dumps({"nextSnapshot": next_id}).encode())

    def delete(self, consumer_id: str) -> None:
        """Forget a consumer; one that is not there is fine."""
        self._io.delete(self._path(consumer_id))

    def _path(self, consumer_id: str) -> str:
        if not _ID.fullmatch(consumer_id):
            raise InvalidInputError(f"not a name of a consumer: consumer-id={consumer_id!r} fix=no spaces, no slashes")
        return self._paths.consumer(consumer_id)
