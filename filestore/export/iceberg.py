"""A copy of a table as an Iceberg table, one snapshot for each state that is exported.

As with Delta Lake, files are written before the metadata that names them, under names that say their content. Metadata
is pyiceberg's, its versions are numbered files, each created exclusively: of two exports one wins. Readers find the
newest by the hint, as in a Hadoop catalog; an export finds it by the names of the files.
pyiceberg reads and writes the metadata through Fluvial's file systems.

Source: Iceberg spec "Table Metadata", "File System Tables".
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

import pyarrow.parquet as pq
from pyiceberg.io import FileIO as IcebergIO
from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
    schema_to_pyarrow,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.table import StaticTable, Table, Transaction
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update import (
    AddSchemaUpdate,
    RemoveSnapshotsUpdate,
    SetCurrentSchemaUpdate,
    TableUpdate,
    update_table_metadata,
)

from filestore.export.parts import PART_PREFIX, CopiedPart, ExportState, leftovers
from filestore.export.result import Exported, ExportPlace, Progress
from filestore.iceberg.places import HINT, hinted_version
from filestore.iceberg.schema import iceberg_columns
from filestore.io.file_io import FileIO, write_hint
from filestore.layout.locations import absolute_path
from filestore.table import TableRead
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError


class _File(InputFile, OutputFile):
    """One file."""

    def __init__(self, io: FileIO, location: str) -> None:
        super().__init__(location)
        self._io = io

    def __len__(self) -> int:
        return self._io.size_bytes(self.location)

    def exists(self) -> bool:
        return self._io.exists(self.location)

    def open(self, seekable: bool = True) -> Any:
        return self._io.open_input(self.location)

    def create(self, overwrite: bool = False) -> Any:
        return self._io.open_output(self.location)

    def to_input_file(self) -> InputFile:
        return self


class FilesOfIceberg(IcebergIO):
    """All of them; names of files are unique, so none is overwritten."""

    def __init__(self, io: FileIO) -> None:
        """``io`` knows the place of the table."""
        super().__init__()
        self._io = io

    def new_input(self, location: str) -> InputFile:
        """A file to read."""
        return _File(self._io, location)

    def new_output(self, location: str) -> OutputFile:
        """A file to write."""
        return _File(self._io, location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Delete a file; a missing one is fine."""
        self._io.delete(location if isinstance(location, str) else location.location)


