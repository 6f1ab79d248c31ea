"""What a soak reads of the processes it watches."""

import pytest

from tests.soak.samples import live_heap

HISTOGRAM = """ num     #instances         #bytes  class name (module)
-------------------------------------------------------
   1:        118047       29511368  [B (java.base@17.0.18)
   2:        126709        3041016  java.lang.String (java.base@17.0.18)
Total        926167       73400320
"""


@pytest.mark.parametrize(("text", "megabytes"), [(HISTOGRAM, 70.0), ("", None), ("6126: no such process", None)])
def test_a_heap_is_what_lives_on_it(text: str, megabytes: float | None) -> None:
    assert live_heap(text) == megabytes
