"""A session suits pipelines, and never changes what its user gave."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine.broker.broker import Broker
from engine.catalog import Catalog
from engine.cli.app import run_command
from engine.runtime.spark_settings import spark_setting
from engine.spark.class_archive import SUBMIT_OPTIONS, SWITCH
from engine.spark.session import (
    LOCAL_CHECKPOINT_SETTINGS,
    LOCAL_SETTINGS,
    SETTINGS,
    checkpoint_settings,
    session,
    submit_settings,
)
from logstore.kafka.clients import ErrorNotes, KafkaProperties

pytestmark = pytest.mark.spark

ROOT = Path(__file__).resolve().parents[3]
ABOUT_THE_WORKER = "executable string, frozen bigint, has_engine boolean"


def about_the_worker(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import gc  # runs in another process
    import sys

    facts = {"executable": [sys.executable], "frozen": [gc.get_freeze_count()]}
    yield pa.RecordBatch.from_pydict(facts | {"has_engine": ["engine.kafka.readers" in sys.modules]})


def output_of(home: Path, command: list[str]) -> str:
    """What a script prints that finds Fluvial on its path, in a process of its own."""
    done = subprocess.run(
        command,
        env=environment_of(home, ROOT, ROOT / "engine" / "plugin") | {"PYSPARK_PYTHON": sys.executable},
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_workers_run_this_interpreter_and_have_our_modules_before_they_start(spark: SparkSession) -> None:
    [facts] = spark.range(0, 1, 1, 1).mapInArrow(about_the_worker, ABOUT_THE_WORKER).collect()
    assert facts.executable == sys.executable
    assert facts.frozen > 10_000
    assert facts.has_engine


def parents_of_workers(spark: SparkSession) -> tuple[int, int]:
    """The daemons that forked a worker for a task of a frame, and one for a task of any other kind."""

    def parent(_: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os  # runs in another process

        yield pa.RecordBatch.from_pydict({"pid": [os.getppid()]})

    [of_frame] = spark.range(0, 1, 1, 1).mapInArrow(parent, "pid bigint").collect()
    [of_other] = spark.sparkContext.parallelize([0], 1).map(lambda _: __import__("os").getppid()).collect()
    return of_frame.pid, of_other


def test_tasks_of_every_kind_share_one_daemon(spark: SparkSession) -> None:
    """Issue 17: each daemon imports all modules, and has workers of its own."""
    of_frame, of_other = parents_of_workers(spark)
    assert of_frame == of_other
    with spark_setting(spark, "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled", "true"):
        of_frame, of_other = parents_of_workers(spark)
        assert of_frame != of_other, "Spark's default does not cost a daemon any more: leave our setting out"


def test_our_settings_are_in_force_where_the_user_gave_none(spark: SparkSession) -> None:
    for key, value in {**SETTINGS, **LOCAL_SETTINGS}.items():
        assert spark.conf.get(key) == value
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"  # as the fixture says


def test_a_session_that_runs_is_taken_as_it_is(spark: SparkSession) -> None:
    codec = "spark.sql.parquet.compression.codec"
    with spark_setting(spark, "spark.sql.adaptive.enabled", "true"), spark_setting(spark, codec, "gzip"):
        again = session(conf={codec: "zstd"})
        assert again.sparkContext is spark.sparkContext
        assert again.conf.get("spark.sql.adaptive.enabled") == "true"
        assert again.conf.get(codec) == "zstd"


@pytest.mark.parametrize("location", ["/data/checkpoint", "file:///data/checkpoint", "relative/path"])
def test_checkpoints_on_a_local_disk_get_their_own_settings_for_a_while(spark: SparkSession, location: str) -> None:
    with checkpoint_settings(spark, location):
        assert {key: spark.conf.get(key) for key in LOCAL_CHECKPOINT_SETTINGS} == dict(LOCAL_CHECKPOINT_SETTINGS)
    assert all(spark.conf.get(key, None) is None for key in LOCAL_CHECKPOINT_SETTINGS)


@pytest.mark.parametrize("location", ["s3a://bucket/checkpoint", "hdfs://host/checkpoint"])
def test_checkpoints_elsewhere_are_left_to_spark(spark: SparkSession, location: str) -> None:
    with checkpoint_settings(spark, location):
        assert all(spark.conf.get(key, None) is None for key in LOCAL_CHECKPOINT_SETTINGS)


def test_what_the_user_chose_for_checkpoints_stays(spark: SparkSession) -> None:
    key = "fs.file.impl"
    with spark_setting(spark, key, "users.choice"):
        with checkpoint_settings(spark, "/data/checkpoint"):
            assert spark.conf.get(key) == "users.choice"
        assert spark.conf.get(key) == "users.choice"


def test_the_defaults_file_of_spark_wins_over_ours_and_conf_wins_over_it(tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.sql.session.timeZone Europe/Paris\nspark.sql.adaptive.enabled true\nspark.master local[1]\n"
    )
    script = (
        "import json\nfrom engine import session\n"
        "spark = session('probe', conf={'spark.sql.adaptive.enabled': 'false', 'spark.ui.enabled': 'false'})\n"
        "keys = ('spark.sql.session.timeZone', 'spark.sql.adaptive.enabled', 'spark.master', 'spark.app.name',"
        " 'spark.driver.host')\n"
        "print(json.dumps([spark.conf.get(key) for key in keys]))\n"
    )
    environment = environment_of(tmp_path, ROOT) | {"SPARK_CONF_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["Europe/Paris", "false", "local[1]", "probe", "127.0.0.1"]


NO_SESSION_OF_OURS = """
import json, sys
from pyspark.sql import SparkSession
conf = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.log.level": "OFF"}
spark = SparkSession.builder.master("local[1]").config(map=conf).getOrCreate()
def count(spark):
    fluvial = spark.read.format("fluvial").option("warehouse", sys.argv[1]).option("table", "db.t").load()
    kafka = spark.read.format("fluvial-kafka").option("kafka.bootstrap.servers", sys.argv[2])
    return [fluvial.count(), kafka.option("subscribe", sys.argv[3]).load().count()]
