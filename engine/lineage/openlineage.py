"""OpenLineage events: what a job reads and writes, sent to a collector, as a file or by HTTP.

Events are sent by a separate thread, and the last ones before a crash may be missing: only the catalog's lineage is
exact. Source: OpenLineage specification 2.
"""

import atexit
import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Final, Protocol

from engine.lineage.datasets import Dataset, Run
from filestore.options.catalog_options import CatalogOptions
from lsm.errors import InvalidInputError
from lsm.secret_names import shown_address, shown_line

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

logger = logging.getLogger("fluvial.openlineage")

_MOST_WAITING: Final = 1000
_CLOSE_WAIT_S: Final = 10.0


class EventFactory(Protocol):
    """What ``LineageEvents`` needs of ``openlineage_client``, which needs the client library."""

    def new_run(self, job: str, *, is_stream: bool) -> Run:
        """See ``openlineage_client``."""

    def run_event(
        self,
        run: Run,
        state: str,
        *,
        namespace: str,
        time: datetime,
        barrier_id: int | None = None,
        error: str | None = None,
        reads: Sequence[Dataset] = (),
        written: Sequence[Dataset] = (),
    ) -> "RunEvent":
        """See ``openlineage_client``."""


class LineageEvents:
    """Sends events of jobs. Thread-safe; failures are logged and cost no data."""

    def __init__(
        self,
        client: "OpenLineageClient",
        factory: EventFactory,
        *,
        namespace: str,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Start the sending thread. ``namespace``: namespace of the jobs."""
        self._client, self._factory, self._namespace, self._clock = client, factory, namespace, clock
        self._waiting: SimpleQueue[Callable[[], RunEvent] | None] = SimpleQueue()  # None: the last one
        self._thread = Thread(target=self._send, name="fluvial-openlineage", daemon=True)
        self._thread.start()
        self._failures = 0
        self._runs: dict[str, Run] = {}  # streaming jobs of this process
        self._sinks: dict[str, set[str]] = {}  # tables that these write
        self._writes: dict[tuple[str, int], Run] = {}  # batch writes that run, by job and barrier
        atexit.register(self.close)

    def started(self, job: str, *, reads: Sequence[Dataset] = (), written: Sequence[Dataset] = ()) -> None:
        """A stream starts or restarts: a new run. Another table of a stream that writes several is the same run."""
        tables = {each.table for each in written}
        run = self._runs.get(job)
        if run is not None and not tables & self._sinks[job]:
            self._sinks[job] |= tables
            self.emit(run, "RUNNING", reads=reads, written=written)
            return
        if run is not None:
            self.emit(run, "COMPLETE")
        run = self._runs[job] = self._factory.new_run(job, is_stream=True)
        self._sinks[job] = tables
        self.emit(run, "START", reads=reads, written=written)

    def began(
        self, job: str, barrier_id: int, *, reads: Sequence[Dataset] = (), written: Sequence[Dataset] = ()
    ) -> None:
        """A batch write starts: a run of its own."""
        run = self._writes[job, barrier_id] = self._factory.new_run(job, is_stream=False)
        self.emit(run, "START", barrier_id=barrier_id, reads=reads, written=written)

    def completed_barrier(
        self,
        job: str,
        barrier_id: int,
        *,
        is_last: bool = False,
        reads: Sequence[Dataset] = (),
        written: Sequence[Dataset] = (),
    ) -> None:
        """A barrier of a job is complete. ``is_last``: a batch write, which has only one."""
        run = self._writes.pop((job, barrier_id), None) if is_last else self._runs.get(job)
        if run is None:
            run = self._factory.new_run(job, is_stream=not is_last)
            self.emit(run, "START", reads=reads)
        if not is_last:
            self._runs[job] = run
            self._sinks.setdefault(job, set()).update(each.table for each in written)
        state = "COMPLETE" if is_last else "RUNNING"
        self.emit(run, state, barrier_id=barrier_id, reads=reads, written=written)

    def failed(self, job: str, barrier_id: int, error: BaseException) -> None:
        """A barrier of a job was not written: its run has ended. An interrupt is an ABORT."""
        run = self._writes.pop((job, barrier_id), None) or self._runs.pop(job, None)
        self._sinks.pop(job, None)
        if run is not None:
            state = "FAIL" if isinstance(error, Exception) else "ABORT"
            self.emit(run, state, barrier_id=barrier_id, error=shown_line(f"{type(error).__name__}: {error}"))

    def ended(self, job: str) -> None:
        """A stream has ended by itself, or because it was asked to."""
        run = self._runs.pop(job, None)
        self._sinks.pop(job, None)
        if run is not None:
            self.emit(run, "COMPLETE")

    def emit(
        self,
        run: Run,
        state: str,
        *,
        barrier_id: int | None = None,
        error: str | None = None,
        reads: Sequence[Dataset] = (),
        written: Sequence[Dataset] = (),
    ) -> None:
        """Queue an event; arguments as in ``run_event``."""
        time = self._clock()
        if self._waiting.qsize() >= _MOST_WAITING:
            self._count_failure(f"{_MOST_WAITING} events wait to be sent")
            return

        self._waiting.put(
            partial(
                self._factory.run_event,
                run,
                state,
                namespace=self._namespace,
                time=time,
                barrier_id=barrier_id,
                error=error,
                reads=reads,
                written=written,
            )
        )

    def close(self) -> None:
        """Emit the end of what runs, and send queued events, for ten seconds at most."""
        atexit.unregister(self.close)
        for run in self._runs.values():
            self.emit(run, "COMPLETE")
        for run in self._writes.values():
            self.emit(run, "ABORT")
        self._runs.clear()
        self._writes.clear()
        self._waiting.put(None)
        self._thread.join(_CLOSE_WAIT_S)

    def _send(self) -> None:
        while (make := self._waiting.get()) is not None:
            try:
                self._client.emit(make())
            except Exception as error:  # noqa: BLE001  (whatever it is, the job continues)
                self._count_failure(f"{type(error).__name__}: {error}")
            else:
                self._failures = 0

    def _count_failure(self, reason: str) -> None:
        self._failures += 1
        if self._failures & (self._failures - 1) == 0:  # 1st, 2nd, 4th, 8th ... in a row
            logger.warning("OpenLineage event was not sent: failures_in_a_row=%d reason=%s", self._failures, reason)


def events_of(options: Mapping[str, str]) -> LineageEvents | None:
    """The sender for a catalog's jobs; None unless ``openlineage.url`` is set.

    Raises:
        InvalidInputError: the URL's scheme is not supported, or the client library is missing.
    """
    parsed = CatalogOptions.parse(options)
    url = parsed.openlineage_url
    if url is None:
        return None
    try:
        from engine.lineage import openlineage_client
    except ImportError as error:
        raise InvalidInputError(
            f"the client library is missing: openlineage.url={shown_address(url)} "
            "fix=pip install 'fluvial[openlineage]'"
        ) from error
    client = openlineage_client.open_client(url, parsed.openlineage_api_key)
    return LineageEvents(client, openlineage_client, namespace=parsed.openlineage_namespace)
