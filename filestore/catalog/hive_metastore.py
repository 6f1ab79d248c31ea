"""A Hive metastore by its address: one connection for each question, and what its errors mean.

The messages are those of Hive's own interface definition, in the Python classes that pyiceberg ships.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

from filestore.io.hdfs_client import hadoop_user
from lsm.errors import ConflictError, FluvialError, InvalidInputError, UnavailableError
from lsm.secret_names import shown_address

if TYPE_CHECKING:
    from hive_metastore.ThriftHiveMetastore import Client

T = TypeVar("T")
DEFAULT_PORT: Final = 9083
_TIMEOUT_MS: Final = 120_000  # of one answer; the metastore may make directories in a slow store
_MESSAGE_CHARS: Final = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class HiveMetastore:
    """Addresses of one metastore, in the order in which they are tried. It can be pickled."""

    addresses: tuple[tuple[str, int], ...]

    @classmethod
    def of(cls, uri: str) -> "HiveMetastore":
        """The metastore at ``thrift://host:port``, or at several such addresses with commas between them.

        Raises: InvalidInputError for an address that cannot be one, or a missing library.
        """
        _check_library()
        return cls(addresses=tuple(_address(each.strip(), uri) for each in uri.split(",")))

    @property
    def shown(self) -> str:
        """The addresses, for messages."""
        return ",".join(f"thrift://{host}:{port}" for host, port in self.addresses)

    def run(self, action: str, ask: "Callable[[Client], T]", *, missing: T | None = None) -> T:
        """What ``ask`` returns, on a connection of its own.

        Args:
            action: for messages.
            ask: calls methods of the client.
            missing: the result where the metastore has no such database, table or partition; None: it is an error.

        Raises:
            ConflictError: it is there already.
            InvalidInputError: the metastore does not know the method, or refuses a name, a type or what is asked.
            UnavailableError: it does not answer, or fails; what was asked may have been done if it is a change.
        """
        from hive_metastore.ttypes import NoSuchObjectException
        from thrift.Thrift import TException

        # no context managers around the question: these exceptions cannot be changed, as leaving one does
        client = self._connected(action)
        try:
            return ask(client)
        except NoSuchObjectException as error:
            if missing is None:
                raise self._error(action, error) from error
            return missing
        except (TException, OSError, EOFError) as error:
            raise self._error(action, error) from error
        finally:
            client._iprot.trans.close()

    def has_zoned_timestamps(self) -> bool:
        """Whether it knows TIMESTAMP WITH LOCAL TIME ZONE: since Hive 3, as catalogs of catalogs."""
        from thrift.Thrift import TApplicationException

        def ask(client: "Client") -> bool:
            try:
                client.get_catalogs()
            except TApplicationException as error:
                if error.type != TApplicationException.UNKNOWN_METHOD:
                    raise
                return False
            return True

        return self.run("ask for the version", ask)

    def _connected(self, action: str) -> "Client":
        from hive_metastore.ThriftHiveMetastore import Client
        from thrift.protocol.TBinaryProtocol import TBinaryProtocol
        from thrift.Thrift import TApplicationException, TException
        from thrift.transport.TSocket import TSocket
        from thrift.transport.TTransport import TBufferedTransport, TTransportException

        refusals = []
        for host, port in self.addresses:
            socket = TSocket(host, port)
            socket.setTimeout(_TIMEOUT_MS)
            transport = TBufferedTransport(socket)
            try:
                transport.open()
            except TTransportException as error:
                refusals.append(_said(error))
                continue
            client = Client(TBinaryProtocol(transport))
            try:
                client.set_ugi(hadoop_user(), [hadoop_user()])
            except TApplicationException:
                pass  # then directories that it makes belong to itself
            except (TException, OSError, EOFError) as error:
                transport.close()
                raise self._error(action, error) from error
            return client
        raise UnavailableError(
            f"Hive metastore does not answer: action={action} uri={self.shown} error={refusals[-1]} "
            "fix='start it, or correct uri'"
        )

    def _error(self, action: str, error: Exception) -> FluvialError:
        """Translate an error of the client."""
        from hive_metastore.ttypes import AlreadyExistsException, InvalidObjectException, InvalidOperationException
        from thrift.Thrift import TApplicationException
        from thrift.transport.TTransport import TTransportException

        where = f"action={action} uri={self.shown} error={_said(error)}"
        match error:
            case AlreadyExistsException():
                return ConflictError(f"name is taken in the Hive metastore: {where}")
            case InvalidObjectException() | InvalidOperationException():
                return InvalidInputError(f"Hive metastore does not allow this: {where}")
            case TTransportException():
                return UnavailableError(
                    f"Hive metastore ended the connection: {where} fix='look into its log; another server at this "
                    "address, or a metastore that asks for Kerberos or TLS, ends connections, too'"
                )
            case TApplicationException(type=TApplicationException.UNKNOWN_METHOD):
                return InvalidInputError(f"Hive metastore is too old, or not one: {where} fix='use Hive 2.3 or newer'")
            case _:
                return UnavailableError(f"Hive metastore failed: {where}")


def _address(text: str, uri: str) -> tuple[str, int]:
    parts = urlsplit(text)
    try:
        host, port = parts.hostname, parts.port or DEFAULT_PORT
    except ValueError:
        host = None
    if parts.scheme != "thrift" or not host or parts.path not in ("", "/"):
        raise InvalidInputError(
            f"not the address of a Hive metastore: uri={shown_address(uri)} fix='write thrift://host:{DEFAULT_PORT}'"
        )
    return host, port


def _said(error: Any) -> str:
    said = getattr(error, "message", None) or str(error) or type(error).__name__
    return " ".join(str(said).split())[:_MESSAGE_CHARS]


def _check_library() -> None:
    try:
        import hive_metastore.ThriftHiveMetastore  # noqa: F401
        import thrift  # noqa: F401
    except ImportError as error:
        raise InvalidInputError("a Hive metastore needs a client: fix=pip install 'fluvial[hive]'") from error
