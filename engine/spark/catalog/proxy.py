"""What the JVM holds of an object in Python: every call comes back here."""

import functools
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, Final, ParamSpec, TypeVar

from pyspark.errors import PySparkException

from engine.spark_internals.catalog import JavaError, SparkInside
from engine.types.text_length import TextLengthError
from lsm.errors import FluvialError

_P = ParamSpec("_P")
_R = TypeVar("_R")

_EXPRESSIONS: Final = "org.apache.spark.sql.connector.expressions."
_MOST: Final = 0x7FFFFFFF  # of a hash code
_numbers = count(1)


class Proxy:
    """An object of Python behind Java's interfaces; a subclass names them in ``Java.implements``."""

    def __init__(self, inside: SparkInside) -> None:
        """A Java proxy in one JVM."""
        self.inside = inside
        self._number = next(_numbers) & _MOST  # no other has it: the JVM gives an object back as one of its own

    def hashCode(self) -> int:
        """Java's; of this object."""
        return self._number

    def equals(self, other: Any) -> bool:
        """Java's; whether it is this object: Spark finds kept rows by it."""
        return other is not None and other.hashCode() == self._number and self.inside.is_python(other)

    def toString(self) -> str:
        """Java's; for people."""
        return type(self).__name__

    def references(self, names: Sequence[str]) -> Any:
        """A Java array of references to columns."""
        column = self.inside.named(_EXPRESSIONS + "Expressions").column
        kind = self.inside.named(_EXPRESSIONS + "NamedReference")
        return self.inside.array(kind, [column("`" + name.replace("`", "``") + "`") for name in names])


def called(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """A method that the JVM calls: errors reach Spark as Spark's own, and Fluvial's with their message."""

    @functools.wraps(function)
    def calling(*arguments: _P.args, **named: _P.kwargs) -> _R:
        try:
            return function(*arguments, **named)
        except TextLengthError as error:
            raise _inside(arguments[0]).too_long(error.limit, str(error)) from error
        except FluvialError as error:
            raise _inside(arguments[0]).failed(str(error)) from error
        except (JavaError, PySparkException) as error:
            raise _inside(arguments[0]).passed_on(error) from error

    return calling


def _inside(proxy: Any) -> SparkInside:
    found: SparkInside = proxy.inside
    return found
