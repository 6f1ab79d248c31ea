"""What a session's Python workers print: nothing, also when Spark wants no more of their rows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.sweep]

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = """
import sys, time
from pathlib import Path
import pyarrow as pa
from engine import Catalog, session
spark = session("quiet", "local[1]", {"spark.ui.enabled": "false", "spark.log.level": "OFF",
    "spark.ui.showConsoleProgress": "false", "spark.sql.execution.arrow.maxRecordsPerBatch": "1000"})
schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])
table = Catalog(sys.argv[1]).create_table("d.t", schema, primary_key=["id"], options={"bucket": "1"})
for _ in range(2):
    table.write(pa.table({"id": list(range(300_000)), "v": ["x" * 50] * 300_000}, schema=schema))
place = {"warehouse": sys.argv[1], "table": "d.t"}
for _ in range(3):
    print(len(spark.read.format("fluvial").options(**place).load().limit(1).collect()))
    print(len(table.dataframe(spark).limit(1).collect()))
stream = spark.readStream.format("fluvial").options(**place, **{"read.changelog": "true"}).load()
query = stream.writeStream.format("noop").option("checkpointLocation", sys.argv[1] + "/c").start()
while not query.recentProgress and query.exception() is None:
    time.sleep(0.05)
commands = []
for path in Path("/proc").glob("[0-9]*"):
    try:
        if f"QUIET={sys.argv[1]}".encode() in (path / "environ").read_bytes():
            commands.append((path / "cmdline").read_text().split("\\0")[1:-1])
    except OSError:
        pass
print(["-m", "engine.runtime.stream_worker"] in [each[-2:] for each in commands], query.exception())
query.stop()
spark.stop()
"""


@pytest.mark.long
def test_limits_end_without_a_traceback_and_sources_run_in_our_module(tmp_path: Path) -> None:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("PYSPARK_")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        env=environment | {"PYTHONPATH": str(ROOT), "QUIET": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split("\n")[:7] == ["1"] * 6 + ["True None"]
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr
