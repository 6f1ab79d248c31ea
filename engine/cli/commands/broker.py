"""The commands ``fluvial broker``: a real Kafka broker on this machine."""

from dataclasses import asdict
from shlex import quote
from typing import Final

import click

from engine.broker.broker import Broker
from engine.cli.output import console, json_option, notes, print_json, waiting
from engine.runtime.logs import is_loopback
from engine.runtime.units import many_text
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from lsm.errors import InvalidInputError

NOT_RUNNING: Final = 1
_NOT_RUNNING: Final = "not running"
_EVERYWHERE: Final = ("0.0.0.0", "::", "*", "")


@click.group()
def broker() -> None:
    """A real Kafka broker on this machine, for demos.

    Also for what needs no more than one machine.
    """


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
@click.option("--host", metavar="NAME", help="By which clients reach it. [default: the last one, else 127.0.0.1]")
@click.option(
    "--login/--no-login",
    "has_login",
    default=None,
    help="Ask clients for a password. [default: as the last time; at first if --host is not this machine's own]",
)
@json_option
def start(data_dir: str, port: int, host: str | None, has_login: bool | None, as_json: bool) -> None:
    """Start it in the background; does nothing if it is running.

    Prints the address for clients, and with a login the options that have it.
    """
    if host in _EVERYWHERE:
        raise InvalidInputError(
            f"clients cannot ask for this address: --host={host} fix='give the name of one of them'"
        )
    with waiting("starting a Kafka broker (the first time, its archives are fetched)"):
        started = Broker(data_dir, port=port, host=host, has_login=has_login, detached=True).start()
    _print_broker(started, as_json=as_json)


@broker.command()
@_dir_option
@json_option
def stop(data_dir: str, as_json: bool) -> None:
    """Stop it; its data stays."""
    stopped = Broker(data_dir)
    was_running = stopped.status().running
    with waiting("stopping the Kafka broker"):
        stopped.stop()
    _print_broker(stopped, as_json=as_json, gone="stopped" if was_running else _NOT_RUNNING)


@broker.command("create-topic")
@click.argument("topic")
@click.option("--partitions", type=click.IntRange(1), default=1, show_default=True, help="Number of partitions.")
@_dir_option
@json_option
def create_topic(topic: str, partitions: int, data_dir: str, as_json: bool) -> None:
    """Create a topic; records that are sent to one that does not exist are lost."""
    found = Broker(data_dir)
    if not found.status().running:
        raise InvalidInputError(f"the broker does not run: data_dir={found.data_dir} fix='fluvial broker start'")
    servers = found.bootstrap_servers
    properties = KafkaProperties.parse(found.client_properties)
    made = LogTopics(properties).create_topic(topic, bucket_count=partitions)
    if as_json:
        print_json({"topic": made.name, "partitions": made.bucket_count, "bootstrap_servers": servers})
    else:
        console().print(f"created {made.name} ({many_text(made.bucket_count, 'partition')}) at {servers}")


@broker.command()
@_dir_option
@json_option
def status(data_dir: str, as_json: bool) -> None:
    """Show whether it is running, and its address. The exit code is 0 if it is running, else 1."""
    found = Broker(data_dir)
    _print_broker(found, as_json=as_json)
    if not found.status().running:
        click.get_current_context().exit(NOT_RUNNING)


def _print_broker(broker: Broker, *, as_json: bool, gone: str = _NOT_RUNNING) -> None:
    found = broker.status()
    if as_json:
        print_json(asdict(found))
    elif found.running:
        console().print(f"running at {found.bootstrap_servers} (process {found.pid}, {found.data_dir})", soft_wrap=True)
        if len(found.client_options) > 1:
            given = (
                f"--catalog-option {quote(f'log.kafka.{each}={text}')}" for each, text in found.client_options.items()
            )
            console().print(f"clients log in with {' '.join(given)}", soft_wrap=True, markup=False)
        host = str(found.bootstrap_servers).rpartition(":")[0]
        if len(found.client_options) == 1 and not is_loopback(host):
            notes().print(
                f"warning: all who reach {found.bootstrap_servers} read and write all topics, without a password: "
                "start it with --login, or let a firewall admit only those who may",
                style="bold red", soft_wrap=True, markup=False,
            )  # fmt: skip
    else:
        console().print(f"{gone} ({found.data_dir})", soft_wrap=True)
