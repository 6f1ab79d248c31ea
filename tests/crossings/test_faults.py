"""The faults that are planted to see what a campaign finds."""

import pytest

from tests.crossings.faults import FAULTS, planted


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_can_be_planted(name: str) -> None:
    """What it replaces is there: a fault of code that has another name finds nothing."""
    with planted(name):
        pass