_FORMAT_VERSION: Final = 2
_TABLE: Final = "fluvial.table"
_TIME: Final = "fluvial.exported-ms"  # of a snapshot, by the clock of the export
_DATA: Final = "data"
_METADATA: Final = "metadata"
_SUFFIX: Final = ".metadata.json"
_VERSION: Final = re.compile(r"v(\d+)\.metadata\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Copy:
    """What is there."""

    version: int  # of the metadata; 0: there is none
    table: Table | None
    files: dict[str, DataFile]  # of the newest snapshot, by name


def export_iceberg(read: TableRead, place: ExportPlace, progress: Progress) -> Exported:
    """Make the copy equal to a snapshot.

    Raises:
        InvalidInputError: a type that Iceberg does not have; the copy is of another table.
        ConflictError: another export was faster; nothing is visible.
        CorruptDataError: the copy's metadata cannot be read.
    """
    place = replace(place, root=absolute_path(place.root))
    schema = _schema(read)
    state = ExportState(read, schema_to_pyarrow(schema))
    name, data = state.table_name, f"{place.root}/{_DATA}"
    before = _find(place)
    was = None if before.table is None else before.table.properties.get(_TABLE)
    if before.table is not None and was != name:
        raise InvalidInputError(
            f"there is a copy of another table: path={place.root} its_table={was} table={name} fix='use another path'"
        )
    wanted = state.splits
    new, gone = [each for each in wanted if each not in before.files], before.files.keys() - wanted.keys()
    expired = _expired(before, place)
    done = Exported(path=place.root, written=len(new), kept=len(wanted) - len(new), removed=len(gone), deleted=0)
    if place.dry_run:
        return replace(done, deleted=len(_unused(before.table, expired, place)))
    parts: list[CopiedPart] = []
    for each in new:
        progress(done.kept + len(parts), len(wanted))
        parts.append(state.write(place.io, data, each))
    metadata = _first(place, name, schema) if before.table is None else _with_schema(before.table.metadata, schema)
    table = _table(place, before.version, metadata)
    if new or gone:
        added = [_data_file(place, metadata, part) for part in parts]
        removed = [before.files[each] for each in gone]
        about = {"fluvial.snapshot": str(state.snapshot_id), "fluvial.branch": read.table.store.paths.branch}
        about[_TIME] = str(place.clock.now_ms())
        metadata = _with_files(table, added, removed, about)
    if expired:
        metadata = update_table_metadata(metadata, (RemoveSnapshotsUpdate(snapshot_ids=expired),))
    version = before.version
    if before.table is None or metadata != before.table.metadata:
        version += 1
        _publish(place, version, metadata)
        table = _table(place, version, metadata)
    if hinted_version(place.io, f"{place.root}/{_METADATA}") != version:
        write_hint(place.io, f"{place.root}/{_METADATA}/{HINT}", str(version).encode())
    progress(len(wanted), len(wanted))
    old = _unused(table, (), place)
    for path in [*old, *leftovers(place.io, data, place.clock.now_ms() - place.retain_ms)]:
        place.io.delete(path)
    kept = [before.files[each] for each in wanted if each in before.files]
    return replace(
        done,
        deleted=sum(path.startswith(data) for path in old),
        rows=sum(part.rows for part in parts) + sum(each.record_count for each in kept),
        size_bytes=sum(part.size_bytes for part in parts) + sum(each.file_size_in_bytes for each in kept),
    )


def _schema(read: TableRead) -> Schema:
    try:
        return iceberg_columns(read.table.schema, _FORMAT_VERSION).schema
    except InvalidInputError as error:
        problem = str(error).split(" metadata.iceberg", 1)[0]
        raise InvalidInputError(f"{problem} fix='export as parquet, or change the type of the column'") from error


def _find(place: ExportPlace) -> _Copy:
    """The newest version, by the names that are there: the hint may be behind or lost, the first versions expired."""
    directory = f"{place.root}/{_METADATA}"
    found = map(_VERSION.fullmatch, place.io.list_names(directory))
    version = max([hinted_version(place.io, directory) or 0, *(int(each[1]) for each in found if each)])
    if version == 0:
        return _Copy(version=0, table=None, files={})
    try:
        table = _table(place, version, _read(place, version))
        return _Copy(version=version, table=table, files=_files_of(table, table.metadata.current_snapshot_id))
    except (ValueError, KeyError, FileNotFoundError) as error:
        raise CorruptDataError(f"the copy's metadata cannot be read: path={place.root} version={version}") from error


def _read(place: ExportPlace, version: int) -> TableMetadata:
    return TableMetadataV2.model_validate_json(place.io.read_bytes(_version_path(place, version)))


def _table(place: ExportPlace, version: int, metadata: TableMetadata) -> Table:
    return StaticTable(
        identifier=("copy",),
        metadata=metadata,
        metadata_location=_version_path(place, version),
        io=FilesOfIceberg(place.io),
        catalog=None,
    )


def _files_of(table: Table, snapshot_id: int | None) -> dict[str, DataFile]:
    """The data files of a snapshot by name; None: of none."""
    snapshot = None if snapshot_id is None else table.metadata.snapshot_by_id(snapshot_id)
    if snapshot is None:
        return {}
    entries = (
        entry.data_file
        for manifest in snapshot.manifests(table.io)
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True)
    )
    return {file.file_path.rpartition("/")[2]: file for file in entries}


