"""What a writer passes to a reader that must see its commit: read your writes, across processes."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from filestore.commit.table_commit import CommitResult
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError, UnavailableError

_FORM: Final = re.compile(r"(?P<snapshot>\d+)(:(?P<offsets>\d+=\d+(,\d+=\d+)*))?")
_FIRST_WAIT_S: Final = 0.005
_LONGEST_WAIT_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitHandle:
    """A commit of a table. As text ``<snapshot>[:<bucket>=<offset>,...]``, the value of ``scan.at-least``."""

    snapshot_id: int  # 0: nothing was committed, and nothing has to be waited for
    log_offsets: Mapping[int, int] = field(default_factory=dict)  # next offsets of the log by bucket, at the snapshot

    @classmethod
    def of(cls, result: CommitResult) -> "CommitHandle":
        """The handle of what a write returned."""
        snapshot = result.snapshot
        if snapshot is None:
            return cls(snapshot_id=0)
        return cls(snapshot_id=snapshot.id, log_offsets=dict(snapshot.log_offsets))

    @classmethod
    def parse(cls, text: str) -> "CommitHandle":
        """The inverse of ``str``. Raises: InvalidInputError."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise InvalidInputError(
                f"not the handle of a commit: scan.at-least={text} expected='<snapshot>[:<bucket>=<offset>,...]' "
                "fix=pass on str(table.handle_of(result))"
            )
        pairs = [pair.split("=") for pair in (match["offsets"] or "").split(",") if pair]
        return cls(
            snapshot_id=int(match["snapshot"]), log_offsets={int(bucket): int(offset) for bucket, offset in pairs}
        )

    def __str__(self) -> str:
        offsets = ",".join(f"{bucket}={offset}" for bucket, offset in sorted(self.log_offsets.items()))
        return f"{self.snapshot_id}:{offsets}" if offsets else str(self.snapshot_id)


def wait_until_visible(store: TableStore, handle: CommitHandle, *, timeout_s: float) -> None:
    """Return once the snapshot of a commit, or a newer one, is the newest.

    Raises:
        UnavailableError: it did not become visible in time; names what is.
    """
    deadline = time.monotonic() + timeout_s
    wait_s = _FIRST_WAIT_S
    while True:
        visible = store.snapshots.latest_id() or 0
        if visible >= handle.snapshot_id:
            return
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise UnavailableError(
                f"a commit is not visible yet: table={store.name} wanted_snapshot={handle.snapshot_id} "
                f"visible_snapshot={visible or 'none'} timeout_s={timeout_s:g} "
                "fix=look whether its writer still runs, or raise scan.at-least.timeout"
            )
        store.clock.sleep(min(wait_s, left_s))
        wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
