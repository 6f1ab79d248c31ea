"""Spark's declarative pipelines: a table and its changes as sources of flows, another table as a sink."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from engine import Catalog
from tests.stores.processes import free_port

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "docs/examples/pipeline"
SCHEMA = pa.schema([("id", pa.int64()), ("amount", pa.int64()), ("state", pa.string())])


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

@dp.table
def history():
    return spark.readStream.table("stock_changes")
"""
AUTO_CDC = """
dp.create_streaming_table("{target}")
dp.create_auto_cdc_flow(
    target="{target}", source="stock_changes", keys=["id"], sequence_by="_commit_version",
    apply_as_deletes="_change_type = 'delete'", stored_as_scd_type={scd_type},
    except_column_list=["_change_type", "_commit_version", "_commit_timestamp"])
"""


@pytest.mark.spark
@pytest.mark.sweep
def test_a_flow_reads_changes_and_auto_cdc_refuses_a_target_that_spark_cannot_merge_into(tmp_path: Path) -> None:
    """Issue 24, 6: through Spark Connect. The refusal is Spark's, of its own tables as of those of Fluvial."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    stock = catalog.create_table("shop.stock", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    stock.write({"id": [1, 2], "amount": [10, 20], "state": ["new", "new"]})
    stock.write({"id": [1, 2], "amount": [11, 20], "state": ["new", "new"], "_row_kind": ["+U", "-D"]})
    spec, flow = tmp_path / "pipeline" / "spark-pipeline.yml", tmp_path / "pipeline" / "flows" / "stock.py"
    flow.parent.mkdir(parents=True)
    spec.write_text(SPEC.format(storage=tmp_path / "storage"), encoding="utf-8")
    flow.write_text(HISTORY, encoding="utf-8")
    with connect_server(tmp_path) as remote:
        done = run_pipeline(spec, SPARK_REMOTE=remote)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
        for target, scd_type in (("dim_stock", 1), ("fluvial.shop.dim_stock", 2)):
            flow.write_text(HISTORY + AUTO_CDC.format(target=target, scd_type=scd_type), encoding="utf-8")
            done = run_pipeline(spec, SPARK_REMOTE=remote)
            assert done.returncode != 0
            assert "[AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE]" in done.stdout + done.stderr
    history = pq.read_table(tmp_path / "spark-warehouse" / "history").to_pylist()
    assert sorted((row["id"], row["amount"], row["_change_type"], row["_commit_version"]) for row in history) == [
        (1, 10, "insert", 1),
        (1, 11, "update_postimage", 2),
        (2, 20, "delete", 2),
        (2, 20, "insert", 1),
    ]


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
        timeout=250,
    )
