"""OpenLineage's client library (extra ``openlineage``): events built with it, and its transports.

The only module that imports the library; ``openlineage`` imports this one when events are enabled.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from inspect import signature
from typing import Any, Final
from urllib.parse import urlparse

from openlineage.client import OpenLineageClient
from openlineage.client import event_v2 as events
from openlineage.client.facet_v2 import (
    column_lineage_dataset,
    data_quality_assertions_dataset,
    dataset_version_dataset,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    processing_engine_run,
    schema_dataset,
    symlinks_dataset,
    tags_run,
)
from openlineage.client.transport.file import FileConfig, FileTransport
from openlineage.client.transport.http import ApiKeyTokenProvider, HttpConfig, HttpTransport
from openlineage.client.uuid import generate_new_uuid

from engine.lineage.datasets import Dataset, Run, catalog_uri, dataset_name
from engine.lineage.graph.columns import ColumnSource, Way
from lsm.errors import InvalidInputError
from lsm.secret_names import shown_address

_Paths = Mapping[tuple[str, str], str]  # of tables by warehouse and name, see ``own_path``
_TIMEOUT_S: Final = 5.0
_PRODUCER: Final = f"urn:fluvial:{version('fluvial')}"


def open_client(url: str, api_key: str | None) -> OpenLineageClient:
    """A client that appends to a file, or posts to a server.

    Raises:
        InvalidInputError: the scheme of the URL is not supported.
    """
    address = urlparse(url)
    if address.scheme in ("http", "https"):
        auth: dict[str, Any] = {"auth": ApiKeyTokenProvider({"apiKey": api_key})} if api_key else {}
        return OpenLineageClient(transport=HttpTransport(HttpConfig(url=url, timeout=_TIMEOUT_S, **auth)))
    if address.scheme in ("", "file"):
        return OpenLineageClient(transport=FileTransport(FileConfig(log_file_path=address.path, append=True)))
    raise InvalidInputError(
        f"events cannot be sent there: openlineage.url={shown_address(url)} fix='give a path, file:///path, http:// or https://'"
    )


def new_run(job: str, *, is_stream: bool) -> Run:
    """A run that starts now."""
    return Run(job=job, run_id=str(generate_new_uuid()), is_stream=is_stream)


def run_event(
    run: Run,
    state: str,
    *,
    namespace: str,
    time: datetime,
    barrier_id: int | None = None,
    error: str | None = None,
    reads: Sequence[Dataset] = (),
    written: Sequence[Dataset] = (),
) -> events.RunEvent:
    """One event.

    Args:
        run: the run of the event.
        state: START, RUNNING, COMPLETE, FAIL or ABORT.
        namespace: namespace of the job.
        time: time of the event, with a zone.
        barrier_id: the barrier of the event.
        error: why it failed.
        reads: tables that were read, up to their snapshots.
        written: tables that were, or will be, written.
    """
    run_facets: dict[str, Any] = {
        "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
            version=version("pyspark"), name="Spark", producer=_PRODUCER
        )
    }
    if barrier_id is not None:
        tag = tags_run.TagsRunFacetFields(key="barrier", value=str(barrier_id), source="FLUVIAL")
        run_facets["tags"] = tags_run.TagsRunFacet(tags=[tag], producer=_PRODUCER)
    if error is not None:
        run_facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(
            message=error, programmingLanguage="python", producer=_PRODUCER
        )
    job_type = job_type_job.JobTypeJobFacet(
        processingType="STREAMING" if run.is_stream else "BATCH",
        integration="FLUVIAL",
        jobType="JOB",
        producer=_PRODUCER,
    )
    return events.RunEvent(
        eventType=events.RunState[state],
        eventTime=time.astimezone(UTC).isoformat(timespec="milliseconds"),
        producer=_PRODUCER,
        run=events.Run(runId=run.run_id, facets=run_facets),
        job=events.Job(namespace=namespace, name=run.job, facets={"jobType": job_type}),
        inputs=[_input(each) for each in reads],
        outputs=[_output(each, {(each.warehouse, each.table): each.path for each in reads}) for each in written],
    )


def _input(read: Dataset) -> events.InputDataset:
    namespace, name = dataset_name(read.warehouse, read.table, read.path)
    return events.InputDataset(namespace=namespace, name=name, facets=_facets(read))


def _output(written: Dataset, paths: _Paths) -> events.OutputDataset:
    namespace, name = dataset_name(written.warehouse, written.table, written.path)
    statistics: dict[str, Any] = {}
    if written.row_count is not None:
        statistics["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
            rowCount=written.row_count, producer=_PRODUCER
        )
    facets = _facets(written)
    if (columns := _column_lineage(written, paths)) is not None:
        facets["columnLineage"] = columns
    if written.rules:
        facets["dataQualityAssertions"] = data_quality_assertions_dataset.DataQualityAssertionsDatasetFacet(
            assertions=[_assertion(rule, outcome) for rule, outcome in written.rules.items()], producer=_PRODUCER
        )
    return events.OutputDataset(namespace=namespace, name=name, facets=facets, outputFacets=statistics)


def _assertion(rule: str, outcome: Mapping[str, Any]) -> data_quality_assertions_dataset.Assertion:
    facts = {
        "name": rule,
        "severity": "warn",  # a batch that an error fails has no event of this kind
        "actual": f"{outcome['rows']} of {outcome['of']} rows break it, on-fail={outcome['on_fail']}",
        "content": outcome["condition"],
        "contentType": "sql",
    }
    known = signature(data_quality_assertions_dataset.Assertion).parameters  # of this client's version
    return data_quality_assertions_dataset.Assertion(
        assertion=rule, success=outcome["rows"] == 0, **{name: value for name, value in facts.items() if name in known}
    )


def _facets(dataset: Dataset) -> dict[str, Any]:
    symlink = symlinks_dataset.Identifier(namespace=catalog_uri(dataset.warehouse), name=dataset.table, type="TABLE")
    facets: dict[str, Any] = {
        "symlinks": symlinks_dataset.SymlinksDatasetFacet(identifiers=[symlink], producer=_PRODUCER)
    }
    if dataset.snapshot_id is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(
            datasetVersion=str(dataset.snapshot_id), producer=_PRODUCER
        )
    if dataset.schema is not None:
        facets["schema"] = schema_dataset.SchemaDatasetFacet(
            fields=[
                schema_dataset.SchemaDatasetFacetFields(name=field.name, type=str(field.type), ordinal_position=at)
                for at, field in enumerate(dataset.schema.fields, start=1)
            ],
            producer=_PRODUCER,
        )
    return facets


def _column_lineage(dataset: Dataset, paths: _Paths) -> column_lineage_dataset.ColumnLineageDatasetFacet | None:
    """The facet of a written table; None when nothing is known about its columns."""
    flow = dataset.flow
    if flow is None:
        return None
    known = None if dataset.schema is None else set(dataset.schema.column_names)
    fields = {
        name: column_lineage_dataset.Fields(inputFields=[_input_field(*each, paths) for each in sources.items()])
        for name, sources in flow.columns.items()
        if sources and (known is None or name in known)
    }
    rows = [_input_field(*each, paths) for each in flow.rows.items()]
    if not fields and not rows:
        return None
    return column_lineage_dataset.ColumnLineageDatasetFacet(fields=fields, dataset=rows, producer=_PRODUCER)


def _input_field(source: ColumnSource, ways: frozenset[Way], paths: _Paths) -> column_lineage_dataset.InputField:
    path = paths.get((source.warehouse, source.table), "")
    namespace, name = dataset_name(source.warehouse, source.table, path)
    transformations = [
        column_lineage_dataset.Transformation(type=kind, subtype=subtype, description="", masking=False)
        for kind, subtype in sorted(ways)
    ]
    return column_lineage_dataset.InputField(
        namespace=namespace, name=name, field=source.column, transformations=transformations
    )
