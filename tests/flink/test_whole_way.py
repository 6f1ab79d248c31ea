"""From a Debezium topic by PySpark into tables and by Flink into a join and an aggregate; both are killed."""

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.broker.broker import Broker
from tests.flink.whole_way import ShopSource, run_whole_way, whole_way
from tests.peers.flink import Flink


@pytest.mark.soak
def test_a_join_and_an_aggregate_equal_a_dumb_oracle_when_both_sides_are_killed(
    flink: Flink, broker: Broker, tmp_path: Path
) -> None:
    """The demo, smaller. The cluster of the session is the one after the kill."""
    makers: list[Callable[[], Flink]] = [lambda: Flink(tmp_path), lambda: flink]
    clusters = (make() for make in makers)
    with whole_way(tmp_path, broker.bootstrap_servers, clusters) as way:
        try:
            run_whole_way(way, ShopSource(broker.bootstrap_servers, random.Random(23)), 200, print)
        finally:
            if way.flink is not None and way.flink is not flink:
                way.kill_flink()
