"""OpenLineage events: what collectors get, and that a job never waits for them or fails by them."""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.serde import Serde

from engine import Catalog
from engine.lineage import openlineage_client
from engine.lineage.datasets import Dataset, Run, dataset_name
from engine.lineage.graph.columns import ColumnFlow, ColumnSource
from engine.lineage.openlineage import LineageEvents, events_of
from engine.lineage.openlineage_client import new_run, run_event
from engine.lineage.origins import CommitOrigin, SourceRead
from engine.lineage.recording import Recorder
from lsm.errors import InvalidInputError

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)
RUN = Run(job="enrich", run_id="0194b8f0-0000-7000-8000-000000000000", is_stream=True)


def test_an_event_says_what_was_read_and_written(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("shop.wide", pa.schema([("id", pa.int64())]), primary_key=["id"])
    read = Dataset(warehouse="s3://lake/raw", table="shop.orders", snapshot_id=12)
    written = Dataset(warehouse="/data", table="shop.wide", snapshot_id=31, row_count=7, schema=table.store.schema)
    event = run_event(RUN, "RUNNING", namespace="etl", time=NOW, barrier_id=8, reads=[read], written=[written])
    found = json.loads(Serde.to_json(event))
    assert (found["eventType"], found["eventTime"]) == ("RUNNING", "2026-11-21T12:00:00.000+00:00")
    assert found["job"]["namespace"] == "etl"
    assert found["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert found["run"]["runId"] == RUN.run_id
    assert found["run"]["facets"]["tags"]["tags"] == [{"key": "barrier", "value": "8", "source": "FLUVIAL"}]
    (source,), (sink,) = found["inputs"], found["outputs"]
    assert (source["namespace"], source["name"]) == ("s3://lake", "raw/shop.db/orders")
    assert source["facets"]["version"]["datasetVersion"] == "12"
    assert (sink["namespace"], sink["name"]) == ("file", "/data/shop.db/wide")
    assert sink["facets"]["symlinks"]["identifiers"] == [
        {"namespace": "file:///data", "name": "shop.wide", "type": "TABLE"}
    ]
    assert [(each["name"], each["type"]) for each in sink["facets"]["schema"]["fields"]] == [("id", "BIGINT NOT NULL")]
    assert sink["outputFacets"]["outputStatistics"]["rowCount"] == 7
    assert found["schemaURL"].startswith("https://openlineage.io/spec/")


def test_events_go_to_a_file_in_their_order(tmp_path: Path) -> None:
    events = events_of({"openlineage.url": str(tmp_path / "events.jsonl"), "openlineage.namespace": "etl"})
    assert events is not None
    run = new_run("enrich", is_stream=False)
    events.emit(run, "START")
    events.emit(run, "COMPLETE", barrier_id=3, written=[Dataset(warehouse="/data", table="a.b", snapshot_id=1)])
    events.close()
    found = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert [each["eventType"] for each in found] == ["START", "COMPLETE"]
    assert {each["run"]["runId"] for each in found} == {run.run_id}
    assert {each["job"]["namespace"] for each in found} == {"etl"}


def test_whatever_a_catalog_records_is_told_as_events_too(tmp_path: Path) -> None:
    """A batch write is a run that begins and completes; a stream goes on until its process ends."""
    path = tmp_path / "events.jsonl"
    catalog = Catalog(str(tmp_path / "w"), options={"openlineage.url": f"file://{path}"})
    schema = pa.schema([("id", pa.int64())])
    table = catalog.create_table("shop.wide", schema, primary_key=["id"])
    table.write(pa.table({"id": [1, 2]}))
    recorder = Recorder.of(table.store)
    assert recorder is not None
    recorder.opened("enrich", (recorder.read_here(1),))
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    streamed = replace(snapshot, commit_identifier=0)
    recorder.committed(streamed, CommitOrigin(job="enrich", barrier_id=0, reads=(recorder.read_here(1),)))
    recorder._events.close()  # type: ignore[union-attr]
    found = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["eventType"] for each in found] == ["START", "COMPLETE", "START", "RUNNING", "COMPLETE"]
    batch, stream = found[:2], found[2:]
    assert {each["job"]["facets"]["jobType"]["processingType"] for each in batch} == {"BATCH"}
    assert batch[1]["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert {each["run"]["runId"] for each in stream} == {stream[0]["run"]["runId"]} != {batch[0]["run"]["runId"]}
    assert stream[1]["inputs"][0]["facets"]["version"]["datasetVersion"] == "1"


def test_a_table_in_a_place_of_its_own_is_named_by_it(tmp_path: Path) -> None:
    """As it is read and written, as a source of columns, on a branch, and when its name changes."""
    events, place = tmp_path / "w" / "events.jsonl", str(tmp_path / "places" / "own")
    options = {"openlineage.url": str(events), "external-paths.allowed": str(tmp_path / "places")}
    catalog = Catalog(str(tmp_path / "w"), options=options)
    schema = pa.schema([("id", pa.int64())])
    source = catalog.create_table("shop.orders", schema, primary_key=["id"], options={"path": place})
    source.write(pa.table({"id": [1]}))
    source.branches.create("b", snapshot_id=1)
    catalog.rename_table("shop.orders", "shop.sales")
    target = catalog.create_table("shop.wide", schema, primary_key=["id"])
    opened = [catalog.table(f"shop.sales{branch}") for branch in ("", "$branch_b")]
    reads = [SourceRead.of(each.store, each.latest_snapshot()) for each in opened]
    kept = tuple(SourceRead.from_json(each.to_json()) for each in reads if each is not None)
    recorder = Recorder.of(target.store)
    assert recorder is not None
    recorder.opened("enrich", kept)
    recorder._events.close()  # type: ignore[union-attr]
    found = [json.loads(line) for line in events.read_text().splitlines()]
    assert {each["outputs"][0]["name"] for each in found if each["job"]["name"] != "enrich"} == {place}
    inputs = [each["inputs"] for each in found if each["job"]["name"] == "enrich"]
    assert [(each["namespace"], each["name"]) for each in inputs[0]] == [("file", place), ("file", f"{place}$branch_b")]
    read, written = Dataset(warehouse="/w", table="d.a", path="s3://b/own"), Dataset(warehouse="/w", table="d.b")
    columns = ColumnFlow(columns={"id": {ColumnSource(warehouse="/w", table="d.a", column="id"): frozenset()}}, rows={})
    event = run_event(RUN, "RUNNING", namespace="n", time=NOW, reads=[read], written=[replace(written, flow=columns)])
    (field,) = json.loads(Serde.to_json(event))["outputs"][0]["facets"]["columnLineage"]["fields"]["id"]["inputFields"]
    assert (field["namespace"], field["name"]) == ("s3://b", "own")


@pytest.mark.sweep
def test_the_address_is_the_catalogs_and_a_process_that_ends_says_so(tmp_path: Path) -> None:
    """Who opens the catalog later need not know the address; its events are sent before it is gone."""
    path = tmp_path / "w" / "events.jsonl"
    catalog = Catalog(str(tmp_path / "w"), options={"openlineage.url": str(path)})
    catalog.create_table("shop.wide", pa.schema([("id", pa.int64())]), primary_key=["id"])
    script = f"""
from engine import Catalog
from engine.lineage.recording import Recorder
Recorder.of(Catalog({str(tmp_path / "w")!r}).table("shop.wide").store).opened("enrich")
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert [json.loads(line)["eventType"] for line in path.read_text().splitlines()] == ["START", "COMPLETE"]


class _Collector(BaseHTTPRequestHandler):
    got: list[tuple[str | None, dict[str, Any]]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.got.append((self.headers.get("Authorization"), json.loads(body)))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.mark.sweep
def test_events_go_to_a_collector() -> None:
    _Collector.got = []
    server = HTTPServer(("localhost", 0), _Collector)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://localhost:{server.server_port}"
        events = events_of({"openlineage.url": url, "openlineage.api-key": "k"})
        assert events is not None
        events.emit(RUN, "RUNNING", barrier_id=1)
        events.close()
    finally:
        server.shutdown()
        server.server_close()
    ((key, event),) = _Collector.got
    assert key == "Bearer k"
    assert event["job"] == event["job"] | {"namespace": "fluvial", "name": "enrich"}


def test_what_cannot_be_sent_is_logged_and_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(OpenLineageClient):
        def __init__(self) -> None:
            """Needs nothing."""

        def emit(self, event: Any) -> None:
            raise OSError("no collector")

    events = LineageEvents(Broken(), openlineage_client, namespace="n")
    for _ in range(9):
        events.emit(RUN, "RUNNING")
    events.close()
    reported = [each.getMessage() for each in caplog.records if "was not sent" in each.getMessage()]
    assert len(reported) == 4  # the 1st, 2nd, 4th and 8th in a row
    assert "no collector" in reported[0]


def test_addresses() -> None:
    assert events_of({}) is None
    assert dataset_name("file:///w", "d.t") == ("file", "/w/d.db/t")
    with pytest.raises(InvalidInputError, match=r"openlineage.url=ftp://x fix="):
        events_of({"openlineage.url": "ftp://x"})
