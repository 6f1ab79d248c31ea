"""Fluvial's errors found in Spark's, and the end of Spark itself."""

import re
from collections.abc import Mapping
from typing import Final

from pyspark.errors import AnalysisException, ParseException, PySparkException

from engine.spark_internals.session import is_lost_connection, jvm_exit_code
from lsm import errors
from lsm.errors import FluvialError, InvalidInputError, OverloadedError, TakenOverError

_FLUVIAL: Final = re.compile(r"(?:^|: )\s*(?:\w+\.)*lsm\.errors\.(\w+): (.+?)\s*$", re.MULTILINE)
_CONDITIONS: Final[Mapping[type[BaseException], str]] = {
    errors.MissingTableError: "TABLE_OR_VIEW_NOT_FOUND",
    errors.MissingDatabaseError: "SCHEMA_NOT_FOUND",
    errors.MissingColumnError: "UNRESOLVED_COLUMN.WITH_SUGGESTION",
    errors.TableExistsError: "TABLE_OR_VIEW_ALREADY_EXISTS",
    errors.DatabaseExistsError: "SCHEMA_ALREADY_EXISTS",
    errors.ColumnExistsError: "FIELD_ALREADY_EXISTS",
}
_END_S: Final = 10.0  # of a JVM that has closed its connections
_OTHER_RUN: Final = ("CONCURRENT_STREAM_LOG_UPDATE", "CONCURRENT_QUERY", "Multiple streaming queries are concurrently")
_NO_CONNECTION: Final = "Python worker failed to connect back"
_USER_RAISED: Final = "[USER_RAISED_EXCEPTION]"
_RESULT_SIZE: Final = "spark.driver.maxResultSize"  # the only sign of it
_PYTHON: Final = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Interrupt)): (.+?)\s*$", re.MULTILINE)


class SparkEndedError(FluvialError):
    """The JVM of Spark has ended, so nothing more can be done in this process."""


def fluvial_error(error: BaseException, doing: str) -> FluvialError:
    """The error to show for one that came through Spark.

    A Fluvial error keeps its class and message; a query that Spark rejects is an InvalidInputError; a Python process
    that was too slow to connect to Spark is an OverloadedError; one whose checkpoint another run uses is a
    TakenOverError, which no restart heals.

    Args:
        error: the error that Spark raised.
        doing: the start of the message of all other errors: ``pipeline failed: name=a``.
    """
    if isinstance(error, FluvialError):
        return error
    text = str(error)
    # the last one printed is the outermost, into which the others were converted
    for name, message in reversed(_FLUVIAL.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, FluvialError):
            return kind(message)
    if any(each in text for each in _OTHER_RUN):
        return TakenOverError(
            f"{doing} reason='another run of this query uses the same checkpoint' "
            "fix='let one of them run; two queries need two checkpoints'"
        )
    if _NO_CONNECTION in text:
        return OverloadedError(
            f"{doing} reason='a Python process of Spark did not connect within 10 s' cause='the machine is overloaded' "
            "fix='try again when it is less busy, give it more cores, or run fewer pipelines at once'"
        )
    if isinstance(error, AnalysisException | ParseException):
        return InvalidInputError(f"{doing} reason={_first_line(text)}")
    python = _PYTHON.findall(text)
    if python and isinstance(error, PySparkException):
        name, message = python[-1]
        return FluvialError(f"{doing} reason={name}: {message}")
    return FluvialError(f"{doing} reason={_first_line(text)}")


def spark_condition(error: FluvialError) -> str | None:
    """Spark's condition for what is wrong with a statement: of its own error, or for the class of Fluvial's.

    Returns: None: Spark has none, or the statement is not what is wrong.
    """
    cause: BaseException | None = error if isinstance(error, InvalidInputError) else None
    while cause is not None:
        if isinstance(cause, AnalysisException):
            return str(condition) if (condition := cause.getCondition()) else None
        if (known := _CONDITIONS.get(type(cause))) is not None:
            return known
        cause = cause.__cause__
    return None


def cause_in_spark(condition: str) -> AnalysisException:
    """The cause of an error that Spark has a condition for, and the error no class; ``spark_condition`` finds it."""
    return AnalysisException(condition, errorClass=condition, messageParameters={})


def spark_end(error: BaseException) -> SparkEndedError | None:
    """The error that says that Spark's JVM, which this process started, has ended; None while it runs.

    Args:
        error: what was raised; after a lost connection the JVM gets some time to end.
    """
    code = jvm_exit_code(_END_S if is_lost_connection(error) else 0)
    if code is None:
        return None
    cause = f"signal {-code}" if code < 0 else f"exit code {code}"
    return SparkEndedError(
        f"Spark has ended: cause='{cause}' fix='see the end of its log for the reason (no memory, or a long pause "
        "of the machine); run it again: it continues from its checkpoints'"
    )


def is_raised_in(error: BaseException, kind: type[BaseException]) -> bool:
    """Whether an error that came through Spark is of a class, raised by Python in a task or in ``foreachBatch``.

    Spark hands such an error over as text: the last line of its traceback begins with the name of the class.
    """
    return re.search(rf"(?:^|[\s.]){kind.__name__}: ", str(error), re.MULTILINE) is not None


def raised_by_expression(error: BaseException) -> str | None:
    """The message of an expression's ``raise_error`` in the error of a job or statement; None: another failure."""
    _, mark, text = str(error).partition(_USER_RAISED)  # the error of a job has no condition of its own
    return text.partition("\n")[0].partition(" SQLSTATE:")[0].strip() if mark else None


def is_result_too_large(error: BaseException) -> bool:
    """Whether a job failed because it gave the driver more bytes than Spark's setting allows."""
    return _RESULT_SIZE in str(error)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")
