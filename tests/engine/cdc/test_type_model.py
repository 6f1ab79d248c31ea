"""The measured tables of docs/cdc-types.md: what becomes of each type, by settings of the connector and by position."""

from contextlib import closing
from pathlib import Path

import pytest

from engine.broker.broker import Broker
from tests.stores.debezium import PostgresSource
from tests.stores.kafka_connect import KafkaConnect
from tests.stores.type_model import SETTINGS, measured, on_page, page_tables


@pytest.mark.long
def test_each_cell_of_the_page_is_what_the_source_shows(
    connect: KafkaConnect, broker: Broker, postgres: str, tmp_path: Path
) -> None:
    """Nothing is lost that plan does not say; ``python -m tests.stores.type_model`` writes the page again."""
    runs = {}
    for number, settings in enumerate(SETTINGS):
        with closing(PostgresSource(f"types{number}", postgres, connect, broker.bootstrap_servers)) as source:
            runs[number] = measured(source, tmp_path / str(number), settings)
    assert page_tables(runs) == on_page()
