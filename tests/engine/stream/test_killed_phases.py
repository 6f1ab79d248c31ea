"""A reader that was killed -9 in a micro-batch of each phase, and comes back when what it had planned has expired."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.procedures import expire_snapshots
from lsm.errors import CorruptDataError
from tests.engine.stream import dying_reader
from tests.engine.stream.dying_reader import REACHED, output, restored, run_reader
from tests.support.streams import content, fold, rows
from tests.support.waiting import wait_until
from tests.support.warehouses import ID_SCHEMA

pytestmark = pytest.mark.broker

PHASES = ("snapshot", "files", "log")


def killed_in(home: Path, table: Table, phase: str, options: dict[str, str]) -> None:
    command = [sys.executable, dying_reader.__file__, str(home), table.name, phase, json.dumps(options)]
    with (home / "reader.log").open("wb") as log:
        reader = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: (home / REACHED).exists() or reader.poll() is not None, "the reader did not get there")
        assert reader.poll() is None, (home / "reader.log").read_text()
    finally:
        os.kill(reader.pid, signal.SIGKILL)
        reader.wait()


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("phase", "way"),
    [*((phase, "fail") for phase in PHASES), ("files", "resnapshot"), ("snapshot", "consumer"), ("files", "consumer")],
)
def test_a_killed_reader_comes_back_whatever_it_was_reading(
    tmp_path: Path, broker: Broker, phase: str, way: str
) -> None:
    """Issue 22 point 1: a range of the log needs no snapshot; for files that are gone the options decide.

    A consumer keeps them, so nothing is lost.
    """
    given = {"bucket": "2", "log.kafka.bootstrap.servers": broker.bootstrap_servers}
    name = f"db.killed_{phase}_{way}_{os.getpid()}"
    catalog = Catalog(str(tmp_path / "w"))
    table = catalog.create_table(name, ID_SCHEMA, primary_key=["id"], options=given)
    table.write(rows([1, 2, 3, 4], "a"))
    options = {"read_stream_maxFilesPerTrigger": "1", "log_on__offset__lost": "fail" if way == "consumer" else way}
    if way == "consumer":
        options["consumer__id"] = "reader"
    if phase != "snapshot":
        run_reader(tmp_path, restored(tmp_path, name, options))  # the snapshot
    table.write(rows([5, 6], "b"))
    if phase == "files":
        table.overwrite(rows([5, 6, 7], "c").drop_columns(["_row_kind"]))
    killed_in(tmp_path, table, phase, options)
    planned = table.store.snapshots.latest_id() or 0
    for each in ("d", "e"):
        table.write(rows([1, 8], each))
    table.compact(full=True)
    expire_snapshots(table, retain_max=1, retain_min=1)
    assert ((table.store.snapshots.earliest_id() or 0) > planned) == (way != "consumer")
    query = restored(tmp_path, name, options)
    if way == "fail" and phase != "log":
        with pytest.raises(CorruptDataError, match=r"wanted_snapshot=.* fix=set log.on-offset-lost=resnapshot"):
            run_reader(tmp_path, query)
    else:
        run_reader(tmp_path, query)
        found = output(tmp_path)
        assert content(table).items() <= fold(found).items()
        if way == "consumer" or phase == "log":
            assert fold(found) == content(table)
            assert max(Counter(_change(each) for each in found).values()) == 1
    catalog.drop_table(name)


def _change(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["_row_kind"], row["id"], row["v"]
