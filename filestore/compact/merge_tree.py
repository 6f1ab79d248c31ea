"""Compacting tables with a key: sorted files are merged, and a file that nothing overlaps only moves to its new level.

Source: Paimon ``MergeTreeCompactTask``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import chain

import pyarrow as pa

from filestore.compact.changelog import CompactionChangelog
from filestore.compact.old_rows import OldRows
from filestore.compact.task import TaskFiles, is_small
from filestore.index.deletion_vectors import NO_POSITIONS, Positions
from filestore.manifest.entries import DataFileMeta
from filestore.read.split_read import BucketFiles
from filestore.scan.row_expiry import may_expire, not_expired
from lsm.compaction.compaction import CompactionReason
from lsm.levels import SortedRun

MergeSection = list[SortedRun]
"""Runs that overlap each other, and no run of another section."""


class LevelMerge:
    """One task on sorted files, section by section in key order.

    A section of one file that is large enough only moves to its new level. All others wait for their neighbours, so
    that they are rewritten together into files of full size.
    """

    def __init__(
        self,
        files: TaskFiles,
        changelog: CompactionChangelog | None,
        *,
        deleted: Mapping[str, Positions],
        old: OldRows,
    ) -> None:
        """Prepare to merge.

        Args:
            files: of the task.
            changelog: gets what changes; None: there is none.
            deleted: rows of the task's files that are in deletion vectors.
            old: rows of other files that are merged with them.
        """
        self._store = files.store
        self._task = files.task
        self._files = files
        self._changelog = changelog
        self._deleted = deleted
        self._inputs = BucketFiles(
            table=files.store,
            partition=files.task.partition,
            bucket=files.task.bucket,
            files=(*files.task.files, *old.merged),
            deleted=deleted,
            chosen={file.file_name: old.positions[file.file_name] for file in old.merged},
        )
        self._by_name = {file.file_name: file for file in self._inputs.files}
        self._waiting: list[MergeSection] = []

    def run(self) -> None:
        """Merge everything; the files that are removed and added are then in ``TaskFiles``."""
        for section in self._inputs.sections():
            file = self._first_file(section)
            if len(section) == 1 and not is_small(file, self._store.options) and not self._must_rewrite(file):
                self._rewrite_waiting()
                self._move(section)
            else:
                self._waiting.append(section)
        self._rewrite_waiting()

    def _rewrite_waiting(self) -> None:
        sections, self._waiting = self._waiting, []
        inputs = [self._by_name[each.file_name] for section in sections for run in section for each in run.files]
        if len(inputs) == 1 and not self._must_rewrite(inputs[0]):
            self._move(sections[0])
        elif inputs:
            outputs = self._files.write(chain.from_iterable(map(self._merged, sections)))
            self._files.before += [file for file in inputs if file.file_name not in self._inputs.chosen]
            self._files.after += outputs

    def _move(self, section: MergeSection) -> None:
        """Take the only file of a section to the output level as it is."""
        file = self._first_file(section)
        if self._changelog and self._changelog.covers(file):
            self._changelog.read_through(self._merged(section))
        if file.level != self._task.output_level:
            self._files.before.append(file)
            self._files.after.append(replace(file, level=self._task.output_level))

    def _merged(self, section: MergeSection) -> Iterator[pa.Table]:
        """The rows of a section; the changelog has no rows that are too old either."""
        rows = self._inputs.merged(
            section,
            self._store.schema.column_names,
            drop_deletes=self._task.drops_deletes,
            instead=self._changelog.recording if self._changelog else None,
        )
        return (not_expired(self._store, each, self._task.expiry_moment_ms) for each in rows)

    def _must_rewrite(self, file: DataFileMeta) -> bool:
        """Whether all files are rewritten, or this one has deletes, old rows or deleted rows that must not stay."""
        task = self._task
        if task.rewrites_all or (task.cleans_deletes and file.delete_row_count != 0):
            return True
        if may_expire(self._store, [file], task.expiry_moment_ms):
            return True
        threshold = self._store.options.compaction_delete_ratio_threshold
        if task.reason in (CompactionReason.FORCED, CompactionReason.DELETE_RATIO):
            threshold = 0.0
        return bool(len(self._deleted.get(file.file_name, NO_POSITIONS)) > threshold * file.row_count)

    def _first_file(self, section: MergeSection) -> DataFileMeta:
        return self._by_name[section[0].files[0].file_name]
