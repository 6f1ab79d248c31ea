"""A dry run says what the run then does: the same rows, and nothing is changed by it."""

import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

from engine import Catalog, Table, procedures
from engine.procedures.registry import DRY_RUN, Procedure
from filestore.evolution.schema_change import AddColumn, RenameColumn, SetOption
from filestore.types.data_types import DataType

SCHEMA = pa.schema(
    [pa.field("p", pa.string(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())]
)
OPTIONS = {"bucket": "2", "snapshot.num-retained.min": "1", "snapshot.num-retained.max": "100", "write-only": "false"}


def write_some(table: Table, random: Random) -> None:
    """Some rows of one or two partitions; now and then all is compacted."""
    keys = random.sample(range(30), random.randint(1, 8))
    columns = {"p": [random.choice("ab") for _ in keys], "id": keys, "v": [random.randint(0, 9) for _ in keys]}
    table.write(pa.table(columns, schema=SCHEMA))
    if random.random() < 0.4:
        table.compact(full=True)


def table_with_history(tmp_path: Path, seed: int) -> tuple[Table, Random]:
    """A table with a history, tags, a savepoint, and a branch that has gone on."""
    random = Random(seed)
    table = Catalog(str(tmp_path)).create_table(
        "d.t", SCHEMA, primary_key=["p", "id"], partition_by=["p"], options=OPTIONS
    )
    for number in range(3):
        write_some(table, random)
        table.tags.create(f"t{number}")
    if random.random() < 0.5:
        table.savepoints.create()
    table.tags.create("base")
    table.branches.create("dev", tag="base")
    for _ in range(3):
        write_some(table, random)
        write_some(table.branches.open("dev"), random)
    if random.random() < 0.5:
        table.branches.open("dev").tags.create("there")
    table.tags.create("late")
    return table, random


def stamps_of_files(table: Table) -> dict[str, tuple[int, int]]:
    """Size and time of every file below the table."""
    root = Path(table.store.paths.root)
    return {str(each): (each.stat().st_size, each.stat().st_mtime_ns) for each in root.rglob("*") if each.is_file()}


def orphaned(table: Table) -> None:
    """Leave a file of a dead writer, from days ago."""
    data = next(Path(table.store.paths.root).rglob("data-*.parquet"))
    for number, size in enumerate((10, 300)):
        left = data.with_name(f"data-dead-{number}.parquet")
        left.write_bytes(b"x" * size)
        os.utime(left, (time.time() - 5 * 86_400,) * 2)


def nothing(_: Table) -> None:
    """Needs no preparation."""


def widened(table: Table) -> None:
    """The branch gets a column, and renames another."""
    catalog = Catalog(str(Path(table.store.paths.root).parents[1]))
    changes = [AddColumn(path=("note",), type=DataType(root="STRING")), RenameColumn(path=("v",), name="w")]
    catalog.alter_table("d.t$branch_dev", changes)


def alone(table: Table) -> None:
    """Without branches; savepoints and tags stay, also changelogs and a reader that holds snapshots."""
    table.branches.delete("dev")
    catalog = Catalog(str(Path(table.store.paths.root).parents[1]))
    kept = {"changelog-producer": "input", "changelog.num-retained.min": "50", "changelog.num-retained.max": "50"}
    catalog.alter_table("d.t", [SetOption(key, text) for key, text in kept.items()])
    for number in range(3):
        write_some(catalog.table("d.t"), Random(number))
    procedures.expire_snapshots(catalog.table("d.t"), retain_max=2, retain_min=1)
    table.store.consumers.write("reader", 2)


def free(table: Table) -> None:
    """The branch and the savepoint go first: a rollback does not go beneath them."""
    table.branches.delete("dev")
    for each in table.savepoints.list():
        table.savepoints.delete(each.id)


def moment_of(table: Table, tag: str) -> str:
    """The time of a tag's commit, in UTC."""
    time_ms = table.tags.get(tag).snapshot.time_ms
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def saved(table: Table) -> None:
    """Savepoints of two states, one of them behind a tag of the same snapshot."""
    table.savepoints.create()
    table.compact(full=True)
    table.savepoints.create()


Given = dict[str, object] | Callable[[Table], dict[str, object]]
CASES: dict[str, tuple[Callable[[Table], None], Given]] = {
    "rollback": (free, {"tag": "t1", "force": True}),
    "rollback to a snapshot": (free, {"snapshot": 2, "force": True}),
    "replace_main_branch": (nothing, {"branch": "dev", "force": True}),
    "merge_branch": (nothing, {"branch": "dev", "force": True}),
    "merge_branch with other columns": (widened, {"branch": "dev", "force": True}),
    "fast_forward": (nothing, {"branch": "dev", "force": True}),
    "rescale": (nothing, {"bucket_num": 3}),
    "expire_snapshots": (nothing, {"retain_max": 2}),
    "expire_changelogs": (nothing, {"retain_max": 2}),
    "remove_orphan_files": (orphaned, {}),
    "delete_tag": (nothing, {"tag": "t0,t2"}),
    "expire_tags": (nothing, {"older_than": "2999-01-01"}),
    "delete_branch": (nothing, {"branch": "dev"}),
    "drop_partition": (nothing, {"partitions": "p=a"}),
    "remove_unexisting_files": (nothing, {}),
    "purge_files": (alone, {}),
    "delete_savepoint": (saved, lambda table: {"savepoint": table.savepoints.list()[-1].id}),
    "expire_partitions": (nothing, {"expiration_time": "1 ms", "expire_strategy": "update-time"}),
    "rollback_to_timestamp": (free, lambda table: {"timestamp": moment_of(table, "t1"), "force": True}),
}
# a dry run has not the number of the commit that it does not make
COMMITS = ("merge_branch", "drop_partition", "expire_partitions", "rescale")
IDS = ("snapshot_id", "schema_id")


@pytest.mark.sweep
@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("case", CASES)
def test_a_dry_run_says_what_the_run_does(tmp_path: Path, case: str, seed: int) -> None:
    """Counts, sizes, names and changes of columns are those of the run; the table is as it was in between."""
    prepare, arguments = CASES[case]
    procedure: Procedure[...] = getattr(procedures, case.partition(" ")[0])
    table, _ = table_with_history(tmp_path, seed)
    prepare(table)
    table = Catalog(str(tmp_path)).table("d.t")
    if not isinstance(arguments, dict):
        arguments = arguments(table)
    before = stamps_of_files(table)
    planned = procedure(table, **arguments, dry_run=True)
    assert stamps_of_files(table) == before
    done = procedure(table, **arguments)
    kept = [name for name in planned.column_names if name not in IDS or not case.startswith(COMMITS)]
    assert planned.select(kept).to_pylist() == done.select(kept).to_pylist()
    if case not in ("expire_changelogs", "remove_unexisting_files"):
        assert planned.num_rows > 0


def test_each_dry_run_has_a_case() -> None:
    """What has a dry run is compared here, or has a page of its own with its tests."""
    elsewhere = {
        "cluster", "copy", "create_consistent_tag", "export", "migrate_table", "remove_stored_login",
        "remove_unexisting_manifests", "repair", "rollback_to_cut", "rollback_to_watermark", "mark_partition_done",
    }  # fmt: skip
    there = {
        name
        for name, each in vars(procedures).items()
        if isinstance(each, Procedure) and any(one.name == DRY_RUN for one in each.parameters)
    }
    assert there - elsewhere == {each.partition(" ")[0] for each in CASES}
