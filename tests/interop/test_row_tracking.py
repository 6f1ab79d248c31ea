"""Row ids: Java, pypaimon and Fluvial give the same, in one table by turns; a twin that Java alone wrote shows it."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from engine import Catalog
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.maintenance.verification import verify_files
from filestore.snapshot.retention import Retention
from lsm.errors import InvalidInputError
from tests.peers import INSERT, Row, TableDefinition
from tests.peers.agreement import FLUVIAL
from tests.peers.java_peer import JavaPeer
from tests.peers.pypaimon_peer import PyPaimonPeer
from tests.peers.tables import rows_of

pytestmark = pytest.mark.interop

COLUMNS: Final = [("p", "STRING"), ("k", "INT"), ("v", "STRING")]
OPTIONS: Final = {"row-tracking.enabled": "true", "bucket": "-1"}
OURS, TWIN = "db.ours", "db.twin"


def definition(*partition_by: str, options: Mapping[str, str] = {}) -> TableDefinition:
    given = {**OPTIONS, **options}
    return TableDefinition(columns=COLUMNS, primary_key=[], partition_by=[*partition_by], options=given)


def appended_rows(defined: TableDefinition, first: int, count: int) -> pa.Table:
    """Rows of one partition: which of several is first to get ids is each writer's own choice."""
    rows = [{"p": "ab"[first // 5 % 2], "k": key, "v": f"v{key}"} for key in range(first, first + count)]
    return rows_of(defined, rows)


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (row["k"], row["_ROW_ID"]))


def tracked(warehouse: Path, name: str) -> list[Row]:
    found: list[Row] = Catalog(str(warehouse)).system_table(f"{name}$row_tracking").to_arrow().to_pylist()
    return in_order(found)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(12))
def test_ids_are_those_of_a_table_that_java_alone_wrote(tmp_path: Path, java_peer: JavaPeer, seed: int) -> None:
    chance = random.Random(seed)
    partition = chance.choice([(), ("p",)])
    defined = definition(*partition, options={"file.format": chance.choice(["parquet", "orc"])})
    for name in (OURS, TWIN):
        java_peer.create(tmp_path, name, defined)
    done: list[str] = []
    for key in range(0, 60, 5):
        writer: Any = chance.choice([java_peer, FLUVIAL])
        act = chance.choice(["write", "write", "write", "compact", "expire", "tag"])
        done.append(f"{act} by {writer.name}")
        if act == "write":
            rows = appended_rows(defined, key, chance.randrange(1, 5))
            writer.write(tmp_path, OURS, rows, kinds=[INSERT] * rows.num_rows)
            java_peer.write(tmp_path, TWIN, rows)
        elif act == "compact":
            writer.compact(tmp_path, OURS)
            java_peer.compact(tmp_path, TWIN)
        elif act == "expire" and writer is FLUVIAL:
            kept = Retention(min_count=1, max_count=2, age_ms=0, limit=100)
            list(expire_snapshots(FLUVIAL.table(tmp_path, OURS).store, kept))
        elif act == "expire":
            java_peer.expire(tmp_path, OURS, retain=2)
        elif act == "tag" and (newest := FLUVIAL.table(tmp_path, OURS).store.snapshots.latest()) is not None:
            Catalog(str(tmp_path)).table(OURS).tags.create(f"t{key}", snapshot_id=newest.id)
        found = tracked(tmp_path, OURS)
        ids = [row["_ROW_ID"] for row in found]
        assert len({*ids}) == len(ids), done
        assert in_order(java_peer.read(tmp_path, f"{OURS}$row_tracking")) == found, done
        with_ids = ["k", "v", "_ROW_ID"]
        there = [{name: row[name] for name in with_ids} for row in tracked(tmp_path, TWIN)]
        assert [{name: row[name] for name in with_ids} for row in found] == there, done
    assert [str(each) for each in verify_files(FLUVIAL.table(tmp_path, OURS).store, progress=lambda _, of: None)] == []


def test_pypaimon_and_fluvial_continue_each_others_ids(
    tmp_path: Path, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer
) -> None:
    defined = definition()
    FLUVIAL.create(tmp_path, OURS, defined)
    for key, writer in enumerate((FLUVIAL, pypaimon_peer, FLUVIAL, java_peer, pypaimon_peer)):
        writer.write(tmp_path, OURS, appended_rows(defined, 10 * key, 2), kinds=[INSERT] * 2)
    found = tracked(tmp_path, OURS)
    assert [(row["k"], row["_ROW_ID"], row["_SEQUENCE_NUMBER"]) for row in found] == [
        (10 * key + place, 2 * key + place, key + 1) for key in range(5) for place in range(2)
    ]
    FLUVIAL.compact(tmp_path, OURS)
    assert tracked(tmp_path, OURS) == found
    assert in_order(java_peer.read(tmp_path, f"{OURS}$row_tracking")) == found
    plain = sorted(row["k"] for row in found)
    assert sorted(row["k"] for row in pypaimon_peer.read(tmp_path, OURS)) == plain


def test_other_values_of_some_columns_are_read_as_java_reads_them(tmp_path: Path, java_peer: JavaPeer) -> None:
    defined = definition(options={"data-evolution.enabled": "true"})
    java_peer.create(tmp_path, OURS, defined)
    for key in (0, 2, 4):
        java_peer.write(tmp_path, OURS, rows_of(defined, [{"p": "a", "k": key + at, "v": "old"} for at in range(2)]))
    java_peer.write_columns(tmp_path, OURS, pa.table({"v": ["new 2", "new 3"]}), first_row_id=2)
    expected = in_order(java_peer.read(tmp_path, f"{OURS}$row_tracking"))
    assert [row["v"] for row in expected] == ["old", "old", "new 2", "new 3", "old", "old"]
    assert tracked(tmp_path, OURS) == expected
    read = FLUVIAL.table(tmp_path, OURS).read()
    assert sorted(read.to_arrow(columns=["v"], filter="v = 'new 3'").to_pylist(), key=str) == [{"v": "new 3"}]
    assert read.to_arrow(filter="v = 'old' and k = 2").num_rows == 0
    assert read.to_arrow(columns=[]).num_rows == 6
    assert Catalog(str(tmp_path)).table(OURS).read().to_arrow().num_rows == 6
    with pytest.raises(InvalidInputError, match=r"option=data-evolution\.enabled"):
        FLUVIAL.table(tmp_path, OURS).write(appended_rows(defined, 7, 1))
    java_peer.alter(tmp_path, OURS, "addColumn", "late", java_peer.data_type("INT"))
    java_peer.write_columns(tmp_path, OURS, pa.table({"late": pa.array([7, 8], pa.int32())}), first_row_id=4)
    expected = in_order(java_peer.read(tmp_path, f"{OURS}$row_tracking"))
    assert tracked(tmp_path, OURS) == expected
    assert [row["late"] for row in expected] == [None] * 4 + [7, 8]
