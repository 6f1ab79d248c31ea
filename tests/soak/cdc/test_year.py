"""A year in the life of a captured database; an hour of them by ``make soak-cdc``."""

from pathlib import Path

import pytest

from engine.broker.broker import Broker
from tests.soak.cdc.year import Year
from tests.stores.debezium import PostgresSource


@pytest.mark.long
def test_forty_migrations_under_changes_and_kills(
    postgres_source: PostgresSource, broker: Broker, tmp_path: Path
) -> None:
    """Every kind twice; each message of a table that waits names a command that helps; all is equal at each stop."""
    year = Year(postgres_source, broker, tmp_path, seed=1)
    year.weeks(40)
    assert year.facts.migrations.total() == 40
    assert len(year.facts.migrations) == len(year.kinds)
    assert year.facts.stops == 9
    assert {"resnapshot --drop", "resnapshot --drop --writers-stopped"} <= year.facts.mended.keys()
