"""``write.merge-schema``: the schema changes that let a table hold given rows, and which rows are refused.

New columns and fields are appended as nullable. A type becomes the narrowest that holds the values of both: with
``type-widening`` without changing any of them, with ``explicit-cast`` the narrowest that both can be cast to, so that
old files remain readable. String lengths and timestamp precisions never grow here: data frames lack them, and values
are checked or truncated as in every write.

Source: options of Paimon's SchemaMergingUtils; the rules differ in part.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from filestore.evolution.schema_change import AddColumn, ChangeType, SchemaChange
from filestore.options.table_options import TableOptions
from filestore.schema.column_paths import ColumnPath, path_text
from filestore.schema.table_schema import TableSchema
from filestore.types.casts import can_cast, widens
from filestore.types.data_types import (
    BYTES,
    BYTES_ROOTS,
    INTEGER_ROOTS,
    NESTED_ROOTS,
    STRING,
    TEXT_ROOTS,
    TIMESTAMP_ROOTS,
    DataField,
    DataType,
)
from lsm.errors import InvalidInputError

MERGE_KEY: Final = TableOptions.write_merge_schema.key
WIDENING_KEY: Final = TableOptions.write_merge_schema_type_widening.key
CAST_KEY: Final = TableOptions.write_merge_schema_explicit_cast.key

_FLOAT_ROOTS: Final = frozenset({"FLOAT", "DOUBLE"})
_CLOCK_ROOTS: Final = TIMESTAMP_ROOTS | {"DATE"}
_DIGITS: Final = {"TINYINT": 3, "SMALLINT": 5, "INT": 10, "BIGINT": 19}
_MAX_PRECISION: Final = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeRules:
    """The schema changes that a writer may make, besides adding columns."""

    widens: bool = False
    casts: bool = False
    fitting: "Fitting | None" = None  # further type pairs where the write itself accepts fitting values

    @classmethod
    def of(
        cls, options: TableOptions, *, merges: bool | None = None, widens: bool | None = None, casts: bool | None = None
    ) -> "MergeRules | None":
        """The rules of a writer; None if it may not change the schema.

        Args:
            options: of the table.
            merges: ``write.merge-schema`` of the writer, which comes before the table's; None: it says nothing.
            widens: ``type-widening`` of the writer.
            casts: ``explicit-cast`` of the writer.

        Raises:
            InvalidInputError: the writer switches a part on without the whole.
        """
        if options.write_merge_schema if merges is None else merges:
            may_widen = options.write_merge_schema_type_widening if widens is None else widens
            may_cast = options.write_merge_schema_explicit_cast if casts is None else casts
            return cls(widens=may_widen or may_cast, casts=may_cast)
        for key, is_given in ((WIDENING_KEY, widens), (CAST_KEY, casts)):
            if is_given and merges is None:
                raise InvalidInputError(f"option does nothing by itself: {key}=true fix=set {MERGE_KEY}=true as well")
        return None


Fitting = Callable[[DataType, DataType], bool]
"""Whether a write accepts values of the second type for a column of the first, refusing those that do not fit."""


def are_numbers(known: DataType, given: DataType) -> bool:
    """``Fitting`` for Arrow rows: numbers are checked one by one, since Python's numbers have the widest types."""
    return {known.root, given.root} <= INTEGER_ROOTS | _FLOAT_ROOTS | {"DECIMAL"}


def merge_changes(schema: TableSchema, given: Sequence[DataField], rules: MergeRules) -> list[SchemaChange]:
    """The changes that let a table hold rows with some columns; [] if it can already.

    Args:
        schema: schema of the table.
        given: columns of the rows; ids are ignored.
        rules: the allowed changes.

    Raises:
        InvalidInputError: no allowed change lets a column hold the values. Names it, the types and the option.
    """
    by_name = {field.name: field for field in schema.fields}
    return list(_of_level(by_name, given, (), rules))


