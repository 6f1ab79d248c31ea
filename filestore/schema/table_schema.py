"""One version of a table's schema, as a value and as the JSON of its file.

Source: Paimon spec "Schema", SchemaSerializer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, Self

import orjson
import pyarrow as pa

from filestore.layout.file_version import refuse_newer
from filestore.options.flink_log import options_for_file, options_of_file
from filestore.options.table.groups import SCHEMA_VERSION
from filestore.options.table_options import TableOptions
from filestore.types.data_types import DataField, arrow_field, arrow_schema, parse_field
from filestore.types.identity_cache import cached_by_identity
from lsm.errors import CorruptDataError, InvalidInputError, MissingColumnError

FIRST_SCHEMA_ID: Final = 0
TABLE_UUID_KEY: Final = "fluvialTableUuid"
"""Ignored by other engines, whose later versions of a schema are without it: the first one counts."""
# A file without a version is from before there were any.
_OLDEST_VERSION: Final = 1
_KNOWN_KEYS: Final = frozenset({
    "version", "id", "fields", "highestFieldId", "partitionKeys", "primaryKeys", "options", "comment", "timeMillis",
    TABLE_UUID_KEY,
})  # fmt: skip


class ColumnNames(tuple[str, ...]):
    """Names of columns in order, no two of them alike; looking for one costs the same whatever their number."""

    def __new__(cls, names: Iterable[str]) -> Self:
        """Of these names."""
        made = super().__new__(cls, names)
        made.places = {name: place for place, name in enumerate(made)}
        return made

    places: Mapping[str, int]
    """Where each name is."""

    def __contains__(self, name: object) -> bool:
        """Whether there is a column of the name."""
        return name in self.places


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSchema:
    """Columns, keys and options. Data files name the schema they were written with; versions are never deleted."""

    id: int
    fields: tuple[DataField, ...]
    highest_field_id: int  # of every id ever used, nested ones included
    partition_keys: tuple[str, ...]
    primary_keys: tuple[str, ...]
    options: Mapping[str, str] = dataclass_field(repr=False)  # may hold secrets
    comment: str | None = None
    time_ms: int
    version: int = SCHEMA_VERSION  # of the file format; decides what missing options mean
    table_uuid: str | None = dataclass_field(default=None, compare=False)  # what renaming keeps; None: made by others
    first_time_ms: int = dataclass_field(default=0, compare=False)  # of version 0, if others wrote this one; not stored

    unknown: str | None = dataclass_field(default=None, compare=False)  # JSON object of other keys in the file

    @property
    def identity(self) -> tuple[object, ...]:
        """What differs when a table is created again under the same name; options may be set for one session only."""
        return self.time_ms, self.highest_field_id, self.fields, self.primary_keys, self.partition_keys

    @property
    def column_names(self) -> "ColumnNames":
        """Names of all columns, in order."""
        return _names_of(self.fields)

    @property
    def trimmed_primary_keys(self) -> tuple[str, ...]:
        """Primary key without the partition columns: what rows are sorted by inside a partition."""
        return tuple(name for name in self.primary_keys if name not in self.partition_keys)

    @property
    def bucket_keys(self) -> tuple[str, ...]:
        """Columns whose hash is the bucket, in hashing order; empty for an unbucketed append table."""
        option = self.options.get("bucket-key")
        # Java does not trim the names either.
        return tuple(option.split(",")) if option else self.trimmed_primary_keys

    @property
    def key_fields(self) -> tuple[DataField, ...]:
        """Columns of the trimmed primary key, in key order."""
        return self.fields_of(self.trimmed_primary_keys)

    @property
    def partition_fields(self) -> tuple[DataField, ...]:
        """Partition columns, in the order of the directories."""
        return self.fields_of(self.partition_keys)

    @property
    def arrow_schema(self) -> pa.Schema:
        """All columns as Arrow fields. Raises: InvalidInputError for a column that we cannot hold."""
        return _arrow_schema_of(self.fields)

    def arrow_schema_of(self, names: Sequence[str]) -> pa.Schema:
        """Some columns as Arrow fields, in the order of the names. Raises: as ``field``, and as ``arrow_schema``."""
        if tuple(names) == self.column_names:
            return self.arrow_schema
        return arrow_schema(self.fields_of(names))

    @property
    def table_options(self) -> TableOptions:
        """The options in force; unknown keys of other writers are let through."""
        return _options_in_force(tuple(self.options.items()), self.primary_keys, self.version)

    def is_in_force(self, key: str, text: str) -> bool:
        """Whether an option has the value that a text gives, be it by default or in other words; not if unknown."""
        keys = {"primary-key": self.primary_keys, "partition": self.partition_keys}
        option = TableOptions.declared.get(key)
        if option is None:
            return self.options.get(key) == text
        if key in keys:
            return bool(option.read({key: text}) == keys[key])
        after = replace(self, options={**self.options, key: text})
        return bool(after.table_options[option] == self.table_options[option])

    def field(self, name: str) -> DataField:
        """Column of a name. Raises: InvalidInputError with the names there are."""
        names = self.column_names
        if name not in names:
            raise MissingColumnError(f"no such column: column={name} columns={list(names)}")
        return self.fields[names.places[name]]

    def arrow_field(self, name: str) -> pa.Field:
        """A column as Arrow has it. Raises: InvalidInputError listing the columns."""
        return arrow_field(self.field(name))

    def fields_of(self, names: Sequence[str]) -> tuple[DataField, ...]:
        """Columns of some names, in the order of the names."""
        places = self.column_names.places
        return tuple(self.fields[places[name]] if name in places else self.field(name) for name in names)

    def to_json(self, *, on_branch: bool = False) -> str:
        """Text of the schema file.

        Args:
            on_branch: the file is a branch's.

        Raises:
            InvalidInputError: a version that we do not write.
        """
        if self.version != SCHEMA_VERSION:
            raise InvalidInputError(f"only schemas of version {SCHEMA_VERSION} are written: version={self.version}")
        body: dict[str, Any] = {
            "version": self.version,
            "id": self.id,
            "fields": [field.to_json() for field in self.fields],
            "highestFieldId": self.highest_field_id,
            "partitionKeys": list(self.partition_keys),
            "primaryKeys": list(self.primary_keys),
            "options": options_for_file(self.options, self.table_options, on_branch=on_branch),
            # A null would come back from Java as the word null.
            **({} if self.comment is None else {"comment": self.comment}),
            "timeMillis": self.time_ms,
            **({} if self.table_uuid is None else {TABLE_UUID_KEY: self.table_uuid}),
        }
        return orjson.dumps(body | orjson.loads(self.unknown or "{}"), option=orjson.OPT_INDENT_2).decode()

    @classmethod
    def from_json(cls, text: str | bytes, *, source: str = "text") -> "TableSchema":
        """A schema from the text of its file, by any writer of any version.

        Raises: CorruptDataError naming the source when it is not a whole schema, or of a newer version.
        """
        try:
            body = orjson.loads(text)
            version = int(body.get("version") or _OLDEST_VERSION)
            refuse_newer(version, SCHEMA_VERSION, what="schema", source=source)
            fields = tuple(parse_field(field) for field in body["fields"])
            others = {key: value for key, value in body.items() if key not in _KNOWN_KEYS}
            return cls(
                id=int(body["id"]),
                fields=fields,
                highest_field_id=int(body["highestFieldId"]),
                partition_keys=_columns(body.get("partitionKeys"), fields),
                primary_keys=_columns(body.get("primaryKeys"), fields),
                options=options_of_file(_texts(body.get("options") or {})),
                comment=body.get("comment"),
                time_ms=int(body.get("timeMillis") or 0),
                version=version,
                table_uuid=body.get(TABLE_UUID_KEY),
                unknown=orjson.dumps(others).decode() if others else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
            raise CorruptDataError(
                f"schema cannot be decoded: file={source} size_bytes={len(text)} error={error!r}"
            ) from error


@cached_by_identity(64)
def _names_of(fields: tuple[DataField, ...]) -> ColumnNames:
    return ColumnNames(field.name for field in fields)


_arrow_schema_of = cached_by_identity(64)(arrow_schema)


def uuid_of(schema: TableSchema | None) -> str | None:
    """The id of a table by any version of its schema; None: there is no such version.

    A table that another engine made has none: for it a digest of the time of its first version stands.
    """
    if schema is None or schema.table_uuid is not None:
        return None if schema is None else schema.table_uuid
    made_ms = schema.time_ms if schema.id == FIRST_SCHEMA_ID else schema.first_time_ms
    return blake2b(str(made_ms).encode(), digest_size=16).hexdigest() if made_ms else None


@lru_cache(maxsize=256)
def _options_in_force(texts: tuple[tuple[str, str], ...], primary_key: tuple[str, ...], version: int) -> TableOptions:
    """Parsed once in a process; they cannot change."""
    return TableOptions.parse(dict(texts), strict=False, primary_key=primary_key, schema_version=version)


def _columns(names: Sequence[str] | None, fields: Sequence[DataField]) -> tuple[str, ...]:
    """Names of a key's columns. Raises: ValueError for one that there is not."""
    unknown = {*(names or ())} - {field.name for field in fields}
    if unknown:
        raise ValueError(f"key names unknown columns: {sorted(unknown)}")
    return tuple(names or ())


def _texts(options: Mapping[str, Any]) -> dict[str, str]:
    return {
        key: value if isinstance(value, str) else orjson.dumps(value).decode()
        for key, value in options.items()
        if value is not None
    }
