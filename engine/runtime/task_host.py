"""The host of a task: whether it sees the table that the driver planned for, and has the same Python and libraries.

A path of the driver's machine is another directory, or none, on an executor elsewhere. Without this look a task would
write files there, the driver would commit their names, and the rows would be lost.
"""

import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Final, Self

from filestore.io.object_store import is_object_path
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError

_LIBRARIES: Final = ("fluvial", "pyarrow", "pyspark")
_seen: set[tuple[object, ...]] = set()  # roots and identities of tables that this process has looked at


@cache
def _versions() -> Mapping[str, str]:
    """Python's release, and the major and minor numbers of libraries that are installed."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
    for name in _LIBRARIES:
        try:
            found[name] = ".".join(version(name).split(".")[:2])
        except PackageNotFoundError:  # in an archive on the path
            continue
    return found


def forget_tables() -> None:
    """Look at every table again: for a simulation, each history of which is of new processes."""
    _seen.clear()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHost:
    """What a task expects of its host. Made by the driver, sent with the task."""

    driver: str = field(default_factory=socket.gethostname)
    versions: Mapping[str, str] = field(default_factory=_versions)

    @classmethod
    def here(cls) -> Self:
        """This process, as the one to compare with."""
        return cls()

    def check(self, store: TableStore) -> None:
        """Look at the table and the versions, once for each table and process; nothing is made.

        Raises: InvalidInputError naming host, directory and fix.
        """
        key = (store.paths.root, store.schema.identity)
        if key in _seen:
            return
        self._check_versions()
        if not is_object_path(store.paths.root) and not store.is_as_opened():
            if store.as_opened.has_traces(store.io):
                raise store.as_opened.gone(store.io)
            raise InvalidInputError(
                f"the table's directory is not shared with this host: table={store.name} directory={store.paths.root} "
                f"host={socket.gethostname()} driver={self.driver} fix='put the warehouse where all hosts see it under "
                "one path (an object store, a shared disk), or run on one machine (local[*]); or the table was dropped'"
            )
        _seen.add(key)

    def _check_versions(self) -> None:
        found = _versions()
        for name, wanted in self.versions.items():
            if found.get(name, wanted) != wanted:
                raise InvalidInputError(
                    f"this host has another version than the driver: library={name} version={found[name]} "
                    f"driver_version={wanted} host={socket.gethostname()} python={sys.executable} "
                    "fix='install the same one, or send it with the job: fluvial package'"
                )
