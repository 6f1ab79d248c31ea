"""What a planner that runs for weeks keeps in memory: few snapshots and offsets, however many there were."""

import pytest

from engine.stream import history
from engine.stream.history import TableHistory
from tests.support.tables import key_table, rows

KEPT = 5


@pytest.mark.parametrize("reads_log", [True, False])
def test_a_planner_keeps_few_snapshots_and_offsets(reads_log: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It kept the offsets of every snapshot: 84 MB a day at 4 buckets."""
    monkeypatch.setattr(history, "_KEPT_SNAPSHOTS", KEPT)
    table = key_table()
    for number in range(4 * KEPT):
        table.write(rows((number, number)))
    planner = TableHistory(table.store, reads_log=reads_log)
    sizes = []
    for snapshot_id in table.store.snapshots.ids():
        assert planner.facts(snapshot_id).id == snapshot_id
        sizes.append((len(planner._snapshots), planner._offsets.cache_info().currsize))
    assert max(sizes) == (KEPT, KEPT if reads_log else 0)
