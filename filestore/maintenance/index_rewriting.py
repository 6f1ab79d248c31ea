"""Builds file indexes for data files that lack them: written before the option was set, or by other engines.

The data does not change; manifest entries are replaced by ones with the index.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from filestore.commit.committable import discard
from filestore.commit.table_commit import CommitResult, replace_compacted
from filestore.datafile.data_file import read_data_file
from filestore.index.container import Indexes, pack_indexes, unpack_indexes
from filestore.index.file_index import INDEX_SUFFIX, IndexWriter, index_file_of, indexed_fields
from filestore.io.file_io import FileIO
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from filestore.scan.live_files import BucketKey, LiveFiles
from filestore.schema.index_options import BLOOM, BloomColumn, bloom_columns
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError
from lsm.undo import undoing


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexedFiles:
    """The result of ``write_indexes``."""

    partitions: int = 0
    files: int = 0
    committed: CommitResult | None = None  # None: every file already had its indexes


def write_indexes(store: TableStore, *, keep: Callable[[BucketKey], bool] = lambda _: True) -> IndexedFiles:
    """Build the indexes that the table's options define for every data file, in one commit.

    Args:
        store: the table.
        keep: whether to process a bucket.

    Raises:
        InvalidInputError: the options define no indexes.
        ConflictError: some of these files were replaced concurrently: run it again. Nothing is visible.
    """
    columns = bloom_columns(store.schema, store.options)
    if not columns:
        raise InvalidInputError(
            f"table defines no file indexes: table={store.name} fix='set file-index.bloom-filter.columns'"
        )
    live = LiveFiles.latest(store)
    made: dict[BucketKey, list[tuple[DataFileMeta, DataFileMeta]]] = {}
    with undoing(lambda: discard(store, _messages(store, live, made))), live.reading():
        for key in filter(keep, live.buckets()):
            for file in live.files(key):
                indexed = _add_indexes(store, key, file, columns)
                if indexed is not None:
                    made.setdefault(key, []).append((file, indexed))
    if not made:
        return IndexedFiles()
    committed = replace_compacted(store, _messages(store, live, made), live.ref)
    return IndexedFiles(
        partitions=len({key.partition for key in made}), files=sum(map(len, made.values())), committed=committed
    )


def _messages(
    store: TableStore, live: LiveFiles, made: Mapping[BucketKey, Sequence[tuple[DataFileMeta, DataFileMeta]]]
) -> list[CommitMessage]:
    return [
        CommitMessage(
            partition=key.partition,
            bucket=key.bucket,
            total_buckets=live.total_buckets(key) or store.options.bucket,
            compact_before=tuple(before for before, _ in pairs),
            compact_after=tuple(after for _, after in pairs),
        )
        for key, pairs in made.items()
    ]


def _add_indexes(
    store: TableStore, key: BucketKey, file: DataFileMeta, columns: tuple[BloomColumn, ...]
) -> DataFileMeta | None:
    """Write the missing indexes of a file and return its new metadata; None: none are missing."""
    then, path = store.schema_of(file.schema_id), store.file_path(key.partition, key.bucket, file)
    directory = path.rpartition("/")[0]
    known = _known(store.io, directory, file)
    fields = indexed_fields(then, store.schema)
    missing = [
        replace(column, field=fields[column.field.name])
        for column in columns
        if column.field.name in fields and BLOOM not in known.get(fields[column.field.name].name, {})
    ]
    if not missing:
        return None
    writer = IndexWriter(missing)
    names = [column.field.name for column in missing]
    for batch in read_data_file(
        store.io, path, file, file_schema=then, read_schema=then, columns=names, with_system=False
    ):
        writer.add(batch)
    made = writer.indexes()
    body = pack_indexes({name: {**known.get(name, {}), **made.get(name, {})} for name in {**known, **made}})
    others = tuple(name for name in file.extra_files if not name.endswith(INDEX_SUFFIX))
    if len(body) <= store.options.file_index_in_manifest_threshold_bytes:
        return replace(file, embedded_index=body, extra_files=others)
    name = f"{file.file_name}.{store.names.uuid()}{INDEX_SUFFIX}"  # unique, also among failed attempts
    store.io.write_new(f"{directory}/{name}", body)
    return replace(file, embedded_index=None, extra_files=(*others, name))


def _known(io: FileIO, directory: str, file: DataFileMeta) -> Indexes:
    if file.embedded_index is not None:
        return unpack_indexes(file.embedded_index, source=f"manifest entry of {file.file_name}")
    name = index_file_of(file)
    try:
        return {} if name is None else unpack_indexes(io.read_bytes(f"{directory}/{name}"), source=name)
    except FileNotFoundError:
        return {}
