"""The parts of a state: each split of a snapshot as one Parquet file, whose name says which rows it has.

A part is named by a hash of what decides its rows: the files of its split, their deletion vectors, the columns and the
options of the table. So an equal name is an equal content: a later state keeps the parts that it shares with an earlier
one, and a run after a kill keeps those that are complete, which they say at their end.
"""

import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from filestore.io.file_io import FileIO, LinksFiles, delete_leftover
from filestore.read.split_read import read_split
from filestore.refs.versions import snapshot_of
from filestore.scan.data_split import DataSplit
from filestore.table import FileTable, TableRead
from lsm.errors import InvalidInputError, UnavailableError
from lsm.undo import undoing

PART_PREFIX: Final = "part-"
PART_SUFFIX: Final = ".parquet"
_TEMPORARY: Final = (".part-", ".tmp")
_COMPLETE: Final = "fluvial.complete"  # in a part's metadata behind its last row: closing a file says nothing
_YES: Final = "true"


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedPart:
    """A file of a copy."""

    name: str
    rows: int
    size_bytes: int


class ExportState:
    """A snapshot of a table and the names of its parts."""

    def __init__(self, read: TableRead, schema: pa.Schema) -> None:
        """Nothing is read before ``splits``.

        Args:
            read: the snapshot.
            schema: Arrow schema of the files of the copy; its columns are the table's, perhaps of other types.
        """
        self.read = read
        self.schema = schema

    @property
    def snapshot_id(self) -> int | None:
        """None: the table is empty and has none."""
        return None if self.read.snapshot is None else self.read.snapshot.id

    @property
    def table_name(self) -> str:
        """Without a branch."""
        return self.read.table.name.partition("$")[0]

    @cached_property
    def splits(self) -> dict[str, DataSplit]:
        """Splits by the names of their parts, in the order of the plan."""
        schema = self.read.table.schema
        decides = [
            str(self.schema),
            str([(field.id, field.name, str(field.type)) for field in schema.fields]),
            sorted(schema.options.items()),
        ]
        table = hashlib.sha256(json.dumps(decides).encode()).hexdigest()
        return {_name(table, split): split for split in self.read.plan().splits}

    def write(self, io: FileIO, directory: str, name: str) -> CopiedPart:
        """Write a part unless it is there. It appears whole, also where another process writes the same.

        Raises: SnapshotExpiredError: the snapshot has expired meanwhile.
        """
        found = _find_part(io, directory, name)
        if found is None:
            io.delete(f"{directory}/{name}")  # cut off, if it is there
            self._write(io, directory, name)
            found = _find_part(io, directory, name)
        if found is None:
            raise UnavailableError(f"part of a copy is not there behind its writing: path={directory}/{name}")
        return found

    def _write(self, io: FileIO, directory: str, name: str) -> None:
        path = f"{directory}/{name}"
        if not isinstance(io, LinksFiles):  # an object appears when it is closed
            self._write_rows(io, path, name)
            return
        before, after = _TEMPORARY
        temporary = f"{directory}/{before}{name}.{self.read.table.store.names.uuid()}{after}"
        with undoing(lambda: delete_leftover(io, temporary)):
            self._write_rows(io, temporary, name)
            io.sync(temporary)
            if not link_once(io, temporary, path):
                raise InvalidInputError(f"a copy needs a file system with hard links: path={directory}")
        io.delete(temporary)

    def _write_rows(self, io: FileIO, path: str, name: str) -> None:
        with io.open_output(path) as output, pq.ParquetWriter(output, self.schema, compression="zstd") as writer:
            for batch in read_split(self.read.table, self.splits[name]):
                writer.write_batch(batch.cast(self.schema))
            writer.add_key_value_metadata({_COMPLETE: _YES})


def open_state(table: FileTable, version: str) -> TableRead:
    """The snapshot of a version: a number, tag, time, savepoint, perhaps behind a branch; or ``latest``.

    Raises: InvalidInputError: there is no such version.
    """
    if version == "latest" and table.store.snapshots.latest_id() is None:
        return TableRead(table, None)
    return table.read_found(snapshot_of(table.store, version))


def _find_part(io: FileIO, directory: str, name: str) -> CopiedPart | None:
    """A part with all its rows; None also where its writer died or failed: without links that is there by its name."""
    path = f"{directory}/{name}"
    if not io.exists(path):
        return None
    try:
        with io.open_input(path) as source:
            metadata = pq.read_metadata(source)
    except pa.ArrowInvalid:
        return None
    if (metadata.metadata or {}).get(_COMPLETE.encode()) != _YES.encode():
        return None
    return CopiedPart(name=name, rows=metadata.num_rows, size_bytes=io.size_bytes(path))


def link_once(io: FileIO, source: str, target: str) -> bool:
    """A hard link, also where another process has made it meanwhile; False where there are none."""
    if not isinstance(io, LinksFiles):
        return False
    try:
        return io.link_file(source, target)
    except UnavailableError:
        if io.exists(target):
            return True
        raise


def leftovers(io: FileIO, directory: str, older_than_ms: int | None = None) -> Iterator[str]:
    """Paths of what processes that were killed have left; None: whatever its age."""
    before, after = _TEMPORARY
    for name in io.list_names(directory):
        path = f"{directory}/{name}"
        if name.startswith(before) and name.endswith(after):
            with suppress(FileNotFoundError):
                if older_than_ms is None or io.modified_ms(path) < older_than_ms:
                    yield path


def _name(table: str, split: DataSplit) -> str:
    decides = [
        table,
        split.partition.hex(),
        sorted(file.file_name for file in split.files),
        [entry.to_json() for entry in split.deletion_vectors],
        split.needs_merge,
        split.expiry_moment_ms,
        *(() if split.span is None else (split.span.to_json(),)),
    ]
    digest = hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:32]
    return f"{PART_PREFIX}{digest}{PART_SUFFIX}"
