import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.io.file_io import LocalFileIO
from filestore.layout.paths import TablePaths
from filestore.schema.schema_store import SchemaStore, new_schema
from filestore.schema.table_schema import TableSchema
from filestore.schema.validation import check_readable, check_writable
from filestore.types.data_types import DataField, parse_data_type
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError
from tests.support.faults import FaultyFileIO, MemoryFileIO, When
from tests.support.vectors import GOLDEN, PROPERTY, golden_tables

COLUMNS = pa.schema([("dt", pa.string()), ("id", pa.int64()), ("v", pa.string())])
PATHS = TablePaths("/w/db.db/t")


def make(columns: pa.Schema | list[tuple[str, pa.DataType]] = COLUMNS, **arguments: Any) -> TableSchema:
    return new_schema(columns if isinstance(columns, pa.Schema) else pa.schema(columns), time_ms=5, **arguments)


def golden(table: str) -> TableSchema:
    return TableSchema.from_json((GOLDEN / table / "schema" / "schema-0").read_bytes())


# ---- making


def test_a_new_key_table_has_one_bucket_and_says_so() -> None:
    """FL-12, FL-15, FL-67, FL-82: what others would guess from their own defaults stands in the file."""
    schema = make(primary_key=["dt", "id"], partition_by=["dt"], comment="orders")
    assert json.loads(schema.to_json()) == {
        "version": 3,
        "id": 0,
        "fields": [
            {"id": 0, "name": "dt", "type": "STRING NOT NULL"},
            {"id": 1, "name": "id", "type": "BIGINT NOT NULL"},
            {"id": 2, "name": "v", "type": "STRING"},
        ],
        "highestFieldId": 2,
        "partitionKeys": ["dt"],
        "primaryKeys": ["dt", "id"],
        "options": {"bucket": "1", "file.format": "parquet"},
        "comment": "orders",
        "timeMillis": 5,
    }
    assert schema.trimmed_primary_keys == schema.bucket_keys == ("id",)


def test_keys_may_be_options() -> None:
    schema = make(options={"primary-key": "dt, id", "partition": "dt", "path": "/elsewhere"})
    assert (schema.primary_keys, schema.partition_keys) == (("dt", "id"), ("dt",))
    assert schema.options == {"bucket": "1", "file.format": "parquet"}
    with pytest.raises(InvalidInputError, match="given twice"):
        make(primary_key=["id"], options={"primary-key": "v"})


def test_key_order_is_the_users() -> None:
    schema = make(primary_key=["v", "dt", "id"], partition_by=["dt"])
    assert schema.trimmed_primary_keys == ("v", "id")
    assert [field.name for field in schema.key_fields] == ["v", "id"]


def test_ids_go_depth_first_through_lists_and_maps() -> None:
    row = pa.struct([("a", pa.int32()), ("b", pa.list_(pa.struct([("c", pa.string())])))])
    schema = make([("id", pa.int64()), ("m", pa.map_(pa.string(), row)), ("last", pa.string())])
    body = json.loads(schema.to_json())
    inner = body["fields"][1]["type"]["value"]["fields"]
    assert [field["id"] for field in body["fields"]] == [0, 1, 5]
    assert [field["id"] for field in inner] == [2, 3]
    assert inner[1]["type"]["element"]["fields"][0]["id"] == 4
    assert body["highestFieldId"] == 5


def test_without_a_key_the_whole_row_chooses_the_bucket() -> None:
    """FL-76: every column that can be hashed, but not the partition's."""
    columns = [("dt", pa.string()), ("id", pa.int64()), ("l", pa.list_(pa.int32())), ("d", pa.decimal128(20, 2))]
    schema = make(columns, partition_by=["dt"], options={"bucket": "4"})
    assert schema.options["bucket-key"] == "id,d"
    assert schema.bucket_keys == ("id", "d")
    assert make(columns).options["bucket"] == "-1"
    assert make(columns).bucket_keys == ()


