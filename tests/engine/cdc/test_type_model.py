"""The measured tables of docs/cdc-types.md: what becomes of each type, by settings of the connector and by position."""

from pathlib import Path

import pytest

from engine.broker.broker import Broker
from tests.stores.kafka_connect import KafkaConnect
from tests.stores.type_model import all_runs, on_page, page_tables


@pytest.mark.long
@pytest.mark.timeout(900)  # eight connectors, on machines with other work
def test_each_cell_of_the_page_is_what_the_source_shows(
    connect: KafkaConnect, broker: Broker, postgres: str, mysql: str, tmp_path: Path
) -> None:
    """Nothing is lost that plan does not say; ``python -m tests.stores.type_model`` writes the page again."""
    runs = all_runs(connect, broker.bootstrap_servers, postgres, mysql, tmp_path)
    assert page_tables(runs) == on_page()
