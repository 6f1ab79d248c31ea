"""Where the files of a table are: names to paths, and partition values to directory names.

Directories are never parsed back; readers compute them from partition values again, so the texts must be Java's.
Source: Paimon FileStorePathFactory, PartitionPathUtils, InternalRowPartitionComputer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

import numpy as np

from filestore.datatypes import INTEGER_ROOTS, TEXT_ROOTS, TIMESTAMP_ROOTS, DataField, DataType
from filestore.options import POSTPONED_BUCKET, TableOptions
from lsm.errors import InvalidInputError

MAIN_BRANCH: Final = "main"
SNAPSHOT_PREFIX: Final = "snapshot-"
SCHEMA_PREFIX: Final = "schema-"
TAG_PREFIX: Final = "tag-"
TAG_SUCCESS_DIRECTORY: Final = "tag-success-file"
"""Among the tags, and no tag."""
CHANGELOG_PREFIX: Final = "changelog-"
BRANCH_PREFIX: Final = "branch-"
CONSUMER_PREFIX: Final = "consumer-"
SAVEPOINT_PREFIX: Final = "savepoint-"

_DEFAULT_OPTIONS: Final = TableOptions.parse({})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layout:
    """What the directories of data files depend on."""

    partition_fields: tuple[DataField, ...] = ()
    options: TableOptions = _DEFAULT_OPTIONS


@dataclass(frozen=True, slots=True)
class TablePaths:
    """Paths of a table. Schemas, snapshots, tags and consumers belong to a branch, all other files to the table."""

    root: str
    branch: str = MAIN_BRANCH
    _layout: _Layout = field(default=_Layout(), kw_only=True)

    def with_layout(self, partition_fields: Sequence[DataField], options: TableOptions) -> "TablePaths":
        """The same table with its partition columns and options known, as data files need them."""
        return replace(self, _layout=_Layout(partition_fields=tuple(partition_fields), options=options))

    def with_branch(self, branch: str) -> "TablePaths":
        """The same table seen from another branch."""
        return replace(self, branch=branch)

    @property
    def branch_root(self) -> str:
        """Directory above the schemas, snapshots and tags of the branch; the table's own for main."""
        return self.root if self.branch == MAIN_BRANCH else f"{self.branch_dir}/{BRANCH_PREFIX}{self.branch}"

    @property
    def branch_dir(self) -> str:
        """Directory of all branches but main."""
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
        """Directory of savepoints, and of what they keep beside the table's files."""
        return f"{self.branch_root}/savepoint"

    @property
    def consumer_dir(self) -> str:
        """Directory of the places of named readers."""
        return f"{self.branch_root}/consumer"

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
        """File with the number of the newest snapshot."""
        return f"{self.snapshot_dir}/LATEST"

    @property
    def earliest_hint(self) -> str:
        """File with the number of the oldest snapshot."""
        return f"{self.snapshot_dir}/EARLIEST"

    def schema(self, schema_id: int) -> str:
        """Path of a schema."""
        return f"{self.schema_dir}/{SCHEMA_PREFIX}{schema_id}"

    def snapshot(self, snapshot_id: int) -> str:
        """Path of a snapshot."""
        return f"{self.snapshot_dir}/{SNAPSHOT_PREFIX}{snapshot_id}"

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
        """Path of the file that says that a tag is there, for jobs that wait for it. Source: Paimon, likewise."""
        return f"{self.tag_dir}/{TAG_SUCCESS_DIRECTORY}/{name}_SUCCESS"

    def consumer(self, name: str) -> str:
        """Path of the place of a named reader."""
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
        """Directory of a partition; of all data when the table is not partitioned."""
        layout = self._layout
        inner = layout.options.data_file_directory
        parts = [self.root, *([inner.strip("/")] if inner else [])]
        if layout.partition_fields or partition_values:
            parts.append(partition_path(partition_values, layout.partition_fields, layout.options))
        return "/".join(parts)

    def bucket_dir(self, partition_values: Sequence[object], bucket: int) -> str:
        """Directory of the data files of a bucket; a negative number of an append table is its only directory."""
        name = "postpone" if bucket == POSTPONED_BUCKET else str(max(bucket, 0))
        return f"{self.partition_dir(partition_values)}/bucket-{name}"

    def data_file(self, partition_values: Sequence[object], bucket: int, name: str) -> str:
        """Path of a data or changelog file that has no external path."""
        return f"{self.bucket_dir(partition_values, bucket)}/{name}"