def test_a_log_needs_buckets_also_without_a_key() -> None:
    """FL-67: file buckets are the partitions of the log."""
    schema = make(options={"log.kafka.bootstrap.servers": "a:1"})
    assert (schema.options["bucket"], schema.options["bucket-key"]) == ("1", "dt,id,v")


def test_options_are_kept_under_their_canonical_keys() -> None:
    """FL-68."""
    schema = make(primary_key=["id"], options={"table-storage.log.retention": "7 d", "universal_size_ratio": "3"})
    assert schema.options["log.retention"] == "7 d"
    assert schema.options["compaction.size-ratio"] == "3"


def test_fields_keep_lengths_comments_and_defaults() -> None:
    field = DataField(id=99, name="c", type=parse_data_type("CHAR(3)"), description="code", default_value="abc")
    schema = new_schema([field], primary_key=["c"], time_ms=1)
    assert json.loads(schema.to_json())["fields"] == [
        {"id": 0, "name": "c", "type": "CHAR(3) NOT NULL", "description": "code", "defaultValue": "abc"}
    ]


NANOS = [("id", pa.int64()), ("at", pa.timestamp("ns"))]
REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    (
        COLUMNS,
        {"primary_key": ["id"], "partition_by": ["dt"]},
        r"contain the partition columns.*missing=\['dt'\].*fix=",
    ),
    (COLUMNS, {"primary_key": ["dt"], "partition_by": ["dt"]}, "partition columns only.*fix="),
    (
        COLUMNS,
        {"primary_key": ["nope"]},
        r"no such column: used_by='primary key' column=nope columns=\['dt', 'id', 'v'\]",
    ),
    (COLUMNS, {"partition_by": ["nope"]}, "used_by='partition' column=nope"),
    (COLUMNS, {"primary_key": ["id", "id"]}, "named twice"),
    ([], {}, "no columns"),
    ([("id", pa.int64()), ("id", pa.int64())], {}, "column is there twice: column=id"),
    ([(" ", pa.int64())], {}, "no name"),
    ([("_KEY_id", pa.int64())], {}, "reserved: column=_KEY_id fix='rename it'"),
    ([("rowkind", pa.int64())], {}, "reserved"),
    ([("_SEQUENCE_NUMBER", pa.int64())], {}, "reserved"),
    ([("_VALUE_KIND", pa.int8())], {}, "reserved"),
    ([("_ROW_ID", pa.int8())], {}, "reserved"),
    ([("_LEVEL", pa.int8())], {}, "reserved"),
    ([("a", pa.uint8())], {}, "cast to int16.*column=a"),
    ([("id", pa.list_(pa.int32()))], {"primary_key": ["id"]}, "type cannot be used here: used_by='primary key'"),
    ([("f", pa.float64()), ("v", pa.int32())], {"partition_by": ["f"]}, "cannot be partitioned.*column=f type=DOUBLE"),
    (
        [("d", pa.decimal128(5, 2)), ("v", pa.int32())],
        {"partition_by": ["d"]},
        "use STRING, an integer, DATE or BOOLEAN",
    ),
    ([("t", pa.timestamp("us")), ("v", pa.int32())], {"partition_by": ["t"]}, "cannot be partitioned"),
    (NANOS, {}, r"column=at type=TIMESTAMP\(9\) file.format=parquet fix='use TIMESTAMP\(6\) or file.format=orc'"),
    ([("s", pa.struct([("at", pa.timestamp("ns"))]))], {}, "finer than microseconds: column=s"),
    (NANOS, {"options": {"file.format": "orc", "file.format.per.level": "0:avro"}}, "file.format=avro"),
    (COLUMNS, {"primary_key": ["id"], "options": {"bucket-key": "v"}}, r"part of the primary key.*remove \['v'\]"),
    (COLUMNS, {"partition_by": ["dt"], "options": {"bucket": "2", "bucket-key": "dt"}}, "contains partition columns"),
    (COLUMNS, {"primary_key": ["id"], "options": {"sequence.field": "nope"}}, "used_by='sequence.field' column=nope"),
    (COLUMNS, {"primary_key": ["id"], "options": {"rowkind.field": "id"}}, "must be a STRING column: column=id"),
    (COLUMNS, {"primary_key": ["id"], "options": {"fields.x.ignore-retract": "true"}}, "fields.x.ignore-retract"),
    (
        COLUMNS,
        {"primary_key": ["id"], "options": {"merge-engine": "partial-update", "fields.dt.sequence-group": "id"}},
        "key column cannot be in a sequence group",
    ),
    (
        COLUMNS,
        {"primary_key": ["id"], "options": {"deletion-vectors.enabled": "true", "merge-engine": "first-row"}},
        "leave deletion-vectors.enabled out",
    ),
    (COLUMNS, {"options": {"type": "format-table"}}, "option=type value=format-table"),
    (COLUMNS, {"primary_key": ["id"], "options": {"bucket-function.type": "hive"}}, "bucket-function.type=hive"),
    (COLUMNS, {"options": {"bukcet": "1"}}, r"did_you_mean=\['bucket'"),
    ([("l", pa.list_(pa.int32()))], {"options": {"bucket": "2"}}, "no column can choose the bucket"),
]


