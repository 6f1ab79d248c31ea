"""The catalog gives the same on both releases of Spark that are known."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.peers.delta import OLDER_SPARK
from tests.support.catalog_statements import outcomes

ROOT = Path(__file__).resolve().parents[4]


@pytest.mark.long
@pytest.mark.sweep
@pytest.mark.timeout(900)  # two Sparks, one after the other
def test_the_catalog_gives_the_same_on_spark_4_2_and_4_3(spark: SparkSession, tmp_path: Path) -> None:
    """Issue 19, 1: "works on 4.2 and 4.3, tested on both"."""
    here = outcomes(spark, tmp_path / "here")
    environment = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "PYTHONPATH")}
    environment |= {"PYTHONPATH": os.pathsep.join((str(OLDER_SPARK), str(ROOT))), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.catalog_statements", str(tmp_path / "there")],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    there = json.loads(done.stdout.splitlines()[-1])
    assert there.pop("version").startswith("4.2.")
    assert there == here
    assert here["SELECT id, v, to_json(j) FROM t ORDER BY id"] == [
        ["1", "m", '{"n":1}'],
        ["2", "z", "None"],
        ["4", "n", "None"],
    ]
    assert here["SELECT n FROM seen"] == [["3"]]
    assert here["SELECT * FROM nothing"] == ["AnalysisException", "TABLE_OR_VIEW_NOT_FOUND"]
    assert here["INSERT INTO t (id, v) VALUES (9, 'long')"] == ["SparkRuntimeException", "EXCEED_LIMIT_LENGTH"]
    assert here["written"] == [[0, "0"], [1, "1"], [2, "x"]]
    assert here["streamed"] == [[0, "0"], [1, "1"], [2, "2"]]
    assert here["plan"]
