"""expire_snapshots and the tags, by Python, SQL and the shell."""

from collections.abc import Callable

import pytest

from engine import Catalog, Table
from engine.procedures import (
    create_tag,
    create_tag_from_timestamp,
    delete_tag,
    expire_snapshots,
    reset_consumer,
    trigger_tag_automatic_creation,
)
from lsm.errors import InvalidInputError
from tests.engine.procedures.conftest import Call, order_rows

Content = Callable[..., set[tuple[str, int, int]]]
ALL = {("d1", 1, 9), ("d1", 2, 2), ("d2", 3, 3)}


def test_old_snapshots_go_and_the_rows_stay(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    table = new_table()
    table.compact(full=True)
    would_go = call("expire_snapshots", retain_max=1, retain_min=1, dry_run=True)
    assert [each["snapshot_id"] for each in would_go] == [1, 2]
    assert table.store.snapshots.ids() == [1, 2, 3]
    assert call("expire_snapshots", retain_max=1, retain_min=1, max_deletes=1) == would_go[:1]
    assert call("expire_snapshots", retain_max=1, retain_min=1) == would_go[1:]
    assert sum(each["data_files"] for each in would_go) > 1
    assert sum(each["size_bytes"] for each in would_go) > 0
    assert table.store.snapshots.ids() == [3]
    assert content(catalog) == ALL
    assert call("expire_snapshots") == []


def test_a_time_says_what_is_old(new_table: Callable[..., Table]) -> None:
    table = new_table(snapshot__num_retained__min="1")
    second = table.store.snapshots.read(2)
    assert expire_snapshots(table, older_than="2020-01-01").num_rows == 0
    assert expire_snapshots(table, older_than=second.time_ms).num_rows == 0
    assert expire_snapshots(table, older_than=str(second.time_ms + 1)).num_rows == 1
    with pytest.raises(InvalidInputError, match="not a time: argument=older_than value='soon'"):
        expire_snapshots(table, older_than="soon")


def test_a_whole_history_goes_in_pieces(new_table: Callable[..., Table]) -> None:
    """snapshot.expire.limit bounds what is held in memory, not what the procedure does."""
    table = new_table(snapshot__expire__limit="2")
    for turn in range(5):
        table.write(order_rows(("d1", 1, turn)))
    reported: list[tuple[int, int | None]] = []
    done = expire_snapshots(table, retain_max=1, retain_min=1, progress=lambda done, of: reported.append((done, of)))
    assert done.column("snapshot_id").to_pylist() == [1, 2, 3, 4, 5, 6]
    assert [done for done, _ in reported] == [1, 2, 3, 4, 5, 6]


def test_a_tag_outlives_its_snapshot_until_it_is_deleted(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    """TAG-01..TAG-05, TAG-21, TAG-22, TAG-26, TAG-27, TAG-64."""
    table = new_table()
    (made,) = call("create_tag", name="eod", snapshot=1, time_retained="7 d")
    assert (made["tagged_snapshot_id"], made["time_retained_ms"]) == (1, 7 * 86_400_000)
    table.compact(full=True)
    table.write(order_rows(("d1", 1, 10)))
    call("expire_snapshots", retain_max=1, retain_min=1)
    assert content(catalog, tag="eod") == {("d1", 1, 1), ("d1", 2, 2), ("d2", 3, 3)}
    (renamed,) = call("rename_tag", tag="eod", target_tag="month")
    assert renamed["tag_name"] == "month"
    (would_go,) = call("delete_tag", name="month", dry_run=True)
    assert content(catalog, tag="month")
    assert call("delete_tag", name="month") == [would_go]
    assert would_go["data_files"] > 0
    assert table.store.snapshots.tag_names() == []
    assert content(catalog) == {("d1", 1, 10), ("d1", 2, 2), ("d2", 3, 3)}


def test_a_tag_can_be_moved_and_expires(new_table: Callable[..., Table], call: Call) -> None:
    table = new_table()
    call("create_tag_from_timestamp", tag="now", timestamp="2999-01-01", time_retained="1 ms")
    assert call("replace_tag", tag="now", snapshot=1, time_retained="1 ms")[0]["tagged_snapshot_id"] == 1
    call("create_tag", tag="forever")
    table.store.clock.sleep(0.01)
    assert [each["tag_name"] for each in call("expire_tags")] == ["now"]
    assert call("expire_tags") == []
    assert [each["tag_name"] for each in call("expire_tags", older_than="2999-01-01")] == ["forever"]


@pytest.mark.parametrize("name", ["7", " 12 ", "", " ", "a/b", ".a", "a\nb"])
def test_a_tag_has_a_name_that_is_no_number(new_table: Callable[..., Table], name: str) -> None:
    """TAG-13, TAG-14: checked when the tag is made."""
    with pytest.raises(InvalidInputError, match="tag="):
        create_tag(new_table(), name)


def test_a_name_with_a_comma_is_deleted_as_it_is(new_table: Callable[..., Table], call: Call) -> None:
    """versions.md M3: tags and branches of older versions; names without one are still lists."""
    store = new_table().store
    body = store.snapshots.read(1).to_json().encode()
    for name in ("a", "b", "a,b", "c"):
        store.io.replace(store.paths.tag(name), body)
    assert [each["tag_name"] for each in call("delete_tag", tag="a,b")] == ["a,b"]
    assert [each["tag_name"] for each in call("delete_tag", tag="a, c")] == ["a", "c"]
    assert store.snapshots.tag_names() == ["b"]
    for name in ("d", "d,e"):
        there = store.paths.with_branch(name)
        store.io.replace(there.schema(0), store.io.read_bytes(store.paths.schema(0)))
        store.io.replace(there.tag("b"), body)
        store.io.replace(there.snapshot(1), body)
    assert [each["branch"] for each in call("delete_branch", branch="d,e")] == ["d,e"]
    assert [each["branch"] for each in call("delete_branch", branch="d")] == ["d"]


def test_a_tag_that_lives_no_time_is_refused(new_table: Callable[..., Table]) -> None:
    table = new_table()
    with pytest.raises(InvalidInputError, match=r"a tag lives for some time: .*time_retained=0 ms"):
        create_tag(table, "eod", time_retained="0 s")
    assert table.store.snapshots.tag_names() == []


def test_wrong_tags_are_named(new_table: Callable[..., Table]) -> None:
    table = new_table()
    create_tag(table, "eod")
    with pytest.raises(InvalidInputError, match=r"tag exists already: .*tag=eod snapshot=2"):
        create_tag(table, "eod", snapshot=1)
    with pytest.raises(InvalidInputError, match=r"no such snapshot to tag: .*snapshot=9 earliest=1 latest=2"):
        create_tag(table, "new", snapshot=9)
    with pytest.raises(InvalidInputError, match=r"no such tag: .*tag=typo tags=\['eod'\]"):
        delete_tag(table, "eod,typo")
    assert table.store.snapshots.tag_names() == ["eod"]
    with pytest.raises(InvalidInputError, match=r"no snapshot is so old: .*timestamp=2020-01-01 earliest=1"):
        create_tag_from_timestamp(table, "old", "2020-01-01")


def test_readers_can_be_put_elsewhere_and_forgotten(new_table: Callable[..., Table], call: Call) -> None:
    """FL-57: and the base of their differences goes along."""
    table = new_table()
    consumers = table.store.consumers
    consumers.write("etl", 3)
    consumers.write("etl.base", 2)
    moved = call("reset_consumer", consumer_id="etl", next_snapshot_id=2)
    assert [tuple(each.values()) for each in moved] == [("etl", 3, 2), ("etl.base", 2, 1)]
    assert consumers.next_snapshots() == {"etl": 2, "etl.base": 1}
    consumers.write("other", 1)
    assert [each["consumer_id"] for each in call("clear_consumers", excluding_consumers="o.*")] == ["etl", "etl.base"]
    call("reset_consumer", consumer_id="other")
    assert consumers.next_snapshots() == {}


def test_a_reader_is_not_put_where_nothing_is(new_table: Callable[..., Table]) -> None:
    table = new_table()
    with pytest.raises(InvalidInputError, match=r"no such place: .*next_snapshot_id=9 earliest=1 latest=2"):
        reset_consumer(table, "etl", 9)
    with pytest.raises(InvalidInputError, match=r"no such consumer: .*consumer_id=etl consumers=\[\]"):
        reset_consumer(table, "etl")
    for number in range(50):
        table.store.consumers.write(f"etl-{number}", 1)
    with pytest.raises(InvalidInputError, match=r"consumer_id=etl-99 nearest_consumers=\['etl-9', .* count=50$"):
        reset_consumer(table, "etl-99")


def test_tags_that_are_due_are_made_by_hand(new_table: Callable[..., Table], call: Call) -> None:
    """TAG-60, TAG-61: for a table that no stream writes; what is refused says what to set."""
    table = new_table(tag__create_interval="1 d", tag__num_retained_max="1")
    assert call("trigger_tag_automatic_creation") == []  # the table is younger than the last midnight
    aged = table.store.paths.snapshot(1)
    old_ms = table.store.snapshots.read(1).time_ms - 86_400_000
    table.store.io.replace(aged, table.store.io.read_bytes(aged).replace(
        str(table.store.snapshots.read(1).time_ms).encode(), str(old_ms).encode()
    ))  # fmt: skip
    (made,) = call("trigger_tag_automatic_creation", force=True)
    assert (made["action"], made["tagged_snapshot_id"]) == ("made", 1)
    assert call("trigger_tag_automatic_creation") == []
    delete_tag(table, made["tag_name"])
    assert call("trigger_tag_automatic_creation") == []
    assert call("trigger_tag_automatic_creation", force=True) == [made]


def test_a_table_without_a_schedule_says_what_to_set(new_table: Callable[..., Table]) -> None:
    with pytest.raises(InvalidInputError, match=r"makes no tags by itself: .*fix=set tag.automatic-creation="):
        trigger_tag_automatic_creation(new_table())