@pytest.mark.parametrize(("columns", "arguments", "says"), REFUSED)
def test_mistakes_are_refused_by_name(columns: Any, arguments: dict[str, Any], says: str) -> None:
    """FL-18 and the reserved names: the message names the column or option, and the fix."""
    with pytest.raises(InvalidInputError, match=says):
        make(columns, **arguments)


def test_nanoseconds_are_for_orc() -> None:
    assert make(NANOS, options={"file.format": "orc"}).fields[1].type.precision == 9


@pytest.mark.parametrize("arrow", [pa.string(), pa.int8(), pa.int64(), pa.date32(), pa.bool_()])
def test_these_types_may_partition(arrow: pa.DataType) -> None:
    assert make([("p", arrow), ("v", pa.int32())], partition_by=["p"]).partition_keys == ("p",)


# ---- tables of others


def test_golden_tables_that_we_cannot_keep_right_are_not_written() -> None:
    refused = []
    for table in golden_tables():
        schema = TableSchema.from_json((table / "schema" / "schema-0").read_bytes())
        check_readable(schema)
        try:
            check_writable(schema)
        except InvalidInputError:
            refused.append(table.name)
    assert sorted(refused) == ["p_false", "ty"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"type": "object-table"}, "option=type value=object-table"),
        ({"data-evolution.enabled": "true"}, "data-evolution.enabled"),
        ({"pk-clustering-override": "TRUE"}, "pk-clustering-override"),
        ({"chain-table.enabled": "true"}, "chain-table.enabled"),
        ({"sequence.snapshot-ordering": "true"}, "sequence.snapshot-ordering"),
        ({"file.format": "csv"}, "file.format"),
        ({"merge-engine": "of-the-future"}, "merge-engine"),
    ],
)
def test_tables_that_we_would_read_wrongly_are_not_read(options: dict[str, str], says: str) -> None:
    body = json.loads(make(primary_key=["id"]).to_json())
    schema = TableSchema.from_json(json.dumps(body | {"options": body["options"] | options}))
    with pytest.raises(InvalidInputError, match=says):
        check_readable(schema)


def test_columns_that_we_do_not_know_are_neither_read_nor_written() -> None:
    body = json.loads(make().to_json())
    body["fields"][2]["type"] = {"type": "ARRAY", "element": "BLOB"}
    with pytest.raises(InvalidInputError, match="column=v type=BLOB"):
        check_readable(TableSchema.from_json(json.dumps(body)))


def test_schemas_of_others_are_written_as_they_were() -> None:
    for table in golden_tables():
        for path in (table / "schema").glob("schema-*"):
            body = path.read_bytes()
            schema = TableSchema.from_json(body)
            assert TableSchema.from_json(schema.to_json()) == schema
            if "pypaimon" not in str(path):  # spells nested types and time zones otherwise
                assert json.loads(schema.to_json()) == json.loads(body)


