"""The command ``fluvial lag``: how far streams are behind a table, and a table behind its log."""

from typing import Any

import click

from engine.cli.output import console, grid, json_option, print_json
from engine.cli.place import Place, with_place
from engine.stream.checkpoint import committed_position
from engine.stream.history import TableHistory
from engine.stream.lag import Lag, lag_of
from engine.stream.log import StreamLog
from engine.stream.options import log_to_read
from engine.stream.place import BASE_SUFFIX
from engine.stream.plan import Target
from engine.stream.position import Position
from engine.table import Table
from engine.units import size_text, time_text
from logstore.offsets import LogOffsets


@click.command()
@click.argument("table")
@click.option(
    "--checkpoint", "checkpoints", metavar="DIR", multiple=True, help="Of a query that reads the table; repeatable."
)
@json_option
@with_place
def lag(place: Place, table: str, checkpoints: tuple[str, ...], as_json: bool) -> None:
    """Show how far streams are behind a table, and the table behind its log.

    Streams are those with a consumer-id, and those whose checkpoints are given.
    """
    found = place.table(table)
    buckets, streams = _buckets(found), _streams(found, checkpoints)
    snapshot = found.latest_snapshot()
    if as_json:
        time_ms = None if snapshot is None else snapshot.time_ms
        print_json({"table": found.name, "snapshot_time_ms": time_ms, "buckets": buckets, "streams": streams})
        return
    title = f"{found.name}: {f'snapshot {snapshot.id} of {time_text(snapshot.time_ms)}' if snapshot else 'no snapshot'}"
    columns = ("bucket", "offset of the snapshot", "end of the log", "offsets ahead")
    if buckets:
        console().print(grid(title, columns, [tuple(each.values()) for each in buckets], numbers=columns))
    rows = [
        (
            each["stream"],
            each["snapshot"],
            each["lag_snapshots"],
            each["lag_records"],
            size_text(each["lag_bytes"]),
            each["lag_seconds"],
        )
        for each in streams
    ]
    headings = ("stream", "delivered snapshot", "snapshots behind", "records behind", "bytes behind", "seconds behind")
    console().print(grid("" if buckets else title, headings, rows, numbers=headings[1:]))


def _buckets(table: Table) -> list[dict[str, int]]:
    snapshot = table.latest_snapshot()
    committed = dict(snapshot.log_offsets or {}) if snapshot is not None else {}
    return [
        {
            "bucket": bucket,
            "snapshot_offset": committed.get(bucket, 0),
            "log_end_offset": end,
            # behind the last record of a snapshot stands the marker that ended its transaction: not a record
            "lag": max(0, end - committed.get(bucket, 0) - 1),
        }
        for bucket, end in sorted(table.log_end_offsets().items())
    ]


def _streams(table: Table, checkpoints: tuple[str, ...]) -> list[dict[str, Any]]:
    log = log_to_read(table.store, table.log, table.options)
    history = TableHistory(table.store, reads_log=log is not None)
    newest = table.latest_snapshot()
    target = Target(snapshot_id=0 if newest is None else newest.id)
    at_newest = history.facts(newest.id).offsets if newest is not None else LogOffsets()
    places: dict[str, Position | None] = {each: committed_position(each) for each in checkpoints}
    for consumer, next_id in table.store.consumers.next_snapshots().items():
        if consumer.endswith(BASE_SUFFIX):
            continue  # of a stream whose place has a line of its own
        delivered = min(next_id - 1, target.snapshot_id)
        offsets = history.facts(delivered).offsets if delivered and history.exists(delivered) else LogOffsets()
        places[f"consumer {consumer}"] = Position.in_log(delivered, offsets, schema_id=0, topic_id=None)
    record_bytes = 0 if log is None else StreamLog(log).record_bytes(LogOffsets(), at_newest)
    streams = []
    for name, here in places.items():
        behind = Lag(snapshots=target.snapshot_id, records=0, size_bytes=0, age_ms=0)
        if here is not None:
            behind = lag_of(here, target, history, record_bytes=record_bytes, now_ms=table.store.clock.now_ms())
        streams.append({"stream": name, "snapshot": 0 if here is None else here.snapshot_id, **behind.to_json()})
    return streams
