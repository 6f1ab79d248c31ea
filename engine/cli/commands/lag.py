"""The command ``fluvial lag``: the lag of streams behind a table, and of a table behind its log."""

import click

from engine.cli.output import console, json_option, print_json, print_table, shown_again, waiting, watch_option
from engine.cli.place import TABLE_NAME, WarehousePlace, with_place
from engine.monitor.lag_report import log_lags, stream_lags
from engine.runtime.times import time_text
from engine.runtime.units import size_text
from engine.table import Table


@click.command()
@click.argument("table", type=TABLE_NAME)
@click.option(
    "--checkpoint", "checkpoints", metavar="DIR", multiple=True, help="Checkpoint of a query on the table; repeatable."
)
@watch_option
@json_option
@with_place
def lag(place: WarehousePlace, table: str, checkpoints: tuple[str, ...], watch_s: float | None, as_json: bool) -> None:
    """Show the lag of streams behind a table, and of it behind its log.

    Streams are those with a consumer-id, and those with a given checkpoint.
    """
    shown_again(watch_s, lambda: _show(place.table(table), checkpoints, as_json=as_json))


def _show(found: Table, checkpoints: tuple[str, ...], *, as_json: bool) -> None:
    with waiting(f"asking for the lag of {found.name}"):
        buckets, streams = log_lags(found), stream_lags(found, checkpoints)
    snapshot = found.latest_snapshot()
    if as_json:
        time_ms = None if snapshot is None else snapshot.time_ms
        print_json({"table": found.name, "snapshot_time_ms": time_ms, "buckets": buckets, "streams": streams})
        return
    title = f"{found.name}: {f'snapshot {snapshot.id} of {time_text(snapshot.time_ms)}' if snapshot else 'no snapshot'}"
    columns = ("bucket", "offset of the snapshot", "end of the log", "rows ahead")
    if buckets:
        print_table(title, columns, [tuple(each.values()) for each in buckets], numbers=columns)
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
    if rows:
        print_table("" if buckets else title, headings, rows, numbers=headings[1:])
        return
    if not buckets:
        console().print(title)
    console().print(
        "no stream is known: name a query by --checkpoint DIR, or let it be known by its option consumer-id",
        style="dim",
        soft_wrap=True,
    )
