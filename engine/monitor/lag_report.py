"""The lag of a table behind its log, and of named streams behind the table."""

from collections.abc import Mapping, Sequence
from typing import Any

from engine.checkpoint.checkpoint_files import read_checkpoint
from engine.log.retention import only_commit_marker
from engine.stream.history import TableHistory
from engine.stream.lag import Lag, lag_of
from engine.stream.log import StreamLog
from engine.stream.options import log_to_read
from engine.stream.position.place import BASE_SUFFIX
from engine.stream.position.plan import ReadTarget
from engine.stream.position.position import Position
from engine.table import Table
from logstore.log.marker import read_tail
from logstore.offsets import LogOffsets
from lsm.errors import InvalidInputError


def log_lags(table: Table) -> list[dict[str, int]]:
    """For each bucket, the newest snapshot's offset, the end of the log, and the rows of the log that no snapshot has.

    Empty without a log. What is not a row of the table does not count: markers of transactions, aborted rows.

    Raises:
        UnavailableError: the brokers do not answer.
        CorruptDataError: another producer writes to the topic.
    """
    ends = table.log_end_offsets()  # first: what is committed meanwhile is then in the snapshot
    committed = table.store.log_offsets_at(table.latest_snapshot()) or {}
    if table.log is not None:
        committed = dict(table.log.position(committed))
    return [
        {
            "bucket": bucket,
            "snapshot_offset": committed.get(bucket, 0),
            "log_end_offset": end,
            "lag": _rows_ahead(table, bucket, committed.get(bucket, 0), end),
        }
        for bucket, end in sorted(ends.items())
    ]


def _rows_ahead(table: Table, bucket: int, committed: int, end: int) -> int:
    """The rows of the log's last batch, if no snapshot has it: earlier ones are in one.

    All offsets ahead, for a user who may describe the topic and not read it.
    """
    if table.log is None or end <= committed or only_commit_marker(committed, end):
        return 0
    try:
        marker = read_tail(table.log.properties, topic=table.log.topic, bucket=bucket).marker
    except InvalidInputError:
        return end - committed - 1
    return 0 if marker is None or marker.end_offset <= committed else marker.row_count


def stream_lags(table: Table, checkpoints: Sequence[str] = ()) -> list[dict[str, Any]]:
    """One row for each consumer and each checkpoint: stream, snapshot, and ``lag_*`` in every unit."""
    log = log_to_read(table.files, table.log, table.options)
    history = TableHistory(table.store, reads_log=log is not None)
    newest = table.latest_snapshot()
    target = ReadTarget(snapshot_id=0 if newest is None else newest.id)
    at_newest = history.facts(newest.id).offsets if newest is not None else LogOffsets()
    places: dict[str, Position | None] = {each: committed_position(each) for each in checkpoints}
    places |= _consumer_places(table, history, target)
    record_bytes = 0 if log is None or not places else StreamLog(log).record_bytes(LogOffsets(), at_newest)
    streams = []
    for name, here in places.items():
        behind = Lag(snapshots=target.snapshot_id, records=0, size_bytes=0, age_ms=0)
        if here is not None:
            behind = lag_of(here, target, history, record_bytes=record_bytes, now_ms=table.store.clock.now_ms())
        streams.append({"stream": name, "snapshot": 0 if here is None else here.snapshot_id, **behind.to_json()})
    return streams


def _consumer_places(table: Table, history: TableHistory, target: ReadTarget) -> Mapping[str, Position]:
    places = {}
    for consumer, next_id in table.store.consumers.next_snapshots().items():
        if consumer.endswith(BASE_SUFFIX):
            continue  # the base of a stream that has its own row
        delivered = min(next_id - 1, target.snapshot_id)
        offsets = history.facts(delivered).offsets if delivered and history.exists(delivered) else LogOffsets()
        places[f"consumer {consumer}"] = Position.in_log(delivered, offsets, schema_id=0, topic_id=None)
    return places


def committed_position(directory: str) -> Position | None:
    """What a query has certainly processed; None before its first batch.

    Args:
        directory: the query's ``checkpointLocation``, on this machine.

    Raises:
        InvalidInputError: not a checkpoint, or the query does not read a Fluvial table.
    """
    state = read_checkpoint(directory)
    if state is None:
        raise InvalidInputError(f"no checkpoint of a streaming query: checkpoint={directory} fix=look at the path")
    if state.batch_id is None:
        return None
    for offset in state.offsets:
        if Position.is_in(offset):
            return Position.from_json(offset).place
    raise InvalidInputError(f"the query does not read a table of Fluvial: checkpoint={directory}")
