"""VARIANT: Java reads what we write and writes what we read; its JSON of our bytes is the JSON that went in."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import VariantVal

from lsm.errors import InvalidInputError
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


def test_a_shredded_variant_is_refused_by_name(tmp_path: Path, java_peer: JavaPeer) -> None:
    """Parts of such values are columns of their own; Spark's scan of a compacted table puts them together."""
    java_peer.create(tmp_path, "db.t", definition(**{"variant.inferShreddingSchema": "true"}))
    java_peer.write(tmp_path, "db.t", variants(*[f'{{"age":{n},"city":"c"}}' for n in range(20)]))
    assert len(java_peer.read(tmp_path, "db.t")) == 20
    with pytest.raises(InvalidInputError, match=r"a shredded VARIANT is read by Spark's own scan only: column=v"):
        FLUVIAL.read(tmp_path, "db.t")
