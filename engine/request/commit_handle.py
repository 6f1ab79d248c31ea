"""What a writer passes to a reader that must see its commit: read your writes, across processes."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from filestore.commit.table_commit import CommitResult
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError, UnavailableError
from lsm.retry import pauses

_FORM: Final = re.compile(
    r"(?P<snapshot>\d+)(:(?P<offsets>\d+=\d+(,\d+=\d+)*))?(@(?P<table>[-0-9a-f]+(/[0-9a-f]+)?)~(?P<identity>[-\w.]+))?"
)
_FIRST_WAIT_S: Final = 0.005
_LONGEST_WAIT_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitHandle:
    """A commit of a table. As text ``<snapshot>[:<bucket>=<offset>,...][@<table>~<identity>]``, for ``scan.at-least``.

    A handle without its table and the identity of its snapshot, as older versions made it, is compared by number.
    """

    snapshot_id: int  # 0: nothing was committed, and nothing has to be waited for
    log_offsets: Mapping[int, int] = field(default_factory=dict)  # next offsets of the log by bucket, at the snapshot
    table_id: str = field(default="", compare=False)  # of the table and branch; "": not known
    identity: str = field(default="", compare=False)  # of the snapshot, because numbers are used again; "": not known

    @classmethod
    def of(cls, result: CommitResult, store: TableStore) -> "CommitHandle":
        """The handle of what a write to a table returned."""
        snapshot = result.snapshot
        if snapshot is None:
            return cls(snapshot_id=0)
        return cls(
            snapshot_id=snapshot.id,
            log_offsets=dict(snapshot.log_offsets),
            table_id=store.table_id(),
            identity=snapshot.identity,
        )

    @classmethod
    def parse(cls, text: str) -> "CommitHandle":
        """The inverse of ``str``. Raises: InvalidInputError."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise InvalidInputError(
                f"not the handle of a commit: scan.at-least={text} expected='<snapshot>[:<bucket>=<offset>,...]"
                "[@<table>~<identity>]' "
                "fix=pass on str(table.handle_of(result))"
            )
        pairs = [pair.split("=") for pair in (match["offsets"] or "").split(",") if pair]
        return cls(
            snapshot_id=int(match["snapshot"]),
            log_offsets={int(bucket): int(offset) for bucket, offset in pairs},
            table_id=match["table"] or "",
            identity=match["identity"] or "",
        )

    def __str__(self) -> str:
        offsets = ",".join(f"{bucket}={offset}" for bucket, offset in sorted(self.log_offsets.items()))
        place = f"{self.snapshot_id}:{offsets}" if offsets else str(self.snapshot_id)
        return f"{place}@{self.table_id}~{self.identity}" if self.table_id and self.identity else place

    def check_history(self, store: TableStore) -> None:
        """Refuse a table whose history does not have, and will not have, this commit; an expired one passes.

        Raises: InvalidInputError: it is of another table or branch, or it was rolled back.
        """
        if not self.identity:
            return
        found = store.snapshots.find(self.snapshot_id)
        if found is not None and found.identity == self.identity:
            return
        facts = f"table={store.name} branch={store.paths.branch} snapshot={self.snapshot_id} scan.at-least={self}"
        if self.table_id and self.table_id != store.table_id():
            raise InvalidInputError(
                f"the handle is of a commit to another table or branch: {facts} "
                "fix='read the table that was written, or pass on the handle of a commit to this one'"
            )
        if found is not None or store.snapshots.removed.has(self.identity):
            raise InvalidInputError(
                f"the commit of the handle is not in the table any more: {facts} cause='a rollback, or another branch "
                "became main' fix='pass on the handle of a later commit'"
            )


def wait_until_visible(store: TableStore, handle: CommitHandle, *, timeout_s: float) -> None:
    """Return once the snapshot of a commit, or a newer one, is the newest.

    Raises:
        InvalidInputError: the table's history does not have the commit.
        UnavailableError: it did not become visible in time; names what is.
    """
    deadline = time.monotonic() + timeout_s
    waits_s = pauses(_FIRST_WAIT_S, _LONGEST_WAIT_S)
    if (store.snapshots.latest_id() or 0) < handle.snapshot_id:
        handle.check_history(store)  # what is gone is not waited for
    while (visible := store.snapshots.latest_id() or 0) < handle.snapshot_id:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise UnavailableError(
                f"a commit is not visible yet: table={store.name} wanted_snapshot={handle.snapshot_id} "
                f"visible_snapshot={visible or 'none'} timeout_s={timeout_s:g} "
                "fix=look whether its writer still runs, or raise scan.at-least.timeout"
            )
        store.clock.sleep(min(next(waits_s), left_s))
    handle.check_history(store)
