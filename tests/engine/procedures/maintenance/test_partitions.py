"""drop_partition, expire_partitions and mark_partition_done, by Python, SQL and the shell."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.procedures import drop_partition, expire_partitions, mark_partition_done
from filestore.snapshot.change_tracking import ChangeSource, changes_of
from lsm.errors import InvalidInputError
from tests.engine.procedures.conftest import Call
from tests.support.option_keys import dashed

Content = Callable[..., set[tuple[str, int, int]]]


def test_a_dropped_partition_is_gone_and_old_snapshots_still_have_it(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    table = new_table()
    would_go = call("drop_partition", partitions="dt=d1", dry_run=True)
    assert [(each["partition"], each["snapshot_id"]) for each in would_go] == [("dt=d1", None)]
    assert table.latest_snapshot().id == 2  # type: ignore[union-attr]
    done = call("drop_partition", where="dt <= 'd1'")
    assert [(each["partition"], each["rows_in_files"], each["snapshot_id"]) for each in done] == [("dt=d1", 3, 3)]
    assert content(catalog) == {("d2", 3, 3)}
    assert len(content(catalog, snapshot_id=2)) == 3
    assert changes_of(table.latest_snapshot(), has_log=False) is ChangeSource.FILES  # type: ignore[arg-type]
    assert call("drop_partition", partitions="dt=d1") == []


def test_nothing_is_dropped_without_a_choice(new_table: Callable[..., Table], catalog: Catalog) -> None:
    with pytest.raises(InvalidInputError, match="no partition is chosen"):
        drop_partition(new_table())
    plain = catalog.create_table("shop.plain", pa.schema([("id", pa.int64())]), options={"log.system": "none"})
    with pytest.raises(InvalidInputError, match="not partitioned"):
        drop_partition(plain, partitions="dt=d1")


DAYS = pa.schema([("day", pa.date32()), ("hour", pa.int32()), ("id", pa.int64())])
DAY_MS = 86_400_000


def table_of_days(catalog: Catalog, *days: int, **options: str) -> Table:
    texts = dashed(options)
    table = catalog.create_table(
        "shop.orders",
        DAYS,
        primary_key=["day", "hour", "id"],
        partition_by=["day", "hour"],
        options={"bucket": "1", "log.system": "none", **texts},
    )
    today = table.store.clock.local_ms() // DAY_MS
    values = pa.array([today + day for day in days], pa.int32()).cast(pa.date32())
    table.write(pa.table([values, pa.array([23] * len(days), pa.int32()), list(range(len(days)))], schema=DAYS))
    return table


def test_partitions_expire_by_the_time_that_their_values_name(catalog: Catalog, call: Call) -> None:
    """partition.expiration-time and partition.timestamp-pattern; the oldest go first."""
    table_of_days(catalog, -40, -31, -29, 0, 5)
    arguments = {"expiration_time": "30 d", "timestamp_pattern": "$day $hour:00:00"}
    assert len(call("expire_partitions", dry_run=True, **arguments)) == 2
    (oldest,) = call("expire_partitions", max_expires=1, **arguments)
    (next_one,) = call("expire_partitions", **arguments)
    assert oldest["partition"] < next_one["partition"]
    assert (oldest["snapshot_id"], next_one["snapshot_id"]) == (2, 3)
    assert call("expire_partitions", **arguments) == []


def test_the_age_comes_from_the_tables_options(catalog: Catalog) -> None:
    table = table_of_days(catalog, -2, 0, partition__expiration_time="1 d")
    assert expire_partitions(table, dry_run=True).num_rows == 1
    assert expire_partitions(table, expire_strategy="update-time").num_rows == 0
    plain = table_of_days(Catalog(f"{catalog.warehouse}/2"), 0)
    with pytest.raises(InvalidInputError, match="no age is given"):
        expire_partitions(plain)


def test_a_done_partition_has_a_success_file(new_table: Callable[..., Table], call: Call) -> None:
    new_table()
    (first,) = call("mark_partition_done", partitions="dt=d1")
    (again, other) = call("mark_partition_done", partitions="dt=d1;dt=d2")
    assert (first, other["partition"]) == (again, "dt=d2")
    assert first["path"].endswith("/dt=d1/_SUCCESS")
    noted = json.loads(Path(first["path"]).read_bytes())
    assert 0 < noted["creationTime"] <= noted["modificationTime"]


def test_a_partition_without_rows_cannot_be_done(new_table: Callable[..., Table]) -> None:
    with pytest.raises(InvalidInputError, match=r"not one partition: .*partition='dt=d9' matches=0"):
        mark_partition_done(new_table(), partitions="dt=d9")
