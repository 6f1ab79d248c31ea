"""The options of a stream, validated before anything is read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import pyarrow as pa

from engine.log.table_log import TableLog
from engine.request.commit_handle import CommitHandle
from engine.stream.position.place import check_consumer_name
from engine.stream.position.plan import Limits
from engine.stream.position.start import Start, StartKind, parse_start
from engine.types.row_changes import MetadataColumn
from engine.types.rows import ROW_KIND_COLUMN
from filestore.options.not_built import check_closed
from filestore.options.option import At
from filestore.options.table_options import TableOptions
from filestore.predicate.predicate import Predicate, columns_of
from filestore.schema.table_schema import TableSchema
from filestore.table import FileTable
from filestore.table_view import TableView
from lsm.errors import InvalidInputError

NORMALIZED_ROWS: Final = 1_000_000
"""Default maximum of rows in a normalized batch, which are held in memory."""


_FROM_JOB: Final = "scan.start-from-job"
_LIMITS: Final = ("read.stream.maxRowsPerTrigger", "read.stream.maxBytesPerTrigger", "read.stream.maxFilesPerTrigger")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """The snapshots at which batches may end: ``source.checkpoint-align.*``."""

    every: int  # at snapshots with a number that is a multiple of this
    timeout_ms: int  # longest wait of a trigger for one


class OnLoss(Enum):
    """The action when needed data was removed: ``log.on-offset-lost``."""

    FAIL = "fail"
    RESNAPSHOT = "resnapshot"
    EARLIEST = "earliest"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """A stream of one table. Picklable: every task gets it."""

    table: TableView
    log: TableLog | None  # None: changes come from files
    schema: pa.Schema  # of the delivered rows: the table's columns, row kind, metadata
    filter: Predicate | None
    filters_values: bool  # of a table with a key; then changes are exact
    start: Start
    limits: Limits
    normalizes: bool
    is_exact: bool  # changes include what they replace, from the log and from files
    on_loss: OnLoss
    consumer_id: str | None
    ignores_consumer: bool
    at_least: CommitHandle | None  # a commit that must be visible before the stream plans a batch
    at_least_timeout_s: float
    drops_as_null: bool  # a column dropped while the stream runs becomes null
    job: str | None  # name in the catalog's lineage, if set
    from_job: str | None  # start at the position of that job
    aligned: Alignment | None  # batches end at snapshots
    waits_for_commits: bool = False  # rows of an eventual log come when a snapshot has them, not before

    @property
    def lacks_replaced_rows(self) -> bool:
        """Whether an update of a key comes without the row that it replaces: sums of such changes are wrong."""
        has_upserts = self.log is not None and bool(self.log.key_names) and not self.log.keeps_update_before
        return has_upserts and not self.is_exact

    @property
    def columns(self) -> list[str]:
        """The table's columns to read, for rows or for the filter, in the table's order."""
        wanted = {*self.schema.names, *(columns_of(self.filter) if self.filter is not None else ())}
        return [name for name in self.table.schema.column_names if name in wanted]

    @classmethod
    def parse(
        cls,
        table: FileTable,
        given: Mapping[str, str],
        schema: pa.Schema,
        *,
        filter: str | None = None,
        job: str | None = None,
    ) -> "StreamOptions":
        """Understand the choices of a reader.

        Args:
            table: the table, with the reader's options in force.
            given: those that the reader itself was given.
            schema: columns to deliver, in their order.
            filter: SQL text; None: all rows. On value columns of a table with a key, changes are completed by what
                they replace, as with ``log.scan.normalize``.
            job: its name in the catalog's lineage, if it has one.

        Raises:
            InvalidInputError: options that contradict each other, or that would lose or repeat rows.
        """
        options, names = table.options, schema.names
        table.store.check_branch()
        check_closed(options, At.STREAM_READ)
        log = log_to_read(table, TableLog.of(table), options)
        if options.consumer_id is not None:
            check_consumer_name(options.consumer_id)
        if table.store.has_key and ROW_KIND_COLUMN not in names:
            raise InvalidInputError(
                f"rows of this table are also updated and deleted, so a stream needs their kinds: table={table.name} "
                "fix=set read.changelog=true, which adds the column _row_kind"
            )
        _check_names(table.schema, names)
        predicate = _parsed_filter(filter, table)
        values = _value_columns(predicate, table)
        normalizes = _normalizes(table, log, options, values)
        handle = options.scan_at_least
        return cls(
            table=table,
            log=log,
            schema=schema,
            filter=predicate,
            filters_values=bool(values),
            start=_start(options, given, job),
            limits=_limits(options, normalizes=normalizes),
            normalizes=normalizes,
            is_exact=normalizes or (bool(values) if log is None else log.is_exact),
            on_loss=OnLoss(options.log_on_offset_lost),
            consumer_id=options.consumer_id,
            ignores_consumer=options.consumer_ignore_progress,
            at_least=None if handle is None else CommitHandle.parse(handle),
            at_least_timeout_s=options.scan_at_least_timeout_ms / 1000,
            drops_as_null=options.read_stream_on_dropped_column == "null",
            job=job,
            from_job=options.scan_start_from_job,
            aligned=_alignment(options, normalizes=normalizes),
        )


def log_to_read(table: TableView, log: TableLog | None, options: TableOptions) -> TableLog | None:
    """The log, unless changes are to come from files, which have rows as they are after merging."""
    mode = options.streaming_read_mode
    if mode == "log" and log is None:
        raise InvalidInputError(
            f"the table has no log: table={table.name} streaming-read-mode=log fix=remove it, or set log.system"
        )
    if mode == "file" or log is None:
        return None
    reason = _not_in_log(options) if table.schema.primary_keys and not log.is_exact else None
    if reason is None:
        return log
    if mode == "log":
        raise InvalidInputError(
            f"the log holds unmerged changes, which readers cannot merge: table={table.name} {reason} "
            "fix=set streaming-read-mode=file, or remove streaming-read-mode; a table created with "
            "log.changelog-mode=all and changelog-producer=lookup has merged rows in its log"
        )
    return None


def _not_in_log(options: TableOptions) -> str | None:
    """Why the newest log record of a key is not the table's row; None when it is."""
    if options.merge_engine != "deduplicate":
        return f"merge-engine={options.merge_engine}"
    if options.sequence_fields:
        return f"sequence.field={','.join(options.sequence_fields)}"
    return "ignore-delete=true" if options.ignore_delete else None


