"""Recoveries by job files, from the mistake to the published tables and the jobs that continue."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog, Table
from engine.deploy.config.job_config import load_job
from engine.deploy.job import run_job
from engine.deploy.recovery.execution import Execution, Stage, StepReport, seen_tables, write_overlays
from engine.deploy.recovery.job_files import JobFiles
from engine.deploy.recovery.plan_file import PlanFile, RecoveryState, read_plan
from engine.deploy.recovery.recovery_plan import RecoveryRequest, plan_recovery
from engine.procedures import impact
from engine.procedures.recovery import validate_snapshot

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
JOB = """\
name: shop
warehouse: {home}/warehouse
tables:
  shop.raw: {{columns: {{id: BIGINT, n: BIGINT}}, primary_key: [id], options: &one {{bucket: 1, log.system: none}}}}
  shop.orders: {{columns: {{id: BIGINT, n: BIGINT}}, primary_key: [id], options: *one, expect: n >= 0}}
  shop.daily: {{columns: {{id: BIGINT, n: BIGINT}}, primary_key: [id], options: *one}}
pipelines:
- name: clean
  source: {{format: fluvial, options: &aligned {{table: shop.raw, source.checkpoint-align.enabled: true}}}}
  transform: SELECT id, n * 10 AS n, _row_kind FROM source
  target: shop.orders
  checkpoint: {home}/checkpoints/clean
- name: report
  source: {{format: fluvial, options: {{table: shop.orders, source.checkpoint-align.enabled: true}}}}
  transform: SELECT id, n + 1 AS n, _row_kind FROM source
  target: shop.daily
  checkpoint: {home}/checkpoints/report
"""


def write(table: Table, rows: Mapping[int, int]) -> None:
    table.write(pa.table({"id": list(rows), "n": list(rows.values())}, schema=SCHEMA), options={"pipeline.name": "load"})


def rows_of(table: Table) -> dict[int, int]:
    return {row["id"]: row["n"] for row in table.read().to_arrow().to_pylist()}


def run(spark: SparkSession, path: Path, *overlays: str) -> None:
    run_job(load_job(str(path), overlays=overlays, environment={}), spark=spark)


@pytest.fixture
def shop(tmp_path: Path, spark: SparkSession) -> tuple[Catalog, Path]:
    """Two jobs in a row, which have read snapshots 1 to 2, then a wrong one, of raw."""
    path = tmp_path / "shop.yaml"
    path.write_text(JOB.format(home=tmp_path))
    catalog = Catalog(str(tmp_path / "warehouse"))
    raw = catalog.create_table("shop.raw", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    write(raw, {1: 1})
    write(raw, {2: 2})
    run(spark, path)
    write(raw, {2: -2, 3: -3})
    run(spark, path)
    assert rows_of(catalog.table("shop.daily")) == {1: 11, 2: -19, 3: -29}
    return catalog, path


def test_a_mistake_is_recovered_by_a_job_file(shop: tuple[Catalog, Path], spark: SparkSession, tmp_path: Path) -> None:
    catalog, path = shop
    request = RecoveryRequest(
        files=JobFiles(paths=(str(path),)),
        table="shop.raw",
        snapshot_id=2,
        is_incremental=True,
        corrections=("INSERT INTO shop.raw$branch_fix VALUES (3, 3)",),
    )
    file = PlanFile(tmp_path / "recover-fix.json", plan_recovery(request), RecoveryState())
    for each in file.plan.steps:
        print(each.command)
    Execution(file, lambda _: spark, on_step=print).run(Stage.COMPUTE)
    Execution(file, lambda _: spark, on_step=print).run(Stage.PUBLISH)
    print(write_overlays(file))
    print(open(tmp_path/"recover-fix.shop.yaml").read())
    for name in ("raw", "orders", "daily"):
        t = catalog.table(f"shop.{name}")
        print(name, rows_of(t), t.store.snapshots.ids(), t.store.snapshots.tag_names(), t.branch)
    write(catalog.table("shop.raw"), {4: 4})
    run(spark, path, str(tmp_path/"recover-fix.shop.yaml"))
    for name in ("raw", "orders", "daily"):
        t = catalog.table(f"shop.{name}")
        print(name, rows_of(t), t.store.snapshots.ids(), t.store.snapshots.tag_names(), t.branch)
    from engine.lineage.lineage import lineage_of
    m = lineage_of(catalog).meta
    for x in (m.source_table_lineages, m.sink_table_lineages, m.source_data_lineages, m.sink_data_lineages): print(*x(), sep="\n")
    for s in range(1,5): print(s, impact(catalog.table("shop.raw"), s).to_pylist())
    for i in catalog.table("shop.daily").store.snapshots.ids():
        print(validate_snapshot(catalog,"shop.daily", i, "SELECT id, n+1 AS n FROM orders").to_pylist())
    assert 0
