"""Spark's own Thrift server, for tools that speak JDBC or ODBC. No other module names its classes.

It runs in the JVM of a session. Each connection gets a new session of the application, so it has the catalogs that
are installed there.
"""

import errno
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

from engine.spark_internals.session import JvmError, start_thrift_server
from lsm.errors import FluvialError, InvalidInputError

_HIVE: Final = "spark.hadoop.hive.server2."
_TASKS: Final = "spark.sql.shuffle.partitions"


class ServerStartError(FluvialError):
    """The server does not start."""


def free_port(host: str, port: int) -> int:
    """The port, if a server of this process can take it; 0: any that is free.

    Raises:
        InvalidInputError: another server has it, or the host is not one of this machine's.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # of a server that has just ended
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InvalidInputError(
                f"the port is in use: port={port} host={host} fix='--port 0 for one that is free'"
            ) from error
        raise InvalidInputError(
            f"no server can listen there: host={host} port={port} error={error} fix='an address of this machine'"
        ) from error


def server_settings(host: str, port: int, catalog: str) -> Mapping[str, str]:
    """Settings of a session whose JVM serves.

    Args:
        host: where it listens.
        port: where it listens.
        catalog: names of connections without a catalog are relative to it.
    """
    return {
        f"{_HIVE}thrift.bind.host": host,
        f"{_HIVE}thrift.port": str(port),
        f"{_HIVE}logging.operation.enabled": "false",  # files in /tmp
        "spark.sql.defaultCatalog": catalog,
        "spark.sql.adaptive.enabled": "true",  # statements of any size
    }


@contextmanager
def thrift_server(spark: SparkSession) -> Iterator[None]:
    """While the block runs, the server takes connections.

    Args:
        spark: a session with ``server_settings``; its application is served.

    Raises:
        ServerStartError: it does not start, for example without Hive's jars.
    """
    try:  # without the setting a local master has 200 tasks for each shuffle
        server = start_thrift_server(spark, {_TASKS: str(spark.conf.get(_TASKS))})
    except (JvmError, TypeError) as error:  # TypeError: there is no such class
        raise ServerStartError(
            f"Spark's Thrift server does not start: error={str(error).splitlines()[0]} "
            f"fix='a Spark with Hive, as PySpark has it from PyPI'"
        ) from error
    try:
        yield
    finally:
        server.stop()
