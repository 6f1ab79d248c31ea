"""What CI leaves to ``make soak``: most cells of a test that has many.

Each test function that is ``sampled`` keeps some of its cells everywhere, so ``make test`` has its law.
"""

from collections import defaultdict

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as ``soak`` all cells of ``sampled(n)`` but n."""
    cells: dict[tuple[str, int], list[pytest.Item]] = defaultdict(list)
    for item in items:
        if (mark := item.get_closest_marker("sampled")) is not None:
            cells[item.nodeid.partition("[")[0], mark.args[0]].append(item)
    for (_, count), found in cells.items():
        kept = spread(len(found), count)
        for place, item in enumerate(found):
            if place not in kept:
                item.add_marker(pytest.mark.soak)


def spread(cells: int, count: int) -> frozenset[int]:
    """Places of ``count`` of so many cells, the first one and others at even distances; all where there are fewer."""
    count = min(cells, count)
    return frozenset(place * cells // count for place in range(count))
