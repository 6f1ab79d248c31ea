"""The explorer finds what it is for: each guard that is taken away shows in a few histories."""

import pytest

from engine.simulation.history import run_history
from engine.simulation.setups import SETUPS, prepared, setup_named
from tests.engine.simulation.planted_bugs import BUGS, PlantedBug
from tests.engine.simulation.planted_log_bugs import LOG_BUGS


@pytest.mark.sweep
@pytest.mark.parametrize("bug", [*BUGS, *LOG_BUGS], ids=lambda bug: bug.name.replace(" ", "-"))
def test_a_guard_that_is_taken_away_shows(bug: PlantedBug) -> None:
    for name in SETUPS:
        prepared(setup_named(name))  # without the bug
    with pytest.MonkeyPatch.context() as patch:
        bug.patch(patch)
        histories = (run_history(plan) for _, plan in zip(range(bug.most), bug.plans(), strict=False))
        found = next((each for each in histories if each.problems), None)
    assert found is not None, f"not found in {bug.most} histories"
    assert run_history(found.plan).problems == ()


def test_there_are_enough_guards() -> None:
    assert len(BUGS) >= 15
    assert len(LOG_BUGS) >= 5
