"""OpenLineage events: what a job reads and writes, told to whoever collects such events, by file or by HTTP.

Events are told after the fact, by a thread of their own, and the last of a crash may be missing: the lineage of the
catalog is what is exact. Source: OpenLineage specification 2, through its client library (extra ``openlineage``).
"""

import atexit
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlparse

from filestore.options.catalog_options import CatalogOptions
from filestore.schema.table_schema import TableSchema
from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import RunEvent

logger = logging.getLogger("fluvial.openlineage")

_MOST_WAITING: Final = 1000
_CLOSE_WAIT_S: Final = 10.0
_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A table as a barrier read or wrote it."""

    warehouse: str
    table: str  # database.table
    snapshot_id: int | None = None  # None: nothing yet
    row_count: int | None = None  # that were written
    schema: TableSchema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One execution of a job."""

    job: str
    run_id: str  # a UUID
    is_stream: bool


def run_event(
    run: Run,
    state: str,
    *,
    namespace: str,
    time: datetime,
    barrier_id: int | None = None,
    reads: Sequence[Dataset] = (),
    written: Sequence[Dataset] = (),
) -> "RunEvent":
    """One event.

    Args:
        run: whose.
        state: START, RUNNING, COMPLETE or FAIL.
        namespace: of the job.
        time: when; with a zone.
        barrier_id: of the barrier that it tells of.
        reads: tables that were read, up to their snapshots.
        written: tables that were, or will be, written.
    """
    from openlineage.client import event_v2 as events
    from openlineage.client.facet_v2 import job_type_job, processing_engine_run, tags_run

    run_facets: dict[str, Any] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(version=version("pyspark"), name="Spark")
    }
    if barrier_id is not None:
        tag = tags_run.TagsRunFacetFields(key="barrier", value=str(barrier_id), source="FLUVIAL")
        run_facets["tags"] = tags_run.TagsRunFacet(tags=[tag])
    job_type = job_type_job.JobTypeJobFacet(
        processingType="STREAMING" if run.is_stream else "BATCH", integration="FLUVIAL", jobType="JOB"
    )
    return events.RunEvent(
        eventType=events.RunState[state],
        eventTime=time.astimezone(UTC).isoformat(timespec="milliseconds"),
        producer=f"urn:fluvial:{version('fluvial')}",
        run=events.Run(runId=run.run_id, facets=run_facets),
        job=events.Job(namespace=namespace, name=run.job, facets={"jobType": job_type}),
        inputs=[_input(each) for each in reads],
        outputs=[_output(each) for each in written],
    )


