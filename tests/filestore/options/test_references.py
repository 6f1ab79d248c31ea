"""References in place of secrets: where options are given, and nowhere else."""

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from engine.kafka.options import KafkaSourceOptions
from engine.request.read_request import open_for_read
from engine.request.writer_options import BATCH_WRITE_KEYS, WriterOptions
from filestore.options.catalog_options import CatalogOptions
from filestore.options.references import secret_of_file, with_secrets
from filestore.table import FileTable
from lsm.errors import InvalidInputError
from tests.support.tables import key_table

PASSWORD = "log.kafka.sasl.password"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    found = tmp_path / "password"
    found.write_text("of the file\n")
    return found


def test_a_whole_value_of_a_secret_is_a_reference_and_nothing_else(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "of the environment")
    kept = {"log.kafka.sasl.username": "${PW}", "x.password": "a${PW}", "y.password": "${PW}b", "z.password": "${P W}"}
    given = {PASSWORD: "${PW}", "log.kafka.ssl.key.pem": f"${{file:{file}}}", **kept}
    found = {PASSWORD: "of the environment", "log.kafka.ssl.key.pem": "of the file", **kept}
    assert with_secrets(given) == found


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("${NOT_SET_22}", "option=log.kafka.sasl.password name=NOT_SET_22 fix=export it"),
        ("${file:/no/such}", "option=log.kafka.sasl.password path=/no/such reason=No such file or directory fix="),
        ("${file:/dev/zero}", "path=/dev/zero reason=it is not a regular file fix="),
    ],
)
def test_what_a_reference_does_not_find_is_said(value: str, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said.replace("$", "\\$")):
        CatalogOptions.parse({PASSWORD: value})


def test_a_file_that_is_no_secret_is_not_read(tmp_path: Path) -> None:
    """Cluster, finding 8: a reference took any file. A pipe would be waited for without end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * (1 << 21))
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, kind in (("pipe", OSError), ("large", OSError), ("binary", UnicodeDecodeError), (".", OSError)):
        with pytest.raises(kind):
            secret_of_file(str(tmp_path / name))


def test_everything_that_takes_a_login_takes_a_reference_to_it(file: Path) -> None:
    """Catalog, reader, writer and source of topics."""
    reference = f"${{file:{file}}}"
    catalog = CatalogOptions.parse({PASSWORD: reference, "jdbc.password": reference})
    assert catalog.table_defaults == {PASSWORD: "of the file"}
    assert catalog.given == {"jdbc.password": "of the file"}
    writer = WriterOptions.parse({PASSWORD: reference}, BATCH_WRITE_KEYS)
    assert writer.client_properties == {"log.kafka.sasl.password": "of the file"}
    table, _ = open_for_read(key_table(), {PASSWORD: reference})
    assert table.store.schema.options[PASSWORD] == "of the file"
    source = KafkaSourceOptions.parse(
        {"subscribe": "t", "kafka.bootstrap.servers": "h:1", "kafka.sasl.password": reference}
    )
    assert source.properties.by_name["sasl.password"] == "of the file"


def test_rotation_is_a_change_of_the_file(tmp_path: Path, file: Path) -> None:
    """And the table stores neither the secret nor the reference."""
    options = {PASSWORD: f"${{file:{file}}}", "log.system": "none"}
    Catalog(str(tmp_path / "w"), options).create_table("db.t", pa.schema([("id", pa.int64())]))
    stored = "".join(each.read_text() for each in (tmp_path / "w").rglob("*") if each.is_file())
    assert '"id"' in stored
    assert [text for text in ("password", "of the file", "${") if text in stored] == []
    file.write_text("a new one")
    assert Catalog(str(tmp_path / "w"), options).options[PASSWORD] == "a new one"


def test_a_stored_reference_reads_no_file(tmp_path: Path, file: Path) -> None:
    """A table of strangers, with brokers of its own, would be sent what the file holds."""
    table = key_table()
    reference = f"${{file:{file}}}"
    schema = table.store.schemas.latest()
    assert schema is not None
    path = table.store.paths.schema(schema.id)
    body = json.loads(table.store.io.read_bytes(path))
    body["options"][PASSWORD] = reference
    table.store.io.replace(path, json.dumps(body).encode())
    opened = FileTable.open(table.name, table.store.paths.root, io=table.store.io)
    assert opened.store.schema.options[PASSWORD] == reference
