"""The clauses of a MERGE, found among the tokens of its text."""

from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

from sqlglot import exp

from engine.dialect.dml.row_changes import Assignment, read_assignments
from engine.dialect.query.references import StatementText
from engine.types.column_names import CaseRule
from lsm.errors import InvalidInputError


class Match(Enum):
    """The rows that a clause applies to."""

    MATCHED = "MATCHED"
    BY_TARGET = "NOT MATCHED"
    BY_SOURCE = "NOT MATCHED BY SOURCE"


class MergeAction(Enum):
    """The action on them."""

    UPDATE = "UPDATE"
    DELETE = "DELETE"
    INSERT = "INSERT"


_ACTIONS: Final = {
    Match.MATCHED: (MergeAction.UPDATE, MergeAction.DELETE),
    Match.BY_TARGET: (MergeAction.INSERT,),
    Match.BY_SOURCE: (MergeAction.UPDATE, MergeAction.DELETE),
}


@dataclass(frozen=True)
class Clause:
    """One WHEN. Offsets are in the statement's text."""

    match: Match
    action: MergeAction
    condition: tuple[int, int] | None  # after AND
    assignments: tuple[Assignment, ...] | None  # None: ``*``; () for DELETE
    start: int
    stop: int


@dataclass(frozen=True)
class MergeText:
    """Offsets of the parts of a MERGE."""

    head: tuple[int, int]  # the WITH queries
    target: tuple[int, int]
    source: tuple[int, int]
    condition: tuple[int, int]
    clauses: tuple[Clause, ...]


def read_merge(text: StatementText, target: exp.Table, names: CaseRule) -> MergeText:
    """The parts of a MERGE.

    Args:
        text: the statement.
        target: the table that is changed.
        names: when two names of columns are one.

    Raises:
        InvalidInputError: points at the syntax error.
    """
    return _Reader(text, target, names).read()


class _Reader:
    def __init__(self, text: StatementText, target: exp.Table, names: CaseRule) -> None:
        self._text = text
        self._start = text.head("MERGE", target)
        self._alias = (target.alias or target.name).lower()
        self._names = names
        self._end = len(text.tokens)

    def read(self) -> MergeText:
        into = self._text.find("INTO", self._start)
        using = self._text.find("USING", into)
        on = self._text.find("ON", using)
        if on == self._end:
            raise self._problem("syntax error, expected ON and a condition", using, self._end)
        whens = [self._text.find("WHEN", on)]
        while whens[-1] < self._end:
            whens.append(self._text.find("WHEN", whens[-1] + 1))
        clauses = tuple(self._clause(start, stop) for start, stop in pairwise(whens))
        return MergeText(
            head=(0, self._text.start_of(self._start)),
            target=self._span(into + 1, using),
            source=self._span(using + 1, on),
            condition=self._span(on + 1, whens[0]),
            clauses=clauses,
        )

    def _clause(self, start: int, stop: int) -> Clause:
        index = start + 1
        match = Match.MATCHED
        if self._text.word(index) == "NOT":
            match, index = Match.BY_TARGET, index + 1
        index += 1  # MATCHED
        if self._text.word(index) == "BY":
            match = Match.BY_SOURCE if self._text.word(index + 1) == "SOURCE" else match
            index += 2
        then = self._text.find("THEN", index)
        condition = self._span(index + 1, then) if self._text.word(index) == "AND" else None
        word = self._text.word(then + 1)
        if word not in [each.value for each in _ACTIONS[match]]:
            known = " or ".join(each.value for each in _ACTIONS[match])
            raise self._problem(f"WHEN {match.value} takes {known}", then + 1, stop)
        action = MergeAction(word)
        return Clause(match, action, condition, self._assignments(action, then + 2, stop), *self._span(start, stop))

    def _assignments(self, action: MergeAction, start: int, stop: int) -> tuple[Assignment, ...] | None:
        if action is MergeAction.DELETE:
            return ()
        if action is MergeAction.UPDATE and self._text.word(start) == "SET":
            start += 1
        if self._text.word(start) == "*":
            return None
        if action is MergeAction.UPDATE:
            return tuple(read_assignments(self._text, start, stop, self._alias, self._names))
        return self._inserted(start, stop)

    def _inserted(self, start: int, stop: int) -> tuple[Assignment, ...]:
        """``(columns) VALUES (expressions)`` as assignments."""
        behind = self._text.after_parens(start)
        if self._text.word(start) != "(" or self._text.word(behind) != "VALUES":
            raise self._problem("syntax error, expected INSERT * or INSERT (columns) VALUES (values)", start, stop)
        names = self._listed(start)
        values = self._listed(behind + 1)
        if len(names) != len(values):
            raise self._problem(
                f"as many values as columns are needed: columns={len(names)} values={len(values)}", start, stop
            )
        found = []
        for (first, last), (begin, end) in zip(names, values, strict=True):
            path = [self._text.tokens[index].text for index in range(first, last) if self._text.word(index) != "."]
            path = path[1:] if len(path) > 1 and path[0].lower() == self._alias else path
            found.append(Assignment(tuple(path), *self._span(begin, end), self._text.start_of(first)))
        return tuple(found)

    def _listed(self, start: int) -> list[tuple[int, int]]:
        """The items in brackets, as token ranges [first, end)."""
        stop = self._text.after_parens(start) - 1
        depth, items, first = 0, [], start + 1
        for index in range(start + 1, stop):
            word = self._text.tokens[index].text
            depth += (word in ("(", "[")) - (word in (")", "]"))
            if word == "," and depth == 0:
                items.append((first, index))
                first = index + 1
        return [*items, (first, stop)]

    def _span(self, start: int, stop: int) -> tuple[int, int]:
        return self._text.start_of(start), self._text.tokens[stop - 1].end + 1

    def _problem(self, problem: str, start: int, stop: int) -> InvalidInputError:
        return self._text.statement.source.problem(problem, *self._span(start, stop))
