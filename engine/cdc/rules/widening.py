"""Types of a column that changes in the source: whether the table's holds its values, or what wider one does. Pure."""

from dataclasses import replace
from typing import Final

from filestore.types.casts import widens
from filestore.types.data_types import INTEGER_ROOTS, TIMESTAMP_ROOTS, DataField, DataType

_EXACT: Final = frozenset({*INTEGER_ROOTS, "DECIMAL"})


def has_place_for(known: DataType, given: DataType) -> bool:
    """Whether a column of one type can hold all values of another."""
    bare, wanted = _shape(known), _shape(given)
    return bare == wanted or widens(wanted, bare)


def _shape(of: DataType) -> DataType:
    """A type without what a source has no say in: ids of fields, and whether parts may be null."""
    element, key, value = (None if each is None else _shape(each) for each in (of.element, of.key, of.value))
    fields = tuple(DataField(id=0, name=each.name, type=_shape(each.type)) for each in of.fields)
    return replace(of, nullable=True, element=element, key=key, value=value, fields=fields)


def has_digits(of: DataType) -> bool:
    """Whether values of a type may have digits behind the point, or of a second, that another type has not."""
    return of.root in ("FLOAT", "DOUBLE", "DECIMAL", *TIMESTAMP_ROOTS)


def rounds(before: DataType, after: DataType) -> bool:
    """Whether a source that gives a column another type rounds the values that are there, which no record shows."""
    if before.root in TIMESTAMP_ROOTS:
        return before.root == after.root and (before.precision or 0) > (after.precision or 0)
    if before.root == "DECIMAL":
        scale = after.scale or 0 if after.root == "DECIMAL" else 0
        return after.root in _EXACT and (before.scale or 0) > scale
    if before.root == "DOUBLE":
        return after.root in _EXACT or after.root == "FLOAT"
    return before.root == "FLOAT" and after.root in _EXACT


def wider(known: DataType, given: DataType) -> DataType | None:
    """The type of the source, when it holds all values of the table's."""
    bare, wanted = replace(known, nullable=True), replace(given, nullable=True)
    if widens(bare, wanted):
        return wanted
    if known.root == given.root == "DECIMAL":
        scale = max(known.scale or 0, given.scale or 0)
        whole = max((known.precision or 0) - (known.scale or 0), (given.precision or 0) - (given.scale or 0))
        return DataType(root="DECIMAL", precision=whole + scale, scale=scale) if whole + scale <= 38 else None
    return None