def _first(place: ExportPlace, name: str, schema: Schema) -> TableMetadata:
    return TableMetadataV2(
        location=place.root,
        schemas=[schema],
        current_schema_id=schema.schema_id,
        last_column_id=max(schema.highest_field_id, 0),
        partition_specs=[UNPARTITIONED_PARTITION_SPEC],
        default_spec_id=UNPARTITIONED_PARTITION_SPEC.spec_id,
        last_partition_id=UNPARTITIONED_PARTITION_SPEC.last_assigned_field_id,
        sort_orders=[UNSORTED_SORT_ORDER],
        default_sort_order_id=UNSORTED_SORT_ORDER.order_id,
        properties={_TABLE: name},
    )


def _with_schema(metadata: TableMetadata, schema: Schema) -> TableMetadata:
    """With these columns as the current ones; their ids are the table's, so a renamed column stays the same."""
    if metadata.schema() == schema:
        return metadata
    known = next((each for each in metadata.schemas if each == schema), None)
    updates: list[TableUpdate] = []
    if known is None:
        known = Schema(*schema.fields, schema_id=max(each.schema_id for each in metadata.schemas) + 1)
        updates.append(AddSchemaUpdate(schema=known))
    return update_table_metadata(metadata, (*updates, SetCurrentSchemaUpdate(schema_id=known.schema_id)))


def _data_file(place: ExportPlace, metadata: TableMetadata, part: CopiedPart) -> DataFile:
    path = f"{place.root}/{_DATA}/{part.name}"
    with place.io.open_input(path) as source:
        footer = pq.read_metadata(source)
    schema = metadata.schema()
    found = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=found.partition(metadata.spec(), schema),
        file_size_in_bytes=part.size_bytes,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **found.to_serialized_dict(),
    )


def _with_files(
    table: Table, added: Sequence[DataFile], removed: Sequence[DataFile], about: dict[str, str]
) -> TableMetadata:
    """The metadata with one snapshot more; its manifests are written."""
    transaction = Transaction(table, autocommit=False)
    with transaction.update_snapshot(snapshot_properties=about).overwrite() as snapshot:
        for file in added:
            snapshot.append_data_file(file)
        for file in removed:
            snapshot.delete_data_file(file)
    return transaction.table_metadata


def _publish(place: ExportPlace, version: int, metadata: TableMetadata) -> None:
    path = _version_path(place, version)
    if not place.io.create_exclusive(path, metadata.model_dump_json().encode()):
        raise ConflictError(
            f"another export has written to the copy meanwhile: path={place.root} version={version} fix='repeat it'"
        )


def _version_path(place: ExportPlace, version: int) -> str:
    return f"{place.root}/{_METADATA}/v{version}{_SUFFIX}"


def _expired(before: _Copy, place: ExportPlace) -> list[int]:
    """Ids of the snapshots that were replaced so long ago that no reader has them open."""
    if before.table is None:
        return []
    latest = place.clock.now_ms() - place.retain_ms
    ordered = sorted(before.table.metadata.snapshots, key=lambda each: each.sequence_number or 0)
    return [each.snapshot_id for each, after in pairwise(ordered) if int(_summary(after)[_TIME]) < latest]


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _unused(table: Table | None, expired: Iterable[int], place: ExportPlace) -> list[str]:
    """Paths of files that no snapshot refers to, and that are too old for running readers and writers."""
    if table is None:
        return []
    gone = {*expired}
    used = {table.metadata_location.rpartition("/")[2], HINT}
    for snapshot in table.metadata.snapshots:
        if snapshot.snapshot_id not in gone:
            used |= _files_of(table, snapshot.snapshot_id).keys()
            used.add(snapshot.manifest_list.rpartition("/")[2])
            used |= {each.manifest_path.rpartition("/")[2] for each in snapshot.manifests(table.io)}
    latest, found = place.clock.now_ms() - place.retain_ms, []
    for directory in (_DATA, _METADATA):
        for name in place.io.list_names(f"{place.root}/{directory}"):
            path = f"{place.root}/{directory}/{name}"
            is_ours = name.startswith(PART_PREFIX) if directory == _DATA else name.endswith((".avro", _SUFFIX))
            with suppress(FileNotFoundError):
                if is_ours and name not in used and place.io.modified_ms(path) < latest:
                    found.append(path)
    return found
