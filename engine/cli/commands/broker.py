"""The commands ``fluvial broker``: a real Kafka broker on this machine."""

from dataclasses import asdict
from typing import Final

import click

from engine.broker.broker import Broker
from engine.cli.output import console, json_option, print_json, waiting

NOT_RUNNING: Final = 1


@click.group()
def broker() -> None:
    """A real Kafka broker on this machine, for trying out and for a single machine."""


_dir_option = click.option(
    "--dir",
    "data_dir",
    metavar="DIR",
    envvar="FLUVIAL_BROKER_DIR",
    show_envvar=True,
    default=".fluvial/broker",
    show_default=True,
    help="Where its data are; it is known by this directory.",
)


@broker.command()
@_dir_option
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="[default: that of the last start, else a free one]"
)
@json_option
def start(data_dir: str, port: int, as_json: bool) -> None:
    """Start it, and leave it running; does nothing if it runs already. Prints the address for clients."""
    with waiting("starting a Kafka broker (the first time, its archives are fetched)"):
        started = Broker(data_dir, port=port, detached=True).start()
    _print_broker(started, as_json=as_json)


@broker.command()
@_dir_option
@json_option
def stop(data_dir: str, as_json: bool) -> None:
    """Stop it; its data stay."""
    stopped = Broker(data_dir)
    with waiting("stopping the Kafka broker"):
        stopped.stop()
    _print_broker(stopped, as_json=as_json)


@broker.command()
@_dir_option
@json_option
def status(data_dir: str, as_json: bool) -> None:
    """Tell whether it runs, and where. The exit code is 0 if it runs, else 1."""
    asked = Broker(data_dir)
    _print_broker(asked, as_json=as_json)
    if not asked.status().running:
        click.get_current_context().exit(NOT_RUNNING)


def _print_broker(asked: Broker, *, as_json: bool) -> None:
    found = asked.status()
    if as_json:
        print_json(asdict(found))
    elif found.running:
        console().print(f"running at {found.bootstrap_servers} (process {found.pid}, {found.data_dir})", soft_wrap=True)
    else:
        console().print(f"not running ({found.data_dir})", soft_wrap=True)
