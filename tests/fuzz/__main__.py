"""Edits each name in each kind of file of a table, and in the markers and payloads of its log, and counts.

``python -m tests.fuzz``, with ``--all`` by every hostile value: one line of JSON. How many edits, what each kind of
reader did with them (refused the file, or went on without it), and what was opened or deleted outside of the table,
which must be nothing.
"""

import json
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import zstandard

from engine.log.bucket_log import read_payload
from filestore.table import FileTable
from logstore.log.marker import CommitMarker, decode_marker, encode_marker
from logstore.log.marker_key import MarkerKey
from lsm.errors import CorruptDataError
from tests.support.faults import MemoryFileIO
from tests.support.hostile import HOSTILE, WatchedFileIO, edits
from tests.support.hostile_table import OPERATIONS, one_of_a_kind, survives, whole
from tests.support.tables import key_table, messages_of, reopened, rows

_KEY = MarkerKey(secret=b"k" * 32, place="table=db.t")

_BEFORE: Final = {
    "roll back": ("delete a savepoint", "delete tags and branches"),
    "replace main": ("delete a savepoint",),
}
"""What must be done before an operation that is refused otherwise, whatever was edited."""


def fuzzed(*, kinds: int | None = None, values: Sequence[str] = HOSTILE) -> dict[str, Any]:
    """Edits of the files of a table, each with every operation.

    Args:
        kinds: so many kinds of files; None: all.
        values: what each name is replaced by.
    """
    table = whole()
    done: Counter[tuple[str, bool]] = Counter()
    count, outside = 0, []
    for path in one_of_a_kind(table)[:kinds]:
        for _, body in edits(table.store.io.read_bytes(path), values):
            count += 1
            for name in OPERATIONS:  # each on the edited table as it was
                before = _BEFORE.get(name, ())
                outside += survives(
                    table,
                    body,
                    path,
                    [*before, name],
                    lambda what, no, wanted=name: done.update([(what, no)] * (what == wanted)),
                )
    return {
        "edits": count,
        "kinds of files": len(one_of_a_kind(table)[:kinds]),
        "operations": {name: {"refused": done[name, True], "went on": done[name, False]} for name in OPERATIONS},
        "outside": len(outside),
    }


def fuzzed_log(values: Sequence[str] = HOSTILE) -> dict[str, Any]:
    """Edits of a marker and of its payload, once without a key, so that they are decoded, and once signed."""
    table = key_table()
    (message, *_) = messages_of(table, rows((1, 1)))
    payload = json.dumps([message.to_json()]).encode()
    line = _marker(payload).partition(b"\n")[0]
    found: Counter[str] = Counter()
    watched = WatchedFileIO(MemoryFileIO(table.store.io.files), [table.store.paths.root])  # type: ignore[attr-defined]
    reading = reopened(table, watched)  # type: ignore[arg-type]
    headers = [_marker(json.dumps([text.decode()]).encode()) for _, text in edits(message.to_json().encode(), values)]
    headers += [_marker(value.encode(errors="replace"), is_pointer=True) for value in values]
    headers += [body + b"\n" + zstandard.compress(payload) for _, body in edits(line, values)]
    for header in headers:
        found["edits"] += 1
        found["refused without a key" if _is_refused(reading, header) else "files of the table"] += 1
        found["not signed by the key"] += not _KEY.has_signed(header, 0)
    return {**found, "outside": len(watched.outside)}


def _marker(payload: bytes, *, is_pointer: bool = False) -> bytes:
    return encode_marker(
        query="q", batch=7, row_count=1, start_offset=None, is_final=True, is_pointer=is_pointer,
        payload=payload if is_pointer else zstandard.compress(payload), table_id="t",
    )  # fmt: skip


def _is_refused(table: FileTable, header: bytes) -> bool:
    try:
        marker: CommitMarker = decode_marker(header, record_offset=41)
        read_payload(table.store, marker)
    except CorruptDataError:
        return True
    return False


def main() -> int:
    """Everything; 1 when something outside of the table was touched."""
    files, log = fuzzed(values=HOSTILE if "--all" in sys.argv else HOSTILE[:1]), fuzzed_log()
    print(json.dumps({"benchmark": "fuzz", "files": files, "log": log}))
    return int(bool(files["outside"] or log["outside"] or log["not signed by the key"] != log["edits"]))


if __name__ == "__main__":
    sys.exit(main())
