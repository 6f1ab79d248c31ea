"""The Avro schemas of manifests, manifest lists and index manifests: fields, order and names as in Java.

Nullable unions start with null, because Java takes the second branch as the value.
Source: Paimon ManifestEntrySerializer, ManifestFileMetaSerializer, IndexManifestEntrySerializer, dumped by Java 1.4.2.
"""

from collections.abc import Sequence
from typing import Any, Final

_NAMESPACE: Final = "org.apache.paimon.avro.generated"
_STRINGS: Final = {"type": "array", "items": "string"}
_MILLIS: Final = {"type": "long", "logicalType": "timestamp-millis"}


def _nullable(inner: Any) -> list[Any]:
    return ["null", inner]


def _record(name: str, fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "fields": [
            # Only unions are lists, and all start with null.
            {"name": field, "type": kind, **({"default": None} if isinstance(kind, list) else {})}
            for field, kind in fields
        ],
    }


def _root(fields: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    return _record("record", fields) | {"namespace": _NAMESPACE}


_STATS: Final[Sequence[tuple[str, Any]]] = (
    ("_MIN_VALUES", "bytes"),
    ("_MAX_VALUES", "bytes"),
    ("_NULL_COUNTS", _nullable({"type": "array", "items": _nullable("long")})),
)

FILE_SCHEMA: Final = _record(
    "record__FILE",
    (
        ("_FILE_NAME", "string"),
        ("_FILE_SIZE", "long"),
        ("_ROW_COUNT", "long"),
        ("_MIN_KEY", "bytes"),
        ("_MAX_KEY", "bytes"),
        ("_KEY_STATS", _record("record__FILE__KEY_STATS", _STATS)),
        ("_VALUE_STATS", _record("record__FILE__VALUE_STATS", _STATS)),
        ("_MIN_SEQUENCE_NUMBER", "long"),
        ("_MAX_SEQUENCE_NUMBER", "long"),
        ("_SCHEMA_ID", "long"),
        ("_LEVEL", "int"),
        ("_EXTRA_FILES", _STRINGS),
        ("_CREATION_TIME", _nullable(_MILLIS)),
        ("_DELETE_ROW_COUNT", _nullable("long")),
        ("_EMBEDDED_FILE_INDEX", _nullable("bytes")),
        ("_FILE_SOURCE", _nullable("int")),
        ("_VALUE_STATS_COLS", _nullable(_STRINGS)),
        ("_EXTERNAL_PATH", _nullable("string")),
        ("_FIRST_ROW_ID", _nullable("long")),
        ("_WRITE_COLS", _nullable(_STRINGS)),
    ),
)

# Java's next version requires exactly these six fields in this order.
MANIFEST_SCHEMA: Final = _root(
    (
        ("_VERSION", "int"),
        ("_KIND", "int"),
        ("_PARTITION", "bytes"),
        ("_BUCKET", "int"),
        ("_TOTAL_BUCKETS", "int"),
        ("_FILE", FILE_SCHEMA),
    )
)

_MANIFEST_LIST: Final = (
    ("_VERSION", "int"),
    ("_FILE_NAME", "string"),
    ("_FILE_SIZE", "long"),
    ("_NUM_ADDED_FILES", "long"),
    ("_NUM_DELETED_FILES", "long"),
    ("_PARTITION_STATS", _record("record__PARTITION_STATS", _STATS)),
    ("_SCHEMA_ID", "long"),
    ("_MIN_BUCKET", _nullable("int")),
    ("_MAX_BUCKET", _nullable("int")),
    ("_MIN_LEVEL", _nullable("int")),
    ("_MAX_LEVEL", _nullable("int")),
    ("_MIN_ROW_ID", _nullable("long")),
    ("_MAX_ROW_ID", _nullable("long")),
)
MANIFEST_LIST_SCHEMA: Final = _root(_MANIFEST_LIST)
WIDE_LIST_SCHEMA: Final = _root(
    (*_MANIFEST_LIST, ("_TOTAL_BUCKETS", _nullable("int")), ("_EXTRA_FILES", _nullable(_STRINGS)))
)
"""Of lists with manifests of pypaimon 2.1, which notes more of them."""

_VECTOR_RANGE: Final = _record(
    "record__DELETIONS_VECTORS_RANGES",
    (("f0", "string"), ("f1", "int"), ("f2", "int"), ("_CARDINALITY", _nullable("long"))),
)
_GLOBAL_INDEX: Final = _record(
    "record__GLOBAL_INDEX",
    (
        ("_ROW_RANGE_START", "long"),
        ("_ROW_RANGE_END", "long"),
        ("_INDEX_FIELD_ID", "int"),
        ("_EXTRA_FIELD_IDS", _nullable({"type": "array", "items": "int"})),
        ("_INDEX_META", _nullable("bytes")),
    ),
)

INDEX_MANIFEST_SCHEMA: Final = _root(
    (
        ("_VERSION", "int"),
        ("_KIND", "int"),
        ("_PARTITION", "bytes"),
        ("_BUCKET", "int"),
        ("_INDEX_TYPE", "string"),
        ("_FILE_NAME", "string"),
        ("_FILE_SIZE", "long"),
        ("_ROW_COUNT", "long"),
        ("_DELETIONS_VECTORS_RANGES", _nullable({"type": "array", "items": _nullable(_VECTOR_RANGE)})),
        ("_EXTERNAL_PATH", _nullable("string")),
        ("_GLOBAL_INDEX", _nullable(_GLOBAL_INDEX)),
    )
)
