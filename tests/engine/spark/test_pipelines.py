"""Spark's declarative pipelines: a table as source of a flow, another as its sink."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog

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

    run_pipeline(spec)
    rows = catalog.table("shop.paid_orders").read().to_arrow().sort_by("id").to_pylist()
    assert rows == [{"id": 1, "amount": 10, "state": "paid"}, {"id": 2, "amount": 21, "state": "paid"}]


def run_pipeline(spec: Path) -> None:
    """``spark-pipelines run`` of this environment, which finds Fluvial as an installed one is found."""
    paths = [str(ROOT), str(ROOT / "engine" / "plugin"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [str(Path(sys.executable).parent / "spark-pipelines"), "run", "--spec", str(spec)],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYSPARK_PYTHON": sys.executable},
        cwd=spec.parent,
        capture_output=True,
        text=True,
        check=False,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
