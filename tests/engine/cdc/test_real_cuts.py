"""Cuts of a real database under load: PostgreSQL, Debezium, transaction metadata."""

import subprocess
from pathlib import Path

from engine.cdc.settings import CUT
from engine.cdc.verify.verification import followed_by, verified
from tests.stores.debezium import PostgresSource
from tests.stores.following import Follower
from tests.stores.tpcb import BALANCES, make_bank


def test_a_reader_of_any_cut_sees_the_sums_of_tpcb(postgres_source: PostgresSource, tmp_path: Path) -> None:
    """D: sum(abalance) = sum(tbalance) = sum(bbalance) = sum(delta) at every tag, while pgbench runs."""
    script = make_bank(postgres_source, tmp_path, accounts=100)
    postgres_source.execute("INSERT INTO pgbench_history VALUES (1, 1, 1, 0, CURRENT_TIMESTAMP)")
    postgres_source.start()
    follower = Follower(postgres_source, tmp_path, cut=CUT, tag_every_s=0)
    follower.catch_up()
    tables = {name: follower.catalog.table(f"shop.{name}") for name in BALANCES}

    def cuts() -> list[str]:
        names = tables["pgbench_history"].store.snapshots.tag_names()
        return [each for each in names if each.startswith("cdc-")]

    load = postgres_source.pgbench_command("-n", "-T", "240", "-c", "2", "-R", "60", "-f", str(script))
    with subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
        try:
            while len(cuts()) < 5:
                assert running.poll() is None, follower.state.cuts()
                follower.step()
        finally:
            running.kill()
    follower.catch_up()
    follower.step()
    tags = cuts()
    sums = {}
    for tag in tags:
        read = {name: table.read(tag=tag).to_arrow()[BALANCES[name]].to_pylist() for name, table in tables.items()}
        sums[tag] = {sum(values) for values in read.values()}
    assert {tag: found for tag, found in sums.items() if len(found) != 1} == {}
    assert follower.differences() == {}
    newest = max(tags, key=lambda tag: int(tag.removeprefix("cdc-")))
    settings, state = follower.settings, follower.state
    at_rest = verified(postgres_source.url, follower.catalog, followed_by(settings, state), tag=newest)
    assert {each.source.name: each.is_equal for each in at_rest if each.source.name in BALANCES} == dict.fromkeys(
        BALANCES, True
    )
