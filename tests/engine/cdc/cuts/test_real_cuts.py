"""Cuts of a real database under load: PostgreSQL, Debezium, transaction metadata."""

import threading
from pathlib import Path

from engine.cdc.settings import CUT
from tests.stores.debezium import ChangeSource
from tests.stores.following import Follower

TPCB = """
\\set aid random(1, 100)
\\set tid random(1, 10)
\\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, 1, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""
BALANCES = {
    "pgbench_accounts": "abalance", "pgbench_tellers": "tbalance", "pgbench_branches": "bbalance",
    "pgbench_history": "delta",
}  # fmt: skip


def test_a_reader_of_any_cut_sees_the_sums_of_tpcb(postgres_source: ChangeSource, tmp_path: Path) -> None:
    """D: sum(abalance) = sum(tbalance) = sum(bbalance) = sum(delta) at every tag, while pgbench runs."""
    postgres_source.pgbench("-i", "-I", "dtp", "--quiet")
    postgres_source.execute(
        "INSERT INTO pgbench_branches VALUES (1, 0)",
        "INSERT INTO pgbench_tellers SELECT i, 1, 0 FROM generate_series(1, 10) i",
        "INSERT INTO pgbench_accounts SELECT i, 1, 0 FROM generate_series(1, 100) i",
        "INSERT INTO pgbench_history VALUES (1, 1, 1, 0, CURRENT_TIMESTAMP)",
        "ALTER TABLE pgbench_history REPLICA IDENTITY FULL",
    )
    script = tmp_path / "tpcb.sql"
    script.write_text(TPCB, encoding="utf-8")
    postgres_source.start()
    follower = Follower(postgres_source, tmp_path, cut=CUT, tag_every_s=0)
    follower.catch_up()
    load = threading.Thread(
        target=postgres_source.pgbench, args=("-n", "-t", "150", "-c", "2", "-R", "60", "-f", str(script))
    )
    load.start()
    while load.is_alive():
        follower.step()
    load.join()
    follower.catch_up()
    follower.step()
    tables = {name: follower.catalog.table(f"shop.{name}") for name in BALANCES}
    tags = [each for each in tables["pgbench_history"].store.snapshots.tag_names() if each.startswith("cdc-")]
    sums = {}
    for tag in tags:
        read = {name: table.read(tag=tag).to_arrow()[BALANCES[name]].to_pylist() for name, table in tables.items()}
        sums[tag] = {sum(values) for values in read.values()}
    assert len(tags) >= 3, follower._state.cuts()
    assert {tag: found for tag, found in sums.items() if len(found) != 1} == {}
    assert follower.differences() == {}
