"""What Debezium publishes, as tests without it read it from tests/golden/debezium: the same as a real run's."""

import pytest

from tests.stores import change_samples
from tests.stores.change_scenarios import MARIADB, POSTGRES, Scenario
from tests.stores.debezium import ChangeSource


@pytest.mark.parametrize(("name", "scenario"), POSTGRES.items(), ids=list(POSTGRES))
def test_the_samples_of_postgres_are_what_debezium_publishes(
    name: str, scenario: Scenario, postgres_source: ChangeSource
) -> None:
    records = change_samples.published(scenario, postgres_source)
    expected = change_samples.comparable(change_samples.read(name), change_samples.prefix(name))
    assert change_samples.comparable(records, postgres_source.name) == expected


@pytest.mark.parametrize(("name", "scenario"), MARIADB.items(), ids=list(MARIADB))
def test_the_samples_of_mariadb_are_what_debezium_publishes(
    name: str, scenario: Scenario, mariadb_source: ChangeSource
) -> None:
    records = change_samples.published(scenario, mariadb_source)
    expected = change_samples.comparable(change_samples.read(name), change_samples.prefix(name))
    assert change_samples.comparable(records, mariadb_source.name) == expected
