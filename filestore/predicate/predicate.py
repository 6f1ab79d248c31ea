"""Predicates: comparisons of columns with internal values, in SQL's three-valued logic.

Every comparison is unknown where its column is null; a row satisfies a predicate only if the predicate is true.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

T = TypeVar("T")


class CompareOp(StrEnum):
    """A comparison. Floats compare as in Spark: NaN equals itself and is greater than every number, -0.0 equals 0.0."""

    EQ = "="
    NE = "<>"
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """A column compared with a non-null value of its own domain; FLOAT columns compare as doubles."""

    column: str
    op: CompareOp
    value: Any
    path: tuple[str, ...] = ()  # fields inside the ROW column


@dataclass(frozen=True, slots=True, kw_only=True)
class In:
    """The column equals one of the values. Without values: false, but unknown where the column is null."""

    column: str
    values: tuple[Any, ...]
    has_null: bool = False  # the list contains NULL: a missing value is then unknown, not false
    path: tuple[str, ...] = ()
    _prepared: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __reduce__(self) -> Any:
        return _in_of, (self.column, self.values, self.has_null, self.path)

    def prepared(self, name: str, prepare: Callable[[tuple[Any, ...]], T]) -> T:
        """What is made of the values and used for many batches and files; made once for a name."""
        if name not in self._prepared:
            self._prepared[name] = prepare(self.values)
        found: T = self._prepared[name]
        return found


def _in_of(column: str, values: tuple[Any, ...], has_null: bool, path: tuple[str, ...]) -> In:
    return In(column=column, values=values, has_null=has_null, path=path)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsNull:
    """The column is null; never unknown."""

    column: str
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StartsWith:
    """A string column starts with a prefix."""

    column: str
    prefix: str
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Like:
    r"""A string column matches a LIKE pattern: ``%`` any string, ``_`` one character, ``\`` escapes the next."""

    column: str
    pattern: str
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Constant:
    """The same outcome for every row; None = unknown."""

    outcome: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class And:
    """All parts are true."""

    parts: "tuple[Predicate, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Or:
    """Any part is true."""

    parts: "tuple[Predicate, ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Not:
    """The negation; unknown remains unknown."""

    part: "Predicate"


Leaf = Compare | In | IsNull | StartsWith | Like
Predicate = Leaf | Constant | And | Or | Not


def leaves(predicate: Predicate) -> Iterator[Leaf]:
    """Every test of a single column, left to right."""
    if isinstance(predicate, And | Or):
        for part in predicate.parts:
            yield from leaves(part)
    elif isinstance(predicate, Not):
        yield from leaves(predicate.part)
    elif not isinstance(predicate, Constant):
        yield predicate


def columns_of(predicate: Predicate) -> frozenset[str]:
    """The top-level columns of a predicate."""
    return frozenset(leaf.column for leaf in leaves(predicate))


def conjuncts(predicate: Predicate) -> list[Predicate]:
    """The parts that must all be true, with nested ANDs flattened."""
    if isinstance(predicate, And):
        return [inner for part in predicate.parts for inner in conjuncts(part)]
    return [predicate]


def on_columns_only(predicate: Predicate | None, columns: Collection[str]) -> Predicate | None:
    """The conjuncts of a predicate that use only these columns; None when there are none.

    With the key columns, that part has the same outcome for all versions of a row.
    """
    parts = conjuncts(predicate) if predicate is not None else []
    return and_all([each for each in parts if columns_of(each) and columns_of(each) <= {*columns}])


def and_all(parts: Sequence[Predicate]) -> Predicate | None:
    """The conjunction of predicates; None when there are none."""
    flat = [inner for part in parts for inner in conjuncts(part)]
    if not flat:
        return None
    return flat[0] if len(flat) == 1 else And(parts=tuple(flat))


def equal_values(predicate: Predicate, column: str) -> frozenset[Any] | None:
    """The values that the column can have where the predicate is true; None = any. A null is None.

    Bucket pruning hashes these, so a float zero gives None: -0.0 and 0.0 are equal but hash differently.
    """
    if isinstance(predicate, And):
        answers = [equal_values(part, column) for part in predicate.parts]
        known = [answer for answer in answers if answer is not None]
        return frozenset.intersection(*known) if known else None
    if isinstance(predicate, Or):
        return _union(equal_values(part, column) for part in predicate.parts)
    if isinstance(predicate, Constant):
        return None if predicate.outcome else frozenset()
    if isinstance(predicate, Not) or predicate.column != column or predicate.path:
        return None
    if isinstance(predicate, IsNull):
        return frozenset([None])
    if isinstance(predicate, Compare) and predicate.op is CompareOp.EQ:
        return _hashable([predicate.value])
    return predicate.prepared("hashable", _hashable) if isinstance(predicate, In) else None


def _union(answers: Iterable[frozenset[Any] | None]) -> frozenset[Any] | None:
    union: frozenset[Any] = frozenset()
    for answer in answers:
        if answer is None:
            return None
        union |= answer
    return union


def _hashable(values: Sequence[Any]) -> frozenset[Any] | None:
    for value in values:
        if isinstance(value, float) and (value == 0 or math.isnan(value)):
            return None
    return frozenset(values)
