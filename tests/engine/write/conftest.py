"""What tests of writes count."""

from typing import Any

import pytest

from logstore.kafka.transactions import initialize
from logstore.log import log_writer


@pytest.fixture
def fences(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one with each producer that is made and fences a bucket."""
    found: list[int] = []

    def counted(*given: Any) -> None:
        found.append(1)
        initialize(*given)

    monkeypatch.setattr(log_writer, "initialize", counted)
    return found
