"""What a compaction writes: files of its level, none of them small if that can be helped."""

from filestore.compaction_task import CompactionTask
from filestore.manifests import DataFileMeta
from filestore.options import TableOptions
from filestore.rolling_writer import COMPACT_SOURCE, RollingWriter
from filestore.table_store import TableStore


def is_small(file: DataFileMeta, options: TableOptions) -> bool:
    """Whether a file is not worth being one of its own."""
    return bool(file.size_bytes < options.target_file_size_bytes * options.value("compaction.small-file-ratio"))


def rolling_writer(table: TableStore, task: CompactionTask) -> RollingWriter:
    """A writer of the files that a task leaves."""
    return RollingWriter(
        io=table.io,
        names=table.names,
        clock=table.clock,
        bucket_dir=table.bucket_dir(task.partition, task.bucket),
        schema=table.schema,
        options=table.options,
        level=task.output_level,
        file_source=COMPACT_SOURCE,
        key_values=table.has_key,
    )
