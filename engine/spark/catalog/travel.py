"""What Spark wants of a table when it asks a catalog for it, as options of a read."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from engine.request.read_keys import BATCH_KEYS, STREAM_KEYS
from engine.spark.read_options import spelled_options
from engine.spark_internals.catalog import SparkInside

STATE_KEYS: Final = tuple(sorted({*BATCH_KEYS, *STREAM_KEYS}))
"""Options that say which state is read, and in which columns."""

_VERSION: Final = "scan.version"
_TIME: Final = "scan.timestamp"
_MICROS: Final = 1000  # in a millisecond
_CONTEXT: Final = "TableContext"
_OPTIONS: Final = "CaseInsensitiveStringMap"
_KINDS: Final = (_CONTEXT, _OPTIONS)  # of the two that Spark gives since 4.3


def travel_options(inside: SparkInside, wanted: Sequence[Any]) -> Mapping[str, str]:
    """What Spark wants besides the newest state.

    Args:
        inside: of the JVM.
        wanted: behind the identifier: nothing, privileges of a write, a version, a time in microseconds; or the
            context that has one of these, and options (4.3).
    """
    found: dict[str, str] = {}
    kinds = _KINDS if len(wanted) == len(_KINDS) else ()
    for place, each in enumerate(wanted):
        if isinstance(each, str):
            return {_VERSION: each}
        if isinstance(each, int):
            return {_TIME: str(each // _MICROS)}
        kind = kinds[place] if kinds else each.getClass().getSimpleName()
        if kind == _CONTEXT:
            if not each.writePrivileges().isEmpty():
                return {}
            travel = each.timeTravel()
            found |= _of(travel.get()) if travel.isPresent() else {}
        elif kind == _OPTIONS:
            found |= spelled_options(inside.texts_by_key(each.asCaseSensitiveMap()))
    return found


def _of(travel: Any) -> Mapping[str, str]:
    if travel.getClass().getSimpleName() == "AsOfVersion":
        return {_VERSION: travel.version()}
    return {_TIME: str(travel.micros() // _MICROS)}
