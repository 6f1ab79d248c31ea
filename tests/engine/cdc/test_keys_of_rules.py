"""A key that a rule names in place of the source's: a row that gets another one leaves no old row behind."""

from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from engine.cdc.rules.names import NameRule, Naming
from engine.cdc.settings import TableSettings
from logstore.format.source.unavailable import UNAVAILABLE_VALUE
from tests.support.cdc_job import memory_job
from tests.support.change_events import SourceTable, int32, text

T = SourceTable("t", [int32("id", optional=False), int32("n"), text("s")])
A, B, C = ({"id": number, "n": number, "s": s} for number, s in ((1, "a"), (2, "b"), (3, "c")))
KEYS = {
    "a partition that the source updates": {
        "naming": Naming(rules=(NameRule(source=r"public\.t", key=("id", "s")),)),
        "tables": {"t": TableSettings(partition_by=("s",))},
    },
    "another key": {"naming": Naming(rules=(NameRule(source=r"public\.t", key=("s",)),))},
    "a key for a table without one": {"naming": Naming(rules=(NameRule(source=r"public\.t", key=("id",)),))},
}


@pytest.fixture(params=KEYS)
def settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(KEYS[request.param])


def source_of(settings: dict[str, Any]) -> SourceTable:
    is_bare = settings == KEYS["a key for a table without one"]
    return SourceTable("t", T.columns, key=()) if is_bare else T


@pytest.mark.parametrize("is_one_batch", [True, False])
def test_an_update_of_a_key_that_a_rule_names_replaces_the_row(
    tmp_path: Path, settings: dict[str, Any], is_one_batch: bool
) -> None:
    """The row stayed under its old key beside the new one, in silence."""
    source = source_of(settings)
    moved, same = {"id": 9 if source.key == () else 1, "n": 7, "s": "z"}, {**B, "n": 8}
    with memory_job(tmp_path, **settings) as job:
        events = [
            [source.insert(A), source.insert(B), source.insert(C)],
            [source.update(moved, before=A), source.update(same, before=B)],
            [source.delete(C)],
        ]
        for each in [[*chain(*events)]] if is_one_batch else events:
            assert job.batch(*each).tables["t"].parked is None
        assert job.rows("t") == sorted([moved, same], key=repr)
        job.batch(source.update(A, before=moved), source.update({**A, "n": 3}, before=A))
        assert job.rows("t") == sorted([{**A, "n": 3}, same], key=repr)


def test_soft_deletes_mark_the_row_under_its_old_key(tmp_path: Path, settings: dict[str, Any]) -> None:
    source = source_of(settings)
    with memory_job(tmp_path, deletes="soft", **settings) as job:
        job.batch(source.insert(A))
        moved = {"id": 9 if source.key == () else 1, "n": 7, "s": "z"}
        job.batch(source.update(moved, before=A))
        assert [(each["s"], each["_deleted"]) for each in job.rows("t")] == [("a", True), ("z", False)]


def test_an_update_that_does_not_say_the_row_before_is_refused(tmp_path: Path, settings: dict[str, Any]) -> None:
    source = source_of(settings)
    with memory_job(tmp_path, **settings) as job:
        job.batch(source.insert(A))
        reason = str(job.batch(source.update({**A, "n": 2})).tables["t"].parked)
        assert "'before' is missing" in reason
        assert "REPLICA IDENTITY FULL" in reason
        assert job.rows("t") == [A]


@pytest.mark.parametrize("blank", [None, ""])
def test_a_delete_that_does_not_say_the_key_of_the_rule_is_refused(tmp_path: Path, blank: str | None) -> None:
    """The connector writes no text where the column is NOT NULL, and the row of that key was deleted."""
    columns = [*T.columns[:2], {**T.columns[2], "optional": blank is None}]
    source = SourceTable("t", columns)
    with memory_job(tmp_path, **KEYS["another key"]) as job:
        job.batch(source.insert(A), source.insert({**B, "s": ""}))
        reason = str(job.batch(source.delete({"id": 1, "n": None, "s": blank})).tables["t"].parked)
        assert "REPLICA IDENTITY FULL" in reason
        assert sorted(each["s"] for each in job.rows("t")) == ["", "a"]


def test_a_key_of_fewer_columns_than_the_source_has_needs_no_row_before(tmp_path: Path) -> None:
    """Its columns are in the record's key: an update that changes one comes as a delete and an insert."""
    source = SourceTable("t", [*T.columns[:1], {**T.columns[1], "optional": False}, T.columns[2]], key=("id", "n"))
    with memory_job(tmp_path, naming=Naming(rules=(NameRule(source=r"public\.t", key=("id",)),))) as job:
        job.batch(source.insert(A))
        assert job.batch(source.update({**A, "s": UNAVAILABLE_VALUE}), source.insert(B)).tables["t"].parked is None
        assert job.rows("t") == [A, B]
