"""Tables from directories of external Parquet files. Source: Paimon, procedure ``migrate_table``."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from engine.catalog import Catalog
from engine.procedures.registry import Progress, procedure, rows_table, silent
from engine.procedures.values import names_of
from engine.table import Table
from engine.write.batch_target import write_locally
from filestore.commit.committable import BATCH_IDENTIFIER, Committable, discard
from filestore.commit.table_commit import TableCommit
from filestore.datafile.external_files import (
    ExternalFile,
    ExternalFiles,
    adopt_file,
    can_adopt,
    external_rows,
    find_external_files,
)
from filestore.io.object_store import is_object_path
from filestore.manifest.commit_message import CommitMessage
from filestore.options.rules import CHECK_PREFIX
from filestore.types.data_types import DataField, data_type_of, parse_columns, parse_data_type
from filestore.write.table_write import TableWrite
from lsm.errors import InvalidInputError, OutcomeUnknownError
from lsm.secret_names import without_value
from lsm.undo import undoing

_MIGRATED: Final = parse_columns(
    "file string, partition string, rows int64, size_bytes int64, way string, "  # taken unchanged, or rewritten
    "snapshot_id int64?"  # null: dry run
)
_TAKEN, _WRITTEN = "taken", "written"


@procedure(_MIGRATED)
def migrate_table(
    catalog: Catalog,
    source: str,
    target_table: str,
    primary_key: str | None = None,
    partition_types: str | None = None,
    options: str | None = None,
    copy_files: bool = False,
    dry_run: bool = False,
    progress: Progress = silent,
) -> pa.Table:
    """Create a table from a directory of Parquet files, as written by Hive and Spark; the directory is unchanged.

    Without a key, partitions, nested columns, constraints and a log, files become the table's own without being read:
    as a hard link on the same disk, else as a copy. Other files are rewritten. All files are added in one commit.

    Args:
        catalog: the catalog of the new table.
        source: the directory, on the storage of the warehouse. Names like "dt=2024-01-31" become partition columns.
        target_table: "database.table"; must not exist.
        primary_key: columns of the key, as "id,dt". Of equal keys the row of the last file wins. Default: none, all
            rows are kept.
        partition_types: types of the partition columns, as "dt DATE, hour INT". Default: STRING.
        options: options of the table, as "bucket=4,file.compression=zstd".
        copy_files: copy files even where a hard link is possible: for files that may still be changed in place.
        dry_run: only show what would be done.
        progress: called with the number of finished files.

    Returns:
        One row for each file.

    Raises:
        InvalidInputError: there is no Parquet file, columns are incompatible, or the table exists; nothing is created.
    """
    place = source if "://" in source else os.path.abspath(source)
    if is_object_path(place) != is_object_path(catalog.warehouse):
        raise InvalidInputError(
            f"the files are not where the warehouse is: source={source} warehouse={catalog.warehouse} "
            "fix=copy them there first"
        )
    if catalog.table_exists(target_table):
        raise InvalidInputError(f"table exists: table={target_table} fix=choose another name")
    found = find_external_files(catalog.file_io, place)
    fields = _fields(found, partition_types)
    keys = [] if primary_key is None else names_of("primary_key", primary_key)
    given = _options(options)
    wanted = {**catalog.options, **given}
    has_own_layout = bool(keys) or catalog.has_log(given) or wanted.get("bucket", "-1") != "-1"
    is_looked_at = any(key.startswith(CHECK_PREFIX) for key in wanted)
    taken = [not (has_own_layout or is_looked_at) and can_adopt(file, fields) for file in found.files]
    if dry_run:
        return _result(found, taken, None)
    target = catalog.create_table(
        target_table,
        [replace(field, type=replace(field.type, nullable=field.name not in keys)) for field in fields],
        primary_key=keys,
        partition_by=found.partition_columns,
        options=given,
        case_sensitive=True,
    )
    # an outcome that is not known: the table may be whole
    with undoing(lambda: catalog.drop_table(target_table), unless=OutcomeUnknownError):
        migrate = _through_log if target.log is not None else _into_files
        snapshot_id = migrate(target, found.files, taken, link=not copy_files, progress=progress)
    return _result(found, taken, snapshot_id)


def _fields(found: ExternalFiles, partition_types: str | None) -> list[DataField]:
    """Columns of the files, followed by those of the directories."""
    partition = {name: "STRING" for name in found.partition_columns}
    for each in [] if partition_types is None else names_of("partition_types", partition_types):
        name, _, type_text = each.partition(" ")
        if name not in partition or not type_text.strip():
            raise InvalidInputError(
                f"not a partition column and its type: argument=partition_types given={each!r} "
                f"partition_columns={list(partition)} fix=write dt DATE"
            )
        partition[name] = type_text
    columns = [(column.name, data_type_of(_storable(column.type))) for column in found.columns]
    columns += [(name, parse_data_type(text)) for name, text in partition.items()]
    return [DataField(id=index, name=name, type=data_type) for index, (name, data_type) in enumerate(columns)]


def _storable(arrow: pa.DataType) -> pa.DataType:
    """Times in nanoseconds, as in INT96, are truncated to microseconds, the precision of tables' Parquet files."""
    is_fine = pa.types.is_timestamp(arrow) and arrow.unit == "ns"
    return pa.timestamp("us", arrow.tz) if is_fine else arrow


