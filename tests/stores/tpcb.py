"""TPC-B of PostgreSQL's pgbench in one branch: four tables, of which a sum is equal in all, after any transaction."""

from pathlib import Path
from typing import Final

from tests.stores.debezium import PostgresSource

BALANCES: Final = {
    "pgbench_accounts": "abalance",
    "pgbench_tellers": "tbalance",
    "pgbench_branches": "bbalance",
    "pgbench_history": "delta",
}
"""Tables, and the column whose sum is the same in all of them."""
_SCRIPT: Final = r"""
\set aid random(1, {accounts})
\set tid random(1, 10)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, 1, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""


def make_bank(source: PostgresSource, directory: Path, *, accounts: int) -> Path:
    """Make the tables, with so many accounts; the history has no key. Returns: the script of one transaction."""
    source.pgbench("-i", "-I", "dtp", "--quiet")
    source.execute(
        "INSERT INTO pgbench_branches VALUES (1, 0)",
        "INSERT INTO pgbench_tellers SELECT i, 1, 0 FROM generate_series(1, 10) i",
        f"INSERT INTO pgbench_accounts SELECT i, 1, 0 FROM generate_series(1, {accounts}) i",
        "ALTER TABLE pgbench_history REPLICA IDENTITY FULL",
    )
    script = directory / "tpcb.sql"
    script.write_text(_SCRIPT.format(accounts=accounts), encoding="utf-8")
    return script
