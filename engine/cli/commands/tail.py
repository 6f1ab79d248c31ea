"""The command ``fluvial tail``: the changes of a table as lines, or as server-sent events."""

import errno
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
import pyarrow as pa
import pyarrow.compute as pc

from engine.cli.output import first_rows, notes, print_lines, print_rows
from engine.cli.place import TABLE_NAME, VERSION_NAME, WarehousePlace, with_place
from engine.cli.signals import stop_on_signals
from engine.follow.choices import StartPlace, StreamChoices
from engine.follow.server import EVENT_ROWS, ChangeServer
from engine.follow.stream import TableStream
from engine.table import Table
from engine.types.rows import ROW_KIND_COLUMN
from filestore.options.references import with_secrets
from lsm.errors import InvalidInputError
from lsm.row_kind import ROW_KIND_SYMBOLS

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_LOOK_S: Final = 0.5  # how soon a closed pipe ends an idle command


@click.command()
@click.argument("table", type=TABLE_NAME)
@click.option(
    "--from",
    "start",
    type=VERSION_NAME,
    metavar="PLACE",
    help="full, latest, a snapshot id, a tag, timestamp.2026-01-31, handle.…, a position, checkpoint.DIR. "
    "[default: latest with --follow and --serve, else full]",
)
@click.option("--follow", "-f", is_flag=True, help="Wait for further changes until Ctrl-C.")
@click.option("--kinds", metavar="+I,-D", help="Only changes of these kinds. [default: all]")
@click.option("--columns", metavar="A,B", help="[default: all]")
@click.option("--where", metavar="CONDITION", help="As in SQL. A row that stops matching is a -D.")
@click.option("--limit", type=click.IntRange(0), help="Maximum number of rows. [default: all]")
@click.option("--consumer", metavar="NAME", help="The table keeps the position under this name, and expiry waits.")
@click.option("--format", "form", type=click.Choice(["table", "json", "csv"]), default="json", show_default=True)
@click.option("--serve", metavar="HOST:PORT", help="Send the changes to browsers, at /changes, as server-sent events.")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="With --serve: a name by which clients ask.")
@click.option(
    "--token",
    metavar="REFERENCE",
    help="With --serve: ${NAME} of the environment or ${file:/path}, with the token that clients must send.",
)
@click.option("--page", metavar="FILE", help="With --serve: the HTML page at /.")
@with_place
def tail(
    place: WarehousePlace,
    table: str,
    start: str | None,
    follow: bool,
    kinds: str | None,
    columns: str | None,
    where: str | None,
    limit: int | None,
    consumer: str | None,
    form: str,
    serve: str | None,
    hosts: tuple[str, ...],
    token: str | None,
    page: str | None,
) -> None:
    """Print the changes of a table, with their kinds: a snapshot, then the log or files, each change once.

    JSON is one object per line.
    """
    found = place.table(table)
    if found.log is not None:
        found.log.reached_topics()  # a stream waits longer for brokers than a person does
    choices: StreamChoices = {"filter": where, "consumer": consumer, "follow": follow}
    if columns:
        choices["columns"] = [name.strip() for name in columns.split(",")]
    if serve is not None:
        if kinds or limit is not None or consumer:
            raise InvalidInputError("browsers get all changes: --serve fix=leave out --kinds, --limit and --consumer")
        _serve(found, serve, page, start or "latest", choices, hosts, _read_token(token))
        return
    for name, given in (("page", page), ("token", token), ("allow-host", hosts or None)):
        if given is not None:
            raise InvalidInputError(f"a {name} needs a server: --{name} fix=add --serve 127.0.0.1:8080")
    wanted = _wanted_kinds(kinds)
    with (
        found.stream(start or ("latest" if follow else "full"), **choices) as stream,
        stop_on_signals(stream.stopped, _SIGNALS),
        _ending_with_the_pipe(stream),
    ):
        schema = pa.schema([stream.schema.field(name) for name in _kind_first(stream.schema.names)])
        batches = first_rows(_lines(stream, schema, wanted), limit)
        if form == "table":
            print_lines(batches, schema)
        else:
            print_rows(batches, schema, form=form)


