"""compact and compact_database, by Python, SQL and the shell."""

from collections.abc import Callable
from typing import Any

import pytest

from engine import Catalog, Table
from engine.monitor.inspection import inspect_table
from engine.procedures import compact
from lsm.errors import InvalidInputError
from tests.engine.procedures.conftest import Call, order_rows

Content = Callable[..., set[tuple[str, int, int]]]
ALL = {("d1", 1, 9), ("d1", 2, 2), ("d2", 3, 3)}


def runs(table: Table) -> dict[str, list[int]]:
    state: dict[str, list[int]] = {}
    for bucket in inspect_table(table.store).buckets:
        state.setdefault(bucket.partition, []).append(len(bucket.runs))
    return state


def test_a_full_compaction_leaves_one_run_in_each_bucket(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    table = new_table()
    assert max(runs(table)["dt=d1"]) == 2
    done = call("compact", compact_strategy="full")
    assert {each["partition"] for each in done} == {"dt=d1", "dt=d2"}
    assert {each["snapshot_id"] for each in done} == {3}
    assert sum(each["files_before"] for each in done) > sum(each["files_after"] for each in done)
    assert {count for counts in runs(table).values() for count in counts} == {1}
    assert content(catalog) == ALL
    assert call("compact", compact_strategy="full") == []


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"partitions": "dt=d2"}, {"dt=d2"}),
        ({"partitions": "dt='d1' ; dt = d3"}, {"dt=d1"}),
        ({"where": "dt > 'd1' or dt is null"}, {"dt=d2"}),
        ({"buckets": "5-9,7"}, set()),
        ({"partition_idle_time": "1 h"}, set()),
        ({"partition_idle_time": "0 ms", "buckets": "0-1"}, {"dt=d1", "dt=d2"}),
    ],
)
def test_only_what_is_chosen_is_compacted(
    new_table: Callable[..., Table], arguments: dict[str, Any], expected: set[str]
) -> None:
    table = new_table()
    done = compact(table, compact_strategy="full", **arguments).to_pylist()
    assert {each["partition"] for each in done} == expected


@pytest.mark.parametrize(
    ("arguments", "fact"),
    [
        ({"partitions": "day=d1"}, r"not a partition column: .*column=day partition_columns=\['dt'\]"),
        ({"partitions": "d1"}, "must be column=value"),
        ({"where": "id > 5"}, "not a partition column: .*column=id"),
        ({"partitions": "dt=d1", "where": "dt = 'd1'"}, "not both"),
        ({"buckets": "1-x"}, "buckets are written 0-99,150"),
        ({"partition_idle_time": "soon"}, "not a duration: argument=partition_idle_time"),
        ({"most_buckets": 0}, "nothing would be compacted: most_buckets=0"),
        ({"time_limit": "a while"}, "not a duration: argument=time_limit"),
    ],
)
def test_a_wrong_choice_is_named(new_table: Callable[..., Table], arguments: dict[str, Any], fact: str) -> None:
    with pytest.raises(InvalidInputError, match=fact):
        compact(new_table(), **arguments)


@pytest.mark.parametrize("limit", [{"most_buckets": 1}, {"time_limit": "0 ms"}])
def test_with_little_time_the_bucket_that_costs_readers_most_is_compacted(
    new_table: Callable[..., Table], call: Call, content: Content, catalog: Catalog, limit: dict[str, Any]
) -> None:
    """Of two buckets with rows in each the one with more runs; what is left is done by the next calls."""
    table = new_table()
    table.write(order_rows(("d2", 3, 4)))
    table.write(order_rows(("d2", 3, 5)))
    assert max(runs(table)["dt=d2"]) == 3
    done = [call("compact", compact_strategy="full", **limit) for _ in range(4)]
    assert [len(each) for each in done] == [1, 1, 0, 0]
    assert [each[0]["partition"] for each in done[:2]] == ["dt=d2", "dt=d1"]
    assert content(catalog) == {*ALL} - {("d2", 3, 3)} | {("d2", 3, 5)}


@pytest.mark.sweep
def test_many_tables_are_compacted_and_one_that_fails_stops_nobody(new_table: Callable[..., Table], call: Call) -> None:
    for name in ("shop.orders", "shop.old_orders", "web.clicks"):
        new_table(name)
    broken = new_table("shop.broken")
    broken.store.io.delete_tree(broken.store.paths.manifest_dir)
    done = call("compact_database", including_databases="shop", excluding_tables=".*old.*", compact_strategy="full")
    assert [each["table"] for each in done] == ["shop.broken", "shop.orders"]
    assert "LostFileError: a manifest is lost: table=shop.broken" in done[0]["error"]
    assert (done[0]["buckets"], done[1]["error"]) == (0, None)
    assert done[1]["buckets"] > 1
    assert done[1]["files_after"] < done[1]["files_before"]
