"""Histories in a real object store."""

import json
from collections.abc import Callable
from itertools import islice

import obstore
import pytest

from engine.cli.app import run_command
from engine.simulation.explorer import explore
from engine.simulation.history import HistoryPlace
from engine.simulation.pause_matrix import sampled_matrix
from engine.simulation.plan import HistoryPlan
from filestore.catalog.warehouse import open_warehouse
from filestore.options.catalog_options import CatalogOptions
from tests.engine.simulation.planted_bugs import plan
from tests.engine.simulation.test_explorer import failures_text
from tests.stores.object_store import ObjectStore

EVERY = 160
"""Of the histories of the matrix that are run: operations and those beside them come in other pairs.

An object store in memory has all of them; `make simulate ARGS='--warehouse s3://... '` runs as many in a real one.
"""


def histories() -> list[HistoryPlan]:
    paused = [each for each in islice(sampled_matrix(9, more=0), 0, None, EVERY) if "rename" not in each.actors[1]]
    return [
        *paused,
        *(plan("log-sink", "log-read expire", setup=name) for name in ("logged-append", "logged-exact")),
    ]


@pytest.mark.soak
@pytest.mark.sweep
def test_histories_hold_in_an_object_store(object_store: ObjectStore, new_bucket: Callable[[], str]) -> None:
    found = open_warehouse(f"s3://{new_bucket()}/tmp", CatalogOptions.parse(object_store.options), environment={})
    done = explore(histories(), place=lambda number: HistoryPlace(root=f"{found.root}/{number}", io=found.io))
    assert failures_text(done.failed) == ""
    assert done.histories >= 6


@pytest.mark.soak
def test_the_command_leaves_nothing_in_an_object_store(
    object_store: ObjectStore, new_bucket: Callable[[], str], capsys: pytest.CaptureFixture[str]
) -> None:
    bucket = new_bucket()
    options = [part for key, value in object_store.options.items() for part in ("--catalog-option", f"{key}={value}")]
    place = ["--warehouse", f"s3://{bucket}/tmp", *options]
    few = ["--histories", "2", "--seed", "9000", "--operations", "write,expire,tag", "--json"]
    assert run_command(["simulate", *few, *place]) == 0
    assert json.loads(capsys.readouterr().out)["histories"] == 2
    assert [each["path"] for page in obstore.list(object_store.client(bucket)) for each in page] == []
