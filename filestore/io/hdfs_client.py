"""WebHDFS, the HTTP interface of every HDFS: requests to the name node, and bytes to and from data nodes.

A name node that restarts, is on standby or in safe mode is asked again for minutes, as Hadoop's own clients do.
Therefore a request may be repeated although it was done: callers ask only what can be repeated, or settle the rest.
"""

import getpass
import http.client
import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from filestore.io.file_io import Clock, SystemClock
from lsm.errors import InvalidInputError, UnavailableError
from lsm.retry import pauses

T = TypeVar("T")
DEFAULT_HTTP_PORT: Final = 9870
_PREFIX: Final = "/webhdfs/v1"
_TIMEOUT_S: Final = 60
_PATIENCE_MS: Final = 180_000  # with name nodes that have answered this process before
_FIRST_PATIENCE_MS: Final = 10_000  # with others, whose address may be wrong
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 2.0
_MESSAGE_CHARS: Final = 300
_PASSING: Final = frozenset(
    {"StandbyException", "SafeModeException", "RetriableException", "NoNamenodesAvailableException"}
)
_AWAY: Final = frozenset(
    {"ConnectException", "SocketTimeoutException", "EOFException", "SocketException", "IOException"}
)
_BROKEN: Final = 500
_IS_MISSING: Final = "FileNotFoundException"
IS_TAKEN: Final = "FileAlreadyExistsException"

_connections: Final = threading.local()
_answered: Final[set[str]] = set()  # addresses


class HdfsRefusalError(UnavailableError):
    """The name node answered that it will not do this; ``reason`` is the simple name of its Java exception."""

    def __init__(self, message: str, reason: str = "") -> None:
        """See the class."""
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class WebHdfs:
    """The name nodes of one HDFS and the user who asks. It can be pickled; connections belong to a thread."""

    addresses: tuple[str, ...]  # http://host:port, in the order in which they are tried
    user: str
    clock: Clock = field(default_factory=SystemClock, repr=False)

    def ask(self, method: str, operation: str, path: str, **parameters: str) -> dict[str, Any]:
        """The answer of the name node, {} when it is empty. It may have been asked more than once.

        Raises: FileNotFoundError, HdfsRefusalError, UnavailableError.
        """
        return self._answer(self._asked(method, operation, path, parameters), path, operation)

    def read(self, path: str, start: int = 0, length: int | None = None) -> bytes:
        """Bytes of a file. Raises: FileNotFoundError, HdfsRefusalError, UnavailableError."""
        bounds = {"offset": str(start)} | ({} if length is None else {"length": str(length)})

        def fetch() -> bytes:
            answer = self._asked("GET", "OPEN", path, bounds)
            if answer.place is None:
                self._answer(answer, path, "OPEN")
                return answer.body
            found = _of_data_node(_exchange("GET", answer.place))
            self._answer(found, path, "OPEN", parsed=False)
            return found.body

        return self._again(fetch, "OPEN", path)

    def write(self, path: str, body: bytes) -> None:
        """Write a file whole, over one that is there; creates parents. Raises: HdfsRefusalError, UnavailableError."""

        def send() -> None:
            answer = self._asked("PUT", "CREATE", path, {"overwrite": "true"})
            if answer.place is None:
                self._answer(answer, path, "CREATE")
                raise http.client.HTTPException("the name node named no data node")
            self._answer(_of_data_node(_exchange("PUT", answer.place, body)), path, "CREATE", parsed=False)

        self._again(send, "CREATE", path)

    def begin(self, path: str) -> "Upload":
        """Write a new file part by part; creates parents. Raises: HdfsRefusalError, UnavailableError."""
        answer = self._asked("PUT", "CREATE", path, {"overwrite": "true"})
        if answer.place is None:
            self._answer(answer, path, "CREATE")
            raise UnavailableError(f"HDFS error: action=CREATE path={path} error=the name node named no data node")
        return Upload(answer.place, path)

    def _asked(self, method: str, operation: str, path: str, parameters: Mapping[str, str]) -> "_Answer":
        query = urlencode({"op": operation, "user.name": self.user, **parameters})
        target = f"{_PREFIX}{quote(path)}?{query}"

        def ask() -> _Answer:
            failure: Exception | None = None
            for address in self.addresses:
                try:
                    answer = _exchange(method, f"{address}{target}")
                except (OSError, http.client.HTTPException) as error:
                    failure = error
                    continue
                if not _is_passing(answer, operation):
                    _answered.add(address)
                    return answer
                parts = urlsplit(address)
                _connection(parts.scheme, parts.netloc).close()  # a new one may reach a server that is ready
                failure = http.client.HTTPException(f"{answer.reason}: {answer.message}")
            assert failure is not None
            raise failure

        return self._again(ask, operation, path)

    def _again(self, act: Callable[[], T], operation: str, path: str) -> T:
        """What ``act`` returns, after as many attempts as it takes."""
        patience_ms = _FIRST_PATIENCE_MS if _answered.isdisjoint(self.addresses) else _PATIENCE_MS
        deadline_ms, waits_s = self.clock.now_ms() + patience_ms, pauses(_FIRST_WAIT_S, _LONGEST_WAIT_S)
        while True:
            try:
                return act()
            except FileNotFoundError:
                raise
            except (OSError, http.client.HTTPException) as error:
                if self.clock.now_ms() > deadline_ms:
                    said = str(error) or type(error).__name__
                    raise UnavailableError(
                        f"HDFS does not answer: action={operation} path={path} namenode={','.join(self.addresses)} "
                        f"error={said[:_MESSAGE_CHARS]} fix='start the name node, or correct hdfs.webhdfs-address'"
                    ) from error
            self.clock.sleep(next(waits_s))

    def _answer(self, answer: "_Answer", path: str, operation: str, *, parsed: bool = True) -> dict[str, Any]:
        if answer.status < 300:
            return json.loads(answer.body) if parsed and answer.body else {}
        if answer.reason == _IS_MISSING:
            raise FileNotFoundError(f"no such file: path={path}")
        where = f"action={operation} path={path} user={self.user}"
        if answer.status == http.client.UNAUTHORIZED:
            raise InvalidInputError(f"HDFS asks for Kerberos, which is not supported: {where} fix='use a gateway'")
        if answer.reason == "AccessControlException":
            fix = "fix='grant it, or set hdfs.user'"
            raise HdfsRefusalError(f"HDFS does not permit this: {where} error={answer.message} {fix}", answer.reason)
        raise HdfsRefusalError(
            f"HDFS error: {where} status={answer.status} error={answer.reason or '?'}: {answer.message}", answer.reason
        )


