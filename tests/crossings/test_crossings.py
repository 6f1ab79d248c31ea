"""Tables from the whole space, with histories of everything: no way to read them differs from the oracle."""

import logging
from collections.abc import Iterator

import pytest

from tests.crossings.campaign import Campaign
from tests.crossings.history import History
from tests.crossings.run import drawn, replayed
from tests.crossings.space import SIMPLEST

HISTORIES = 10


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.sampled(4)
@pytest.mark.sweep
@pytest.mark.parametrize("lane", range(30))
def test_every_way_to_read_shows_what_was_written(lane: int) -> None:
    campaign = Campaign(lane)
    for number in range(HISTORIES):
        campaign.history(lane * HISTORIES + number)


def test_a_seed_gives_one_history_and_its_text_replays_it() -> None:
    found = drawn(SIMPLEST, 5).history
    assert drawn(SIMPLEST, 5).history == found
    assert History.parse(str(found)) == found
    assert len(found.steps) > 8
    assert replayed(found).violation is None
