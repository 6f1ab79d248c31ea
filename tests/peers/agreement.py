"""Do all implementations see the same table?"""

from collections.abc import Sequence
from pathlib import Path

from tests.peers import Peer, Row
from tests.peers.fluvial_peer import FluvialPeer
from tests.peers.layout import check_layout

FLUVIAL = FluvialPeer()


class Agreement:
    """Asks Fluvial and its peers the same question."""

    def __init__(self, peers: Sequence[Peer]) -> None:
        """`peers` are those beside Fluvial."""
        self.peers = peers

    def __call__(
        self, root: str | Path, *, snapshot_id: int | None = None, only: Sequence[str] = ("java", "pypaimon")
    ) -> list[Row]:
        """Assert that the files keep the format's rules and that everybody reads the same rows; the rows.

        Args:
            root: the table's directory, `table.paths.root`.
            snapshot_id: None is the latest.
            only: names of the peers to ask; leave one out only where it is known not to know the feature.
        """
        root = Path(root)
        check_layout(root)
        warehouse, table = root.parents[1], f"{root.parent.name.removesuffix('.db')}.{root.name}"
        ours = FLUVIAL.read(warehouse, table, snapshot_id=snapshot_id)
        for peer in self.peers:
            if peer.name in only:
                assert peer.read(warehouse, table, snapshot_id=snapshot_id) == ours, f"{peer.name} reads other rows"
        return ours