class LineageEvents:
    """Sends events of jobs. May be called by several threads; what fails is logged, and costs no data."""

    def __init__(
        self, client: "OpenLineageClient", *, namespace: str, clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """Nothing is sent yet. ``namespace``: of the jobs."""
        self._client, self._namespace, self._clock = client, namespace, clock
        self._waiting: SimpleQueue[Callable[[], RunEvent] | None] = SimpleQueue()  # None: that was all
        self._thread = Thread(target=self._send, name="fluvial-openlineage", daemon=True)
        self._thread.start()
        self._failures = 0
        self._runs: dict[str, Run] = {}  # of jobs that go on, in this process
        atexit.register(self.close)

    def begun(self, job: str, *, reads: Sequence[Dataset] = (), written: Sequence[Dataset] = ()) -> None:
        """A stream begins, perhaps again: that is another run."""
        run = self._runs[job] = new_run(job, is_stream=True)
        self.tell(run, "START", reads=reads, written=written)

    def went_on(
        self,
        job: str,
        barrier_id: int,
        *,
        is_last: bool = False,
        reads: Sequence[Dataset] = (),
        written: Sequence[Dataset] = (),
    ) -> None:
        """A barrier of a job is done. ``is_last``: it is a batch write, and has no other."""
        run = self._runs.get(job)
        if run is None or is_last:
            run = new_run(job, is_stream=not is_last)
            self.tell(run, "START", reads=reads, written=written)
        if not is_last:
            self._runs[job] = run
        state = "COMPLETE" if is_last else "RUNNING"
        self.tell(run, state, barrier_id=barrier_id, reads=reads, written=written)

    def tell(
        self,
        run: Run,
        state: str,
        *,
        barrier_id: int | None = None,
        reads: Sequence[Dataset] = (),
        written: Sequence[Dataset] = (),
    ) -> None:
        """Send an event, soon; arguments as of ``run_event``."""
        time = self._clock()
        if self._waiting.qsize() >= _MOST_WAITING:
            self._failed(f"{_MOST_WAITING} events wait to be sent")
            return

        self._waiting.put(
            partial(
                run_event,
                run,
                state,
                namespace=self._namespace,
                time=time,
                barrier_id=barrier_id,
                reads=reads,
                written=written,
            )
        )

    def close(self) -> None:
        """Tell that streams have ended, and send what waits, for ten seconds at most."""
        atexit.unregister(self.close)
        for run in self._runs.values():
            self.tell(run, "COMPLETE")
        self._runs.clear()
        self._waiting.put(None)
        self._thread.join(_CLOSE_WAIT_S)

    def _send(self) -> None:
        while (make := self._waiting.get()) is not None:
            try:
                self._client.emit(make())
            except Exception as error:  # noqa: BLE001  (whatever it is, the job goes on)
                self._failed(f"{type(error).__name__}: {error}")
            else:
                self._failures = 0

    def _failed(self, reason: str) -> None:
        self._failures += 1
        if self._failures & (self._failures - 1) == 0:  # 1st, 2nd, 4th, 8th ... in a row
            logger.warning("OpenLineage event was not sent: failures_in_a_row=%d reason=%s", self._failures, reason)


def events_of(options: Mapping[str, str]) -> LineageEvents | None:
    """What sends the events of a catalog's jobs; None unless ``openlineage.url`` is set.

    Raises:
        InvalidInputError: the address is of no known kind, or the client library is missing.
    """
    parsed = CatalogOptions.parse(options)
    url = parsed.openlineage_url
    if url is None:
        return None
    try:
        from openlineage.client import OpenLineageClient
        from openlineage.client.transport.file import FileConfig, FileTransport
        from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport
    except ImportError as error:
        raise InvalidInputError(
            f"the client library is missing: openlineage.url={url} fix=pip install 'fluvial[openlineage]'"
        ) from error
    address = urlparse(url)
    if address.scheme in ("http", "https"):
        key = parsed.openlineage_api_key
        auth: dict[str, Any] = {"auth": ApiKeyTokenProvider({"apiKey": key})} if key else {}
        config = HttpConfig(url=url, timeout=_TIMEOUT_S, **auth)
        client = OpenLineageClient(transport=HttpTransport(config))
    elif address.scheme in ("", "file"):
        client = OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=address.path, append=True)))
    else:
        raise InvalidInputError(
            f"events cannot be sent there: openlineage.url={url} fix='give a path, file:///path, http:// or https://'"
        )
    return LineageEvents(client, namespace=parsed.openlineage_namespace)


def new_run(job: str, *, is_stream: bool) -> Run:
    """An execution that begins now."""
    from openlineage.client.uuid import generate_new_uuid

    return Run(job=job, run_id=str(generate_new_uuid()), is_stream=is_stream)


def dataset_name(warehouse: str, table: str) -> tuple[str, str]:
    """Namespace and name of a table: those of its directory. Source: OpenLineage, dataset naming."""
    database, _, name = table.partition(".")
    address = urlparse(warehouse)
    path = f"{address.path.rstrip('/')}/{database}.db/{name}"
    if address.scheme in ("", "file"):
        return "file", path
    return f"{address.scheme}://{address.netloc}", path.lstrip("/")


def _input(read: Dataset) -> Any:
    from openlineage.client.event_v2 import InputDataset

    namespace, name = dataset_name(read.warehouse, read.table)
    return InputDataset(namespace=namespace, name=name, facets=_facets(read))


def _output(written: Dataset) -> Any:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset

    namespace, name = dataset_name(written.warehouse, written.table)
    statistics: dict[str, Any] = {}
    if written.row_count is not None:
        statistics["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=written.row_count
        )
    return OutputDataset(
        namespace=namespace,
        name=name,
        facets=_facets(written),
        outputFacets=statistics,
    )


def _facets(dataset: Dataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import dataset_version_dataset, schema_dataset, symlinks_dataset

    symlink = symlinks_dataset.Identifier(namespace=dataset.warehouse, name=dataset.table, type="TABLE")
    facets: dict[str, Any] = {"symlinks": symlinks_dataset.SymlinksDatasetFacet(identifiers=[symlink])}
    if dataset.snapshot_id is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(dataset.snapshot_id))
    if dataset.schema is not None:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(
            fields=[
                schema_dataset.SchemaDatasetFacetFields(name=field.name, type=str(field.type), ordinal_position=at)
                for at, field in enumerate(dataset.schema.fields, start=1)
            ]
        )
    return facets
