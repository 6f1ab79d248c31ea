"""OpenLineage events are valid by the published JSON schemas, and come before and after the work they are about."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from jsonschema import Draft202012Validator
from openlineage.client.serde import Serde
from pyspark.sql import SparkSession
from referencing import Registry, Resource

from engine import Catalog, Table, sink
from engine.lineage.after_commit import AfterCommit
from engine.lineage.datasets import Dataset, catalog_uri
from engine.lineage.graph.columns import DIRECT, INDIRECT, ColumnFlow, ColumnSource
from engine.lineage.openlineage_client import run_event
from engine.lineage.origins import CommitOrigin
from engine.lineage.recording import Recorder
from filestore.commit.committable import BATCH_IDENTIFIER
from lsm.errors import InvalidInputError
from tests.engine.lineage.test_openlineage import NOW, RUN

GOLDEN = Path(__file__).resolve().parents[2] / "golden/openlineage"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
SOURCE = ColumnSource(warehouse="s3://lake/raw", table="shop.orders", column="amount")


@pytest.fixture(scope="module")
def registry() -> Registry[Any]:
    """The published schemas, by their ids."""
    bodies = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(GOLDEN.glob("*.json"))]
    return Registry().with_resources((body["$id"], Resource.from_contents(body)) for body in bodies)


def problems(registry: Registry[Any], event: Mapping[str, Any]) -> list[str]:
    """What is wrong with an event, and with each of its facets by the schema that the facet names."""
    parts = [("event", event, event["schemaURL"])]
    places = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    for place in places:
        for kind in ("facets", "inputFacets", "outputFacets"):
            parts += [(name, facet, facet["_schemaURL"]) for name, facet in place.get(kind, {}).items()]
    found = []
    for name, part, url in parts:
        validator = Draft202012Validator({"$ref": url}, registry=registry)
        found += [f"{name}: {error.message}" for error in validator.iter_errors(part)]
    return found


def producers(event: Mapping[str, Any]) -> Iterator[str]:
    yield event["producer"]
    for place in (event["run"], event["job"], *event["inputs"], *event["outputs"]):
        for kind in ("facets", "inputFacets", "outputFacets"):
            yield from (facet["_producer"] for facet in place.get(kind, {}).values())


def flow() -> ColumnFlow:
    ways = frozenset([(DIRECT, "TRANSFORMATION"), (INDIRECT, "CONDITIONAL")])
    return ColumnFlow(columns={"n": {SOURCE: ways}, "_row_kind": {}}, rows={SOURCE: frozenset([(INDIRECT, "FILTER")])})


@pytest.mark.parametrize("state", ["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"])
def test_every_event_is_valid_by_the_published_schemas(registry: Registry[Any], state: str, tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("shop.wide", SCHEMA, primary_key=["id"])
    read = Dataset(warehouse="s3://lake/raw", table="shop.orders", snapshot_id=12)
    written = Dataset(
        warehouse="/data", table="shop.wide", snapshot_id=31, row_count=7, schema=table.store.schema, flow=flow()
    )
    made = run_event(
        RUN, state, namespace="etl", time=NOW, barrier_id=8, error="OSError: full", reads=[read], written=[written]
    )
    event = json.loads(Serde.to_json(made))
    assert problems(registry, event) == []
    assert len({*producers(event)}) == 1
    assert event["producer"].startswith("urn:fluvial:")
    [output] = event["outputs"]
    assert output["facets"]["columnLineage"]["fields"] == {
        "n": {
            "inputFields": [
                {
                    "namespace": "s3://lake",
                    "name": "raw/shop.db/orders",
                    "field": "amount",
                    "transformations": [
                        {"type": "DIRECT", "subtype": "TRANSFORMATION", "description": "", "masking": False},
                        {"type": "INDIRECT", "subtype": "CONDITIONAL", "description": "", "masking": False},
                    ],
                }
            ]
        }
    }
    assert [each["field"] for each in output["facets"]["columnLineage"]["dataset"]] == ["amount"]
    assert output["facets"]["symlinks"]["identifiers"][0]["namespace"] == "file:///data"


def test_the_schemas_refuse_what_is_not_an_event(registry: Registry[Any]) -> None:
    event = json.loads(Serde.to_json(run_event(RUN, "START", namespace="etl", time=NOW)))
    assert problems(registry, event) == []
    assert problems(registry, {**event, "eventType": "BEGUN"})
    del event["run"]["facets"]["processing_engine"]["version"]
    assert problems(registry, event) == ["processing_engine: 'version' is a required property"]


@pytest.mark.parametrize(
    ("warehouse", "uri"),
    [("/data/a b", "file:///data/a%20b"), ("file:///w/", "file:///w"), ("s3://lake/raw/", "s3://lake/raw")],
)
def test_a_catalog_is_named_by_a_uri(warehouse: str, uri: str) -> None:
    assert catalog_uri(warehouse) == uri


class _Events:
    """The events of a catalog."""

    def __init__(self, home: Path) -> None:
        self._path = home / "events.jsonl"
        self.catalog = Catalog(str(home / "w"), options={"openlineage.url": f"file://{self._path}"})

    def table(self, name: str) -> Table:
        return self.catalog.create_table(f"shop.{name}", SCHEMA, primary_key=["id"], options={"bucket": "1"})

    def read(self, table: Table) -> list[dict[str, Any]]:
        recorder = Recorder.of(table.store)
        assert recorder is not None
        assert recorder._events is not None
        recorder._events.close()
        return [json.loads(line) for line in self._path.read_text().splitlines()]


def test_a_write_starts_before_its_work_and_completes_after_it(registry: Registry[Any], tmp_path: Path) -> None:
    """The time of START is before the snapshot, and it knows neither the snapshot nor its rows; a refused write fails,
    one without rows completes without a snapshot."""
    sent = _Events(tmp_path)
    table = sent.table("orders")
    table.write(pa.table({"id": [1, 2], "n": [1, 2]}, schema=SCHEMA))
    table.write(SCHEMA.empty_table())
    with pytest.raises(InvalidInputError):
        table.write(pa.table({"id": pa.array([None], pa.int64()), "n": [1]}))
    events = sent.read(table)
    assert [problems(registry, each) for each in events] == [[]] * len(events)
    assert [each["eventType"] for each in events] == ["START", "COMPLETE", "START", "COMPLETE", "START", "FAIL"]
    runs = [each["run"]["runId"] for each in events]
    assert runs[0::2] == runs[1::2]
    assert len({*runs}) == 3
    start, done, _, empty, _, failed = events
    assert "version" not in start["outputs"][0]["facets"]
    assert "outputFacets" not in start["outputs"][0] or not start["outputs"][0]["outputFacets"]
    assert done["outputs"][0]["facets"]["version"]["datasetVersion"] == "1"
    assert done["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert "version" not in empty["outputs"][0]["facets"]
    assert "InvalidInputError" in failed["run"]["facets"]["errorMessage"]["message"]


def test_a_write_that_is_interrupted_is_aborted(tmp_path: Path) -> None:
    sent = _Events(tmp_path)
    table = sent.table("orders")

    origin = CommitOrigin(job="load", barrier_id=1)
    with pytest.raises(KeyboardInterrupt), AfterCommit(table.store).emitting(origin, BATCH_IDENTIFIER, None):
        raise KeyboardInterrupt
    assert [each["eventType"] for each in sent.read(table)] == ["START", "ABORT"]


def test_a_stream_with_two_tables_is_one_run(tmp_path: Path) -> None:
    sent = _Events(tmp_path)
    one, two = sent.table("one"), sent.table("two")
    for table in (one, two, one):
        recorder = Recorder.of(table.store)
        assert recorder is not None
        recorder.opened("enrich")
    events = sent.read(one)
    assert [each["eventType"] for each in events] == ["START", "RUNNING", "COMPLETE", "START", "COMPLETE"]
    first, restarted = events[:3], events[3:]
    assert len({each["run"]["runId"] for each in first}) == 1
    assert {each["run"]["runId"] for each in restarted}.isdisjoint({each["run"]["runId"] for each in first})


@pytest.mark.spark
def test_columns_of_statements_and_streams_come_from_columns(
    registry: Registry[Any], spark: SparkSession, tmp_path: Path
) -> None:
    """Through joins, subqueries, aggregates and views; a frame whose plan says nothing is written as well."""
    sent = _Events(tmp_path)
    raw, wide = sent.table("raw"), sent.table("wide")
    raw.write(pa.table({"id": [1, 2], "n": [3, 4]}, schema=SCHEMA))
    raw.dataframe(spark).createOrReplaceTempView("raw")
    text = """
        WITH sums AS (SELECT id, max(n) AS most FROM raw GROUP BY id)
        SELECT raw.id, CASE WHEN raw.id > 1 THEN most ELSE 0 END AS n
        FROM raw JOIN sums ON raw.id = sums.id WHERE raw.n > 0"""
    wide.append(spark.sql(text), {"pipeline.name": "sums"})
    stream = spark.readStream.format("fluvial").options(
        **{"warehouse": sent.catalog.warehouse, "table": "shop.raw", "read.changelog": "true"}
    )
    doubled = stream.load().selectExpr("id", "n * 2 AS n", "_row_kind")
    writer = doubled.writeStream.foreachBatch(sink(wide)).queryName("doubled").trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination(120)
    wide.append(spark.createDataFrame([(9, 9)], "id BIGINT, n BIGINT"), {"pipeline.name": "unknown"})
    events = sent.read(wide)
    assert [problems(registry, each) for each in events] == [[]] * len(events)
    last = {each["job"]["name"]: each for each in events if each["eventType"] != "START" and each["outputs"]}
    assert column_inputs(last["sums"]) == {
        "id": {("raw", "id"): ["DIRECT IDENTITY"]},
        "n": {("raw", "id"): ["INDIRECT CONDITIONAL"], ("raw", "n"): ["DIRECT AGGREGATION"]},
        "": {("raw", "id"): ["INDIRECT GROUP_BY", "INDIRECT JOIN"], ("raw", "n"): ["INDIRECT FILTER"]},
    }
    assert column_inputs(last["doubled"]) == {
        "id": {("raw", "id"): ["DIRECT IDENTITY"]},
        "n": {("raw", "n"): ["DIRECT TRANSFORMATION"]},
        "": {},
    }
    assert "columnLineage" not in last["unknown"]["outputs"][0]["facets"]


def column_inputs(event: Mapping[str, Any]) -> dict[str, dict[tuple[str, str], list[str]]]:
    """Column lineage of the event's table, that of its rows as column ''."""
    facet = event["outputs"][0]["facets"]["columnLineage"]
    fields = {name: each["inputFields"] for name, each in facet["fields"].items()} | {"": facet["dataset"]}
    return {
        name: {
            (Path(each["name"]).name, each["field"]): [f"{w['type']} {w['subtype']}" for w in each["transformations"]]
            for each in inputs
        }
        for name, inputs in fields.items()
    }
