"""rollback_to_as_latest, rescale, compact_manifest and remove_unexisting_files, by Python, SQL and the shell."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.procedures import create_tag, drop_partition, expire_snapshots, rescale, rollback_to_as_latest, verify
from filestore.evolution.schema_change import AddColumn, SetOption
from filestore.maintenance.rewriting import rescale as rescale_files
from filestore.scan.live_files import LiveFiles
from filestore.scan.snapshot_files import manifests_of
from filestore.snapshot.change_tracking import ChangeSource, changes_of
from filestore.snapshot.snapshot import CommitKind
from filestore.types.data_types import DataType
from lsm.errors import ConflictError, InvalidInputError
from tests.engine.procedures.conftest import SCHEMA, Call, order_rows
from tests.support.changelogs import newest_changes
from tests.support.tables import newest_snapshot

Content = Callable[..., set[tuple[str, int, int]]]
ALL = {("d1", 1, 9), ("d1", 2, 2), ("d2", 3, 3)}


# ---- older rows


@pytest.mark.sweep
def test_older_rows_come_back_as_a_new_commit(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    """TAG-02 without TAG-03: nothing of the history is lost, and streams get the exact difference."""
    table = new_table()
    create_tag(table, "good")
    table.write(order_rows(("d1", 1, 100), ("d1", 7, 7)))
    drop_partition(table, partitions="dt=d2")
    table.write(order_rows(("d3", 5, 5)))
    done = call("rollback_to_as_latest", tag="good")
    assert [(each["partition"], each["restored_snapshot_id"], each["current_snapshot_id"]) for each in done] == [
        ("dt=d1", 2, 6), ("dt=d2", 2, 6), ("dt=d3", 2, 6),
    ]  # fmt: skip
    assert content(catalog) == ALL
    assert len(content(catalog, snapshot_id=5)) == 4
    assert changes_of(newest_snapshot(table.files), has_log=False) is ChangeSource.FILES
    assert {*newest_changes(table.files)} == {
        ("-U", "d1", 1, 100), ("+U", "d1", 1, 9), ("-D", "d1", 7, 7), ("+I", "d2", 3, 3), ("-D", "d3", 5, 5),
    }  # fmt: skip
    assert call("rollback_to_as_latest", snapshot=6) == []
    table.write(order_rows(("d1", 1, 11)))
    table.compact(full=True)
    expire_snapshots(table, retain_max=1, retain_min=1)
    assert content(catalog) == {*ALL} - {("d1", 1, 9)} | {("d1", 1, 11)}
    assert content(catalog, tag="good") == ALL
    assert verify(table).num_rows == 0


def test_one_state_must_be_named(new_table: Callable[..., Table]) -> None:
    table = new_table()
    for wrong in ({}, {"snapshot": 1, "tag": "x"}):
        with pytest.raises(InvalidInputError, match="name one state"):
            rollback_to_as_latest(table, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"no such snapshot: .*version=snapshot.9 .*latest=2"):
        rollback_to_as_latest(table, snapshot=9)
    assert rollback_to_as_latest(table, timestamp=newest_snapshot(table.files).time_ms).num_rows == 0


@pytest.mark.broker
def test_a_table_with_a_log_goes_back_and_tells_its_streams(tmp_path: Path, broker: Broker) -> None:
    """FL-29, FL-30: the log does not get it; streams read the difference from the files, at its place."""
    catalog = Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})
    name = f"db.rollback{abs(hash(str(tmp_path))) % 10**9}"
    table = catalog.create_table(name, SCHEMA, primary_key=["dt", "id"], partition_by=["dt"], options={"bucket": "2"})
    table.write(order_rows(("d1", 1, 1)))
    table.write(order_rows(("d1", 1, 2), ("d1", 2, 2)))
    rollback_to_as_latest(table, snapshot=1)
    assert changes_of(newest_snapshot(table.files), has_log=True) is ChangeSource.FILES
    assert {*newest_changes(table.files)} == {("-U", "d1", 1, 2), ("+U", "d1", 1, 1), ("-D", "d1", 2, 2)}
    table.write(order_rows(("d1", 3, 3)))
    changes = [SetOption("snapshot.num-retained.max", "99"), AddColumn(path=("n",), type=DataType(root="INT"))]
    catalog.alter_table(name, changes)
    table = catalog.table(name)
    rollback_to_as_latest(table, snapshot=2)
    assert {*newest_changes(table.files)} == {
        ("-U", "d1", 1, 1, None), ("+U", "d1", 1, 2, None), ("+I", "d1", 2, 2, None), ("-D", "d1", 3, 3, None),
    }  # fmt: skip
    table.write(pa.table({"dt": ["d1"], "id": [4], "v": [4], "n": pa.array([4], pa.int32())}))
    assert verify(table).num_rows == 0


# ---- indexes


def test_files_get_the_indexes_that_the_options_ask_for(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    """``rewrite_file_index``: no row changes, streams see nothing, and the second time there is nothing to do."""
    table = new_table()
    catalog.alter_table("shop.orders", [SetOption(key="file-index.bloom-filter.columns", text="v")])
    (done,) = call("rewrite_file_index", where="dt = 'd2'")
    assert (done["written_partitions"], done["written_indexes"]) == (1, 1)
    (done,) = call("rewrite_file_index")
    assert done["written_partitions"] == 1
    assert content(catalog) == ALL
    assert changes_of(newest_snapshot(table.files), has_log=False) is ChangeSource.NONE
    live = LiveFiles.latest(table.store)
    assert all(file.embedded_index for key in live.buckets() for file in live.files(key))
    assert call("rewrite_file_index") == [{"written_partitions": 0, "written_indexes": 0, "snapshot_id": None}]
    assert verify(table).num_rows == 0


# ---- buckets


@pytest.mark.parametrize("options", [{}, {"changelog_producer": "input"}], ids=["plain", "changelog"])
def test_all_rows_move_to_the_new_number_of_buckets(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content, options: dict[str, str]
) -> None:
    """FL-84 for tables without a log: the same rows, in other buckets, and streams see nothing."""
    table = new_table(**options)
    (done,) = call("rescale", bucket_num=5)
    assert (done["bucket_before"], done["bucket_after"], done["partitions"], done["schema_id"]) == (2, 5, 2, 1)
    assert content(catalog) == ALL
    again = catalog.table("shop.orders")
    assert again.options.bucket == 5
    assert again.options.changelog_producer == options.get("changelog_producer", "none")
    assert newest_snapshot(again.files).commit_kind is CommitKind.COMPACT
    assert changes_of(newest_snapshot(again.files), has_log=False) is ChangeSource.NONE
    again.write(order_rows(("d1", 1, 10), ("d4", 8, 8)))
    assert set(LiveFiles.latest(again.store).partition_total_buckets().values()) == {5}
    assert content(catalog) == {*ALL} - {("d1", 1, 9)} | {("d1", 1, 10), ("d4", 8, 8)}
    assert content(catalog, snapshot_id=2) == ALL
    assert call("rescale", bucket_num=5)[0]["partitions"] == 0
    assert verify(again).num_rows == 0
    with pytest.raises(InvalidInputError, match="was written with another bucket count"):
        table.write(order_rows(("d1", 1, 11)))


def test_a_rescaling_gives_way_to_who_wrote_meanwhile(new_table: Callable[..., Table], catalog: Catalog) -> None:
    table = new_table()
    before = {path for path in Path(table.store.paths.root).rglob("*.parquet")}
    rescaled = table.store.with_options({"bucket": "3"})
    names = rescaled.names

    class Writing:
        """Somebody else commits when the first new file gets its name."""

        is_done = False

        def uuid(self) -> str:
            if not self.is_done:
                self.is_done = True
                table.write(order_rows(("d1", 2, 99)))
            return names.uuid()

    object.__setattr__(rescaled, "names", Writing())
    with pytest.raises(ConflictError, match="number of buckets of a partition changed"):
        rescale_files(table.store, rescaled, keep=lambda _: True)
    assert ("d1", 2, 99) in {tuple(row.values()) for row in catalog.table("shop.orders").read().to_arrow().to_pylist()}
    left = {path for path in Path(table.store.paths.root).rglob("*.parquet")} - before
    assert len(left) == 1  # the other writer's
    assert rescale(table, 3).to_pylist()[0]["partitions"] == 2


def test_what_cannot_be_rescaled_says_so(new_table: Callable[..., Table], catalog: Catalog) -> None:
    with pytest.raises(InvalidInputError, match="bucket=2 bucket_num=0"):
        rescale(new_table(), 0)
    plain = catalog.create_table("shop.plain", SCHEMA, options={"log.system": "none"})
    with pytest.raises(InvalidInputError, match=r"only a fixed number of buckets can change: .*bucket=-1"):
        rescale(plain, 4)
    first = catalog.create_table(
        "shop.first", SCHEMA, primary_key=["id"],
        options={"bucket": "1", "merge-engine": "first-row", "log.system": "none"},
    )  # fmt: skip
    first.write(order_rows(("d1", 1, 1)))
    with pytest.raises(InvalidInputError, match=r"not visible before they are compacted: .*merge-engine=first-row"):
        rescale(first, 4)


# ---- manifests and lost files


def test_manifests_become_one(new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content) -> None:
    table = new_table()
    for turn in range(5):
        table.write(order_rows(("d2", 3, turn)))
    assert len(manifests_of(table.store, newest_snapshot(table.files))) == 7
    (done,) = call("compact_manifest")
    assert (done["manifests_before"], done["manifests_after"], done["snapshot_id"]) == (7, 1, 8)
    assert len(manifests_of(table.store, newest_snapshot(table.files))) == 1
    assert content(catalog) == {*ALL} - {("d2", 3, 3)} | {("d2", 3, 4)}
    assert call("compact_manifest") == []


def test_a_table_can_be_read_again_without_its_lost_files(
    new_table: Callable[..., Table], catalog: Catalog, call: Call, content: Content
) -> None:
    table = new_table()
    live = LiveFiles.latest(table.store)
    (key,) = [each for each in live.buckets() if table.store.partition_values(each.partition) == ("d2",)]
    path = table.store.file_path(key.partition, key.bucket, live.files(key)[0])
    assert call("remove_unexisting_files") == []
    Path(path).unlink()
    with pytest.raises(FileNotFoundError):
        content(catalog)
    assert call("remove_unexisting_files", dry_run=True) == [{"path": path, "rows_in_file": 1, "snapshot_id": None}]
    assert call("remove_unexisting_files") == [{"path": path, "rows_in_file": 1, "snapshot_id": 3}]
    assert content(catalog) == {*ALL} - {("d2", 3, 3)}
    table.write(pa.table({"dt": ["d2"], "id": [3], "v": [30]}, schema=SCHEMA))
    assert ("d2", 3, 30) in content(catalog)
