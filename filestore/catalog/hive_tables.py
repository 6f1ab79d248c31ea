"""What a Hive metastore keeps of a table: columns, properties and place, as Paimon's Hive catalog writes them.

The schema files stay what the table is; the metastore has a copy of them for Hive, which asks only the metastore.
Source: Paimon HiveCatalog, HiveTypeUtils.
"""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Final

from filestore.options.parsing import boolean
from filestore.schema.table_schema import TableSchema
from filestore.types.data_types import DataField, DataType
from lsm.secret_names import is_secret_name

if TYPE_CHECKING:
    from hive_metastore.ttypes import Table

STORAGE_HANDLER: Final = "org.apache.paimon.hive.PaimonStorageHandler"
INPUT_FORMAT: Final = "org.apache.paimon.hive.mapred.PaimonInputFormat"
OUTPUT_FORMAT: Final = "org.apache.paimon.hive.mapred.PaimonOutputFormat"
SERDE: Final = "org.apache.paimon.hive.PaimonSerDe"
_EXTERNAL: Final = "EXTERNAL_TABLE"
_PURGED: Final = "external.table.purge"  # Hive 4 makes every table external, and notes here whose its files are
_LEFT_ALONE: Final = "fluvial.left-alone"  # what the table was before
_FOREVER: Final = 2**31 - 1
_CHAR_MAX: Final = 255
_VARCHAR_MAX: Final = 65_535
_ATOMIC: Final[Mapping[str, str]] = {
    "BOOLEAN": "boolean",
    "TINYINT": "tinyint",
    "SMALLINT": "smallint",
    "INT": "int",
    "BIGINT": "bigint",
    "FLOAT": "float",
    "DOUBLE": "double",
    "BINARY": "binary",
    "VARBINARY": "binary",
    "BLOB": "binary",
    "DATE": "date",
    "TIME": "string",
    "TIMESTAMP": "timestamp",
    "VARIANT": "struct<value:binary,metadata:binary>",
}


ZONED: Final = "timestamp with local time zone"
"""The type of TIMESTAMP_LTZ; Hive 2 has only ``timestamp``."""


def hive_type(data_type: DataType, zoned: str = ZONED) -> str:
    """The type of a column in Hive, with TIMESTAMP_LTZ as ``zoned``; types that Hive does not have are strings."""
    root, length = data_type.root, data_type.length
    if root == "DECIMAL":
        return f"decimal({data_type.precision},{data_type.scale})"
    if root == "CHAR" and length is not None and length <= _CHAR_MAX:
        return f"char({length})"
    if root == "VARCHAR" and length is not None and length <= _VARCHAR_MAX:
        return f"varchar({length})"
    if root == "ROW":
        return f"struct<{','.join(f'{each.name}:{hive_type(each.type, zoned)}' for each in data_type.fields)}>"
    if data_type.key is not None and data_type.value is not None:
        return f"map<{hive_type(data_type.key, zoned)},{hive_type(data_type.value, zoned)}>"
    if data_type.element is not None:
        element = hive_type(data_type.element, zoned)
        return f"map<{element},int>" if root == "MULTISET" else f"array<{element}>"
    return zoned if root == "TIMESTAMP_LTZ" else _ATOMIC.get(root, "string")


def registers_partitions(schema: TableSchema) -> bool:
    """Whether the metastore lists the table's partitions: ``metastore.partitioned-table``."""
    return bool(schema.partition_keys) and schema.table_options.metastore_partitioned_table


def properties_of(schema: TableSchema) -> dict[str, str]:
    """The table's options and keys as table properties; nothing secret."""
    properties = {key: text for key, text in schema.options.items() if not is_secret_name(key)}
    if schema.primary_keys:
        properties["primary-key"] = ",".join(schema.primary_keys)
    if schema.partition_keys:
        properties["partition"] = ",".join(schema.partition_keys)
    if schema.bucket_keys:
        properties["bucket-key"] = ",".join(schema.bucket_keys)
    if schema.comment is not None:
        properties["comment"] = schema.comment
    return properties


