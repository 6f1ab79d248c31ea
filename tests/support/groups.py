"""Which tests one worker runs: those of one ``xdist_group``, and without one those of one file.

The scheduler of pytest-xdist 3.8 reads the group from the end of a test's id, where pytest 9.2 lets nobody write it:
each worker started every server. Here workers write the groups into a file, whose place the scheduler gave them.
"""

import json
import os
import tempfile
from pathlib import Path
from typing import Final

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

_PLACE: Final = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
_FILE: Final = "groups_file"


class GroupScheduling(LoadScopeScheduling):
    """Hands out groups in the order in which their first tests were collected."""

    def _split_scope(self, nodeid: str) -> str:
        if not hasattr(self, "_groups"):
            self._groups = json.loads(_file(self.config).read_text(encoding="utf-8"))
        return str(self._groups.get(nodeid, nodeid.partition("::")[0]))


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """In the process that hands out: a worker learns where the groups are to be written."""
    node.workerinput[_FILE] = str(_file(node.config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling | None:
    """For ``--dist loadgroup``; else what is xdist's."""
    return GroupScheduling(config, log) if config.getvalue("dist") == "loadgroup" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """In a worker: all have the same tests, so what the last one writes is what the first one wrote."""
    given = getattr(session.config, "workerinput", {}).get(_FILE)
    if given is None:
        return
    marks = {item.nodeid: item.get_closest_marker("xdist_group") for item in session.items}
    part = Path(f"{given}.{os.getpid()}")
    part.write_text(json.dumps({name: mark.args[0] for name, mark in marks.items() if mark}), encoding="utf-8")
    part.replace(given)


def _file(config: pytest.Config) -> Path:
    if _PLACE not in config.stash:
        config.stash[_PLACE] = tempfile.TemporaryDirectory(prefix="test-groups-")
        config.add_cleanup(config.stash[_PLACE].cleanup)
    return Path(config.stash[_PLACE].name) / "groups.json"
