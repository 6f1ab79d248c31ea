"""Fluvial by its own name: ``from fluvial import Catalog, session, sink`` takes the public names of ``engine``.

Each name is loaded at first use, so a program that does not use Spark does not import it.

Raises:
    ImportError: another module or package of the name ``engine``, ``filestore``, ``logstore`` or ``lsm`` is found
        before Fluvial's, or was installed over it; the message has its place.
"""

from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

# A package of Fluvial, a module that only Fluvial's package of this name has, and a word of its own first line.
_PACKAGES: Final = (
    ("lsm", "secret_names", b"log-structured"),
    ("logstore", "offsets", b"Kafka"),
    ("filestore", "opened_as", b"Paimon"),
    ("engine", "table_versions", b"Fluvial"),
)


def _check_packages() -> None:
    """Look whether Python's path leads to Fluvial's packages; none of them is imported for it."""
    for name, module, word in _PACKAGES:
        spec = find_spec(name)
        places = None if spec is None else spec.submodule_search_locations
        if spec is None or places is None or PathFinder.find_spec(f"{name}.{module}", places) is None:
            found = "nothing" if spec is None else spec.origin or next(iter(places or ()), "no file")
            raise ImportError(
                f"another module hides a package of Fluvial: package={name} found={found}; rename that module, or run"
                f" this program in an environment without it",
                name=name,
            )
        data = getattr(spec.loader, "get_data", None)
        if data is not None and word not in data(spec.origin):
            raise ImportError(
                f"another package was installed over a package of Fluvial: package={name} found={spec.origin}"
                f" fix='install fluvial again, without the other one'",
                name=name,
            )


_check_packages()

import engine  # noqa: E402  (behind the check, whose message has the place)

if TYPE_CHECKING:
    from engine import *  # noqa: F403
    from engine import procedures

__all__: list[str] = ["procedures"]
__all__ += engine.__all__


def load_ipython_extension(shell: Any) -> None:
    """Show rows, snapshots and plans as tables in a notebook: ``%load_ext fluvial``.

    Args:
        shell: of IPython, which calls this.
    """
    import_module("engine.drawing.notebook").add_pictures(shell)


def __getattr__(name: str) -> Any:
    if name == "procedures":
        return import_module("engine.procedures")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(engine, name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
