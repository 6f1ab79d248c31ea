"""VARIANT: Java reads what we write and writes what we read; its JSON of our bytes is the JSON that went in."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import VariantVal

from tests.peers import UPDATE_AFTER, TableDefinition
from tests.peers.agreement import FLUVIAL
from tests.peers.java_peer import JavaPeer
from tests.peers.tables import arrow_schema

pytestmark = pytest.mark.interop

TEXTS = ('{"age":35,"city":"Zürich"}', '[1,null,{"x":[true]}]', '"text"', "12345678901", "null")


def variant(text: str) -> dict[str, bytes]:
    found = VariantVal.parseJson(text)
    return {"value": bytes(found.value), "metadata": bytes(found.metadata)}


def definition(**options: str) -> TableDefinition:
    columns = [("id", "INT NOT NULL"), ("v", "VARIANT"), ("a", {"type": "ARRAY", "element": "VARIANT"})]
    return TableDefinition(columns=columns, primary_key=["id"], options={"bucket": "1", **options})


def variants(*texts: str | None, first: int = 0) -> pa.Table:
    values = [None if text is None else variant(text) for text in texts]
    columns = {"id": range(first, first + len(texts)), "v": values, "a": [[value, None] for value in values]}
    return pa.Table.from_pydict({name: list(each) for name, each in columns.items()}, arrow_schema(definition()))


def test_a_variant_is_read_by_java_and_back(tmp_path: Path, java_peer: JavaPeer) -> None:
    """Issue 19, 4: merged and compacted on both sides, in columns and inside them."""
    FLUVIAL.create(tmp_path, "db.t", definition())
    FLUVIAL.write(tmp_path, "db.t", variants(*TEXTS, None))
    given = FLUVIAL.read(tmp_path, "db.t")
    assert java_peer.read(tmp_path, "db.t") == given
    assert [row["v"] for row in sorted(given, key=lambda row: row["id"])] == [*map(variant, TEXTS), None]
    generic = java_peer._jvm.paimon.data.variant.GenericVariant
    for text in TEXTS:
        found = variant(text)
        assert generic(found["value"], found["metadata"]).toJson() == text
    java_peer.write(tmp_path, "db.t", variants('{"by":"java"}', first=1))
    assert java_peer.read(tmp_path, "db.t") == FLUVIAL.read(tmp_path, "db.t")
    FLUVIAL.write(tmp_path, "db.t", variants("[7]", first=2), kinds=[UPDATE_AFTER])
    FLUVIAL.compact(tmp_path, "db.t")
    merged = FLUVIAL.read(tmp_path, "db.t")
    assert java_peer.read(tmp_path, "db.t") == merged
    java_peer.compact(tmp_path, "db.t")
    assert java_peer.read(tmp_path, "db.t") == FLUVIAL.read(tmp_path, "db.t") == merged


SHREDDED = (  # of the shape that Java infers, and others: a part missing, of another type, more parts, none at all
    *(f'{{"age":{each},"city":"c{each}","sizes":[{each},{each * 300}],"at":{{"x":{each}.5}}}}' for each in range(20)),
    '{"age":1}', '{"age":"old","city":null,"at":{"y":true}}', '{"age":2,"city":"c","more":[1,{"a":"b"}],"another":{}}',
    "{}", "[1,2]", "7", '"text"', "null", None,
)  # fmt: skip


def test_what_java_shreds_is_read_merged_and_compacted(tmp_path: Path, java_peer: JavaPeer) -> None:
    """Issue 19, 4: parts of the values are columns of their own; Java reads the same from its files and from ours."""
    generic = java_peer._jvm.paimon.data.variant.GenericVariant

    def texts(rows: list[dict[str, Any]]) -> dict[int, tuple[str | None, ...]]:
        return {row["id"]: tuple(_text(each) for each in (row["v"], row["a"][0])) for row in rows}

    def _text(found: dict[str, bytes] | None) -> str | None:
        return None if found is None else str(generic(found["value"], found["metadata"]).toJson())

    java_peer.create(tmp_path, "db.t", definition(**{"variant.inferShreddingSchema": "true"}))
    java_peer.write(tmp_path, "db.t", variants(*SHREDDED))
    (file,) = (tmp_path / "db.db" / "t").rglob("data-*.parquet")
    assert "typed_value" in str(pq.read_schema(file).field("v").type)
    wanted = {number: (text, text) for number, text in enumerate(SHREDDED)}
    assert texts(java_peer.read(tmp_path, "db.t")) == texts(FLUVIAL.read(tmp_path, "db.t")) == wanted
    java_peer.write(tmp_path, "db.t", variants('{"age":99,"city":"new"}', first=3))
    wanted[3] = ('{"age":99,"city":"new"}',) * 2
    assert texts(FLUVIAL.read(tmp_path, "db.t")) == wanted
    FLUVIAL.compact(tmp_path, "db.t")
    assert texts(java_peer.read(tmp_path, "db.t")) == texts(FLUVIAL.read(tmp_path, "db.t")) == wanted
