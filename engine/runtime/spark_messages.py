"""Spark's output kept off the terminal, and Fluvial's errors found in Spark's."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.errors import AnalysisException, ParseException, PySparkException

from lsm import errors
from lsm.errors import FluvialError, InvalidInputError, OverloadedError

_FLUVIAL: Final = re.compile(r"^\s*(?:\w+\.)*lsm\.errors\.(\w+): (.+?)\s*$", re.MULTILINE)
_NO_CONNECTION: Final = "Python worker failed to connect back"
_PYTHON: Final = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Interrupt)): (.+?)\s*$", re.MULTILINE)


def fluvial_error(error: BaseException, doing: str) -> FluvialError:
    """The error to show for one that came through Spark.

    A Fluvial error keeps its class and message; a query that Spark rejects is an InvalidInputError; a Python process
    that was too slow to connect to Spark is an OverloadedError.

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


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")


@contextmanager
def spark_output(log_file: str) -> Iterator[None]:
    """Redirect standard error, which Spark, its JVM and its workers inherit, to a file; ``sys.stderr`` stays."""
    sys.stderr.flush()
    terminal = os.dup(2)
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    saved = sys.stderr
    os.dup2(log, 2)
    sys.stderr = os.fdopen(os.dup(terminal), "w", buffering=1, encoding="utf-8")
    try:
        yield
    finally:
        sys.stderr.close()
        sys.stderr = saved
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(log)
