"""FORMAT.md is true about the log: records, the marker's bytes, payloads and commit messages."""

import json
import re
from base64 import b64encode
from dataclasses import fields, replace

import pyarrow as pa
import zstandard

from engine.log.bucket_log import read_payload
from filestore.manifest.commit_message import CommitMessage
from filestore.manifest.entries import DataFileMeta
from logstore.format.changelog_json import encode_changes
from logstore.kafka.clients import KafkaProperties
from logstore.log.control_record import HEADER
from logstore.log.log_writer import LogTarget
from logstore.log.marker import INLINE_PAYLOAD_BYTES, decode_marker
from lsm.row_kind import RowKind
from tests.support.format_samples import (
    data_file,
    json_type,
    marker,
    message,
)
from tests.support.markdown import ROOT, page_types, quoted, sections, table, unquoted
from tests.support.tables import KEY_SCHEMA, key_table

PARTS = sections((ROOT / "FORMAT.md").read_text(encoding="utf-8"))


def test_records_are_as_the_table_says() -> None:
    names = [field.name for field in KEY_SCHEMA]
    row = pa.RecordBatch.from_pylist([{"id": 1, "v": 2}] * 4, schema=KEY_SCHEMA)
    kinds = pa.array([RowKind.INSERT, RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE], pa.int8())
    cells = {unquoted(cell.split(" ")[0]): texts for cell, *texts in table(PARTS["Log"])}
    add, retract = (unquoted(cell).replace("{…}", '{"id":1,"v":2}') for cell in cells["debezium-json"])
    found = encode_changes(row, kinds, key_names=names[:1], log_format="debezium-json", changelog_mode="all")
    assert found.values.to_pylist() == [text.encode() for text in (add, retract, add, retract)]
    assert found.keys is not None
    assert found.keys.to_pylist() == [b'{"id":1}'] * 4
    plain = encode_changes(row, kinds, key_names=names[:1], log_format="json")
    assert plain.values.to_pylist() == [b'{"id":1,"v":2}'] * 2 + [None]
    assert cells["json"] == ["the row", "null value"]


def test_the_marker_has_the_bytes_of_the_page() -> None:
    line, _, payload = marker(payload=b"a\nb").partition(b"\n")
    assert payload == b"a\nb"
    assert line.isascii()
    written = json.loads(line)
    assert page_types(PARTS["Marker"]) == {
        key: json_type(value) + (" or null" if key == "start" else "") for key, value in written.items()
    }
    assert json.loads(marker(start_offset=None).split(b"\n")[0])["start"] is None
    assert set(page_types(PARTS["Marker"])) - set(json.loads(marker(schema_id=None).split(b"\n")[0])) == {"schema"}
    text = PARTS["Marker"]
    assert f"a header `{HEADER}`" in text
    target = LogTarget(properties=KafkaProperties(by_name={}), topic="t", table_uuid="<table id>", bucket=0)
    assert f"`{target.transactional_id.removesuffix('0')}<bucket>`" in text
    assert f"for {INLINE_PAYLOAD_BYTES:,} bytes and more" in text
    (example,) = re.findall(r"^```\n(.*)\n```$", text, re.MULTILINE)
    assert marker(start_offset=None) == example.encode() + b"\np"
    assert decode_marker(example.encode() + b"\n", record_offset=999).start_offset == 500


def test_a_commit_message_has_the_keys_of_the_page() -> None:
    body = json.loads(message().to_json())
    assert [name for row in table(PARTS["Commit message"]) for name in quoted(row[0])] == list(body)
    after = PARTS["Commit message"].split("A data file is")[1]
    files = body["new_files"][0]
    assert quoted(after)[1:] == list(files) == [field.name for field in fields(DataFileMeta) if field.name != "unknown"]
    assert files["min_key"] == b64encode(b"k").decode()
    assert files["key_stats"] == [b64encode(bytes(12)).decode()] * 2 + [[0]]
    assert body["index_after"][0]["_PARTITION"] == body["partition"] == b64encode(b"p").decode()
    assert list(body["index_after"][0]) == list(page_types(PARTS["Index manifest entry"]))
    without = json.loads(CommitMessage(partition=b"", bucket=0, total_buckets=1).to_json())
    assert list(without) == ["partition", "bucket", "totalBuckets"]


def test_payloads_are_read_as_the_page_says() -> None:
    (form,) = (word for word in quoted(PARTS["Marker"]) if "messages" in word)
    files = (replace(data_file(), external_path=None),)
    written = replace(message(), new_files=files, compact_before=files, compact_after=files, changelog_files=files)
    texts = [written.to_json()]
    exact = dict(zip(re.findall(r'"(\w+)"', form), (texts, 5), strict=True))
    store = key_table()
    for body, since in ((texts, None), (exact, 5)):
        payload = zstandard.compress(json.dumps(body).encode())
        found = read_payload(store.store, decode_marker(marker(payload=payload), record_offset=999))
        assert (found.messages, found.changelog_base_snapshot) == ((written,), since)
