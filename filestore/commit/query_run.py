"""One run of a streaming query, and the refusal of the runs before it.

A driver that stops for minutes (a virtual machine that migrates, a laptop's lid) is started a second time elsewhere and
continues afterwards. Both runs have the same checkpoint, and so the same commit user and the same batches. So each run
writes its id into one small file of the commit user when it begins, and looks at that file whenever it is about to
change the table or its log: a run that does not find its own id there was taken over.

No clock and no lease: the file is replaced atomically, and the last run that wrote it is the one that may commit. A
commit looks after it has read the newest snapshot, and creates the next one exclusively. So it can pass the newer run
only by the snapshot that directly follows what that run found; the newer run then finds the batch committed.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from filestore.table_store import TableStore
from lsm.errors import CorruptDataError, FluvialError, TakenOverError

RUNS_DIRECTORY: Final = "query-runs"  # beside snapshot/ and manifest/: names that no reader of the layout looks at
_REMEMBERED: Final = 20  # runs before the newest one: their processes that start late take nothing back


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRun:
    """One start of a query that writes a table. Picklable: tasks of the run check it too."""

    store: TableStore
    commit_user: str
    run_id: str  # differs from start to start

    def take_over(self, batch_id: int) -> None:
        """Become the run that may commit, and so refuse all earlier ones, before the first batch. Again: a check.

        Raises:
            TakenOverError: the run was taken over before this process of it started.
            CorruptDataError: the file cannot be decoded.
        """
        found = self._read()
        if found is not None and found["run"] == self.run_id:
            return
        before = [] if found is None else [*found["before"], found["run"]]
        if found is not None and self.run_id in before:
            raise self._refusal(found["run"], f"batch={batch_id}")
        body = {"run": self.run_id, "before": before[-_REMEMBERED:]}
        self.store.io.replace(self._path, json.dumps(body).encode())

    def check(self, doing: str) -> None:
        """Refuse to continue when another run has taken over.

        Args:
            doing: what would be done, for the message: ``batch=7``.

        Raises:
            TakenOverError: end this run.
        """
        found = self._read()
        if found is not None and found["run"] != self.run_id:
            raise self._refusal(found["run"], doing)

    @contextmanager
    def naming_the_cause(self, doing: str) -> Iterator[None]:
        """Errors of the block become a TakenOverError where the other run is their cause: it fences and cleans up."""
        try:
            yield
        except TakenOverError:
            raise
        except Exception as error:
            found = None
            with suppress(FluvialError, OSError):
                found = self._read()
            if found is not None and found["run"] != self.run_id:
                raise self._refusal(found["run"], doing) from error
            raise

    @property
    def _path(self) -> str:
        return f"{self.store.paths.branch_root}/{RUNS_DIRECTORY}/{quote(self.commit_user, safe='')}"

    def _read(self) -> dict[str, Any] | None:
        try:
            body = json.loads(self.store.io.read_bytes(self._path))
            return {"run": str(body["run"]), "before": [str(each) for each in body["before"]]}
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptDataError(f"run of a query cannot be decoded: file={self._path} error={error!r}") from error

    def _refusal(self, newer: str, doing: str) -> TakenOverError:
        return TakenOverError(
            f"another run of this query has taken over: table={self.store.name} query={self.commit_user} {doing} "
            f"run={self.run_id} newer_run={newer} fix='let this run end, the newer one has its batches; two queries "
            "that write one table need two checkpoints, or a write.stream.commit-user each'"
        )
