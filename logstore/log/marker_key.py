"""The signature of a marker: HMAC-SHA256 by the key of the table's log.

It is the last field of the marker's line, ``, "mac": "<64 hex digits>"}``, and covers the number of the bucket, a line
feed, the line as it would be without that field, a line feed, and the payload. So neither files nor offsets of a marker
can be changed, and a marker of one bucket is none in another. One key is of one topic.
"""

import hmac
from dataclasses import dataclass, field
from typing import Final

from logstore.kafka.clients import NEW_LOG
from lsm.errors import CorruptDataError

_FIELD: Final = b', "mac": "'
_END: Final = b'"}'
_DIGITS: Final = 64
_ADDED: Final = len(_FIELD) + _DIGITS + len(_END)


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerKey:
    """The key of a topic. Small and picklable."""

    secret: bytes | None = field(repr=False)  # None: its file is lost, and using the key an error
    place: str  # shown in errors

    def signed(self, line: bytes, payload: bytes, bucket: int) -> bytes:
        """A marker, from its line of JSON without a signature. Raises: CorruptDataError, the key is lost."""
        return line[:-1] + _FIELD + self._mac(line, payload, bucket) + _END + b"\n" + payload

    def has_signed(self, marker: bytes, bucket: int) -> bool:
        """Whether a marker's writer had the log's key. Raises: CorruptDataError: the key is lost."""
        line, _, payload = marker.partition(b"\n")
        body, mac = line[:-_ADDED], line[-_ADDED:].removeprefix(_FIELD).removesuffix(_END)
        return hmac.compare_digest(mac, self._mac(body + b"}", payload, bucket))

    def _mac(self, line: bytes, payload: bytes, bucket: int) -> bytes:
        if self.secret is None:
            raise CorruptDataError(
                f"the key of the log is missing: {self.place} cause=the directory was copied without it, the file "
                f"was deleted, or is another user's fix=restore the file, or allow this user to read it; or {NEW_LOG}"
            )
        return hmac.digest(self.secret, b"%d\n%b\n%b" % (bucket, line, payload), "sha256").hex().encode()
