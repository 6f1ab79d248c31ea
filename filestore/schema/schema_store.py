"""Schemas of a table: making the first one, and the files that hold all versions."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import count
from typing import Final

import pyarrow as pa

from filestore.io.commit_lock import TableLock
from filestore.io.file_io import FileIO
from filestore.layout.paths import MAIN_BRANCH, SCHEMA_PREFIX, TablePaths
from filestore.layout.publication import check_not_published
from filestore.options.option import Stored
from filestore.options.secrets import shown_value
from filestore.options.table.groups import SCHEMA_VERSION
from filestore.options.table_options import TableOptions, canonical_options
from filestore.schema.row_counts import stored_form
from filestore.schema.table_schema import FIRST_SCHEMA_ID, TableSchema, uuid_of
from filestore.schema.validation import check_creatable, check_new_names, check_options_set, check_size, hashable
from filestore.types.data_types import DataField, DataType, data_type_of, walk
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError

logger = logging.getLogger("fluvial.catalog")

PATH_KEY: Final = "path"
ROOT_KEYS: Final = (PATH_KEY, "file.path")


def new_schema(
    columns: pa.Schema | Sequence[DataField],
    *,
    primary_key: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    options: Mapping[str, str] | None = None,
    comment: str | None = None,
    time_ms: int,
) -> TableSchema:
    """The first schema of a new table, checked.

    Args:
        columns: an Arrow schema, or fields when CHAR(n), comments or defaults matter; ids are
            assigned again, depth first.
        primary_key: key columns; they become NOT NULL. The option ``primary-key`` says the same.
        partition_by: partition columns, in directory order. The option ``partition`` says the same.
        options: texts by key. What others would otherwise guess is written out: bucket, bucket-key, file.format.
        comment: of the table.
        time_ms: epoch milliseconds of the creation.

    Raises:
        InvalidInputError: names the column or option and what to change.
    """
    texts = canonical_options(options or {})
    keys = _columns_of("primary-key", primary_key, texts)
    partitions = _columns_of("partition", partition_by, texts)
    for key in ROOT_KEYS:
        texts.pop(key, None)  # where a table is does not stand inside it
    given = given_fields(columns)
    check_new_names(field.name for field in given)
    check_size(given)
    if TableOptions.parse(texts, strict=False).row_counts:
        seen = TableOptions.parse(texts)  # what a table without a key cannot have, this one cannot have either
        form = stored_form(given, primary_keys=keys, partitions=partitions, options=seen)
        given, keys, texts = form.columns, form.primary_keys, form.options
    fields, highest = _numbered(given, not_null=keys)
    parsed = TableOptions.parse(texts, primary_key=keys)
    texts |= _written_out(texts, parsed, fields, keys=keys, partitions=partitions)
    schema = TableSchema(
        id=FIRST_SCHEMA_ID,
        fields=fields,
        highest_field_id=highest,
        partition_keys=partitions,
        primary_keys=keys,
        options=texts,
        comment=comment,
        time_ms=time_ms,
        version=SCHEMA_VERSION,
    )
    check_creatable(schema, TableOptions.parse(texts, primary_key=keys))
    check_options_set(schema, schema.options)
    return schema


class SchemaStore:
    """The schema files of one branch of a table."""

    def __init__(self, io: FileIO, paths: TablePaths, *, lock: TableLock | None = None) -> None:
        """``lock``: to publish under, where ``io`` may not be able to create a file exclusively."""
        self._io = io
        self._paths = paths
        self._lock = lock

    def ids(self) -> list[int]:
        """Numbers of all versions, ascending; empty when there is no table."""
        names = self._io.list_names(self._paths.schema_dir)
        numbers = (name.removeprefix(SCHEMA_PREFIX) for name in names if name.startswith(SCHEMA_PREFIX))
        return sorted(int(number) for number in numbers if number.isascii() and number.isdigit())

    def has_table(self) -> bool:
        """Whether there is a table: a version without the first is of a change that its table left before it.

        So a process that alters a table, and is paused while it is dropped or renamed, makes none under the old name.
        """
        return FIRST_SCHEMA_ID in self.ids()

    def latest(self) -> TableSchema | None:
        """The current schema, or None when there is no table, see ``has_table``. Raises: CorruptDataError."""
        ids = self.ids()
        return self.read(ids[-1]) if FIRST_SCHEMA_ID in ids else None

    def find(self, schema_id: int) -> TableSchema | None:
        """One version; None when there is no such file. Raises: CorruptDataError."""
        path = self._paths.schema(schema_id)
        try:
            body = self._io.read_bytes(path)
        except FileNotFoundError:
            return None
        schema = _decoded(body, path)
        if schema.id != schema_id:
            raise CorruptDataError(f"schema file holds another version: file={path} id={schema.id}")
        if schema.table_uuid is None and schema_id != FIRST_SCHEMA_ID:  # another engine has altered the table
            first = self.find(FIRST_SCHEMA_ID)
            return (
                schema if first is None else replace(schema, table_uuid=first.table_uuid, first_time_ms=first.time_ms)
            )
        return schema

    def read(self, schema_id: int) -> TableSchema:
        """One version. Raises: CorruptDataError when the file is missing, garbled or another version's."""
        schema = self.find(schema_id)
        if schema is None:
            raise CorruptDataError(f"schema file is missing: file={self._paths.schema(schema_id)}")
        return schema

    def body_of(self, schema: TableSchema) -> bytes:
        """The contents of a version's file here."""
        return schema.to_json(on_branch=self._paths.branch != MAIN_BRANCH).encode()

    def create(self, schema: TableSchema, *, after: TableSchema | None = None) -> None:
        """Publish a version.

        Args:
            schema: the version.
            after: the version that it was decided on; None: it is the first, or one that a branch has.

        Raises:
            InvalidInputError: the version before no longer exists, because the table was dropped, renamed or created
                again; nothing was published.
            ConflictError: another writer published this version, or took a login out of the one before: read it and
                decide again. Or a fast-forward is publishing a branch, which may have this version.
            OutcomeUnknownError: it may have been published: read the latest version.
        """
        path, body = self._paths.schema(schema.id), self.body_of(schema)
        if after is not None:
            check_not_published(self._io, self._paths)

        def create() -> bool:
            return self._io.create_exclusive(path, body)

        if not (create() if self._lock is None else self._lock.run(create)):
            raise ConflictError(f"schema version exists already: file={path}")
        before = None if after is None else self.find(after.id)
        if before != after or uuid_of(before) != uuid_of(after):
            with suppress(FileNotFoundError):
                if self._io.read_bytes(path) == body:  # else a table that was made again has this version
                    self._io.delete(path)
            if before is not None and after is not None and before.identity == after.identity:
                raise ConflictError(f"schema version changed meanwhile: file={self._paths.schema(after.id)}")
            for directory in (self._paths.schema_dir, self._paths.branch_root):
                self._io.delete_empty_directory(directory)
            raise InvalidInputError(
                f"table was dropped, renamed or made again meanwhile: path={self._paths.root} "
                "fix='open it under its new name'"
            )