def new_table(
    database: str, name: str, schema: TableSchema, location: str, *, owner: str, now_ms: int, zoned: str = ZONED
) -> "Table":
    """A table that the metastore does not have yet.

    Args:
        database: its name in the metastore.
        name: of the table.
        schema: of the main branch.
        location: directory of the table, as text.
        owner: user whose table it is.
        now_ms: epoch milliseconds.
        zoned: see ``hive_type``.
    """
    from hive_metastore.ttypes import SerDeInfo, StorageDescriptor, Table

    columns, partition_columns = _columns(schema, zoned)
    return Table(
        tableName=name,
        dbName=database,
        owner=owner,
        createTime=now_ms // 1000,
        lastAccessTime=now_ms // 1000,
        retention=_FOREVER,
        sd=StorageDescriptor(
            cols=columns,
            location=location,
            inputFormat=INPUT_FORMAT,
            outputFormat=OUTPUT_FORMAT,
            serdeInfo=SerDeInfo(serializationLib=SERDE, parameters={}),
            parameters={},
        ),
        partitionKeys=partition_columns,
        parameters={**properties_of(schema), "table_type": "PAIMON", "storage_handler": STORAGE_HANDLER},
        tableType="MANAGED_TABLE",
    )


def follow_schema(table: "Table", schema: TableSchema, *, before: TableSchema | None, zoned: str = ZONED) -> bool:
    """Change columns and properties of a table of the metastore to those of a schema; whether that changed anything.

    Properties of others stay, those that the schema before had and this one has not go.
    """
    columns, _ = _columns(schema, zoned)
    properties = dict(table.parameters)
    for key in properties_of(before) if before is not None else ():
        properties.pop(key, None)
    properties |= properties_of(schema)
    if columns == table.sd.cols and properties == table.parameters:
        return False
    table.sd.cols, table.parameters = columns, properties
    return True


def is_paimon(table: "Table | None") -> bool:
    """Whether a table of the metastore is one of Paimon's, and not of Hive itself or of another format."""
    return table is not None and table.sd is not None and table.sd.inputFormat == INPUT_FORMAT


def owns_files(table: "Table") -> bool:
    """Whether dropping the table removes its files; those of an external one stay."""
    noted = table.parameters or {}
    return table.tableType != _EXTERNAL or _LEFT_ALONE in noted or boolean(noted.get(_PURGED, "false"))


def left_alone(table: "Table") -> "Table":
    """The entry while the metastore must not touch the files, until ``given_back``: an external one that says so."""
    found = deepcopy(table)
    if table.tableType != _EXTERNAL:
        noted = {_LEFT_ALONE: table.tableType or "", "EXTERNAL": "TRUE"}
        found.tableType, found.parameters = _EXTERNAL, {**(table.parameters or {}), **noted}
    return found


def given_back(table: "Table") -> "Table":
    """The entry as it was before ``left_alone``, also where the writer that did that has died."""
    found = deepcopy(table)
    kind = (table.parameters or {}).get(_LEFT_ALONE)
    if kind is not None:
        own = (_LEFT_ALONE, "EXTERNAL")
        found.tableType, found.parameters = kind, {k: v for k, v in table.parameters.items() if k not in own}
    return found


def _columns(schema: TableSchema, zoned: str) -> tuple[list[object], list[object]]:
    """Columns, and those by which the metastore lists partitions."""
    apart = set(schema.partition_keys) if registers_partitions(schema) else set()
    by_name = {field.name: field for field in schema.fields}
    rest = [field for field in schema.fields if field.name not in apart]
    listed = [by_name[key] for key in schema.partition_keys if apart]
    return _hive_columns(rest, zoned), _hive_columns(listed, zoned)


def _hive_columns(fields: Sequence[DataField], zoned: str) -> list[object]:
    from hive_metastore.ttypes import FieldSchema

    return [
        FieldSchema(name=each.name.lower(), type=hive_type(each.type, zoned), comment=each.description)
        for each in fields
    ]
