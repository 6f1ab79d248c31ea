"""The command ``fluvial serve``: Spark's Thrift server with the tables of a warehouse."""

import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click

from engine.cli.output import notes, waiting
from engine.cli.place import WarehousePlace, with_place
from engine.cli.signals import stop_on_signals
from engine.runtime.logs import is_loopback
from engine.runtime.scratch import private_path
from lsm.errors import FluvialError, InvalidInputError

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
_PORT: Final = 10_000  # that JDBC clients expect
_LOOK_S: Final = 1.0  # how soon a JVM that died is noticed


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on: there is no password.")
@click.option("--port", type=click.IntRange(0, 65_535), default=_PORT, show_default=True, help="0: any free one.")
@click.option("--name", default="fluvial", show_default=True, help="Of the catalog, in statements.")
@click.option("--master", metavar="URL", help="Spark's master. [default: what Spark's settings say, else local[*]]")
@click.option("--conf", metavar="KEY=VALUE", multiple=True, help="Setting of Spark; repeatable.")
@click.option("--spark-log", metavar="FILE", help="Spark's messages. [default: a file in the temporary directory]")
@click.option("--trust-clients", is_flag=True, help="Allow statements that reach files, programs and Java classes.")
@with_place
def serve(
    place: WarehousePlace,
    host: str,
    port: int,
    name: str,
    master: str | None,
    conf: Sequence[str],
    spark_log: str | None,
    trust_clients: bool,
) -> None:
    """Serve tables to JDBC and ODBC clients by Spark's Thrift server."""
    from engine.spark.thrift_server import free_port

    settings = _settings(conf)
    found = free_port(host, port)
    if not is_loopback(host):
        notes().print(
            f"warning: all who reach {host}:{found} act as the user of this process, without a password"
            f"{', and may run programs of this machine' if trust_clients else ''}: "
            "fix='listen at 127.0.0.1, behind a tunnel or a proxy that knows its users'",
            soft_wrap=True,
        )
    log_file = spark_log or private_path(f"serve-{found}.log")
    stop = threading.Event()
    with (
        stop_on_signals(stop, _SIGNALS),
        _serving(place, host, found, name, master, settings, log_file, is_fenced=not trust_clients),
    ):
        print(f"jdbc:hive2://{host}:{found}/ catalog={name} warehouse={place.warehouse}", flush=True)
        _wait(stop, log_file)
    notes().print("stopped")


def _settings(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key.startswith("spark."):
            raise InvalidInputError(f"a setting of Spark is written key=value: --conf={key} fix='--conf spark.x=y'")
        found[key] = value
    return found


@contextmanager
def _serving(
    place: WarehousePlace,
    host: str,
    port: int,
    name: str,
    master: str | None,
    settings: dict[str, str],
    log_file: str,
    *,
    is_fenced: bool,
) -> Iterator[None]:
    from engine.dialect.spark_sql.install import session_with_catalogs
    from engine.runtime.spark_log import spark_output
    from engine.spark.thrift_server import server_settings, thrift_server

    with spark_output(log_file):
        with waiting(f"starting Spark, its messages go to {log_file}"):
            wanted = {"spark.ui.enabled": "false", **server_settings(host, port, name, is_fenced=is_fenced), **settings}
            spark = session_with_catalogs("fluvial serve", master, wanted, {name: place.catalog})
        try:
            with thrift_server(spark, name, place.catalog, is_fenced=is_fenced):
                yield
        finally:
            spark.stop()


def _wait(stop: threading.Event, log_file: str) -> None:
    """Until a signal comes. Raises: FluvialError: the JVM has died."""
    from engine.spark_internals.session import jvm_exit_code

    while not stop.wait(_LOOK_S):
        code = jvm_exit_code(0)
        if code is not None:
            raise FluvialError(f"the JVM of the server has ended: exit_code={code} spark_log={log_file}")
