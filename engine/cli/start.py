"""Where the command ``fluvial`` begins: before anything else is imported."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Final

_PANDAS: Final = "pandas"
_WITH_SPARK: Final = frozenset({"run", "sql"})


def main() -> None:
    """What the script ``fluvial`` calls."""
    if _WITH_SPARK.isdisjoint(sys.argv[1:]):
        look_past_pandas()
    from engine.cli.app import main as run

    run()


def look_past_pandas() -> None:
    """Keep PyArrow from importing pandas.

    It looks for pandas when it makes its first array, so that it would know a column of pandas if it met one. That
    takes a third of the time of a short command, and no command but those that start Spark ever meets one. PyArrow
    does not look twice, unless it is asked for a frame of pandas: that goes on working.
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


class _Hidden(MetaPathFinder):
    """Finds everything but pandas."""

    def find_spec(self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if fullname == _PANDAS:
            raise ModuleNotFoundError(fullname)
