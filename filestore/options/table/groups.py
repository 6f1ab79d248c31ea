"""All options of a table, and what follows from several of them."""

from collections.abc import Hashable, Mapping
from typing import Final

from filestore.options.table.columns import FieldOptions
from filestore.options.table.commits import CommitOptions, PartitionOptions, VersionOptions
from filestore.options.table.files import CompactionOptions, FileOptions
from filestore.options.table.iceberg import IcebergOptions
from filestore.options.table.log import AVRO_FORMATS, TOMBSTONE_FORMATS, ChangelogOptions, LogOptions
from filestore.options.table.reads import ReadingOptions
from filestore.options.table.rows import MergeOptions, RefusedOptions, SchemaOptions, ShapeOptions

SCHEMA_VERSION: Final = 3
# Small enough that a section of the merge holds few of them, large enough for the encodings.
ROW_GROUP_ROWS: Final = 32_768
_COMPACTED_GROUPS: Final = 8  # of level 0 in one of a compacted file: merges of many runs want small ones, scans large
DYNAMIC_BUCKET: Final = -1
POSTPONE_BUCKET: Final = -2
_LOG_PREFIX: Final = "log.kafka."
_GROUP_SUFFIX: Final = ".sequence-group"


class TableValues(
    ShapeOptions,
    MergeOptions,
    ChangelogOptions,
    LogOptions,
    FileOptions,
    CompactionOptions,
    CommitOptions,
    VersionOptions,
    PartitionOptions,
    ReadingOptions,
    IcebergOptions,
    SchemaOptions,
    RefusedOptions,
):
    """The values of a table's options. Sizes are in bytes, durations in milliseconds."""

    has_key: bool  # whether the table has a primary key
    schema_version: int  # of the schema file; before 3 missing keys meant something else
    row_group_rows: int  # of a row group in a new file of level 0

    def __init__(
        self,
        texts: Mapping[str, str],
        *,
        lenient: bool = False,
        described: bool = False,
        has_key: bool = False,
        schema_version: int = SCHEMA_VERSION,
        row_group_rows: int = ROW_GROUP_ROWS,
    ) -> None:
        """Made by ``parse``."""
        self.__dict__.update(has_key=has_key, schema_version=schema_version, row_group_rows=row_group_rows)
        super().__init__(texts, lenient=lenient, described=described)

    def _identity(self) -> Hashable:
        return (super()._identity(), self.has_key, self.schema_version, self.row_group_rows)

    @property
    def read_branches(self) -> Mapping[str, str]:
        """For each option, the other branch from which batch reads take partitions."""
        keys = (TableValues.scan_fallback_branch, TableValues.scan_primary_branch)
        return {option.key: name for option in keys if (name := self[option]) is not None}

    @property
    def sequence_descending(self) -> bool:
        """Whether the row with the smallest ``sequence.field`` is the newest."""
        return self.sequence_field_sort_order == "descending"

    @property
    def log_kafka(self) -> Mapping[str, str]:
        """Client properties: the keys behind ``log.kafka.`` but the topic. They hold passwords: never shown."""
        client = self.behind(_LOG_PREFIX)
        client.pop("topic", None)
        return client

    def field_options(self, columns: str) -> FieldOptions:
        """The ``fields.<column>.*`` options of a column, or of comma-separated columns. Raises: InvalidInputError."""
        return FieldOptions(self.behind(f"fields.{columns}."), lenient=True)

    def columns_with_options(self) -> Mapping[str, tuple[str, ...]]:
        """Columns that ``fields.*`` keys name, by key."""
        return {key: split[0] for key in self.texts_by_key() if (split := split_field_key(key)) is not None}

    def sequence_groups(self) -> Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]:
        """For each key of a sequence group, the columns that order it, and the columns in it."""
        groups = {key: columns for key, columns in self.columns_with_options().items() if key.endswith(_GROUP_SUFFIX)}
        return {
            key: (columns, self.field_options(key.removeprefix("fields.").removesuffix(_GROUP_SUFFIX)).sequence_group)
            for key, columns in groups.items()
        }

    @property
    def log_is_avro(self) -> bool:
        """Whether the log's records have schemas in a registry."""
        return self.log_format in AVRO_FORMATS

    @property
    def log_deletes_have_key_only(self) -> bool:
        """Whether a delete in the log has no value."""
        return self.log_format in TOMBSTONE_FORMATS

    @property
    def log_is_exact(self) -> bool:
        """Whether the log of a key table gets what the table makes of the rows, looked up by the writer."""
        return self.log_changelog_mode == "all" and self.changelog_producer == "lookup"

    @property
    def log_is_eventual(self) -> bool:
        """Whether readers of the log get rows before a snapshot has them: rows that replace those of their keys.

        Records of other merge engines are added up: what a dead writer left could not be taken back. An older table may
        have both; its rows come with their snapshots.
        """
        return self.log_consistency == "eventual" and (self.log_is_exact or self.merge_engine == "deduplicate")

    @property
    def keeps_changelogs(self) -> bool:
        """Whether changes have a retention of their own: an option ``changelog.*-retained*`` is set."""
        own = self.changelog_num_retained_min, self.changelog_num_retained_max, self.changelog_time_retained_ms
        return any(each is not None for each in own)

    @property
    def log_takes_old_rows(self) -> bool:
        """Whether the writer of an update must also give the row before it."""
        return self.log_changelog_mode == "all" and not self.log_is_exact

    def row_group_rows_at(self, level: int) -> int:
        """Rows of a row group in a new file of a level."""
        is_small = level == 0 or self.log_is_exact  # rows are looked up there with every batch, often few of them
        return self.row_group_rows if is_small else self.row_group_rows * _COMPACTED_GROUPS


def split_field_key(key: str) -> tuple[tuple[str, ...], str] | None:
    """Columns and suffix of ``fields.<columns>.<suffix>``; a column name may itself hold dots."""
    if not key.startswith("fields.") or key in TableValues.declared:
        return None
    for suffix in FieldOptions.declared:
        if key.endswith(f".{suffix}") and len(key) > len(f"fields..{suffix}"):
            columns = key.removeprefix("fields.").removesuffix(f".{suffix}")
            return tuple(column.strip() for column in columns.split(",")), suffix
    return None
