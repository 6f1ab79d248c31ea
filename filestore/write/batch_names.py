"""Names of a logged batch's files, by which a file proves of which batch it is.

Who writes to the topic and has read the table's key could sign a marker with the writer's next batch and files of an
earlier one. The writer would find its batch done, and its rows would be lost. But he makes no files in the table's
directory. So within the UUID of such a file the digits 13 to 24 are the start of the SHA-256 of the query, the batch
and the other digits. What a replay computes is not compared: its rows may be in another order, or other rows.
"""

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from filestore.io.file_io import NameSource

_UUID: Final = re.compile(r"([0-9a-f]{8}-[0-9a-f]{4})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}([0-9a-f]{8})")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchNames:
    """A ``NameSource`` of one batch: names of another source, bound to the batch."""

    names: NameSource
    query: str
    batch: int

    def uuid(self) -> str:
        """36 characters, lower case, with dashes; of the other source's it keeps the first 12 and last 8 digits."""
        found = _UUID.fullmatch(self.names.uuid())
        assert found is not None
        return _bound(found, self.query, self.batch)


def is_of_batch(file_name: str, *, query: str, batch: int) -> bool:
    """Whether a file was written for a batch, by the UUID in its name."""
    return any(each[0] == _bound(each, query, batch) for each in _UUID.finditer(file_name))


def _bound(uuid: re.Match[str], query: str, batch: int) -> str:
    first, last = uuid.groups()
    text = f"{first}{last}\n{batch}\n{query}".encode("utf-8", "surrogatepass")
    proof = hashlib.sha256(text).hexdigest()
    return f"{first}-{proof[:4]}-{proof[4:8]}-{proof[8:12]}{last}"
