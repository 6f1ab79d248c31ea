"""Tables on every Spark 4: the ways that need nothing newer give the same on 4.0 and 4.1 as on today's."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine import Catalog
from engine.broker.broker import Broker
from logstore.kafka.clients import KafkaProperties
from tests.support.change_events import send
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


def run_on(release: str | None, directory: Path, module: str, *arguments: str) -> str:
    """Run a module with a release of PySpark, None: today's; what it prints."""
    environment = {key: value for key, value in os.environ.items() if key not in ("SPARK_HOME", "PYTHONPATH")}
    older = [] if release is None else [ROOT / f".venv-spark-{release}"]
    if release == "3.5":
        older = [*(ROOT / ".venv-bench").glob("lib/python*/site-packages")]
    places = (*older, ROOT, ROOT / "engine" / "plugin")
    environment |= {"PYTHONPATH": os.pathsep.join(map(str, places)), "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.long
@pytest.mark.sweep
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("release", "time", "stream"), [("4.0", NO_TIME, "needs Spark 4.1"), ("4.1", "[UNSUPPORTED_TIME_TYPE]", None)]
)
def test_an_older_spark_gives_the_same(
    today: dict[str, object], release: str, time: str, stream: str | None, tmp_path: Path
) -> None:
    printed = run_on(release, tmp_path, "tests.support.release_ways", str(tmp_path))
    found = json.loads(printed.splitlines()[-1])
    assert found.pop("version").startswith(f"{release}.")
    assert found == {
        **json.loads(json.dumps(today)),
        "time": time,
        "without a place": NO_PLACE,
        "format of a stream": stream,
    }


@pytest.mark.long
@pytest.mark.sweep
@pytest.mark.timeout(900)
def test_spark_35_has_the_sink_and_sql(tmp_path: Path) -> None:
    """Sources and formats in Python are of 4.0; what needs none works before."""
    found = json.loads(run_on("3.5", tmp_path, "tests.support.spark_35_ways", str(tmp_path)).splitlines()[-1])
    assert found.pop("version").startswith("3.5.")
    assert found == {
        "counts": [8],
        "done": [[1, 0, 0], [0, 1, 0]],
        "rows": [[0, "s"], [1, "m"], [99, "q"]],
    }


JOB = """\
name: loads
warehouse: {directory}/warehouse
tables:
  shop.orders: {{columns: {{id: BIGINT, name: STRING}}, primary_key: [id], options: {{bucket: "1", log.system: none}}}}
  shop.events: {{columns: {{id: BIGINT, name: STRING}}, options: {{bucket: "-1", log.system: none}}}}
pipelines:
  - name: files
    source: {{format: json, columns: {{id: BIGINT, name: STRING}}, options: {{path: {directory}/in}}}}
    target: shop.orders
    checkpoint: {directory}/files
    trigger: available-now
  - name: topic
    source:
      format: kafka
      options: {{kafka.bootstrap.servers: "{servers}", subscribe: {topic}, value.format: json}}
    target: shop.events
    checkpoint: {directory}/topic
    trigger: available-now
spark: {{master: "local[2]", conf: {{spark.ui.enabled: "false"}}}}
"""


@pytest.mark.soak
@pytest.mark.sweep
@pytest.mark.timeout(900)
def test_a_job_continues_on_another_spark_where_it_was(
    tmp_path: Path, broker: Broker, kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    """An upgrade, and two downgrades: files and a topic, each change once, on the session of ``fluvial run``."""
    topic = new_topic()
    text = JOB.format(directory=tmp_path, servers=broker.bootstrap_servers, topic=topic)
    (tmp_path / "in").mkdir()
    (tmp_path / "job.yaml").write_text(text, encoding="utf-8")
    names = ["4.0", "today", "4.1", "4.0"]
    for run, release in enumerate(names):
        change = f'{{"id": {run}, "name": "{release}"}}'
        (tmp_path / "in" / f"{run}.json").write_text(f"{change}\n", encoding="utf-8")
        send(kafka, (topic, str(run).encode(), change.encode()))
        run_on(None if release == "today" else release, tmp_path, "fluvial", "run", "job.yaml", "--quiet")
        for name in ("shop.orders", "shop.events"):
            snapshot = Catalog(str(tmp_path / "warehouse")).table(name).latest_snapshot()
            assert snapshot is not None
            assert (snapshot.id, snapshot.delta_record_count) == (run + 1, 1), (name, release)
    for name in ("shop.orders", "shop.events"):
        rows = Catalog(str(tmp_path / "warehouse")).table(name).read().to_arrow().sort_by("id")
        assert rows.column("name").to_pylist() == names
