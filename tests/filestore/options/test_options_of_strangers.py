"""Every option, with the value of an attack: stored by its user or planted in a file, it reaches nothing outside."""

import socket
from contextlib import suppress
from typing import Any

import orjson
import pytest

from filestore.options.log_login import is_openers, openers_of
from filestore.options.not_built import NOT_BUILT
from filestore.options.option import Stored
from filestore.options.rules import ALIASES, ELSEWHERE
from filestore.options.table.columns import FieldOptions
from filestore.options.table_options import TableOptions, given_to_table
from filestore.table import FileTable
from lsm.errors import FluvialError, InvalidInputError
from tests.support.faults import MemoryFileIO
from tests.support.hostile import VICTIM, WatchedFileIO
from tests.support.tables import expire_all_but, key_table, memory_catalog, reopened, rows

VALUES = (VICTIM, "file:///victim", "../../victim", "http://127.0.0.1:9", "os.system", "a,b;c")
CLIENT = (
    "plugin.library.paths", "ssl.engine.location", "ssl.providers", "ssl.keystore.location", "ssl.ca.location",
    "sasl.password", "sasl.jaas.config", "sasl.oauthbearer.token.endpoint.url", "metadata.broker.list", "debug",
    "enable.ssl.certificate.verification", "log.queue", "statistics.interval.ms", "of.a.later.client",
)  # fmt: skip
"""Of a client library: none is declared."""
KEYS = (
    *TableOptions.declared, *NOT_BUILT, *ELSEWHERE, *ALIASES,
    *(f"fields.v.{suffix}" for suffix in FieldOptions.declared),
    *(f"log.kafka.{name}" for name in CLIENT), "log.schema-registry.ssl.keystore.location", "file-index.x.columns",
    "check.c",
    "computed-column.0", "my.note", "external-paths.allowed", "jdbc.url", "openlineage.url", "hadoop.conf.dir",
    "metadata.iceberg.uri", "metadata.iceberg.hive-conf-dir", "s3.endpoint", "global-index.external-path",
)  # fmt: skip


@pytest.fixture(scope="module")
def table() -> FileTable:
    made = key_table(bucket="1")
    for number in range(3):
        made.write(rows((number, number)))
    made.compact(full=True)
    return made


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("value", VALUES)
def test_a_planted_option_reaches_nothing_outside(
    value: str, table: FileTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def connect(self: socket.socket, address: Any) -> None:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setenv("PYICEBERG_CATALOG__FLUVIAL__TOKEN", "hush")
    path, found = table.store.paths.schema(0), {}
    files: dict[str, bytes] = table.store.io.files  # type: ignore[attr-defined]
    body = orjson.loads(files[path])
    for key in dict.fromkeys(KEYS):
        inner = MemoryFileIO({**files, VICTIM: b"of another one"})
        inner.files[path] = orjson.dumps({**body, "options": {**body["options"], key: value}})
        watched = WatchedFileIO(inner, [table.store.paths.root])
        for deed in (
            lambda each: each.read().to_arrow(),
            lambda each: each.write(rows((7, 7))),
            lambda each: each.compact(full=True),
            lambda each: expire_all_but(each, 1),
        ):
            with suppress(FluvialError):  # and no other error
                deed(reopened(table, watched))  # type: ignore[arg-type]
        if watched.outside or asked or inner.files[VICTIM] != b"of another one":
            found[key] = [*watched.outside, *map(str, asked)]
            asked.clear()
    assert found == {}


def test_what_is_its_openers_is_stored_by_no_user() -> None:
    """By its declaration, or as no list knows it: so in a new table, and in one that changes."""
    declared = {key for key, option in TableOptions.declared.items() if option.stored is Stored.BY_OPENER}
    assert {key for key in TableOptions.declared if is_openers(key)} == declared
    assert {key for key, option in TableOptions.declared.items() if option.is_secret} <= declared
    openers = openers_of(dict.fromkeys(KEYS, ""))
    assert {*declared, *(f"log.kafka.{name}" for name in CLIENT)} <= {*openers}
    for key in openers:
        if key.startswith("log.schema-registry.") and key not in declared:
            continue  # unknown, which is another error
        with pytest.raises(InvalidInputError, match=f"options={key} "):
            memory_catalog().create_table("db.t", rows((1, 1)).schema, options={key: "x"})


@pytest.mark.parametrize("key", [key for key in TableOptions.declared if TableOptions.declared[key].stored in
                                 {Stored.BY_ENGINE, Stored.NEVER}])  # fmt: skip
def test_nor_what_the_engine_or_no_one_stores(key: str) -> None:
    with pytest.raises(InvalidInputError, match=f"option={key} "):
        given_to_table({key: "1"}, {})
