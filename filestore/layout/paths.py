"""Paths of a table's files: from names to paths, and from partition values to directory names.

Directory names are never parsed; readers compute them from partition values, so the texts must match Java's.
Source: Paimon FileStorePathFactory, PartitionPathUtils, InternalRowPartitionComputer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from filestore.options.table.groups import POSTPONE_BUCKET
from filestore.options.table_options import TableOptions
from filestore.types.data_types import DataField
from filestore.types.partition_text import partition_text
from lsm.errors import InvalidInputError

MAIN_BRANCH: Final = "main"
SNAPSHOT_PREFIX: Final = "snapshot-"
SCHEMA_PREFIX: Final = "schema-"
TAG_PREFIX: Final = "tag-"
TAG_SUCCESS_DIRECTORY: Final = "tag-success-file"
"""A directory among the tag files."""
CHANGELOG_PREFIX: Final = "changelog-"
BRANCH_PREFIX: Final = "branch-"
CONSUMER_PREFIX: Final = "consumer-"
SAVEPOINT_PREFIX: Final = "savepoint-"

_DEFAULT_OPTIONS: Final = TableOptions.parse({})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """The table properties that determine data file directories."""

    partition_fields: tuple[DataField, ...] = ()
    options: TableOptions = _DEFAULT_OPTIONS


@dataclass(frozen=True, slots=True)
class TablePaths:
    """Paths of a table. Schemas, snapshots, tags and consumers belong to a branch, all other files to the table."""

    root: str
    branch: str = MAIN_BRANCH
    _layout: _Layout = field(default=_Layout(), kw_only=True)

    def with_layout(self, partition_fields: Sequence[DataField], options: TableOptions) -> "TablePaths":
        """These paths with the partition columns and options that paths of data files need."""
        return replace(self, _layout=_Layout(partition_fields=tuple(partition_fields), options=options))

    def with_branch(self, branch: str) -> "TablePaths":
        """The paths of another branch of the table."""
        return replace(self, branch=branch)

    @property
    def branch_root(self) -> str:
        """Parent directory of the branch's schemas, snapshots and tags; the table's directory for main."""
        return self.root if self.branch == MAIN_BRANCH else f"{self.branch_dir}/{BRANCH_PREFIX}{self.branch}"

    @property
    def directories(self) -> tuple[str, ...]:
        """The directories of the branch and of the table whose names are fixed: all but those of data files."""
        return (
            *(self.branch_root, self.schema_dir, self.snapshot_dir, self.changelog_dir, self.tag_dir),
            *(self.savepoint_dir, self.consumer_dir, self.expiry_dir, self.removed_dir),
            *(self.branch_dir, self.manifest_dir, self.index_dir, self.statistics_dir, f"{self.root}/metadata"),
        )

    @property
    def branch_dir(self) -> str:
        """Directory of all branches except main."""
        return f"{self.root}/branch"

    @property
    def schema_dir(self) -> str:
        """Directory of schemas."""
        return f"{self.branch_root}/schema"

    @property
    def snapshot_dir(self) -> str:
        """Directory of snapshots and their hints."""
        return f"{self.branch_root}/snapshot"

    @property
    def changelog_dir(self) -> str:
        """Directory of changelogs that outlive their snapshots."""
        return f"{self.branch_root}/changelog"

    @property
    def tag_dir(self) -> str:
        """Directory of tags."""
        return f"{self.branch_root}/tag"

    @property
    def savepoint_dir(self) -> str:
        """Directory of savepoints, and of the additional files that they keep."""
        return f"{self.branch_root}/savepoint"

    @property
    def consumer_dir(self) -> str:
        """Directory of consumers: the positions of named readers."""
        return f"{self.branch_root}/consumer"

    @property
    def expiry_dir(self) -> str:
        """Directory of the claims of expiries; other readers of the layout do not look into it."""
        return f"{self.branch_root}/expiry"

    @property
    def removed_dir(self) -> str:
        """Directory of the notes of removed snapshots; other readers of the layout do not look into it."""
        return f"{self.branch_root}/removed"

    @property
    def manifest_dir(self) -> str:
        """Directory of manifests, manifest lists and index manifests."""
        return f"{self.root}/manifest"

    @property
    def index_dir(self) -> str:
        """Directory of hash indexes and deletion vectors."""
        return f"{self.root}/index"

    @property
    def statistics_dir(self) -> str:
        """Directory of table statistics."""
        return f"{self.root}/statistics"

    @property
    def latest_hint(self) -> str:
        """File with the id of the newest snapshot."""
        return f"{self.snapshot_dir}/LATEST"

    @property
    def earliest_hint(self) -> str:
        """File with the id of the oldest snapshot."""
        return f"{self.snapshot_dir}/EARLIEST"

    def schema(self, schema_id: int) -> str:
        """Path of a schema."""
        return f"{self.schema_dir}/{SCHEMA_PREFIX}{schema_id}"

    def snapshot(self, snapshot_id: int) -> str:
        """Path of a snapshot."""
        return f"{self.snapshot_dir}/{SNAPSHOT_PREFIX}{snapshot_id}"

    @property
    def earliest_changelog_hint(self) -> str:
        """Path of the hint of the oldest changelog that outlived its snapshot."""
        return f"{self.changelog_dir}/EARLIEST"

    @property
    def latest_changelog_hint(self) -> str:
        """Path of the hint of the newest one."""
        return f"{self.changelog_dir}/LATEST"

    def changelog(self, snapshot_id: int) -> str:
        """Path of a changelog that outlived its snapshot."""
        return f"{self.changelog_dir}/{CHANGELOG_PREFIX}{snapshot_id}"

    def tag(self, name: str) -> str:
        """Path of a tag."""
        return f"{self.tag_dir}/{TAG_PREFIX}{name}"

    def savepoint(self, savepoint_id: int) -> str:
        """Path of a savepoint."""
        return f"{self.savepoint_dir}/{SAVEPOINT_PREFIX}{savepoint_id}"

    def tag_success_file(self, name: str) -> str:
        """Path of the success file of a tag, for jobs that wait for it. Source: Paimon SuccessFileTagCallback."""
        return f"{self.tag_dir}/{TAG_SUCCESS_DIRECTORY}/{name}_SUCCESS"

    def consumer(self, name: str) -> str:
        """Path of the position of a named reader."""
        return f"{self.consumer_dir}/{CONSUMER_PREFIX}{name}"

    def manifest(self, name: str) -> str:
        """Path of a manifest, manifest list or index manifest."""
        return f"{self.manifest_dir}/{name}"

    def index(self, name: str) -> str:
        """Path of an index file."""
        return f"{self.index_dir}/{name}"

    def statistics(self, name: str) -> str:
        """Path of table statistics."""
        return f"{self.statistics_dir}/{name}"

    def partition_dir(self, partition_values: Sequence[object]) -> str:
        """Directory of a partition, or of all data of an unpartitioned table."""
        layout = self._layout
        inner = layout.options.data_file_directory
        parts = [self.root, *([inner.strip("/")] if inner else [])]
        if layout.partition_fields or partition_values:
            parts.append(partition_path(partition_values, layout.partition_fields, layout.options))
        return "/".join(parts)

    def bucket_dir(self, partition_values: Sequence[object], bucket: int) -> str:
        """Directory of the data files of a bucket; append tables with a negative bucket use ``bucket-0``."""
        name = "postpone" if bucket == POSTPONE_BUCKET else str(max(bucket, 0))
        return f"{self.partition_dir(partition_values)}/bucket-{name}"

    def data_file(self, partition_values: Sequence[object], bucket: int, name: str) -> str:
        """Path of a data or changelog file without an external path."""
        return f"{self.bucket_dir(partition_values, bucket)}/{name}"


def partition_path(values: Sequence[object], fields: Sequence[DataField], options: TableOptions) -> str:
    """``k1=v1/k2=v2`` for internal values, escaped. Raises: InvalidInputError when counts or types do not match."""
    if len(values) != len(fields):
        raise InvalidInputError(f"partition needs one value per column: values={len(values)} columns={len(fields)}")
    return "/".join(
        f"{escape_path(column.name)}={escape_path(partition_text(value, column.type, options))}"
        for value, column in zip(values, fields, strict=True)
    )


def escape_path(text: str) -> str:
    """The text with control and special path characters escaped as ``%XX``."""
    return text.translate(_ESCAPES)


_ESCAPES: Final = {code: f"%{code:02X}" for code in (*range(0x20), 0x7F, *(ord(char) for char in "\"#%'*/:=?\\{}[]^"))}
