"""rollback, rollback_to_timestamp and rollback_to_watermark, by Python, SQL and the shell."""

from collections.abc import Callable

import pytest

from engine import Catalog, Table
from engine.procedures import create_tag, rollback_to_timestamp, rollback_to_watermark, verify
from engine.procedures.versions.rollback import rollback
from filestore.commit.committable import Committable
from lsm.errors import InvalidInputError
from tests.engine.procedures.conftest import Call, order_rows
from tests.support.tables import messages_of

Content = Callable[..., set[tuple[str, int, int]]]
FIRST = {("d1", 1, 1), ("d1", 2, 2), ("d2", 3, 3)}
SECOND = {("d1", 1, 9), ("d1", 2, 2), ("d2", 3, 3)}


def watermarked(table: Table, identifier: int, watermark: int) -> None:
    """A commit of the streaming query ``query``."""
    messages = messages_of(table.files, order_rows(("d3", identifier, 0)))
    base = table.store.snapshots.latest_ref()
    committable = Committable(identifier=identifier, messages=messages, base=base, watermark=watermark)
    table.files.new_commit("query").commit(committable)


def test_a_table_goes_back_and_says_what_went(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    """TAG-02, TAG-03, TAG-61: a dry run tells the same rows and does nothing."""
    table = new_table()
    create_tag(table, "late")
    table.write(order_rows(("d2", 3, 4)))
    reported = call("rollback", snapshot=1, dry_run=True)
    assert content(catalog) == {*SECOND} - {("d2", 3, 3)} | {("d2", 3, 4)}
    assert [(each["kind"], each["name"], each["data_files"]) for each in reported] == [
        ("snapshot", "3", 1),
        ("tag", "late", 0),
        ("snapshot", "2", 1),
    ]
    assert {(each["previous_snapshot_id"], each["current_snapshot_id"]) for each in reported} == {(3, 1)}
    assert sum(each["size_bytes"] for each in reported) > 0
    assert call("rollback", version="snapshot.1") == reported
    assert content(catalog) == FIRST
    assert call("rollback", snapshot=1) == []
    assert verify(table).num_rows == 0


def test_a_program_may_give_a_number_as_text_and_nothing_else(new_table: Callable[..., Table]) -> None:
    """lineage.md 7: it said that the table was corrupt."""
    table = new_table()
    assert rollback(table, "1", dry_run=True).num_rows == 1  # type: ignore[arg-type]
    for wrong in ("one", 1.5, True):
        with pytest.raises(InvalidInputError, match=r"argument=snapshot value=.* expected=integer"):
            rollback(table, wrong)  # type: ignore[arg-type]
    for name in (None, 5):
        with pytest.raises(InvalidInputError, match=r"argument=tag value=.* expected=text"):
            create_tag(table, name)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match="a snapshot is named by its number: snapshot='1'"):
        table.files.read(snapshot_id="1")  # type: ignore[arg-type]


def test_a_table_goes_back_to_a_tag_or_a_time(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    table = new_table()
    create_tag(table, "good")
    time_ms = table.store.snapshots.read(1).time_ms
    table.write(order_rows(("d2", 3, 4)))
    assert [each["name"] for each in call("rollback", tag="good")] == ["3"]
    assert content(catalog) == SECOND
    assert [each["name"] for each in call("rollback_to_timestamp", timestamp=time_ms)] == ["good", "2"]
    assert content(catalog) == FIRST


def test_a_table_goes_back_to_a_watermark(new_table: Callable[..., Table], call: Call) -> None:
    """The last snapshot that is not further, as Paimon has it."""
    table = new_table()
    for identifier, watermark in ((1, 100), (2, 200), (3, 300)):
        watermarked(table, identifier, watermark)
    assert [each["name"] for each in call("rollback_to_watermark", watermark=250, force=True)] == ["5"]
    assert rollback_to_watermark(table, 99, force=True).column("name").to_pylist() == ["4", "3"]
    assert table.store.snapshots.latest_id() == 2


def test_whoever_would_be_hurt_is_named_and_force_goes_on(new_table: Callable[..., Table]) -> None:
    """Decision: a running stream would write on where it was, a reader would miss what comes under the same numbers."""
    table = new_table()
    watermarked(table, 1, 100)
    table.store.consumers.write("report", 4)
    with pytest.raises(InvalidInputError) as caught:
        rollback(table, snapshot=2)
    said = str(caught.value)
    assert "a stream committed in the last 10 minutes and may be running: commit_user=query" in said
    assert "a reader has advanced further: consumer=report next_snapshot=4" in said
    assert "fix='use rollback_to_as_latest, which costs no one anything, or say force => true'" in said
    assert table.store.snapshots.latest_id() == 3
    assert rollback(table, snapshot=2, force=True).num_rows == 1
    assert table.store.consumers.next_snapshots() == {"report": 3}


def test_states_that_are_none_are_refused(new_table: Callable[..., Table]) -> None:
    table = new_table()
    for wrong in ({}, {"snapshot": 1, "tag": "x"}, {"tag": "x", "version": "1"}):
        with pytest.raises(InvalidInputError, match="name one state"):
            rollback(table, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"no such snapshot: .*version=snapshot.9"):
        rollback(table, snapshot=9)
    with pytest.raises(InvalidInputError, match=r"no such snapshot: .*version=timestamp.1"):
        rollback_to_timestamp(table, 1_000_000_000)
    watermarked(table, 1, 100)
    assert rollback_to_watermark(table, 0, dry_run=True).num_rows == 1
