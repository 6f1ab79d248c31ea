"""A year in the life of a captured database; an hour of them by ``make soak-cdc``."""

from pathlib import Path

import pytest

from engine.broker.broker import Broker
from tests.soak.cdc.year import Year
from tests.stores.debezium import PostgresSource
from tests.stores.postgres import Postgres


@pytest.mark.soak
def test_a_season_of_migrations_under_changes_and_kills(
    postgres_source: PostgresSource, postgres_server: Postgres, broker: Broker, tmp_path: Path
) -> None:
    """Each message of a table that waits names a command that helps; all is equal at each stop, behind each kill."""
    year = Year(postgres_source, postgres_server, broker, tmp_path, seed=1)
    year.weeks(
        [
            "drop_and_add_column", "widen_key", "add_several_columns", "column_without_key", "narrow_column",
            "change_key", "rename_table", "truncate", "add_and_drop_partitions",
        ],
        stop_every=3,
    )  # fmt: skip
    assert (year.facts.stops, len(year.facts.strikes)) == (4, 3)
    assert year.facts.mended.keys() >= {"resnapshot --drop", "resnapshot --drop --writers-stopped"}


@pytest.mark.soak
@pytest.mark.timeout(3000)
def test_forty_migrations_under_changes_and_kills(
    postgres_source: PostgresSource, postgres_server: Postgres, broker: Broker, tmp_path: Path
) -> None:
    """Every kind at least once; of those that a table cannot follow each names its command."""
    year = Year(postgres_source, postgres_server, broker, tmp_path, seed=2)
    year.weeks(year.drawn(40))
    assert year.facts.migrations.total() == 40
    assert len(year.facts.migrations) == len(year.kinds)
    assert {"resnapshot --drop", "resnapshot --drop --writers-stopped"} <= year.facts.mended.keys()
