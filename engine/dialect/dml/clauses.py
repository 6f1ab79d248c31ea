"""What a change of rows says: a clause of another dialect that sqlglot reads is refused, or it would be passed over."""

from collections.abc import Iterator, Mapping
from typing import Final

from sqlglot import exp

_PARTS: Final[Mapping[type[exp.Expr], tuple[str, ...]]] = {
    exp.Insert: ("this", "hint", "by_name", "partition", "overwrite", "expression", "source", "where", "with_"),
    exp.Delete: ("this", "where", "with_"),
    exp.Update: ("this", "expressions", "where", "with_"),
    exp.Merge: ("this", "using", "on", "whens", "with_"),
}
_OF_TABLE: Final = ("this", "db", "catalog", "alias", "partition", "version")
_OF_WHEN: Final = ("this", "expressions", "expression")  # what follows THEN
_WORDS: Final[Mapping[tuple[type[exp.Expr], str], str]] = {
    (exp.Insert, "exists"): "IF NOT EXISTS",
    (exp.Insert, "using"): "REPLACE USING",
    (exp.Insert, "stored"): "STORED BY",
    (exp.Insert, "conflict"): "ON CONFLICT",
    (exp.Insert, "alternative"): "OR",
    (exp.Delete, "tables"): "a table before FROM",
    (exp.Merge, "using_cond"): "USING",
    (exp.Table, "joins"): "JOIN",
    (exp.Table, "sample"): "TABLESAMPLE",
    (exp.Table, "pivots"): "PIVOT",
    (exp.TableAlias, "columns"): "columns behind AS",
}
_FIXES: Final[Mapping[type[exp.Expr], str]] = {
    exp.Insert: "INSERT OVERWRITE, INSERT INTO ... REPLACE WHERE, or MERGE",
    exp.Delete: "name the rows in WHERE, by IN or EXISTS where other tables have them, or write MERGE",
    exp.Update: "name the rows in WHERE, by IN or EXISTS where other tables have them, or write MERGE",
    exp.Merge: "ON and a condition, conditions behind WHEN ... AND, or a query as the source",
}


def unknown_clause(change: exp.Expr) -> str | None:
    """What is wrong with an INSERT, DELETE, UPDATE or MERGE that has a clause which is not known; None: it has none."""
    clause = next(_unknown(change), None)
    if clause is None:
        return None
    name, fix = type(change).__name__.upper(), _FIXES[type(change)]
    return f"{name} with this clause is not known: clause='{clause}' fix='{fix}'"


def _unknown(change: exp.Expr) -> Iterator[str]:
    yield from _others(change, _PARTS[type(change)])
    table = change.this.this if isinstance(change.this, exp.Schema) else change.this
    yield from _others(table, _OF_TABLE)
    if isinstance(alias := table.args.get("alias"), exp.TableAlias):
        yield from _others(alias, ("this",))
    whens = change.args.get("whens")
    for when in whens.expressions if whens else ():
        if when.args.get("matched") and when.args.get("source"):
            yield "WHEN MATCHED BY SOURCE"
        action = when.args["then"]
        yield from _others(action, _OF_WHEN)
        for each in (action.this, *action.expressions):
            if isinstance(each, exp.Star):
                yield from _others(each, ())


def _others(node: exp.Expr, known: tuple[str, ...]) -> Iterator[str]:
    for name, given in node.args.items():
        if given and name not in known:
            yield _WORDS.get((type(node), name), name.strip("_").upper())
