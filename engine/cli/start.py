"""Entry point of the command ``fluvial``, before anything else is imported."""

import sys
from typing import Final

from engine.runtime.hidden_pandas import hide_pandas
from engine.runtime.imports import without_collection

_WITH_SPARK: Final = frozenset({"run", "sql"})
_WITHOUT_ROWS: Final = frozenset({"--help", "-h", "--version"})


def main() -> None:
    """Entry point of the script ``fluvial``."""
    if (_WITH_SPARK | _WITHOUT_ROWS).isdisjoint(sys.argv[1:]):
        hide_pandas()
    with without_collection():
        from engine.cli.app import main as run

    run()
