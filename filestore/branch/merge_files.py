"""Merging a bucket by files: the branch's files are copied into main under new names, with their deletion vectors.

So no file is shared afterwards: expiring either side, by any engine, does not affect the other.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np

from filestore.branch.merge_plan import BucketPlace, PlaceChange
from filestore.branch.merged_schemas import MergedSchemas
from filestore.index.deletion_vector_changes import change_index
from filestore.index.deletion_vectors import NO_POSITIONS, Positions, read_deletion_vectors
from filestore.maintenance.rewriting import copy_data_file
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta, ManifestEntry
from filestore.manifest.lists import IndexManifestEntry
from filestore.scan.live_files import BucketKey
from filestore.table_store import TableStore
from lsm.errors import FluvialError, InvalidInputError
from lsm.row_kind import ROW_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class Vectors:
    """The deletion vector index files of a bucket."""

    main: Sequence[IndexManifestEntry] = ()
    branch: Sequence[IndexManifestEntry] = ()


@dataclass(slots=True)
class CopiedFiles:
    """The files that a merge has copied into main; each once, even if the merge is decided several times."""

    main: TableStore
    branch: TableStore
    writes: bool = True  # false: the branch's own files stand for the copies
    copies: dict[tuple[BucketPlace, str], DataFileMeta] = field(default_factory=dict)
    indexes: list[IndexManifestEntry] = field(default_factory=list)  # written index files

    def message(
        self, place: BucketPlace, change: PlaceChange, schemas: MergedSchemas, vectors: Vectors
    ) -> CommitMessage:
        """The commit message of one bucket. Raises: FileNotFoundError when the branch's state has expired."""
        partition, bucket = place
        added = [self._copy(place, entry, schemas) for entry in change.added]
        message = CommitMessage(
            partition=partition,
            bucket=bucket,
            total_buckets=change.total_buckets,
            compact_before=tuple(each.file for each in change.removed),
            compact_after=tuple(added),
        )
        if not vectors.main and not vectors.branch:
            return message
        index = change_index(
            self.main,
            partition,
            bucket,
            vectors.main,
            removed={each.file.file_name for each in change.removed},
            positions=self._deleted(change, added, vectors),
        )
        known = {each.file_name for each in vectors.main}
        self.indexes += [each for each in index.after if each.file_name not in known]
        return replace(message, index_before=index.before, index_after=index.after)

    def keep_only(self, messages: Sequence[CommitMessage]) -> None:
        """Delete what is not in these messages, which are committed."""
        used = {file.file_name for message in messages for file in message.compact_after}
        used |= {entry.file_name for message in messages for entry in message.index_after}
        for (partition, bucket), file in ((place, file) for (place, _), file in self.copies.items()):
            if file.file_name not in used:
                with suppress(FluvialError, OSError):  # an orphan only costs space
                    self.main.delete_file(self.main.file_path(partition, bucket, file))
        for entry in self.indexes:
            if entry.file_name not in used:
                with suppress(FluvialError, OSError):
                    self.main.delete_file(self.main.index_path(entry))

    def _copy(self, place: BucketPlace, entry: ManifestEntry, schemas: MergedSchemas) -> DataFileMeta:
        if not self.writes:
            return entry.file
        key = (place, entry.file.file_name)
        if key not in self.copies:
            self.copies[key] = copy_data_file(self.main, BucketKey(*place), entry.file)
        # same bytes, but a compaction in the branch may have moved the file to another level in the meantime
        copy, schema_id = self.copies[key], schemas.id_of(entry.file.schema_id)
        if ROW_ID in (entry.file.write_cols or ()):
            raise InvalidInputError(
                f"a compaction on the branch put rows together, whose ids main has given to others: "
                f"table={self.main.name} file={entry.file.file_name} row-tracking.enabled=true "
                "fix='fast-forward, or read the rows of the branch and write them into main'"
            )
        file = replace(entry.file, first_row_id=None)  # main has given these ids to rows of its own
        return replace(
            file, file_name=copy.file_name, extra_files=(), external_path=copy.external_path, schema_id=schema_id
        )

    def _deleted(self, change: PlaceChange, added: Sequence[DataFileMeta], vectors: Vectors) -> Mapping[str, Positions]:
        """Positions to delete by file name in main: of the copies, and of files that both sides have."""
        there = read_deletion_vectors(self.branch, vectors.branch)
        here = read_deletion_vectors(self.main, vectors.main)
        names = {entry.file.file_name: copy.file_name for entry, copy in zip(change.added, added, strict=True)}
        gone = {each.file.file_name for each in change.removed}
        found = {names[name]: positions for name, positions in there.items() if name in names}
        for name, positions in there.items():
            if name not in names and name not in gone and change.deletes_rows:
                new = np.setdiff1d(positions, here.get(name, NO_POSITIONS))
                if len(new):
                    found[name] = new
        return found