def needs_cast(known: DataType, given: DataType) -> bool:
    """Whether values must be cast to the column's type, rather than only checked or stored differently."""
    if known.root == given.root == "ROW":
        inner = {field.name: field.type for field in known.fields}
        return any(field.name in inner and needs_cast(inner[field.name], field.type) for field in given.fields)
    if known.element is not None and given.element is not None:
        return needs_cast(known.element, given.element)
    if known.key is not None and known.value is not None and given.key is not None and given.value is not None:
        return needs_cast(known.key, given.key) or needs_cast(known.value, given.value)
    return not (_takes(known, given) or (known.root in INTEGER_ROOTS and given.root in INTEGER_ROOTS))


def with_known_ids(known: Sequence[DataField], given: Sequence[DataField]) -> tuple[DataField, ...]:
    """The columns of rows with the ids of the table's columns with the same names, at any depth.

    Types that only differ in storage are replaced by the table's, so that the mapping casts nothing else.
    """
    by_name = {field.name: field for field in known}
    found = []
    for field in given:
        own = by_name.get(field.name)
        if own is not None:
            found.append(replace(field, id=own.id, type=_with_known_ids(own.type, field.type)))
    return tuple(found)


def _with_known_ids(known: DataType, given: DataType) -> DataType:
    if known.root == given.root == "ROW":
        return replace(given, fields=with_known_ids(known.fields, given.fields))
    if known.element is not None and given.element is not None:
        return replace(given, element=_with_known_ids(known.element, given.element))
    if known.key is not None and known.value is not None and given.key is not None and given.value is not None:
        key, value = _with_known_ids(known.key, given.key), _with_known_ids(known.value, given.value)
        return replace(given, key=key, value=value)
    return replace(known, nullable=given.nullable) if _is_stored_alike(known, given) else given


def _of_level(
    known: Mapping[str, DataField], given: Sequence[DataField], parent: ColumnPath, rules: MergeRules
) -> Iterator[SchemaChange]:
    spelled: dict[str, str] = {}
    for name in known:
        spelled.setdefault(name.lower(), name)
    for field in given:
        path = (*parent, field.name)
        if field.name in known:
            yield from _of_type(known[field.name].type, field.type, path, rules)
            continue
        if (alike := spelled.get(field.name.lower())) is not None:
            raise InvalidInputError(
                f"two columns would differ only in case: column={path_text(path)} existing={alike} "
                "fix=use the table's spelling"
            )
        yield AddColumn(
            path=path,
            type=as_nullable(field.type),
            comment=field.description,
            initial_default=None if parent else field.initial_default,
        )


def _of_type(known: DataType, given: DataType, path: ColumnPath, rules: MergeRules) -> Iterator[SchemaChange]:
    if known.root == given.root == "ROW":
        yield from _of_level({field.name: field for field in known.fields}, given.fields, path, rules)
    elif known.root == given.root == "ARRAY" and known.element is not None and given.element is not None:
        yield from _of_type(known.element, given.element, (*path, "element"), rules)
    elif known.root == given.root == "MAP" and known.value is not None and given.value is not None:
        if known.key is None or given.key is None or not _takes(known.key, given.key):
            raise _refusal(known, given, path, "keys of a map keep their type", "cast them in the query")
        yield from _of_type(known.value, given.value, (*path, "value"), rules)
    elif {known.root, given.root} & NESTED_ROOTS:
        if not (known.root == "MULTISET" and given.root == "MAP"):  # the form that Spark and Arrow use
            raise _refusal(known, given, path, "one is nested and the other is not", "write another column")
    elif not _takes(known, given):
        common = _common(known, given, path, rules)
        if common != replace(known, nullable=True):
            yield ChangeType(path, common)


def _takes(known: DataType, given: DataType) -> bool:
    """Whether every write accepts such values for such a column, truncated or checked by its type."""
    return _is_stored_alike(known, given) or widens(given, known)


def _is_stored_alike(known: DataType, given: DataType) -> bool:
    """Equal types, and types that differ only in lengths or precisions, which data frames lack."""
    alike = (TEXT_ROOTS, BYTES_ROOTS, {"TIMESTAMP"}, {"TIMESTAMP_LTZ"}, {"TIME"})
    return any(known.root in roots and given.root in roots for roots in alike) or (
        known.root == given.root and known.root not in NESTED_ROOTS | {"DECIMAL"}
    )