def _options(text: str | None) -> dict[str, str]:
    given = {}
    for each in [] if text is None else names_of("options", text):
        key, equals, value = each.partition("=")
        if not equals:
            raise InvalidInputError(f"an option is written key=value: argument=options given={without_value(each)!r}")
        given[key.strip()] = value.strip()
    return given


def _into_files(
    target: Table, files: Sequence[ExternalFile], taken: Sequence[bool], *, link: bool, progress: Progress
) -> int | None:
    """One commit of the files that are taken over and of those that are rewritten."""
    store = target.store
    writer = TableWrite(target.files, max_sequence_numbers={})
    messages: list[CommitMessage] = []

    def undo() -> None:
        writer.abort()
        discard(store, messages)

    with undoing(undo):
        for done, (file, as_it_is) in enumerate(zip(files, taken, strict=True)):
            progress(done, len(files))
            if as_it_is:
                messages.append(adopt_file(store, file, link=link))
                continue
            for rows in external_rows(store.io, file, target.schema.fields):
                writer.write(rows)
        messages += writer.prepare_commit()
    progress(len(files), len(files))
    commit = TableCommit(store, store.new_commit_user())
    snapshot = commit.commit(Committable(identifier=BATCH_IDENTIFIER, messages=messages)).snapshot
    return None if snapshot is None else snapshot.id


def _through_log(
    target: Table, files: Sequence[ExternalFile], _taken: Sequence[bool], *, link: bool, progress: Progress
) -> int | None:
    """One batch, in files and log; ``link`` does not apply."""

    def rows() -> Iterator[pa.RecordBatch]:
        for done, file in enumerate(files):
            progress(done, len(files))
            yield from external_rows(target.store.io, file, target.schema.fields)

    snapshot = write_locally(target.files, rows()).snapshot
    return None if snapshot is None else snapshot.id


def _result(found: ExternalFiles, taken: Sequence[bool], snapshot_id: int | None) -> pa.Table:
    return rows_table(
        _MIGRATED,
        [
            {
                "file": file.path,
                "partition": "/".join(f"{name}={value}" for name, value in file.partition.items()),
                "rows": file.row_count,
                "size_bytes": file.size_bytes,
                "way": _TAKEN if as_it_is else _WRITTEN,
                "snapshot_id": snapshot_id,
            }
            for file, as_it_is in zip(found.files, taken, strict=True)
        ],
    )
