"""Processes that start without pandas, which only Spark uses."""

import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Final

from engine.spark_internals.workers import STREAM_RUNNER

_PANDAS: Final = "pandas"
# No code of users runs in these processes; the second takes the place of the first where Fluvial made the session.
_STREAM_RUNNERS: Final = (STREAM_RUNNER, "engine.runtime.stream_worker")


def hide_pandas_in_stream_runner() -> None:
    """`hide_pandas` in the process of a streaming query's source; elsewhere nothing."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name in _STREAM_RUNNERS:
        hide_pandas()


def hide_pandas() -> None:
    """Keep PyArrow from importing pandas.

    PyArrow imports pandas when it creates its first array, to recognise pandas columns. That takes a third of the time
    of a short command or of the start of a stream. PyArrow does not look again, except for conversions to pandas, which
    still work. For processes that run no code of users: their pandas columns would not be recognised.
    """
    if _PANDAS in sys.modules:
        return
    hidden = _Hidden()
    sys.meta_path.insert(0, hidden)
    try:
        import pyarrow as pa

        pa.array([None])
    finally:
        sys.meta_path.remove(hidden)


class _Hidden:
    """Hides pandas from the import system."""

    def find_spec(self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if fullname == _PANDAS:
            raise ModuleNotFoundError(fullname)