def _common(known: DataType, given: DataType, path: ColumnPath, rules: MergeRules) -> DataType:
    """The narrowest type for the values of both. Raises: InvalidInputError."""
    wider = _wider(known, given)
    if wider is not None and rules.widens:
        return wider
    bare = replace(known, nullable=True)
    if not rules.casts and rules.fitting is not None and rules.fitting(known, given):
        return bare
    if wider is not None:
        raise _refusal(known, given, path, f"the column would become {wider}", f"set {WIDENING_KEY}=true")
    cast = _castable(known, given)
    if cast is None:
        raise _refusal(known, given, path, "no type holds the values of both", "cast it in the query")
    if not rules.casts:
        what = "values would be cast" if cast == bare else f"the column would become {cast}"
        raise _refusal(known, given, path, what, f"set {CAST_KEY}=true, or cast it in the query")
    return cast


def _wider(one: DataType, two: DataType) -> DataType | None:
    """The narrowest numeric type that holds all values of both unchanged; None: there is none."""
    roots = {one.root, two.root}
    if roots <= INTEGER_ROOTS:
        return DataType(root=max(roots, key=lambda root: _DIGITS[root]))
    if roots <= INTEGER_ROOTS | {"DECIMAL"}:
        scale = max(one.scale or 0, two.scale or 0)
        digits = scale + max(_whole_digits(one), _whole_digits(two))
        return DataType(root="DECIMAL", precision=digits, scale=scale) if digits <= _MAX_PRECISION else None
    if roots <= INTEGER_ROOTS | _FLOAT_ROOTS:
        floats = [DataType(root=root) for root in ("FLOAT", "DOUBLE")]
        return next((each for each in floats if _holds(each, one) and _holds(each, two)), None)
    return None


def _holds(wide: DataType, narrow: DataType) -> bool:
    return wide.root == narrow.root or widens(narrow, wide)


def _whole_digits(data_type: DataType) -> int:
    return _DIGITS.get(data_type.root, (data_type.precision or 0) - (data_type.scale or 0))


def _castable(known: DataType, given: DataType) -> DataType | None:
    """The narrowest type that values of both can be cast to, possibly changed, without any cast failing."""
    roots = {known.root, given.root}
    bare = replace(known, nullable=True)
    found: DataType | None
    if roots & BYTES_ROOTS and roots & TEXT_ROOTS:
        found = bare if known.root in BYTES_ROOTS else BYTES
    elif roots & TEXT_ROOTS:
        found = bare if known.root in TEXT_ROOTS else STRING
    elif roots <= INTEGER_ROOTS | _FLOAT_ROOTS | {"DECIMAL"}:
        found = DataType(root="DOUBLE") if roots & _FLOAT_ROOTS else None
    elif "BOOLEAN" in roots:
        found = bare if given.root == "BOOLEAN" else replace(given, nullable=True)
    elif roots <= TIMESTAMP_ROOTS:
        found = bare
    elif roots <= _CLOCK_ROOTS:
        found = bare if given.root == "DATE" else replace(given, nullable=True)
    else:
        found = None
    if found is None or not can_cast(known, found) or not can_cast(given, found):
        return None
    return found


def as_nullable(data_type: DataType) -> DataType:
    """The type made nullable at every depth except map keys: later rows may lack a part."""
    return replace(
        data_type,
        nullable=True,
        element=data_type.element and as_nullable(data_type.element),
        value=data_type.value and as_nullable(data_type.value),
        fields=tuple(replace(field, type=as_nullable(field.type)) for field in data_type.fields),
    )


def _refusal(known: DataType, given: DataType, path: ColumnPath, reason: str, fix: str) -> InvalidInputError:
    return InvalidInputError(
        f"the schema cannot be merged: column={path_text(path)} type={known} given={given} reason='{reason}' "
        f"{MERGE_KEY}=true fix='{fix}'"
    )
