"""The command ``fluvial ui``: a live console of a warehouse in the browser."""

import secrets
import signal
import socket
import threading
import webbrowser
from typing import Final

import click

from engine.cli.output import notes
from engine.cli.place import WarehousePlace, with_place
from engine.cli.signals import stop_on_signals
from engine.follow.clients import COOKIE, Admission
from lsm.errors import InvalidInputError

_HOST: Final = "127.0.0.1"
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Port at 127.0.0.1. [default: a free one]")
@click.option("--job", "jobs", multiple=True, metavar="FILE", help="Job file to show the state of; repeatable.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option(
    "--allow-actions", is_flag=True, help="Pages can resume and skip parked tables. [default: change nothing]"
)
@with_place
def ui(place: WarehousePlace, port: int, jobs: tuple[str, ...], no_browser: bool, allow_actions: bool) -> None:
    """Show a warehouse in the browser, live: tables, rows, lineage, jobs.

    Until Ctrl-C or SIGTERM. The pages change nothing, but for parked tables with --allow-actions. Only this machine
    reaches them, and only who has the token in the printed address.
    """
    try:
        from engine.ui.app import TOKEN, application, serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("starlette", "uvicorn", "jinja2", "markupsafe"):
            raise
        raise InvalidInputError(
            f"the console needs packages that are not installed: missing={error.name} fix=\"pip install 'fluvial[ui]'\""
        ) from error
    from engine.ui.console import Console

    token = secrets.token_urlsafe(24)
    try:
        listener = socket.create_server((_HOST, port))
    except OSError as error:
        raise InvalidInputError(f"cannot listen: --port={port} reason={error} fix=choose another port") from error
    stop = threading.Event()
    with listener, stop_on_signals(stop, _SIGNALS):
        at = listener.getsockname()[1]
        address = f"http://{_HOST}:{at}/?{TOKEN}={token}"
        console = Console(place.catalog, job_files=jobs, layers=place.layers, allows_actions=allow_actions)
        admission = Admission(is_local=True, token=token, cookie=f"{COOKIE}-{at}")
        notes().print(f"{place.warehouse}: {address}", soft_wrap=True, markup=False)
        if not no_browser:
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()
        try:
            serve(application(console, admission), listener, stop=stop)
        finally:
            console.close()