def _start(options: TableOptions, given: Mapping[str, str], job: str | None) -> Start:
    """The reader's start; with ``scan.start-from-job`` the snapshot is looked up later."""
    if options.scan_start_from_job is None:
        return parse_start(options, given)
    if job is None:
        raise InvalidInputError(
            f"the start of a job is recorded under its name: {_FROM_JOB}={options.scan_start_from_job} "
            "fix=set pipeline.name"
        )
    others = sorted(
        {"scan.snapshot-id", "scan.tag-name", "scan.timestamp", "log.scan", "log.scan.timestamp-mills"} & given.keys()
    )
    mode = given.get("scan.mode", "from-snapshot-full")
    if others or mode not in ("from-snapshot", "from-snapshot-full"):
        other = others[0] if others else "scan.mode"
        raise InvalidInputError(
            f"the start is given twice: {_FROM_JOB}={options.scan_start_from_job} {other}={given[other]} "
            "fix=remove one of them; "
            "only scan.mode=from-snapshot (later changes) and from-snapshot-full may be combined with it"
        )
    return Start(kind=StartKind.CHANGES if mode == "from-snapshot" else StartKind.FULL)


def _alignment(options: TableOptions, *, normalizes: bool) -> Alignment | None:
    if not options.source_checkpoint_align_enabled:
        return None
    limits = [key for key in _LIMITS if options[TableOptions.declared[key]] is not None] + [
        "log.scan.normalize"
    ] * normalizes
    if limits:
        raise InvalidInputError(
            "a batch of whole snapshots cannot be limited: source.checkpoint-align.enabled=true "
            f"{limits[0]}={options[TableOptions.declared[limits[0]]]} fix=remove one of them"
        )
    return Alignment(
        every=options.source_checkpoint_align_snapshots, timeout_ms=options.source_checkpoint_align_timeout_ms
    )


def _normalizes(table: TableView, log: TableLog | None, options: TableOptions, filtered: Sequence[str]) -> bool:
    """Whether changes of the log are completed by what they replace; ``filtered``: value columns of a filter."""
    if filtered and log is not None and not log.is_exact:
        _check_can_be_completed(table, log, options, filtered)
        return True
    if not options.log_scan_normalize:
        return False
    if options.log_scan_remove_normalize:
        raise InvalidInputError("options contradict each other: log.scan.normalize=true log.scan.remove-normalize=true")
    if log is None or not table.schema.primary_keys:
        raise InvalidInputError(
            f"nothing to normalize: table={table.name} log.scan.normalize=true "
            "cause=only the upsert log of a table with a key leaves out what a change replaces fix=remove it"
        )
    if log.is_exact:
        return False  # every change is already complete
    if log.keeps_update_before:
        raise InvalidInputError(
            f"nothing to normalize: table={table.name} log.changelog-mode=all log.scan.normalize=true "
            "cause=the log holds every change already fix=remove log.scan.normalize"
        )
    return True


def _limits(options: TableOptions, *, normalizes: bool) -> Limits:
    given: Mapping[str, Any] = {
        "rows": options.read_stream_max_rows_per_trigger or (NORMALIZED_ROWS if normalizes else None),
        "size_bytes": options.read_stream_max_bytes_per_trigger,
        "files": options.read_stream_max_files_per_trigger,
    }
    return Limits(**{name: value for name, value in given.items() if value is not None})


def _check_can_be_completed(table: TableView, log: TableLog, options: TableOptions, filtered: Sequence[str]) -> None:
    """Refuse a filter by values. Raises: InvalidInputError: this log does not show rows that cease to match."""
    facts = f"table={table.name} column={filtered[0]} key={', '.join(table.schema.primary_keys)}"
    if options.log_scan_remove_normalize:
        raise InvalidInputError(
            f"a filter on value columns needs what a change replaces: {facts} log.scan.remove-normalize=true "
            "fix=remove it, or filter by key columns"
        )
    if log.keeps_update_before:
        raise InvalidInputError(
            f"a filter on value columns needs what a change replaces: {facts} log.changelog-mode=all "
            "cause=the log holds what its writers gave as -U fix=set streaming-read-mode=file, or filter by key columns"
        )


def _parsed_filter(text: str | None, table: TableView) -> Predicate | None:
    if text is None:
        return None
    from filestore.predicate.parser import parse_filter  # sqlglot is slow to import

    return parse_filter(text, table.schema)


def _value_columns(predicate: Predicate | None, table: TableView) -> list[str]:
    """The columns of a filter that a change of a row may change; none without a key."""
    if predicate is None or not table.schema.primary_keys:
        return []
    return sorted(columns_of(predicate) - {*table.schema.primary_keys})


def _check_names(schema: TableSchema, names: Sequence[str]) -> None:
    known = {*schema.column_names, ROW_KIND_COLUMN, *MetadataColumn}
    for name in names:
        if name not in known:
            schema.field(name)  # raises, and names the columns