def _kind_first(names: list[str]) -> list[str]:
    return [ROW_KIND_COLUMN, *(name for name in names if name != ROW_KIND_COLUMN)]


def _lines(stream: TableStream, schema: pa.Schema, wanted: pa.Array | None) -> Iterator[pa.RecordBatch]:
    """Non-empty batches, each written out before the next is waited for."""
    for changes in stream:
        rows = changes.rows.select(schema.names)
        if wanted is not None:
            rows = rows.filter(pc.is_in(changes.kinds, wanted))
        if rows.num_rows:
            yield rows
            sys.stdout.flush()


def _wanted_kinds(kinds: str | None) -> pa.Array | None:
    if kinds is None:
        return None
    names = [name.strip() for name in kinds.split(",")]
    known = ROW_KIND_SYMBOLS.to_pylist()
    for name in names:
        if name not in known:
            raise InvalidInputError(f"no such kind of a row: --kinds={kinds} kind={name} known={','.join(known)}")
    return pa.array(names)


@contextmanager
def _ending_with_the_pipe(stream: TableStream) -> Iterator[None]:
    """End when the output no longer has a reader, also while there is nothing to print."""
    is_done = threading.Event()

    def watch(output: int) -> None:
        poll = select.poll()
        poll.register(output, 0)  # errors and hang-ups are always reported
        while not is_done.wait(_LOOK_S):
            if poll.poll(0):
                stream.stop()
                return

    try:
        output = sys.stdout.fileno()
    except (OSError, ValueError):
        output = -1  # no file: a test reads it
    thread = threading.Thread(target=watch, args=(output,), daemon=True)
    if output >= 0:
        thread.start()
    try:
        yield
    except OSError as error:
        if error.errno != errno.EPIPE:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the interpreter flushes when it ends
    finally:
        is_done.set()


def _read_token(reference: str | None) -> str | None:
    """The token that a reference stands for. Raises: InvalidInputError, which does not show what was given."""
    if reference is None:
        return None
    found = with_secrets({"--token": reference}, is_secret=lambda _: True)["--token"]
    if found == reference:
        raise InvalidInputError(
            "a token in the command is in the list of processes: --token "
            "fix='put it into a file that only you read, and give ${file:/path}; or ${NAME} of the environment'"
        )
    return found


def _serve(
    table: Table,
    serve: str,
    page: str | None,
    start: str,
    choices: StreamChoices,
    hosts: tuple[str, ...],
    token: str | None,
) -> None:
    host, _, port = serve.rpartition(":")
    if not host or not port.isdecimal():
        raise InvalidInputError(f"not an address: --serve={serve} expected=HOST:PORT example=127.0.0.1:8080")
    try:
        html = None if page is None else Path(page).read_bytes()
    except OSError as error:
        raise InvalidInputError(f"the page cannot be read: --page={page} reason={error}") from error
    given: StreamChoices = {**choices, "follow": True, "max_rows": EVENT_ROWS}
    table.stream(start, **given).close()  # refuses what is wrong before anyone connects

    def open_stream(place: StartPlace, quiet_s: float) -> TableStream:
        asked: StreamChoices = {**given, "idle_s": quiet_s}
        return table.stream(start if place is None else place, **asked)

    stop = threading.Event()
    address = (host, int(port))
    with (
        ChangeServer(address, open_stream, page=html, hosts=hosts, token=token) as server,
        stop_on_signals(stop, _SIGNALS),
    ):
        if not server.admission.is_local:
            said = (
                f"all who reach {serve} read the changes, without a password: "
                "fix='listen at 127.0.0.1 behind a proxy that knows its users'"
                if token is None
                else f"token and changes go to {serve} without TLS: fix='listen at 127.0.0.1 behind a proxy with TLS'"
            )
            notes().print(f"warning: {said}", soft_wrap=True)
        notes().print(f"{table.name}: http://{host}:{server.port}/changes", soft_wrap=True)
        stop.wait()
