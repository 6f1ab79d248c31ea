"""Entry point of the command ``fluvial``, before anything else is imported."""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Final

_PANDAS: Final = "pandas"
_WITH_SPARK: Final = frozenset({"run", "sql"})


def main() -> None:
    """Entry point of the script ``fluvial``."""
    if _WITH_SPARK.isdisjoint(sys.argv[1:]):
        hide_pandas()
    from engine.cli.app import main as run

    run()


def hide_pandas() -> None:
    """Keep PyArrow from importing pandas.

    PyArrow imports pandas when it creates its first array, to recognise pandas columns. That takes a third of the time
    of a short command, and only commands that start Spark use pandas at all. PyArrow does not look again, except for
    conversions to pandas, which still work.
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
    """Hides pandas from the import system."""

    def find_spec(self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> None:
        if fullname == _PANDAS:
            raise ModuleNotFoundError(fullname)
