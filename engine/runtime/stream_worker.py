"""The process of a streaming query's source: it connects to Spark first, and imports afterwards.

Spark gives such a process ten seconds, fixed, to connect. The module that Spark starts imports PySpark and PyArrow
before it does; on a busy machine that takes longer, and the query fails with "Python worker failed to connect back".
``engine/runtime/worker-python`` starts this module in its place.
"""

import os
import socket
from collections.abc import Callable
from typing import IO, Any, Final

from engine.runtime.installed_pyspark import prefer_installed_pyspark
from engine.spark_internals.workers import serve_stream

_YES: Final = ("True", "true")
_NUMBER_SIZE: Final = 4  # bytes of a number: big endian, signed


def connect() -> IO[bytes]:
    """A connection to the Spark that started this process, with the greeting that Spark expects on it.

    Raises:
        OSError: Spark no longer listens, or refuses the secret.
    """
    timeout_s = int(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", "15"))
    path = os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH")
    if path is not None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        connection.connect(path)
    else:
        is_v6 = os.environ.get("SPARK_PREFER_IPV6") in _YES
        port = int(os.environ["PYTHON_WORKER_FACTORY_PORT"])
        connection = socket.create_connection(("::1" if is_v6 else "127.0.0.1", port), timeout_s)
    file: Any = connection.makefile("rwb", int(os.environ.get("SPARK_BUFFER_SIZE", "65536")))
    if path is None:
        secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
        file.write(_number(len(secret)) + secret)
        file.flush()
        if file.read(int.from_bytes(file.read(_NUMBER_SIZE), "big")) != b"ok":
            raise ConnectionRefusedError("Spark refuses the secret of this process")
    connection.settimeout(None)
    connection.close()  # with the file
    file.write(_number(os.getpid()))
    file.flush()
    found: IO[bytes] = file
    return found


def main() -> None:
    """Serve one streaming query, until Spark closes the connection."""
    with connect() as file:
        prefer_installed_pyspark()
        serve_stream(file, _reader_or_refusal)


class RefusedReader:
    """In place of the reader of a source that refuses to give one: raises why, whatever it is asked.

    PySpark stops the reader at the end, also where there is none, and so hides the reason behind an error of its own.
    """

    def __init__(self, reason: BaseException) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> Any:
        raise self._reason

    def stop(self) -> None:
        """Nothing was opened."""


def _reader_or_refusal(make: Callable[..., Any], *given: Any) -> Any:
    try:
        return make(*given)
    except Exception as error:  # noqa: BLE001 - raised again when it is asked
        return RefusedReader(error)


def _number(value: int) -> bytes:
    return value.to_bytes(_NUMBER_SIZE, "big", signed=True)


if __name__ == "__main__":
    main()
