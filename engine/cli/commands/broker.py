"""The commands ``fluvial broker``: a real Kafka broker on this machine."""

from dataclasses import asdict
from typing import Final

import click

from engine.broker.broker import Broker
from engine.cli.output import console, json_option, print_json, waiting

NOT_RUNNING: Final = 1


@click.group()
def broker() -> None:
    """A real Kafka broker on this machine, for demos and single-machine use."""


_dir_option = click.option(
    "--dir",
    "data_dir",
    metavar="DIR",
    envvar="FLUVIAL_BROKER_DIR",
    show_envvar=True,
    default=".fluvial/broker",
    show_default=True,
    help="Data directory, which identifies the broker.",
)


@broker.command()
@_dir_option
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="[default: the last one, else a free one]")
@json_option
def start(data_dir: str, port: int, as_json: bool) -> None:
    """Start it in the background; does nothing if it is running. Prints the address for clients."""
    with waiting("starting a Kafka broker (the first time, its archives are fetched)"):
        started = Broker(data_dir, port=port, detached=True).start()
    _print_broker(started, as_json=as_json)


@broker.command()
@_dir_option
@json_option
def stop(data_dir: str, as_json: bool) -> None:
    """Stop it; its data stays."""
    stopped = Broker(data_dir)
    with waiting("stopping the Kafka broker"):
        stopped.stop()
    _print_broker(stopped, as_json=as_json)


@broker.command()
@_dir_option
@json_option
def status(data_dir: str, as_json: bool) -> None:
    """Show whether it is running, and its address. The exit code is 0 if it is running, else 1."""
    found = Broker(data_dir)
    _print_broker(found, as_json=as_json)
    if not found.status().running:
        click.get_current_context().exit(NOT_RUNNING)


def _print_broker(broker: Broker, *, as_json: bool) -> None:
    found = broker.status()
    if as_json:
        print_json(asdict(found))
    elif found.running:
        console().print(f"running at {found.bootstrap_servers} (process {found.pid}, {found.data_dir})", soft_wrap=True)
    else:
        console().print(f"not running ({found.data_dir})", soft_wrap=True)
