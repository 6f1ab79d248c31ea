"""What a planner that runs for weeks keeps in memory: few snapshots, offsets and plans, however many there were."""

import pytest

from engine.stream import history
from engine.stream.history import TableHistory
from tests.support.tables import key_table, rows

MOST_BYTES = 12_000  # of about five snapshots


@pytest.mark.parametrize("reads_log", [True, False])
def test_a_planner_keeps_few_bytes_of_snapshots_offsets_and_plans(
    reads_log: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It kept the offsets of every snapshot: 84 MB a day at 4 buckets; a number of them bounds nothing at 1,000."""
    monkeypatch.setattr(history, "_MOST_BYTES", MOST_BYTES)
    table = key_table()
    for number in range(20):
        table.write(rows((number, number)))
    planner = TableHistory(table.store, reads_log=reads_log)
    caches = [planner._snapshots, planner._offsets, planner._snapshot_plans, planner._change_plans]
    kept = []
    for snapshot_id in table.store.snapshots.ids():
        assert planner.facts(snapshot_id).id == snapshot_id
        assert planner.planned_changes(snapshot_id - 1, snapshot_id)
        assert planner.planned_snapshot(snapshot_id, None)
        assert [each.size_bytes <= MOST_BYTES or len(each) == 1 for each in caches] == [True] * 4
        kept.append([len(each) for each in caches])
    snapshots, offsets, *plans = (max(counts) for counts in zip(*kept, strict=True))
    assert (snapshots, offsets) == (5, 20 if reads_log else 0)
    assert all(1 <= count <= 3 for count in plans)
