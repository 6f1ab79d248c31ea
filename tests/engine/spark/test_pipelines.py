"""Spark's declarative pipelines: a table and its changes as sources of flows, another table as a sink."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from tests.stores.processes import free_port

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "docs/examples/pipeline"
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.int64()), ("state", pa.string())])


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.sweep
def test_the_example_runs_and_its_sink_follows_updates_and_deletions(tmp_path: Path) -> None:
    """Issue 19, 3: ``spark-pipelines run``. Order 2 is paid later, 3 is deleted, 4 was paid and is not any more."""
    spec = tmp_path / "pipeline" / "spark-pipeline.yml"
    shutil.copytree(EXAMPLE, spec.parent)
    spec.write_text(spec.read_text(encoding="utf-8").replace("/data/", f"{tmp_path}/"), encoding="utf-8")
    catalog = Catalog(str(tmp_path / "warehouse"))
    for name in ("shop.orders", "shop.paid_orders"):
        catalog.create_table(name, SCHEMA, primary_key=["id"], options={"bucket": "1"})
    orders = catalog.table("shop.orders")
    orders.write({"id": [1, 2, 3, 4], "amount": [10, 20, 30, 40], "state": ["paid", "new", "paid", "paid"]})
    # what an earlier run has brought over
    catalog.table("shop.paid_orders").write({"id": [1, 3, 4], "amount": [10, 30, 40], "state": ["paid"] * 3})
    changed = {"id": [2, 3, 4], "amount": [21, 30, 40], "state": ["paid", "paid", "returned"]}
    orders.write({**changed, "_row_kind": ["+U", "-D", "+U"]})

    # the changes of the second snapshot alone: an earlier run would have left its place in the checkpoint
    flow = spec.parent / "transformations" / "paid_orders.py"
    options = '.option("read.changelog", True)'
    text = flow.read_text(encoding="utf-8")
    assert options in text
    began = f'{options}.option("scan.mode", "from-snapshot").option("scan.snapshot-id", 2)'
    flow.write_text(text.replace(options, began), encoding="utf-8")

    done = run_pipeline(spec)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    rows = catalog.table("shop.paid_orders").read().to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": 1, "amount": 10, "state": "paid"}, {"id": 2, "amount": 21, "state": "paid"}]


SERVER = """
import sys
from pyspark.sql import SparkSession
import engine
from engine import Catalog

warehouse, port = sys.argv[1:]
plugin = "org.apache.spark.sql.connect.SparkConnectPlugin"
settings = {"spark.plugins": plugin, "spark.connect.grpc.binding.port": port, "spark.ui.enabled": "false"}
settings["spark.sql.shuffle.partitions"] = "2"  # as in other tests
spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
engine.install(spark, Catalog(warehouse))
print("ready", flush=True)
sys.stdin.read()
spark.stop()
"""
SPEC = "name: stock\nstorage: file://{storage}\nlibraries:\n  - glob:\n      include: flows/**\n"
HISTORY = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()

@dp.temporary_view
def stock_changes():
    changes = spark.readStream.option("startingVersion", "0").option("computeUpdates", "true")
    return changes.changes("fluvial.shop.stock").where("_change_type <> 'update_preimage'")

@dp.table(name="fluvial.shop.history")
def history():
    return spark.readStream.table("stock_changes")
"""
AUTO_CDC = """
dp.create_streaming_table("{target}", table_properties={{"primary-key": "{key}", "bucket": "1"}})
dp.create_auto_cdc_flow(
    target="{target}", source="stock_changes", keys=["id"], sequence_by="_commit_version",
    apply_as_deletes="_change_type = 'delete'", stored_as_scd_type={scd_type},
    except_column_list=["_change_type", "_commit_version", "_commit_timestamp"])
"""
NOW, THEN = "fluvial.shop.stock_now", "fluvial.shop.stock_then"


