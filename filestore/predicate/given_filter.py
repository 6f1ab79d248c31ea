"""Filters as callers give them: SQL text, or a predicate that was parsed before."""

from typing import get_args

from filestore.predicate.predicate import Predicate
from filestore.schema.table_schema import TableSchema
from lsm.errors import InvalidInputError


def predicate_of(given: Predicate | str | None, schema: TableSchema) -> Predicate | None:
    """The predicate of a filter; None: none was given.

    Raises: InvalidInputError: a text that cannot be read, see ``parse_filter``, or another kind of value.
    """
    if isinstance(given, str):
        from filestore.predicate.parser import parse_filter  # sqlglot is slow to import

        return parse_filter(given, schema)
    if given is None or isinstance(given, get_args(Predicate)):
        return given
    kind = f"{type(given).__module__}.{type(given).__qualname__}"
    raise InvalidInputError(f"a filter is SQL text: given={kind} fix='write it as a WHERE clause, as in id > 3'")