def partition_path(values: Sequence[object], fields: Sequence[DataField], options: TableOptions) -> str:
    """``k1=v1/k2=v2`` for internal values, escaped. Raises: InvalidInputError when numbers or types do not fit."""
    if len(values) != len(fields):
        raise InvalidInputError(f"partition needs one value per column: values={len(values)} columns={len(fields)}")
    return "/".join(
        f"{escape_path(column.name)}={escape_path(partition_text(value, column.type, options))}"
        for value, column in zip(values, fields, strict=True)
    )


def partition_text(value: object, data_type: DataType, options: TableOptions, *, legacy: bool | None = None) -> str:
    """The unescaped text of a partition value in a directory name; ``legacy`` overrides the table's form of dates."""
    is_legacy = options.partition_legacy_name if legacy is None else legacy
    try:
        text = "" if value is None else _text(value, data_type, legacy=is_legacy)
    except OverflowError as error:
        raise InvalidInputError(f"year is out of 1 to 9999: value={value!r} type={data_type}") from error
    return text if any(char not in _JAVA_WHITESPACE for char in text) else options.partition_default_name


def escape_path(text: str) -> str:
    """Control characters and those that mean something in paths as ``%XX``; everything else stays."""
    return text.translate(_ESCAPES)


_ESCAPES: Final = {code: f"%{code:02X}" for code in (*range(0x20), 0x7F, *(ord(char) for char in "\"#%'*/:=?\\{}[]^"))}
# Character.isWhitespace: not the no-break spaces, which Python's isspace counts.
_JAVA_WHITESPACE: Final = frozenset(
    "\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f \u1680\u2028\u2029\u205f\u3000"
    + "".join(map(chr, [*range(0x2000, 0x2007), *range(0x2008, 0x200B)]))
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _text(value: object, data_type: DataType, *, legacy: bool) -> str:
    root = data_type.root
    if root in TEXT_ROOTS:
        return str(value)
    if root == "BOOLEAN":
        return "true" if value else "false"
    if root in INTEGER_ROOTS and isinstance(value, int):
        return str(value)
    if root == "DECIMAL" and isinstance(value, Decimal):
        return f"{value:f}"
    if root in ("FLOAT", "DOUBLE") and isinstance(value, float | int):
        return _java_float(np.float32(value) if root == "FLOAT" else np.float64(value))
    if root == "DATE" and isinstance(value, int):
        return str(value) if legacy else _date_text(_EPOCH + timedelta(days=value))
    if root == "TIME" and isinstance(value, int):
        return str(value) if legacy else _time_text(value, data_type.precision or 0)
    if root in TIMESTAMP_ROOTS and isinstance(value, int):
        return _timestamp_text(value, data_type, legacy=legacy)
    raise InvalidInputError(f"value cannot name a partition directory: value={value!r} type={data_type}")


def _timestamp_text(value: int, data_type: DataType, *, legacy: bool) -> str:
    """Local date and time; time zones are UTC (Java takes the session's when the legacy name is off)."""
    precision = data_type.precision or 0
    per_second = 10 ** (3 if precision <= 3 else 6 if precision <= 6 else 9)
    seconds, fraction = divmod(value, per_second)
    moment = _EPOCH + timedelta(seconds=seconds)
    nanos = f"{fraction * (10**9 // per_second):09d}"
    date = _date_text(moment)
    minutes = f"{moment.hour:02d}:{moment.minute:02d}"
    if not legacy:
        digits = nanos.rstrip("0").ljust(precision, "0")
        return f"{date} {minutes}:{moment.second:02d}" + (f".{digits}" if digits else "")
    if moment.second == 0 and int(nanos) == 0:
        return f"{date}T{minutes}"
    while nanos.endswith("000"):
        nanos = nanos.removesuffix("000")
    return f"{date}T{minutes}:{moment.second:02d}" + (f".{nanos}" if nanos else "")


def _date_text(moment: datetime) -> str:
    return f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"


def _time_text(millis: int, precision: int) -> str:
    seconds, fraction = divmod(millis, 1000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    if precision == 0:
        return text
    return f"{text}.{f'{fraction:03d}'[:precision].rstrip('0') or '0'}"


def _java_float(value: np.floating) -> str:
    """Double.toString: plain from a thousandth up to ten millions, else one digit, the rest and an exponent."""
    if not np.isfinite(value):
        return "NaN" if np.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    sign = "-" if np.signbit(value) else ""
    magnitude = abs(value)
    if magnitude == 0 or 1e-3 <= magnitude < 1e7:
        return sign + np.format_float_positional(magnitude, unique=True, trim="0")
    mantissa, exponent = np.format_float_scientific(magnitude, unique=True, trim="0").split("e")
    return f"{sign}{mantissa}E{int(exponent)}"
