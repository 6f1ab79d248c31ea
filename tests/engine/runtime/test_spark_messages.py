"""Errors that come through Spark as text: their classes, and what expressions raise."""

import pytest

from engine.runtime.spark_messages import (
    fluvial_error,
    is_raised_in,
    is_result_too_large,
    raised_by_expression,
    spark_condition,
)
from engine.write.unavailable.moved_rows import MovedBetweenTasksError
from lsm.errors import (
    ConflictError,
    InvalidInputError,
    MissingColumnError,
    MissingDatabaseError,
    MissingTableError,
    NewColumnsError,
    TableExistsError,
)

RAISED = "Job aborted: [USER_RAISED_EXCEPTION] the row does not fit SQLSTATE: P0001\n\tat org.apache.spark.x(y)"


@pytest.mark.parametrize(
    ("text", "is_it"),
    [
        ("Traceback\n  line 1\nengine.write.unavailable.moved_rows.MovedBetweenTasksError: rows: table=a", True),
        ("MovedBetweenTasksError: rows", True),
        ("NotMovedBetweenTasksError: rows", False),
        ("a text about MovedBetweenTasksError", False),
        ("", False),
    ],
)
def test_the_class_of_an_error_of_a_task_is_the_begin_of_a_line(text: str, *, is_it: bool) -> None:
    assert is_raised_in(RuntimeError(text), MovedBetweenTasksError) is is_it


def test_what_an_expression_raises_is_its_text_alone() -> None:
    assert raised_by_expression(RuntimeError(RAISED)) == "the row does not fit"
    assert raised_by_expression(RuntimeError("Job aborted: the row does not fit")) is None


def test_a_result_that_is_too_large_is_known_by_the_setting_that_bounds_it() -> None:
    assert is_result_too_large(RuntimeError("size (2.0 GiB) is bigger than spark.driver.maxResultSize (1024.0 MiB)"))
    assert not is_result_too_large(RuntimeError(RAISED))


def test_new_columns_keep_their_class_through_spark() -> None:
    text = "lsm.errors.NewColumnsError: new columns: topic=t partition=1 offset=7"
    found = fluvial_error(RuntimeError(text), "query failed:")
    assert isinstance(found, NewColumnsError)
    assert str(found) == text.partition(": ")[2]


def test_what_is_wrong_with_a_statement_has_the_condition_of_spark() -> None:
    """Of the error that it began with; that a table is missing is not what a conflict is about."""
    said, conflict = InvalidInputError("no such column: column=x: line=1"), ConflictError("others were faster")
    said.__cause__, conflict.__cause__ = MissingColumnError("no such column: column=x"), MissingTableError("gone")
    assert spark_condition(said) == "UNRESOLVED_COLUMN.WITH_SUGGESTION"
    assert spark_condition(TableExistsError("table exists: table=t")) == "TABLE_OR_VIEW_ALREADY_EXISTS"
    assert spark_condition(MissingDatabaseError("no such database: database=d")) == "SCHEMA_NOT_FOUND"
    assert spark_condition(InvalidInputError("unknown option")) is None
    assert spark_condition(conflict) is None