@lru_cache(maxsize=128)
def _decoded(body: bytes, source: str) -> TableSchema:
    """A version is read with every commit, and never changes."""
    return TableSchema.from_json(body, source=source)


def _columns_of(option: str, given: Sequence[str], texts: dict[str, str]) -> tuple[str, ...]:
    """Columns from the argument or the option, which must not contradict each other; the option goes."""
    text = texts.pop(option, None)
    named = tuple(part.strip() for part in text.split(",")) if text else ()
    if named and given and named != tuple(given):
        raise InvalidInputError(f"columns are given twice: option={option} value={text} argument={list(given)}")
    return tuple(given) or named


def given_fields(columns: pa.Schema | Sequence[DataField]) -> Sequence[DataField]:
    """Columns in any form that a table is made of. Raises: InvalidInputError: another form, or an unknown type."""
    if hasattr(columns, "__arrow_c_schema__") and not isinstance(columns, pa.Schema):
        columns = pa.schema(columns)  # of another tool
    if not isinstance(columns, pa.Schema):
        other = [each for each in columns if not isinstance(each, DataField)]
        if other:
            raise InvalidInputError(
                f"columns are an Arrow schema: given={type(columns).__name__} of {type(other[0]).__name__} "
                "fix='pyarrow.schema([(name, type), ...])'"
            )
        return columns
    fields = []
    for index, column in enumerate(columns):
        try:
            data_type = data_type_of(column.type, nullable=column.nullable)
        except InvalidInputError as error:
            raise InvalidInputError(f"{error} column={column.name}") from error
        fields.append(DataField(id=index, name=column.name, type=data_type))
    return fields


