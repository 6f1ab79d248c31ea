"""Spark's Python workers are of another release than the driver: writers end before a row is written, and say why.

With a real interpreter of another minor release, beside this one, as pyenv lays them out, or on the path.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog

_SAY = "import sys; print(*sys.version_info[:2])"
_WAYS = """
import sys
import engine
from engine import Catalog, sink
warehouse, way = sys.argv[1:]
spark = engine.session(master="local[2]", conf={"spark.ui.enabled": "false"})
table = Catalog(warehouse).table("d.t")
rows = spark.createDataFrame([(3, "c")], "id long, v string")
if way == "append":
    table.append(rows)
else:
    rows.write.parquet(warehouse + "/in")
    source = spark.readStream.schema(rows.schema).parquet(warehouse + "/in")
    query = source.writeStream.foreachBatch(sink(table, {"sink.writer": "tasks"})).trigger(availableNow=True)
    query.option("checkpointLocation", warehouse + "/checkpoint").start().awaitTermination()
"""


def named_others() -> list[Path]:
    """What is called an interpreter of another minor release. None is started yet: every run of tests comes here."""
    own = [str(number) for number in sys.version_info[:2]]
    beside = (each for each in Path(sys.base_prefix).parent.glob("3.*") if each.name.split(".")[:2] != own)
    names = (f"python3.{minor}" for minor in range(10, 20) if minor != sys.version_info.minor)
    return [
        *(each / "bin" / "python3" for each in beside),
        *(Path(found) for name in names if (found := shutil.which(name))),
    ]


def other_python() -> Path:
    """The interpreter of the newest other minor release."""
    found: dict[tuple[int, int], Path] = {}
    for path in OTHERS:
        if not path.exists():
            continue
        said = subprocess.run([path, "-c", _SAY], capture_output=True, text=True, check=False)
        if said.returncode == 0:
            major, minor = map(int, said.stdout.split())
            found.setdefault((major, minor), path)
    found.pop(sys.version_info[:2], None)
    assert found, f"none of these starts: {OTHERS}"
    return found[max(found)]


OTHERS = named_others()
if OTHERS:

    @pytest.mark.soak
    @pytest.mark.spark
    @pytest.mark.parametrize("way", ["append", "sink"])
    def test_workers_of_another_release_are_refused_before_a_row_is_written(way: str, tmp_path: Path) -> None:
        schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
        table = Catalog(str(tmp_path)).create_table("d.t", schema, primary_key=["id"], options={"bucket": "2"})
        table.write(pa.table({"id": [1, 2], "v": ["a", "b"]}, schema=schema))
        before = table.latest_snapshot()
        done = subprocess.run(
            [sys.executable, "-c", _WAYS, str(tmp_path), way],
            env={**os.environ, "PYSPARK_PYTHON": str(other_python())},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode != 0, done.stdout
        assert re.search("PYTHON_VERSION_MISMATCH|another version than the driver", done.stderr), done.stderr[-3000:]
        assert table.latest_snapshot() == before
        assert not list(tmp_path.rglob("data-*"))[2:]
