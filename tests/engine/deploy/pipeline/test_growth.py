"""A pipeline grows by the record that it did not know, also where the newest records know nothing of its columns."""

import pyarrow as pa
import pytest

from engine.deploy.pipeline.pipeline import failed_record, grown_schema
from engine.dialect.grammar.type_grammar import parse_type
from engine.kafka.offsets import OffsetRange
from engine.kafka.options import NewTypes
from engine.kafka.source_columns import column_name, in_source, with_known_columns
from filestore.evolution.schema_merge import MergeRules
from filestore.schema.row_counts import seen_schema
from filestore.types.data_types import DataField
from logstore.format.schema_parts import split_payloads
from lsm.errors import ConflictError, InvalidInputError, NewColumnsError
from tests.logstore.format.test_connect_types import part
from tests.logstore.format.test_debezium import compact, with_schema
from tests.support.tables import memory_catalog

ID = pa.schema([("id", pa.int64())])
ANY = MergeRules(fitting=lambda known, given: True)


def grown_columns(columns: pa.Schema, **options: str) -> list[str]:
    table = memory_catalog().create_table("db.t", ID, primary_key=[] if options else ["id"], options=options)
    grown = grown_schema(table.store.schema, columns, ANY)
    return [f"{field.name} {field.type}" for field in seen_schema(grown).fields]


def test_a_table_grows_with_the_columns_of_a_source() -> None:
    assert grown_columns(pa.schema([("id", pa.int64()), ("c", pa.string())])) == ["id BIGINT NOT NULL", "c STRING"]


def test_a_table_that_counts_its_rows_grows_as_well() -> None:
    """`append table with buckets has no bucket key: bucket=1` after 3 min 41 s (finding 8)."""
    columns = pa.schema([("id", pa.int64()), ("c", pa.string())])
    assert grown_columns(columns, **{"row-counts": "true"}) == ["id BIGINT", "c STRING"]


def checked(columns: pa.Schema, new_types: NewTypes, *kinds: object) -> None:
    texts = [with_schema({"after": {"id": 1}, "op": "c"}, part(id=kind)) for kind in kinds]
    with_known_columns(split_payloads, columns, new_types)(pa.array([each.encode() for each in texts]))


def test_the_record_that_is_not_known_is_named() -> None:
    texts = [compact({"after": {"id": 1}, "op": "c"}), with_schema({"after": {"id": 1}, "op": "c"}, part(id="int64"))]
    texts += [with_schema({"after": {"id": 1, "c": 1}, "op": "c"}, part(id="int64", c="int32"))]
    with pytest.raises(NewColumnsError, match=r"new columns: columns=\['c'\]") as caught:
        with_known_columns(split_payloads, ID, NewTypes.IGNORE)(pa.array([text.encode() for text in texts]))
    assert caught.value.index == 2
    failed = failed_record(NewColumnsError(f"{caught.value} topic=s.public.evolve partition=3 offset=41"))
    assert failed == OffsetRange(topic="s.public.evolve", partition=3, start_offset=41, end_offset=42)
    assert failed_record(ConflictError("another writer came first topic=t partition=1 offset=1")) is None
    assert failed_record(InvalidInputError(str(caught.value))) is None


DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal"}
WIDE = {**DECIMAL, "parameters": {"scale": "4", "connect.decimal.precision": "12"}}
TYPES = [
    (pa.int32(), "int64", NewTypes.WIDER),
    (pa.decimal128(10, 2), WIDE, NewTypes.WIDER),
    (pa.float32(), "double", NewTypes.WIDER),
    (pa.int32(), "string", NewTypes.OTHER),
    (pa.int64(), "int32", None),
    (pa.decimal128(10, 2), "string", None),  # decimal.handling.mode=string
    (pa.decimal128(12, 4), {**DECIMAL, "parameters": {"scale": "2", "connect.decimal.precision": "10"}}, None),
    (pa.string(), "int32", None),
    (pa.timestamp("us"), {"type": "int64", "name": "io.debezium.time.Timestamp"}, None),
]


@pytest.mark.parametrize(("known", "given", "since"), TYPES, ids=lambda each: str(each)[:20])
def test_a_wider_type_starts_the_pipeline_again_where_the_table_may_take_it(
    known: pa.DataType, given: object, since: NewTypes | None
) -> None:
    """int -> bigint: good rows went to the dead letters, although a restart would take them (finding 9)."""
    order = [NewTypes.IGNORE, NewTypes.WIDER, NewTypes.OTHER]
    for rule in order:
        if since is not None and order.index(rule) >= order.index(since):
            with pytest.raises(NewColumnsError, match="types="):
                checked(pa.schema([("id", known)]), rule, given)
        else:
            checked(pa.schema([("id", known)]), rule, given)


@pytest.mark.parametrize("name", ["_row_kind", "_unavailable", "_LOG_OFFSET", "id", "src_id", "src__row"])
def test_a_source_column_with_a_name_of_changes_has_a_prefix(name: str) -> None:
    """A source's own `_row_kind` became '+I' (finding 10)."""
    assert in_source(column_name(name)) == name
    assert (column_name(name) == f"src_{name}") == (name.lower() in ("_row_kind", "_unavailable", "_log_offset"))


def test_growth_does_not_touch_what_is_known() -> None:
    fields: list[DataField] = []
    table = memory_catalog().create_table("db.t", ID, primary_key=["id"])
    fields += grown_schema(table.store.schema, ID, ANY).fields
    assert fields == list(table.store.schema.fields)


@pytest.mark.parametrize(
    ("kind", "declared", "grown"),
    [("INT", [], "STRING"), ("INT", ["v"], "INT"), ("DECIMAL(10, 2)", [], "DECIMAL(10, 2)"), ("DATE", [], "DATE")],
)
def test_numbers_become_text_where_casts_are_allowed_and_the_job_file_says_nothing(
    kind: str, declared: list[str], grown: str
) -> None:
    """int -> text never worked in a job, even with explicit-cast (finding 9)."""
    fields = [
        DataField(id=0, name="id", type=parse_type("INT NOT NULL")),
        DataField(id=1, name="v", type=parse_type(kind)),
    ]
    schema = memory_catalog().create_table("db.t", fields, primary_key=["id"], options={}).store.schema
    rules = MergeRules(widens=True, casts=True, fitting=lambda known, given: True)
    found = grown_schema(schema, pa.schema([("v", pa.string())]), rules, declared=declared)
    assert str(found.field("v").type) == grown