def hadoop_user(environment: Mapping[str, str] = os.environ) -> str:
    """The user of clients of Hadoop without Kerberos: ``HADOOP_USER_NAME``, else this machine's."""
    return environment.get("HADOOP_USER_NAME") or getpass.getuser()


class Upload:
    """A file that a data node takes part by part."""

    def __init__(self, place: str, path: str) -> None:
        """``place``: address at a data node."""
        self._path = path
        parts = urlsplit(place)
        self._connection = _new_connection(parts.scheme, parts.netloc)
        self._connection.putrequest("PUT", f"{parts.path}?{parts.query}")
        self._connection.putheader("Content-Type", "application/octet-stream")
        self._connection.putheader("Transfer-Encoding", "chunked")
        self._connection.endheaders()

    def send(self, body: memoryview) -> None:
        """Append bytes. Raises: UnavailableError."""
        try:
            if len(body):
                self._connection.send(b"%x\r\n" % len(body))
                self._connection.send(body)
                self._connection.send(b"\r\n")
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from error

    def close(self) -> None:
        """The file is complete. Raises: UnavailableError."""
        try:
            self._connection.send(b"0\r\n\r\n")
            answer = self._connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise self._broken(error) from error
        finally:
            self._connection.close()
        if answer.status >= 300:
            raise UnavailableError(
                f"HDFS error: action=CREATE path={self._path} status={answer.status} "
                f"error={body[:_MESSAGE_CHARS].decode('utf-8', 'replace')}"
            )

    def _broken(self, error: Exception) -> UnavailableError:
        return UnavailableError(f"HDFS error: action=CREATE path={self._path} error={error or type(error).__name__}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    place: str | None  # at a data node
    body: bytes
    reason: str  # simple name of a Java exception; empty: none
    message: str


def _exchange(method: str, address: str, body: bytes | None = None) -> _Answer:
    """One request. Raises: OSError, HTTPException."""
    parts = urlsplit(address)
    connection = _connection(parts.scheme, parts.netloc)
    target = f"{parts.path}?{parts.query}"
    headers = {"Content-Type": "application/octet-stream"} if body is not None else {}
    try:
        connection.request(method, target, body=body if body is not None or method == "GET" else b"", headers=headers)
        answer = connection.getresponse()
        content = answer.read()
    except BaseException:
        connection.close()  # whatever is still under way on it is not the next answer; it opens again by itself
        raise
    reason, message = _exception_in(content) if answer.status >= 400 else ("", "")
    place = answer.headers.get("Location") if answer.status == http.client.TEMPORARY_REDIRECT else None
    return _Answer(status=answer.status, place=place, body=content, reason=reason, message=message)


def _is_passing(answer: _Answer, operation: str) -> bool:
    """Whether a name node is not quite up: by Java's words, those of its web server, or without data nodes."""
    if answer.status < http.client.BAD_REQUEST or answer.status == http.client.UNAUTHORIZED:
        return False
    no_data_node = operation in ("CREATE", "OPEN") and answer.reason == "IOException"
    return answer.status >= _BROKEN or not answer.reason or no_data_node or answer.reason in _PASSING


def _of_data_node(answer: _Answer) -> _Answer:
    """The answer again. Raises: HTTPException when the data node says that it could not reach a name node."""
    if answer.reason in _PASSING or answer.reason in _AWAY or answer.status >= _BROKEN:
        raise http.client.HTTPException(f"{answer.reason}: {answer.message}")
    return answer


def _exception_in(content: bytes) -> tuple[str, str]:
    try:
        found = json.loads(content)["RemoteException"]
        return str(found["exception"]), " ".join(str(found["message"]).split())[:_MESSAGE_CHARS]
    except (ValueError, KeyError, TypeError):
        return "", content[:_MESSAGE_CHARS].decode("utf-8", "replace")


class _Kept(dict[tuple[int, str, str], http.client.HTTPConnection]):
    """Connections of a thread by process, scheme and place; they end with it."""

    def __del__(self) -> None:
        """Close all."""
        for each in self.values():
            each.close()


def _connection(scheme: str, place: str) -> http.client.HTTPConnection:
    """The connection of this thread, which does not survive a fork."""
    kept: _Kept = _connections.__dict__.setdefault("kept", _Kept())
    key = (os.getpid(), scheme, place)
    if key not in kept:
        kept[key] = _new_connection(scheme, place)
    return kept[key]


def _new_connection(scheme: str, place: str) -> http.client.HTTPConnection:
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    return kind(place, timeout=_TIMEOUT_S)
