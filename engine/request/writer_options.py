"""What one writer is given besides its table: options of ``sink``, of batch writes, and of SQL that changes rows.

A writer's word comes before its table's: what the writer does not say is None here, and the table's holds.
"""

from collections.abc import Collection, Mapping
from typing import Final, TypeVar

from engine.request.option_check import is_client_property, refused_option
from filestore.options.option import NOTHING, ROWS, STORAGE, At, Option, OptionValues
from filestore.options.parsing import any_text, choice, text
from filestore.options.references import with_secrets
from filestore.options.table.common import NUMBER
from filestore.options.table_options import TableOptions, canonical_options
from filestore.table_view import TableView

T = TypeVar("T")
View = TypeVar("View", bound=TableView)


def _of_table(option: Option[T]) -> Option[T | None]:
    """An option of the table that a writer may be given as well."""
    return Option(option.key, option.parse, None, option.doc, option.decides, at=option.at, secret=option.is_secret)


class WriterOptions(OptionValues):
    """What one writer was given."""

    branch: Option[str | None] = Option("branch", text, None, "Branch to write.", ROWS, at=At.WRITE)
    partition: Option[str | None] = Option(
        "partition",
        text,
        None,
        "Partition that an overwrite replaces: dt=2024-01-01,region=eu.",
        ROWS,
        at=At.BATCH_WRITE,
    )
    read_snapshot_id: Option[int | None] = Option(
        "read.snapshot-id",
        NUMBER,
        None,
        "The snapshot (0: none) that the rows were computed from, if it must still be the newest.",
        ROWS,
        at=At.BATCH_WRITE,
    )
    dynamic_partition_overwrite = _of_table(TableOptions.dynamic_partition_overwrite)
    commit_user: Option[str | None] = Option(
        TableOptions.write_stream_commit_user.key,
        any_text,
        None,
        TableOptions.write_stream_commit_user.doc,
        ROWS,
        at=TableOptions.write_stream_commit_user.at,
    )
    pipeline_name: Option[str | None] = Option(
        "pipeline.name", any_text, None, "Name of the job in the catalog's lineage.", NOTHING, at=At.READ | At.WRITE
    )
    change_tracking = _of_table(TableOptions.change_tracking)
    on_orphan_batch = Option(
        "log.on-orphan-batch",
        choice("fail", "adopt"),
        "fail",
        "What to do about a batch of another query that is in the log and in no snapshot.",
        ROWS,
        at=At.WRITE,
    )
    sink_writer = Option(
        "sink.writer",
        choice("auto", "driver", "tasks"),
        "auto",
        "What writes the micro-batches of a sink: threads of the driver (on a local master; tasks write batches above "
        "write-buffer-size for each thread), or Spark tasks. auto: the driver on a local master of up to 8 cores.",
        STORAGE,
        at=At.STREAM_WRITE,
    )
    trace_directory: Option[str | None] = Option(
        "trace.directory",
        text,
        None,
        "Directory of this machine for the steps of micro-batches with their times, which fluvial trace shows.",
        NOTHING,
        at=At.STREAM_WRITE,
    )
    files_by = Option(
        "write.files-by",
        choice("auto", "tasks", "commit"),
        "auto",
        'Who writes data files in format("fluvial"): the tasks that have the rows, the process that commits, or what '
        "suits the batch.",
        STORAGE,
        at=At.WRITE,
    )
    turn_timeout_ms = _of_table(TableOptions.log_turn_timeout_ms)
    write_only = _of_table(TableOptions.write_only)
    merge_schema = _of_table(TableOptions.write_merge_schema)
    type_widening = _of_table(TableOptions.write_merge_schema_type_widening)
    explicit_cast = _of_table(TableOptions.write_merge_schema_explicit_cast)
    round_values = _of_table(TableOptions.write_round_values)

    @classmethod
    def parse(
        cls, options: "Mapping[str, str] | WriterOptions | None", keys: Collection[str], what: str = "write option"
    ) -> "WriterOptions":
        """Understand what a writer is given; what is understood already is passed through.

        Args:
            options: texts; session prefix and old spellings are fine.
            keys: those that this way of writing takes.
            what: they are, for messages.

        Raises:
            InvalidInputError: an unknown key (names the nearest), or a value that cannot be read.
        """
        if isinstance(options, WriterOptions):
            return options
        texts = canonical_options(options or {})
        for key in texts:
            if key not in keys and not is_client_property(key):
                raise refused_option(key, texts[key], keys, what)
        return cls(with_secrets(texts))

    @property
    def client_properties(self) -> Mapping[str, str]:
        """Options of the clients that write the log, and ask the registry of its schemas; they hold passwords."""
        return {key: text for key, text in self.texts_by_key().items() if is_client_property(key)}

    def tracks_changes(self, table: TableOptions) -> bool:
        """Whether streams get what is written."""
        return table.change_tracking if self.change_tracking is None else self.change_tracking

    def applied(self, table: View) -> View:
        """The table with those options in force that this writer was given and that rows are checked by."""
        if self.round_values is None:
            return table
        key = TableOptions.write_round_values.key
        return table.with_options({key: "true" if self.round_values else "false"})

    def turn_timeout_s(self, table: TableOptions) -> float:
        """How long a batch waits for other writers of the log."""
        return (table.log_turn_timeout_ms if self.turn_timeout_ms is None else self.turn_timeout_ms) / 1000

    def is_write_only(self, table: TableOptions) -> bool:
        """Whether compaction and expiry are left to others."""
        return table.write_only if self.write_only is None else self.write_only


def _keys_at(at: At) -> tuple[str, ...]:
    return tuple(key for key, option in WriterOptions.declared.items() if option.at & at)


SINK_KEYS: Final = _keys_at(At.STREAM_WRITE)
"""Options of a stream that writes, besides client properties."""
BATCH_WRITE_KEYS: Final = _keys_at(At.BATCH_WRITE)
"""Options of a batch write, besides client properties."""
TABLE_WRITE_KEYS: Final = (
    *(key for key in BATCH_WRITE_KEYS if key not in (WriterOptions.partition.key,)),
    WriterOptions.write_only.key,
)
"""Options of ``Table.write``, ``append`` and ``overwrite``."""
NO_OPTIONS: Final = WriterOptions({})
"""Of a writer that is given none."""
EVEN_UNTRACKED: Final = WriterOptions({WriterOptions.change_tracking.key: "true"})
"""Of who asks for the log of a table whether its changes go there or not."""
