"""``CALL [[catalog.]sys.]procedure(...)`` as a call of a procedure with its arguments."""

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa
from sqlglot import exp

from engine.dialect.grammar.parser import Argument, Call
from engine.dialect.grammar.places import SourceText
from engine.dialect.grammar.statements import ShowProcedures, Statement
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.results import like, texts_table
from engine.procedures import PROCEDURES
from engine.procedures.registry import TABLE_ARGUMENT, Procedure, bind
from lsm.errors import InvalidInputError
from lsm.nearest_names import close_names, did_you_mean

PROCEDURE_NAMESPACE: Final = "sys"
_HELP: Final = "help"
_ELSEWHERE: Final = {
    "optimize": "compact",
    "rewrite_data_files": "compact",
    "rollback_to_snapshot": "rollback",
    "set_current_snapshot": "rollback_to_as_latest",
    "vacuum": "expire_snapshots",
}
"""Procedures of other table formats, by those that do the same here."""
_NO_VALUE: Final = "required"


def is_of_procedures(context: SqlContext, space: Sequence[str], *, is_current: bool = True) -> bool:
    """Whether the procedures are in a namespace: ``catalog.sys``, and ``sys`` or none where the catalog is current."""
    names = tuple(part.lower() for part in space)
    return names == (context.catalog_name.lower(), PROCEDURE_NAMESPACE) or (
        is_current and names in ((), (PROCEDURE_NAMESPACE,))
    )


def show_procedures(context: SqlContext, statement: ShowProcedures) -> pa.Table:
    """The procedures, each with what it does: ``procedure``, ``description``."""
    if not is_of_procedures(context, statement.space):
        raise InvalidInputError(
            f"no procedures are there: database={'.'.join(statement.space)} fix='SHOW PROCEDURES IN "
            f"{context.catalog_name}.{PROCEDURE_NAMESPACE}'"
        )
    names = like(PROCEDURES, statement.pattern)
    return texts_table(("procedure", "description"), [(name, PROCEDURES[name].summary) for name in names])


def run_call(context: SqlContext, statement: Statement) -> pa.Table:
    """Run the procedure of a CALL.

    Args:
        context: its catalog and database resolve names.
        statement: the CALL.

    Raises:
        InvalidInputError: an unknown procedure or table, or wrong arguments; points at the position.
    """
    tree, source = statement.tree, statement.source
    assert isinstance(tree, Call)
    name = tree.procedure[-1].lower()
    procedure = PROCEDURES.get(name)
    if (procedure is None and name != _HELP) or not is_of_procedures(context, tree.procedure[:-1]):
        near = [_ELSEWHERE[name]] if name in _ELSEWHERE else close_names(name, PROCEDURES)
        hint = f" did_you_mean={PROCEDURE_NAMESPACE}.{near[0]}" if near else ""
        raise source.problem(f"no such procedure{hint}", tree.start, tree.stop)
    positional = [_literal(source, each) for each in tree.arguments if each.name is None]
    named: dict[str, object] = {}
    for each in tree.arguments:
        if each.name is not None:
            if each.name in named:
                raise source.problem("argument is given twice", each.start, each.stop)
            named[each.name] = _literal(source, each)
    if positional and named:
        raise source.problem("arguments are given by name or by position, not both", tree.start, tree.stop)
    if procedure is None:
        return _help([*positional, *named.values()])
    target: Any = context.catalog
    if procedure.for_all is not None and any(key.lower() == "all" and value is True for key, value in named.items()):
        others = {key: value for key, value in named.items() if key.lower() != "all"}
        return procedure.for_all(context.catalog, **bind(procedure, (), others))
    if procedure.is_of_table:
        target = context.catalog.table(context.full_name(*_table_name(procedure, positional, named)))
    return procedure.run(target, bind(procedure, positional, named))


def _help(given: Sequence[object]) -> pa.Table:
    """``CALL sys.help('name')``: the arguments of a procedure, in order; without a name the procedures.

    Returns:
        Columns ``name``, ``type``, ``default`` and ``description``, the first row of the procedure itself.

    Raises:
        InvalidInputError: no such procedure, or several are asked for.
    """
    if not given:
        return texts_table(("name", "description"), [(name, each.summary) for name, each in PROCEDURES.items()])
    name = str(given[0]).lower().removeprefix(f"{PROCEDURE_NAMESPACE}.").replace("-", "_")
    if len(given) > 1 or name not in PROCEDURES:
        raise InvalidInputError(
            f"no such procedure: procedure={given[0]}{did_you_mean(name, PROCEDURES)} "
            f"fix='CALL {PROCEDURE_NAMESPACE}.{_HELP}() lists them'"
        )
    procedure = PROCEDURES[name]
    rows: list[tuple[str, str | None, str | None, str]] = [(name, None, None, procedure.description)]
    if procedure.is_of_table:
        rows.append((TABLE_ARGUMENT, "text", _NO_VALUE, "database.table"))
    for each in procedure.parameters:
        default = _NO_VALUE if each.is_required else None if each.default is None else str(each.default)
        rows.append((each.name, " | ".join(each.choices) or each.kind.value, default, each.doc))
    return texts_table(("name", "type", "default", "description"), rows)


def _table_name(procedure: Procedure[Any], positional: list[object], named: dict[str, object]) -> list[str]:
    """Remove the table from the arguments; its name in parts."""
    name: object = None
    if positional:
        name = positional.pop(0)
    else:
        key = next((each for each in named if each.lower() == TABLE_ARGUMENT), None)
        name = None if key is None else named.pop(key)
    if not isinstance(name, str) or not name.strip():
        near = next((each for each in named if did_you_mean(each.lower(), [TABLE_ARGUMENT])), None)
        if near is not None:
            raise InvalidInputError(
                f"unknown argument: procedure={procedure.name} argument={near} did_you_mean={TABLE_ARGUMENT}"
            )
        raise InvalidInputError(
            f"argument is missing: procedure={procedure.name} argument={TABLE_ARGUMENT} "
            f"fix=write {TABLE_ARGUMENT} => 'database.table'"
        )
    return [part.strip().strip("`") for part in name.split(".")]


def _literal(source: SourceText, argument: Argument) -> object:
    """The Python value of a literal."""
    value = argument.value
    match value:
        case exp.Null():
            return None
        case exp.Boolean():
            return bool(value.this)
        case exp.Literal() if value.is_string:
            return str(value.this)
        case exp.Literal() | exp.Neg() if value.is_number:
            return value.to_py()
        case exp.Cast() if isinstance(value.this, exp.Literal):  # TIMESTAMP '2024-01-31 12:30:00'
            return str(value.this.this)
    raise source.problem("an argument is a literal", argument.start, argument.stop)
