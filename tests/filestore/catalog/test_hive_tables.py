"""What a Hive metastore gets of a table, and addresses that are none; without a metastore."""

import pickle
import socketserver
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.catalog.hive_metastore import HiveMetastore
from filestore.catalog.hive_registry import HiveLockFactory
from filestore.catalog.hive_tables import hive_type, properties_of
from filestore.io.file_io import SystemClock
from filestore.schema.schema_store import new_schema
from filestore.types.data_types import data_type_of, parse_data_type
from lsm.errors import InvalidInputError, UnavailableError

NESTED = pa.struct([("a", pa.list_(pa.int32())), ("b", pa.map_(pa.string(), pa.timestamp("us", tz="UTC")))])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("BOOLEAN", "boolean"),
        ("TINYINT NOT NULL", "tinyint"),
        ("SMALLINT", "smallint"),
        ("DECIMAL(38, 0)", "decimal(38,0)"),
        ("CHAR(255)", "char(255)"),
        ("CHAR(256)", "string"),
        ("VARCHAR(65535)", "varchar(65535)"),
        ("VARCHAR(65536)", "string"),
        ("STRING", "string"),
        ("BINARY(4)", "binary"),
        ("DATE", "date"),
        ("TIME(3)", "string"),
        ("TIMESTAMP(9)", "timestamp"),
        ("TIMESTAMP(3) WITH LOCAL TIME ZONE", "timestamp with local time zone"),
        ("VARIANT", "struct<value:binary,metadata:binary>"),
    ],
)
def test_each_type_has_the_name_that_paimon_gives_it_in_hive(text: str, expected: str) -> None:
    """FL-112."""
    assert hive_type(parse_data_type(text)) == expected


def test_nested_types_are_named_inside_out() -> None:
    """FL-112: Hive 2 has no type for moments, at any depth."""
    nested = data_type_of(NESTED)
    assert hive_type(nested) == "struct<a:array<int>,b:map<string,timestamp with local time zone>>"
    assert hive_type(nested, "timestamp") == "struct<a:array<int>,b:map<string,timestamp>>"
    multiset = parse_data_type({"type": "MULTISET", "element": "STRING"})
    assert hive_type(multiset) == "map<string,int>"


def test_properties_are_the_options_and_keys_without_secrets() -> None:
    """FL-112."""
    columns = pa.schema([("dt", pa.string()), ("id", pa.int64())])
    options = {"bucket": "2", "log.kafka.bootstrap.servers": "host:9092"}
    schema = new_schema(
        columns, primary_key=["dt", "id"], partition_by=["dt"], options=options, comment="said", time_ms=0
    )
    stored = {**schema.options, "log.kafka.sasl.password": "hidden"}  # of a writer that lets tables store it
    assert properties_of(replace(schema, options=stored)) == {
        "bucket": "2",
        "log.kafka.bootstrap.servers": "host:9092",
        "file.format": "parquet",
        "primary-key": "dt,id",
        "partition": "dt",
        "bucket-key": "id",
        "comment": "said",
    }


@pytest.mark.sweep
def test_an_address_is_a_host_and_a_port_or_several() -> None:
    """FL-97."""
    several = HiveMetastore.of("thrift://one:9084, thrift://two")
    assert several.addresses == (("one", 9084), ("two", 9083))
    assert pickle.loads(pickle.dumps(several)) == several
    for wrong in ("one:9083", "thrift://", "http://one:9083", "thrift://one:port", "thrift://one/x"):
        with pytest.raises(InvalidInputError, match="write thrift://host:9083"):
            HiveMetastore.of(wrong)


def test_a_server_that_is_no_metastore_is_named() -> None:
    """FL-97: it ends the connection, as one does that asks for Kerberos."""

    class Closing(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(4)

    with socketserver.TCPServer(("127.0.0.1", 0), Closing) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        metastore = HiveMetastore.of(f"thrift://127.0.0.1:{server.server_address[1]}")
        with pytest.raises(UnavailableError, match=r"ended the connection: action=list .*asks for Kerberos"):
            metastore.run("list", lambda client: client.get_all_databases())


def test_options_that_do_not_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """FL-97."""
    with pytest.raises(InvalidInputError, match="set uri=thrift://host:9083"):
        FileCatalog(str(tmp_path), {"metastore": "hive"})
    with pytest.raises(InvalidInputError, match=r"lock is another metastore's: lock\.type=jdbc metastore=hive"):
        FileCatalog(str(tmp_path), {"metastore": "hive", "uri": "thrift://one", "lock.type": "jdbc"})
    monkeypatch.setitem(sys.modules, "hive_metastore.ThriftHiveMetastore", None)
    with pytest.raises(InvalidInputError, match=r"pip install 'fluvial\[hive\]'"):
        FileCatalog(str(tmp_path), {"metastore": "hive", "uri": "thrift://one"})


def test_a_waiter_that_was_forgotten_while_it_was_paused_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """FL-94: the metastore takes locks from clients that it does not hear of, be it one that only waits."""
    from hive_metastore.ttypes import LockResponse, LockState, NoSuchLockException

    asked: list[str] = []

    class Client:
        _iprot = SimpleNamespace(trans=SimpleNamespace(close=lambda: None))

        def lock(self, request: Any) -> LockResponse:
            asked.append("lock")
            return LockResponse(lockid=len(asked), state=LockState.WAITING)

        def check_lock(self, request: Any) -> LockResponse:
            asked.append(f"check {request.lockid}")
            if request.lockid == 1:
                raise NoSuchLockException("no such lock")
            return LockResponse(lockid=request.lockid, state=LockState.ACQUIRED)

        def unlock(self, request: Any) -> None:
            asked.append(f"unlock {request.lockid}")

    monkeypatch.setattr(HiveMetastore, "_connected", lambda self, action: Client())
    metastore = HiveMetastore.of("thrift://127.0.0.1:1")
    factory = HiveLockFactory(metastore=metastore, user="u", clock=SystemClock(), timeout_ms=60_000, longest_sleep_ms=1)
    assert factory.create().run_with_lock("db", "t", lambda: asked[-1]) == "check 3"
    assert asked == ["lock", "check 1", "lock", "check 3", "unlock 3"]