found = [count(spark)]
if "engine" in sys.argv:
    from engine import session
    found.append(count(session()))
print(json.dumps(found))
"""


def environment_of(home: Path, *paths: Path) -> dict[str, str]:
    """No more than a shell has: our packages are found at these places, or where they are installed.

    And what makes a JVM of tests quick to start, see class_archive.py.
    """
    shell = {"PATH": "/usr/bin:/bin", "HOME": str(home), "PYTHONPATH": ":".join(map(str, paths))}
    return shell | {key: os.environ[key] for key in (SUBMIT_OPTIONS, SWITCH)}


@pytest.mark.broker
def test_both_sources_are_known_to_any_session_by_installation_alone(
    tmp_path: Path, broker: Broker, kafka: KafkaProperties, new_topic: Callable[..., str]
) -> None:
    """And a session of ours on top of such a one does not mind."""
    topic = new_topic()
    producer = kafka.producer(ErrorNotes(), transactional_id=None)
    for _ in range(3):
        producer.produce(topic, b"value")
    producer.flush(30)
    schema = pa.schema([("id", pa.int64())])
    Catalog(str(tmp_path)).create_table("db.t", schema, primary_key=["id"]).write(pa.table({"id": [1, 2]}))
    output = output_of(
        tmp_path,
        [sys.executable, "-c", NO_SESSION_OF_OURS, str(tmp_path), broker.bootstrap_servers, topic, "engine"],
    )
    assert json.loads(output) == [[2, 3], [2, 3]]


CONFIGURED_ALONE = """
import gc, json, sys
import pyarrow as pa
from pyspark.sql import SparkSession
def frozen(batches):
    import gc
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"count": [gc.get_freeze_count()]})
spark = SparkSession.builder.getOrCreate()
place = {"warehouse": sys.argv[1], "table": "db.t"}
changes = spark.readStream.format("fluvial").options(**place).option("read.changelog", True).load()
writer = changes.writeStream.format("fluvial").options(warehouse=sys.argv[1], table="db.copy")
query = writer.option("checkpointLocation", sys.argv[1] + "/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
[found] = spark.range(0, 1, 1, 1).mapInArrow(frozen, "count bigint").collect()
keys = json.loads(sys.argv[2])
print(json.dumps([[spark.conf.get(key) for key in keys], found["count"] > 10_000]))
"""


@pytest.mark.long
def test_configuration_alone_makes_a_session_of_spark_submit_as_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``fluvial spark-conf`` for a script that never imports Fluvial; the user's own --conf wins."""
    catalog = Catalog(str(tmp_path))
    schema = pa.schema([("id", pa.int64())])
    catalog.create_table("db.t", schema, primary_key=["id"]).write(pa.table({"id": [1, 2]}))
    copy = catalog.create_table("db.copy", schema, primary_key=["id"])
    assert run_command(["spark-conf", "--local", "--properties"]) == 0
    (tmp_path / "fluvial.conf").write_text(capsys.readouterr().out)
    (tmp_path / "script.py").write_text(CONFIGURED_ALONE)
    expected = submit_settings(is_local=True) | {"spark.sql.session.timeZone": "Europe/Paris"}
    submit = [str(Path(sys.executable).parent / "spark-submit"), "--master", "local[2]"]
    submit += ["--conf", "spark.ui.enabled=false", "--properties-file", str(tmp_path / "fluvial.conf")]
    submit += ["--conf", "spark.sql.session.timeZone=Europe/Paris"]
    output = output_of(
        tmp_path,
        [
            *submit,
            "--conf",
            "spark.ui.enabled=false",
            str(tmp_path / "script.py"),
            str(tmp_path),
            json.dumps(list(expected)),
        ],
    )
    assert json.loads(output.splitlines()[-1]) == [list(expected.values()), True]
    assert copy.read().to_arrow().num_rows == 2
    assert not list((tmp_path / "checkpoint").rglob("*.crc")), "checkpoints are written the fast way"


OVER_CONNECT = """
import sys
from pyspark.sql import SparkSession
from engine import Catalog, sink
spark = SparkSession.builder.remote("local[2]").getOrCreate()
place, home = {"warehouse": sys.argv[1], "table": "db.t"}, sys.argv[1]
read = spark.read.format("fluvial").options(**place).load()
print(type(spark).__module__, read.count())
rest = Catalog(home).table("db.vectors").dataframe(spark)
print(sum(row["id"] for row in rest.collect()), any(name.endswith(".parquet") for name in rest.inputFiles()))
spark.createDataFrame([(3,)], "id bigint").write.format("fluvial").options(**place).mode("append").save()
changes = spark.readStream.format("fluvial").options(**place).option("read.changelog", True).load()
def run(writer, checkpoint):
    query = writer.option("checkpointLocation", home + checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
run(changes.writeStream.format("fluvial").options(warehouse=home, table="db.copy"), "/c1")
for attempt in range(3):  # on a busy machine a worker of Spark's may not connect within its 10 s
    try:
        run(changes.writeStream.foreachBatch(sink(Catalog(home).table("db.copy"))), f"/c2-{attempt}")
    except Exception as error:
        is_ours = "Spark Connect does not give" in str(error)
        if is_ours:
            break
        print(error, file=sys.stderr)
print(is_ours)
spark.stop()
"""


@pytest.mark.timeout(700)
def test_tables_are_read_and_written_over_spark_connect(tmp_path: Path) -> None:
    """Batch and stream, by ``format("fluvial")``; ``foreachBatch(sink(…))`` is refused with what to do instead.

    Spark's own scan leaves out deleted rows there too.
    """
    catalog = Catalog(str(tmp_path))
    schema = pa.schema([("id", pa.int64())])
    catalog.create_table("db.t", schema, primary_key=["id"]).write(pa.table({"id": [1, 2]}))
    copy = catalog.create_table("db.copy", schema, primary_key=["id"])
    vectors = catalog.create_table(
        "db.vectors", schema, primary_key=["id"], options={"deletion-vectors.enabled": "true"}
    )
    vectors.write(pa.table({"id": range(10)}))
    vectors.compact(full=True)
    vectors.write(pa.table({"id": [1, 7], "_row_kind": ["-D", "-D"]}))
    vectors.compact()
    (tmp_path / "spark-defaults.conf").write_text("spark.ui.enabled false\n")
    # the last one: a port that nobody else has
    more = {"PYSPARK_PYTHON": sys.executable, "SPARK_CONF_DIR": str(tmp_path), "SPARK_TESTING": "1"}
    done = subprocess.run(
        [sys.executable, "-c", OVER_CONNECT, str(tmp_path)],
        env=environment_of(tmp_path, ROOT, ROOT / "engine" / "plugin") | more,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=650,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == ["pyspark.sql.connect.session", "2", "37", "True", "True"], done.stderr[-3000:]
    assert copy.read().to_arrow().num_rows == 3