def warn_of_other_shape(
    name: str,
    found: TableSchema,
    columns: pa.Schema | Sequence[DataField],
    primary_key: Sequence[str],
    partition_by: Sequence[str],
    options: Mapping[str, str] | None,
) -> None:
    """Log how a table that is there differs from the one that was to be made; further columns of it are no difference.

    Args:
        name: of the table.
        found: its schema.
        columns: as in ``new_schema``, and the following.
        primary_key: likewise.
        partition_by: likewise.
        options: those that were given for this table.
    """
    types = {field.name: str(field.type).removesuffix(" NOT NULL") for field in found.fields}
    wanted = {field.name: str(field.type).removesuffix(" NOT NULL") for field in given_fields(columns)}
    texts = canonical_options(options or {})
    facts = [
        f"column={name} table_has={types.get(name, 'no such column')} wanted={kind}"
        for name, kind in wanted.items()
        if types.get(name) != kind
    ]
    for what, has, asked in (
        ("primary_key", found.primary_keys, _columns_of("primary-key", primary_key, texts)),
        ("partition_by", found.partition_keys, _columns_of("partition", partition_by, texts)),
    ):
        if [*has] != [*asked]:
            facts.append(f"{what} table_has={[*has]} wanted={[*asked]}")
    facts += [
        f"option={key} table_has={shown_value(key, found.options.get(key, 'its default'))} "
        f"wanted={shown_value(key, text)}"
        for key, text in texts.items()
        if (key in found.options or _is_stored(key)) and not found.is_in_force(key, text)
    ]
    if facts:
        logger.warning(
            "the table exists with another shape, and stays as it is: table=%s %s fix='ALTER TABLE, or choose another "
            "name'",
            name, "; ".join(facts),
        )  # fmt: skip


def _is_stored(key: str) -> bool:
    """Whether a table that was made with an option has it: what its opener says, or what follows, is not stored."""
    option = TableOptions.declared.get(key)
    return option is not None and option.stored is Stored.BY_USERS and key not in ROOT_KEYS


def _numbered(fields: Sequence[DataField], *, not_null: Sequence[str]) -> tuple[tuple[DataField, ...], int]:
    """Fields with fresh ids, depth first, and the highest id."""
    ids = count()
    numbered = []
    for field in fields:
        field_id = next(ids)
        data_type = with_new_field_ids(field.type, ids)
        if field.name in not_null:
            data_type = replace(data_type, nullable=False)
        numbered.append(replace(field, id=field_id, type=data_type))
    return tuple(numbered), next(ids) - 1


def with_new_field_ids(data_type: DataType, ids: Iterator[int]) -> DataType:
    """The type with fresh ids for the fields inside it, depth first."""
    if data_type.root == "ROW":
        inner = []
        for field in data_type.fields:
            field_id = next(ids)
            inner.append(replace(field, id=field_id, type=with_new_field_ids(field.type, ids)))
        return replace(data_type, fields=tuple(inner))
    if not any(part.root == "ROW" for part in walk(data_type)):
        return data_type
    return replace(
        data_type,
        element=data_type.element and with_new_field_ids(data_type.element, ids),
        key=data_type.key and with_new_field_ids(data_type.key, ids),
        value=data_type.value and with_new_field_ids(data_type.value, ids),
    )


def _written_out(
    texts: Mapping[str, str],
    parsed: TableOptions,
    fields: Sequence[DataField],
    *,
    keys: Sequence[str],
    partitions: Sequence[str],
) -> dict[str, str]:
    """Defaults that stand in the schema file, so that no reader depends on its own."""
    bucket = parsed.bucket if "bucket" in texts else 1 if keys or parsed.log_system != "none" else -1
    explicit = {"bucket": str(bucket), "file.format": parsed.file_format}
    if texts.get("bucket-key"):
        explicit["bucket-key"] = ",".join(name.strip() for name in texts["bucket-key"].split(","))
    elif bucket > 0 and not keys:
        # Without a key the whole row chooses the bucket: every column that can be hashed.
        hashed = [field.name for field in fields if hashable(field) and field.name not in partitions]
        if not hashed or any("," in name for name in hashed):
            raise InvalidInputError(
                f"no column can choose the bucket: bucket={bucket} columns={[field.name for field in fields]} "
                "fix='set bucket-key or bucket=-1'"
            )
        explicit["bucket-key"] = ",".join(hashed)
    return explicit
