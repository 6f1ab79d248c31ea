"""A sample of the random histories of three writers; ``python -m tests.interop.three_writers`` has new seeds."""

from pathlib import Path

import pytest

from tests.interop.three_writers import KINDS, History
from tests.peers.java_peer import JavaPeer
from tests.peers.pypaimon_peer import PyPaimonPeer

pytestmark = pytest.mark.interop


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", KINDS)
def test_three_writers_in_turns_keep_one_table(
    tmp_path: Path, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer, kind: str
) -> None:
    assert History(kind, 1, tmp_path, java_peer, pypaimon_peer).run() > 0
