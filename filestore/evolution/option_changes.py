"""Changes of options of an existing table: which are allowed."""

from dataclasses import replace
from typing import Final

from filestore.options.secrets import shown_value
from filestore.options.table_options import TableOptions, canonical_options, check_property, check_storable
from filestore.schema.table_schema import TableSchema
from lsm.errors import InvalidInputError

# The existing records of the topic were written with these.
FIXED_BY_LOG: Final = frozenset(
    {"log.system", "log.kafka.topic", "log.kafka.topic-id", "log.kafka.topic-is-adopted",
     "log.generation", "log.marker-key", "log.transactional-id.prefix", "log.format", "log.key.format",
     "log.consistency", "log.changelog-mode", "log.system.partitions"}
)  # fmt: skip
_NOT_IN_SCHEMA: Final = {
    "path": "a table stays in its directory",
    "file.path": "a table stays in its directory",
}


def with_option(schema: TableSchema, given: str, text: str | None, *, has_rows: bool) -> TableSchema:
    """A schema with an option set or removed.

    Args:
        schema: the schema to change.
        given: key of the option or one of its aliases.
        text: new value; None removes the option.
        has_rows: whether the table has snapshots; some options cannot change then.

    Raises:
        InvalidInputError: no such option, an invalid value, or the option can no longer change; gives the reason.
    """
    ((key, value),) = canonical_options({given: text or ""}).items()
    current = schema.options.get(key)
    if text is None and current is None:
        return schema
    if text is not None:
        check_property(key, value)
        check_storable({key: value})
        if current == value:
            return schema
    refusal = _refusal(schema, key, current, value if text is not None else None, has_rows=has_rows)
    if refusal is not None:
        if text is not None and _is_in_force(schema, key, value):
            return schema
        raise InvalidInputError(refusal)
    options = {name: each for name, each in schema.options.items() if name != key}
    return replace(schema, options=options if text is None else {**options, key: value})


def _is_in_force(schema: TableSchema, key: str, text: str) -> bool:
    """Whether an option has the value that a text gives, be it by default."""
    keys = {"primary-key": schema.primary_keys, "partition": schema.partition_keys}
    option = TableOptions.declared.get(key)
    if option is None:
        return False
    if key in keys:
        return bool(option.read({key: text}) == keys[key])
    after = replace(schema, options={**schema.options, key: text})
    return bool(after.table_options[option] == schema.table_options[option])


def _refusal(schema: TableSchema, key: str, before: str | None, after: str | None, *, has_rows: bool) -> str | None:
    """Why an option cannot change; None: it can."""
    values = f"option={key} value={_shown(key, before)} wanted={_shown(key, after)}"
    if key in _NOT_IN_SCHEMA:
        return f"option of a table cannot change, {_NOT_IN_SCHEMA[key]}: {values}"
    if key in ("primary-key", "partition"):
        return f"keys and partitions cannot change: {values} fix='create a new table and copy'"
    has_log = schema.table_options.log_system != "none"
    emits_otherwise = key == "changelog-producer" and "lookup" in (before, after)
    is_fixed = key in FIXED_BY_LOG or key == "bucket"
    if has_log and (is_fixed or (emits_otherwise and schema.table_options.log_changelog_mode == "all")):
        fix = "CALL sys.rescale" if key == "bucket" else "create a new table and copy, or drop and create it"
        return f"option cannot change while the table has a log, its records depend on it: {values} fix='{fix}'"
    if key == "log.system" or (key == "log.kafka.bootstrap.servers" and not has_log and after is not None):
        return f"a table gets its log at creation: {values} fix='create a table with a log and copy'"
    option = TableOptions.declared.get(key)
    is_immutable = option is not None and option.is_immutable
    needs_vectors = key == "deletion-vectors.enabled" and schema.primary_keys  # older rows have none
    if has_rows and (is_immutable or needs_vectors) and not (key == "bucket" and _only_rescales(before, after)):
        return (
            f"option cannot change once there are rows, the files depend on it: {values} "
            "fix='create a new table and copy, or drop and create it'"
        )
    return None


def _only_rescales(before: str | None, after: str | None) -> bool:
    """Whether both bucket counts are fixed, so that partitions keep their buckets until they are overwritten."""
    return before is not None and after is not None and int(before) > 0 and int(after) > 0


def _shown(key: str, text: str | None) -> str:
    return str(text) if text is None else shown_value(key, text)
