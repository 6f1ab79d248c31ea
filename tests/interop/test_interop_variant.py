"""VARIANT: Java reads what we write and writes what we read; its JSON of our bytes is the JSON that went in."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import VariantVal

from tests.peers import UPDATE_AFTER, Peer, TableDefinition
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


ALIKE = tuple(
    f'{{"age":{each},"at":{{"x":{each}.5}},"city":"c{each}","sizes":[{each},{each * 300}]}}' for each in range(20)
)
OTHERS = (  # a part missing, of another type, more parts, nothing that is a column, and no object at all
    '{"age":1}', '{"age":"old","at":{"y":true},"city":null}', '{"age":2,"another":{},"city":"c","more":[1,{"a":"b"}]}',
    "{}", "[1,2]", "7", '"text"', "null", None,
)  # fmt: skip
SHAPE = {
    "age": "BIGINT",
    "city": "STRING",
    "sizes": {"type": "ARRAY", "element": "INT"},
    "at": {"type": "ROW", "fields": [{"id": 0, "name": "x", "type": "DECIMAL(9, 1)"}]},
}
COLUMN = {
    "type": "ROW",
    "fields": [{"id": at, "name": name, "type": kind} for at, (name, kind) in enumerate(SHAPE.items())],
}
DECLARED = {"type": "ROW", "fields": [{"id": 0, "name": "v", "type": COLUMN}]}


@pytest.mark.parametrize(
    ("option", "value", "texts"),
    [
        ("variant.inferShreddingSchema", "true", ALIKE),
        ("parquet.variant.shreddingSchema", json.dumps(DECLARED), ALIKE + OTHERS),
    ],
    ids=["inferred", "declared"],
)
def test_what_java_shreds_is_read_merged_and_compacted(
    tmp_path: Path, java_peer: JavaPeer, option: str, value: str, texts: tuple[str | None, ...]
) -> None:
    """Issue 19, 4: parts of the values are columns of their own; Java reads the same from its files and from ours."""
    generic = java_peer._jvm.paimon.data.variant.GenericVariant

    def read_by(peer: Peer) -> dict[int, str | None]:
        found = {row["id"]: row["v"] for row in peer.read(tmp_path, "db.t")}
        return {key: v and str(generic(v["value"], v["metadata"]).toJson()) for key, v in found.items()}

    java_peer.create(tmp_path, "db.t", definition(**{option: value}))
    java_peer.write(tmp_path, "db.t", variants(*texts))
    (file,) = (tmp_path / "db.db" / "t").rglob("data-*.parquet")
    assert "typed_value" in str(pq.read_schema(file).field("v").type)
    wanted = dict(enumerate(texts))
    assert read_by(java_peer) == wanted
    assert read_by(FLUVIAL) == wanted
    java_peer.write(tmp_path, "db.t", variants(ALIKE[7], first=3))
    wanted[3] = ALIKE[7]
    assert read_by(FLUVIAL) == wanted
    FLUVIAL.compact(tmp_path, "db.t")
    assert read_by(java_peer) == read_by(FLUVIAL) == wanted
