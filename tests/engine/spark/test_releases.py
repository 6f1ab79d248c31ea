"""Tables on every Spark 4: the ways that need nothing newer give the same on 4.0 and 4.1 as on today's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.support.release_ways import ways

ROOT = Path(__file__).resolve().parents[3]
NO_PLACE = "before 4.2 Spark does not tell"
NO_TIME = "type has no spark equivalent: type=TIME"


@pytest.fixture(scope="module")
def today(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    return ways(spark.newSession(), tmp_path_factory.mktemp("today"))


def test_todays_spark_writes_and_follows(today: dict[str, object]) -> None:
    assert today["statements"] == [
        [1, "a", "2026-01-02 03:04:05.000006", None],
        [2, "m", None, None],
        [4, "n", None, None],
    ]
    assert today["past"] == [[3]]
    assert today["ids"] == [1, 2, 4, *range(10, 20), *range(110, 120), 200]
    assert today["followed"] == [
        [["+I", each] for each in (1, 2, 4, *range(10, 20), *range(110, 120), 200)],
        [["+I", 300], ["+I", 301], ["-D", 200]],
    ]
    assert (today["batch"], today["frame"], today["system"], today["batches"]) == (5, [20, 20], True, True)
    assert (today["time"], today["without a place"], today["format of a stream"]) == (None, None, None)


@pytest.mark.long
@pytest.mark.sweep
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("release", "time", "stream"), [("4.0", NO_TIME, "needs Spark 4.1"), ("4.1", "[UNSUPPORTED_TIME_TYPE]", None)]
)
def test_an_older_spark_gives_the_same(
    today: dict[str, object], release: str, time: str, stream: str | None, tmp_path: Path
) -> None:
    older = ROOT / f".venv-spark-{release}"
    environment = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "PYTHONPATH")}
    places = (older, ROOT, ROOT / "engine" / "plugin")
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, places)), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.release_ways", str(tmp_path)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found.pop("version").startswith(f"{release}.")
    assert found == {
        **json.loads(json.dumps(today)),
        "time": time,
        "without a place": NO_PLACE,
        "format of a stream": stream,
    }
