"""The changelog that a compaction writes: how it changes the rows that readers of the changelog know already.

Such readers know the rows of a level and of those below it: with ``changelog-producer=full-compaction`` the rows of the
top level, with ``lookup`` all but level 0. A compaction that moves rows down to them emits the changes: the exact
difference, in files that are part of the compaction's commit. Rows below that the compaction does not rewrite are
looked up, only those of the keys that changed.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from filestore.datafile.rolling_writer import APPEND_SOURCE, RollingWriter
from filestore.manifest.entries import DataFileMeta
from filestore.options.table_options import TableOptions
from filestore.read.row_lookup import change_recorder
from filestore.read.split_read import BucketFiles, Recording
from filestore.table_store import TableStore
from lsm.compaction.compaction import CompactionUnit
from lsm.levels import Levels, SortedFile


def known_level(options: TableOptions, unit: CompactionUnit, levels: Levels) -> int | None:
    """The level from which on readers of the changelog know the rows; None: the compaction emits no changes."""
    if options.changelog_producer == "lookup" and any(run.level == 0 for run in unit.runs):
        return 1
    if options.changelog_producer == "full-compaction" and unit.output_level == levels.top_level:
        return unit.output_level
    return None


def files_to_look_up(unit: CompactionUnit, levels: Levels, known: int) -> tuple[SortedFile, ...]:
    """Files of known levels that stay as they are and may hold keys of rows that are not known yet."""
    inputs = {file.file_name for file in unit.files}
    new = [file for file in unit.files if file.level < known]
    return tuple(
        file
        for file in levels.files
        if file.level >= known
        and file.file_name not in inputs
        and any(file.overlaps(each.min_key, each.max_key) for each in new)
    )


class CompactionChangelog:
    """Writes the changelog of one task while it merges. After an error only ``abort`` may be called."""

    def __init__(
        self,
        store: TableStore,
        *,
        partition: bytes,
        bucket: int,
        level: int,
        known_level: int,
        lookup_files: Sequence[DataFileMeta],
    ) -> None:
        """Prepare to write; without a change no file is made.

        Args:
            store: at the schema of the newest file.
            partition: BinaryRow bytes.
            bucket: number.
            level: that the task writes to.
            known_level: see ``known_level``.
            lookup_files: see ``files_to_look_up``.
        """
        self._known_level = known_level
        below = BucketFiles(table=store, partition=partition, bucket=bucket, files=lookup_files)
        self._writer = RollingWriter(
            io=store.io,
            names=store.names,
            clock=store.clock,
            place=store.new_files(partition, bucket),
            schema=store.schema,
            options=store.options,
            level=level,
            file_source=APPEND_SOURCE,
            changelog=True,
        )
        self.recording: Final = Recording(
            merge=change_recorder(store, emit=self._writer.write, below=below), known_level=known_level
        )

    def covers(self, file: DataFileMeta) -> bool:
        """Whether rows of a file are not known yet, so that it cannot just change its level."""
        return file.level < self._known_level

    def read_through(self, rows: Iterable[pa.Table]) -> None:
        """Record a merge and drop its rows."""
        for _ in rows:
            pass

    def close(self) -> list[DataFileMeta]:
        """The changelog files; none when nothing changed."""
        return self._writer.close()

    def abort(self) -> None:
        """Delete them."""
        self._writer.abort()