def test_old_files_without_a_version_had_one_bucket_and_orc() -> None:
    body = json.loads(make().to_json())
    old = {key: value for key, value in body.items() if key not in ("version", "timeMillis")} | {"options": {}}
    schema = TableSchema.from_json(json.dumps(old))
    assert (schema.table_options.bucket, schema.table_options.file_format) == (1, "orc")


def test_careless_options_are_texts() -> None:
    body = json.loads(make().to_json()) | {"options": {"bucket": 3, "write-only": True, "none": None}}
    schema = TableSchema.from_json(json.dumps(body))
    assert schema.options == {"bucket": "3", "write-only": "true"}
    assert schema.table_options.write_only


# ---- files


def test_versions_are_made_once() -> None:
    io = MemoryFileIO()
    store = SchemaStore(io, PATHS)
    assert store.latest() is None
    first = make(primary_key=["id"])
    store.create(first)
    with pytest.raises(ConflictError, match="schema-0"):
        store.create(make())
    assert store.latest() == store.read(0) == first
    assert list(io.files) == ["/w/db.db/t/schema/schema-0"]


def test_the_highest_number_is_the_current_schema() -> None:
    store = SchemaStore(LocalFileIO(), TablePaths(str(GOLDEN / "java-1.4.2" / "db.db" / "evol")))
    assert store.ids() == [0, 1, 2]
    latest = store.latest()
    assert latest is not None
    assert latest.id == 2


def test_other_names_in_the_directory_are_no_versions() -> None:
    io = MemoryFileIO()
    SchemaStore(io, PATHS).create(make())
    for name in (".schema-1.x.tmp", "schema-", "schema-x", "schema-1.bak", "schema-٣"):
        io.files[f"{PATHS.schema_dir}/{name}"] = b"?"
    assert SchemaStore(io, PATHS).ids() == [0]


def test_a_truncated_schema_names_its_file_and_size() -> None:
    io = MemoryFileIO()
    store = SchemaStore(io, PATHS)
    store.create(make(primary_key=["id"]))
    body = io.files[PATHS.schema(0)]
    for size in range(len(body) - 1):
        io.files[PATHS.schema(0)] = body[:size]
        with pytest.raises(CorruptDataError, match=f"{PATHS.schema(0)} size_bytes={size} "):
            store.read(0)


def test_a_missing_schema_is_corruption() -> None:
    with pytest.raises(CorruptDataError, match="schema-7"):
        SchemaStore(MemoryFileIO(), PATHS).read(7)


def test_a_schema_under_another_number_is_corruption() -> None:
    io = MemoryFileIO()
    io.files[PATHS.schema(4)] = make().to_json().encode()
    with pytest.raises(CorruptDataError, match="holds another version"):
        SchemaStore(io, PATHS).read(4)


@pytest.mark.parametrize("when", [When.BEFORE, When.AFTER])
def test_a_version_whose_creation_failed_is_whole_or_absent(when: When) -> None:
    disk = MemoryFileIO()
    schema = make(primary_key=["id"])
    with pytest.raises(Exception, match="injected fault"):
        SchemaStore(FaultyFileIO(disk, fail_at=1, when=when), PATHS).create(schema)
    assert SchemaStore(disk, PATHS).latest() == (schema if when is When.AFTER else None)


@pytest.mark.sweep
@PROPERTY
@given(
    st.binary(max_size=200)
    | st.recursive(
        st.none() | st.booleans() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ).map(lambda body: json.dumps(body).encode())
)
def test_garbage_is_corruption_and_nothing_else(body: bytes) -> None:
    with pytest.raises(CorruptDataError):
        TableSchema.from_json(body)


def test_columns_are_found_by_name() -> None:
    schema = golden("java-1.4.2/db.db/pk")
    assert schema.field("k").id == 0
    assert [field.name for field in schema.partition_fields] == ["pt"]
    assert schema.arrow_schema.names == list(schema.column_names)
    with pytest.raises(InvalidInputError, match="columns="):
        schema.field("nope")