@pytest.mark.long
@pytest.mark.spark
@pytest.mark.sweep
@pytest.mark.timeout(800)
def test_auto_cdc_follows_the_changes_of_a_table_into_others(tmp_path: Path) -> None:
    """Issue 24, 6: through Spark Connect, SCD types 1 and 2, and a plain flow of the changes; the pipeline runs again
    when there is more, with a key that comes back."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    stock = catalog.create_table("shop.stock", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    stock.write({"id": [1, 2], "amount": [10, 20], "state": ["new", "new"]})
    stock.write({"id": [1, 2], "amount": [11, 20], "state": ["new", "new"], "_row_kind": ["+U", "-D"]})
    spec, flow = tmp_path / "pipeline" / "spark-pipeline.yml", tmp_path / "pipeline" / "flows" / "stock.py"
    flow.parent.mkdir(parents=True)
    spec.write_text(SPEC.format(storage=tmp_path / "storage"), encoding="utf-8")
    type_1 = AUTO_CDC.format(target=NOW, key="id", scd_type=1)
    type_2 = AUTO_CDC.format(target=THEN, key="id,__START_AT", scd_type=2)
    flow.write_text(HISTORY + type_1 + type_2, encoding="utf-8")
    first = [(1, 10, 1, 2), (1, 11, 2, None), (2, 20, 1, 2)]
    second = [(1, 10, 1, 2), (1, 11, 2, 3), (1, 12, 3, None), (2, 20, 1, 2), (2, 22, 3, None)]
    with connect_server(tmp_path) as remote:
        for now, then in (([(1, 11)], first), ([(1, 12), (2, 22)], second)):
            done = run_pipeline(spec, SPARK_REMOTE=remote)
            assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
            assert rows_of_pipeline(catalog, NOW, "id", "amount") == now
            assert rows_of_pipeline(catalog, THEN, "id", "amount", "__START_AT", "__END_AT") == then
            if then is first:
                stock.write({"id": [1, 2], "amount": [12, 22], "state": ["new", "new"], "_row_kind": ["+U", "+I"]})
    assert rows_of_pipeline(catalog, "fluvial.shop.history", "id", "amount", "_change_type", "_commit_version") == [
        (1, 10, "insert", 1),
        (1, 11, "update_postimage", 2),
        (1, 12, "update_postimage", 3),
        (2, 20, "delete", 2),
        (2, 20, "insert", 1),
        (2, 22, "insert", 3),
    ]


def rows_of_pipeline(catalog: Catalog, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of a table, in an order that has a place for nulls."""
    found = catalog.table(name.removeprefix("fluvial.")).read().to_arrow(columns=columns).to_pylist()
    return sorted(((*row.values(),) for row in found), key=str)


@contextmanager
def connect_server(root: Path) -> Iterator[str]:
    """A Spark Connect server whose catalog ``fluvial`` is the warehouse in this directory; gives its address."""
    port = free_port()
    command = [sys.executable, "-c", SERVER, str(root / "warehouse"), str(port)]
    with subprocess.Popen(
        command,
        cwd=root,
        env=environment_of_an_installation(),
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield f"sc://127.0.0.1:{port}"
        finally:
            server.communicate(timeout=60)


def environment_of_an_installation(**more: str) -> dict[str, str]:
    """That of this process, in which Fluvial is found as an installed one is."""
    paths = [str(ROOT), str(ROOT / "engine" / "plugin"), os.environ.get("PYTHONPATH", "")]
    found = {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYSPARK_PYTHON": sys.executable}
    return os.environ | found | more


def run_pipeline(spec: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    """``spark-pipelines run``, in a Spark of its own or, with ``SPARK_REMOTE``, in a server."""
    program = [str(Path(sys.executable).parent / "spark-pipelines")]
    if more:  # that script starts a Spark
        program = [sys.executable, "-m", "pyspark.pipelines.cli"]
    return subprocess.run(
        [*program, "run", "--spec", str(spec)],
        env=environment_of_an_installation(**more),
        cwd=spec.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=390,
    )
