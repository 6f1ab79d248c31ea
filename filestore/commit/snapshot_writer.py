"""Writing what a snapshot refers to, and deciding what the snapshot says."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import orjson

from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.datafile.rolling_writer import APPEND_SOURCE
from filestore.index.index_manifest import changes_index, index_files, next_index
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta, EntryKind, ManifestEntry
from filestore.manifest.lists import ManifestFileMeta
from filestore.manifest.merging import MergeLimits, merge_manifests
from filestore.options.table_options import TableOptions
from filestore.predicate.row_rules import check_rules
from filestore.scan.snapshot_files import live_files, manifests_of
from filestore.schema.table_schema import TableSchema
from filestore.snapshot.change_tracking import change_properties, default_changes
from filestore.snapshot.commit_times import commit_time, warn_if_ahead
from filestore.snapshot.snapshot import (
    FIRST_SNAPSHOT_ID,
    LOG_GENERATION_KEY,
    PARENT_KEY,
    TABLE_KEY,
    CommitKind,
    Snapshot,
)
from filestore.table_store import TableStore
from lsm.errors import ConflictError, CorruptDataError
from lsm.retry import LostRaceError
from lsm.row_kind import ROW_ID

_LAST_ROW_ID = 2**63 - 1
_ENTRIES_PER_MANIFEST = 20_000  # about 8 MB


@dataclass(frozen=True, slots=True, kw_only=True)
class _List:
    name: str | None
    size_bytes: int | None


def entries_of(messages: Sequence[CommitMessage], replaced: Iterable[ManifestEntry] = ()) -> list[ManifestEntry]:
    """The manifest entries of a commit, deletes first: other readers fold entries in order."""
    entries = [replace(entry, kind=EntryKind.DELETE) for entry in replaced]
    entries += [_entry(each, EntryKind.DELETE, file) for each in messages for file in each.compact_before]
    entries += [
        _entry(each, EntryKind.ADD, file) for each in messages for file in (*each.compact_after, *each.new_files)
    ]
    return entries


def changelog_entries(messages: Sequence[CommitMessage]) -> list[ManifestEntry]:
    """The entries of the changelog manifest of a commit."""
    return [_entry(message, EntryKind.ADD, file) for message in messages for file in message.changelog_files]


def changes_nothing(
    committable: Committable, delta: Sequence[ManifestEntry], kind: CommitKind, options: TableOptions
) -> bool:
    """Whether no snapshot is needed.

    A streaming commit needs one even if it is empty, so that its identifier is remembered; unless the options say
    otherwise, for which an empty batch that comes again is as empty.
    """
    messages = committable.messages
    if delta or changelog_entries(messages) or changes_index(messages):
        return False
    if committable.log_offsets or committable.properties or committable.statistics:
        return False
    if kind is not CommitKind.COMPACT and options.commit_force_create_snapshot:
        return False
    ignores: bool | None = options.snapshot_ignore_empty_commit
    return committable.identifier == BATCH_IDENTIFIER if ignores is None else ignores


def with_row_ids(
    delta: Sequence[ManifestEntry], snapshot_id: int, *, first_row_id: int
) -> tuple[list[ManifestEntry], int]:
    """The entries of a commit with the ids and numbers of their rows, and the next free id.

    Appended rows get the next ids; rows that had ids before, in compacted files, keep them. The number of a row is the
    snapshot that wrote it. Source: Paimon's RowTrackingCommitUtils.
    """
    found = []
    for entry in delta:
        file = entry.file
        if file.min_sequence_number == 0:
            file = replace(file, min_sequence_number=snapshot_id, max_sequence_number=snapshot_id)
        elif file.max_sequence_number == 0:
            file = replace(file, max_sequence_number=snapshot_id)
        has_ids = file.first_row_id is not None or ROW_ID in (file.write_cols or ())
        if file.file_source == APPEND_SOURCE and not has_ids:
            file = replace(file, first_row_id=first_row_id)
            first_row_id += file.row_count
        found.append(replace(entry, file=file))
    return found, first_row_id


def merged_offsets(known: Mapping[int, int], new: Mapping[int, int]) -> dict[int, int]:
    """Next log offset of every bucket: the higher one, because a late commit may carry an older position."""
    return {bucket: max(known.get(bucket, 0), new.get(bucket, 0)) for bucket in sorted({*known, *new})}


def write_snapshot(
    store: TableStore,
    latest: Snapshot | None,
    *,
    kind: CommitKind,
    commit_user: str,
    committable: Committable,
    delta: Sequence[ManifestEntry],
    new_files: list[str],
    replaces: Callable[[bytes], bool] | None = None,
) -> Snapshot:
    """Write manifests and lists, and return the snapshot that would follow ``latest``; it is not published.

    ``new_files`` gets the path of every file as it is written, so that they can be deleted whatever happens.
    ``replaces``: the partitions that are overwritten.

    Raises:
        ConflictError: the statistics are of another schema; or as ``check_opened_schema``.
        LostRaceError: ``latest`` was removed. A snapshot that is published at once becomes a fork only after a pause.
    """
    snapshot_id = FIRST_SNAPSHOT_ID if latest is None else latest.id + 1
    next_row_id = latest.next_row_id if latest else None
    if store.options.row_tracking_enabled:
        delta, next_row_id = with_row_ids(delta, snapshot_id, first_row_id=next_row_id or 0)
        if not 0 <= next_row_id <= _LAST_ROW_ID:
            raise CorruptDataError(
                f"no ids are left for new rows: table={store.name} snapshot={snapshot_id} next_row_id={next_row_id} "
                "cause=the number in the snapshot before was changed fix='roll back to an older snapshot'"
            )
    base = _write_base(store, latest, new_files)
    changes = _write_entries(store, delta, new_files)
    changelog = changelog_entries(committable.messages)
    changelog_list = _write_entries(store, changelog, new_files) if changelog else _NO_LIST
    schema = store.schemas.latest()
    if schema is None:
        raise store.as_opened.gone(store.io)
    check_opened_schema(store, schema, committable)
    schema_id, statistics = schema.id, committable.statistics
    if statistics is not None and statistics.schema_id != schema_id:
        raise ConflictError(
            f"the schema changed since the table was analyzed: table={store.name} schema={schema_id} "
            f"analyzed={statistics.schema_id}: analyze it again"
        )
    delta_rows = sum(entry.file.row_count * (1 if entry.kind is EntryKind.ADD else -1) for entry in delta)
    now_ms = store.clock.now_ms()
    time = commit_time(latest, now_ms)
    warn_if_ahead(store.name, latest, now_ms)
    written = Snapshot(
        id=snapshot_id,
        schema_id=schema_id,
        base_manifest_list=str(base.name),
        base_manifest_list_size=base.size_bytes,
        delta_manifest_list=str(changes.name),
        delta_manifest_list_size=changes.size_bytes,
        changelog_manifest_list=changelog_list.name,
        changelog_manifest_list_size=changelog_list.size_bytes,
        index_manifest=_write_index(store, latest, committable.messages, replaces, new_files),
        commit_user=commit_user,
        commit_identifier=committable.identifier,
        commit_kind=kind,
        time_ms=time.time_ms,
        log_offsets=merged_offsets(_known_offsets(store, latest, committable), committable.log_offsets),
        total_record_count=_total_rows(store, latest) + delta_rows,
        delta_record_count=delta_rows,
        changelog_record_count=sum(entry.file.row_count for entry in changelog) if changelog else None,
        watermark=_later(latest.watermark if latest else None, committable.watermark),
        statistics=_carried_statistics(store, latest, schema_id) if statistics is None else statistics.name,
        properties={
            **time.properties,
            **committable.properties,
            **_change_properties(store, latest, kind, committable),
            **_log_generation(store, latest),
            **({} if latest is None else {PARENT_KEY: latest.identity}),
            **({} if store.table_uuid is None else {TABLE_KEY: store.table_uuid}),
        },
        next_row_id=next_row_id,
        uuid=store.names.uuid(),
    )
    if latest is not None and store.snapshots.find_ref(latest.ref) is None:
        raise LostRaceError(
            f"the snapshot that the commit follows is gone, as others were faster: table={store.name} "
            f"planned_on={latest.id} user={commit_user}: commit again"
        )
    return written


def check_opened_schema(store: TableStore, newest: TableSchema, committable: Committable) -> None:
    """Refuse files of a writer that was opened before a rescaling, or before a constraint was added.

    Raises: ConflictError; open the table again.
    """
    wanted, opened = newest.table_options.bucket, store.schema
    if newest.id == opened.id:
        return
    if any(message.new_files for message in committable.messages):
        _check_constraints(store, newest)
    if wanted < 1:
        return
    for message in committable.messages:
        if message.new_files and message.total_buckets not in (wanted, -1, -2):
            raise ConflictError(
                f"the table was rescaled since it was opened: table={store.name} bucket={wanted} "
                f"commit={message.total_buckets} schema={newest.id} opened={opened.id} fix=open it again"
            )


def _check_constraints(store: TableStore, newest: TableSchema) -> None:
    """Refuse rows of a writer that was opened before a constraint was added, because it did not check them."""
    known = {(rule.name, rule.condition) for rule in check_rules(store.schema)}
    added = [rule for rule in check_rules(newest) if (rule.name, rule.condition) not in known]
    if added:
        raise ConflictError(
            f"a constraint was added since the table was opened: table={store.name} constraint={added[0].name} "
            f"check='{added[0].condition}' schema={newest.id} opened={store.schema.id} fix=open it again"
        )


_NO_LIST = _List(name=None, size_bytes=None)


def _entry(message: CommitMessage, kind: EntryKind, file: DataFileMeta) -> ManifestEntry:
    return ManifestEntry(
        kind=kind, partition=message.partition, bucket=message.bucket, total_buckets=message.total_buckets, file=file
    )


def _write_base(store: TableStore, latest: Snapshot | None, new_files: list[str]) -> _List:
    """The list of everything before this commit, merged when it is due."""
    options = store.options
    limits = MergeLimits(
        target_bytes=options.manifest_target_bytes,
        min_count=options.manifest_merge_min_count,
        full_threshold_bytes=options.manifest_full_threshold_bytes,
    )
    manifests = [] if latest is None else manifests_of(store, latest)
    merged = merge_manifests(
        manifests,
        limits,
        read=store.manifests.read_rows,
        write=lambda rows: _written(store, store.manifests.write_rows(rows), new_files),
    )
    return _write_list(store, merged, new_files)


def _write_entries(store: TableStore, entries: Sequence[ManifestEntry], new_files: list[str]) -> _List:
    starts = range(0, len(entries), _ENTRIES_PER_MANIFEST)
    chunks = (entries[start : start + _ENTRIES_PER_MANIFEST] for start in starts)
    manifests = [_written(store, store.manifests.write_manifest(chunk), new_files) for chunk in chunks]
    return _write_list(store, manifests, new_files)


def _written(store: TableStore, manifest: ManifestFileMeta, new_files: list[str]) -> ManifestFileMeta:
    new_files.append(store.paths.manifest(manifest.file_name))
    return manifest


def _write_list(store: TableStore, manifests: Sequence[ManifestFileMeta], new_files: list[str]) -> _List:
    name, size_bytes = store.manifests.write_list(manifests)
    new_files.append(store.paths.manifest(name))
    return _List(name=name, size_bytes=size_bytes)


def _write_index(
    store: TableStore,
    latest: Snapshot | None,
    messages: Sequence[CommitMessage],
    replaces: Callable[[bytes], bool] | None,
    new_files: list[str],
) -> str | None:
    """The index manifest of this commit: the one before, unless index files come or go."""
    before = latest.index_manifest if latest else None
    if not changes_index(messages, has_index=before is not None) and (before is None or replaces is None):
        return before
    now = index_files(store, latest)
    entries = next_index(now, messages, replaces=replaces or (lambda _: False))
    if not entries or entries == now:
        return before if entries else None
    name = store.manifests.write_index_manifest(entries)
    new_files.append(store.paths.manifest(name))
    return name


def _known_offsets(store: TableStore, latest: Snapshot | None, committable: Committable) -> Mapping[int, int]:
    """The newest log offsets that a snapshot carries.

    Other engines drop them. Without the walk back a commit to one bucket would make the offsets of all others
    disappear.
    """
    if latest is None or not (committable.log_offsets or store.has_log):
        return latest.log_offsets if latest else {}
    return store.log_offsets_at(latest) or {}


def _change_properties(
    store: TableStore, latest: Snapshot | None, kind: CommitKind, committable: Committable
) -> Mapping[str, str]:
    """Properties of the snapshot that say whether its changes are in the log, in files, or both."""
    return change_properties(
        committable.changes or default_changes(kind, tracks_changes=store.options.change_tracking),
        snapshot_id=FIRST_SNAPSHOT_ID if latest is None else latest.id + 1,
        history=store.snapshots.back_from(latest) if store.has_log else None,
        generation=store.options.log_generation,
        log_synced=committable.log_synced,
    )


def _log_generation(store: TableStore, latest: Snapshot | None) -> Mapping[str, str]:
    """Which log the offsets of the snapshot are of: that of its writer, who may not know of a later one."""
    carries_on = not store.has_log and latest is not None
    generation = latest.log_generation if carries_on and latest is not None else store.options.log_generation
    return {LOG_GENERATION_KEY: str(generation)} if generation else {}


def _total_rows(store: TableStore, latest: Snapshot | None) -> int:
    if latest is None:
        return 0
    if latest.total_record_count is None:  # written by a very old version
        return sum(entry.file.row_count for entry in live_files(store, latest))
    return latest.total_record_count


def _later(first: int | None, second: int | None) -> int | None:
    return max((each for each in (first, second) if each is not None), default=None)


def _carried_statistics(store: TableStore, latest: Snapshot | None, schema_id: int) -> str | None:
    """The statistics file stays in force until the schema changes, or it cannot be read."""
    if latest is None or latest.statistics is None:
        return None
    try:
        body = orjson.loads(store.io.read_bytes(store.paths.statistics(latest.statistics)))
    except (FileNotFoundError, ValueError):
        return None
    return latest.statistics if isinstance(body, dict) and body.get("schemaId") == schema_id else None
