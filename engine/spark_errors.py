"""What went wrong, out of the text that Spark wraps around it.

Only text crosses Spark's process borders, so our own errors are found again by the way Python prints them in a
traceback.
"""

import re
from typing import Final

from pyspark.errors import AnalysisException, ParseException, PySparkException

from lsm import errors
from lsm.errors import FluvialError, InvalidInputError

_OURS: Final = re.compile(r"^\s*(?:\w+\.)*lsm\.errors\.(\w+): (.+?)\s*$", re.MULTILINE)
_PYTHON: Final = re.compile(r"^\s*((?:\w+\.)*\w*(?:Error|Exception|Interrupt)): (.+?)\s*$", re.MULTILINE)


def fluvial_error(error: BaseException, doing: str) -> FluvialError:
    """The error to show for one that came through Spark.

    An error of ours keeps its class and its words; a query that Spark does not understand is the user's to change.

    Args:
        error: what Spark raised.
        doing: opens the message of an error that is not ours: ``pipeline failed: name=a``.
    """
    if isinstance(error, FluvialError):
        return error
    text = str(error)
    # the last one printed is the outermost: the one that the others were turned into
    for name, message in reversed(_OURS.findall(text)):
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, FluvialError):
            return kind(message)
    if isinstance(error, AnalysisException | ParseException):
        return InvalidInputError(f"{doing} reason={_first_line(text)}")
    python = _PYTHON.findall(text)
    if python and isinstance(error, PySparkException):
        name, message = python[-1]
        return FluvialError(f"{doing} reason={name}: {message}")
    return FluvialError(f"{doing} reason={_first_line(text)}")


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "no message")
