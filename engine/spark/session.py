"""A Spark session that suits pipelines: small batches with little delay, the same interpreter everywhere, no jars.

Settings of the user (``conf``, spark-defaults.conf, ``spark-submit --conf``) override these defaults.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pyspark
from pyspark import SparkConf
from pyspark.errors import PySparkRuntimeError
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from engine.broker.jars import find_java
from engine.kafka.source import KafkaSource
from engine.runtime import stream_worker
from engine.spark.class_archive import class_sharing
from engine.spark.data_source import FluvialDataSource
from engine.spark.worker_server import start_worker_server
from engine.spark_internals.session import CHECKPOINT_FILES, hadoop_setting, has_context, start_jvm
from lsm.errors import InvalidInputError

# ---- Which interpreter Spark's Python workers run, for sessions that this process starts


LAUNCHER: Final = str(Path(stream_worker.__file__).with_name("worker-python"))
"""Starts ``FLUVIAL_WORKER_PYTHON``; see there."""

_INTERPRETER: Final = "FLUVIAL_WORKER_PYTHON"
_KEYS: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_MASTER: Final = "spark.master"


def set_worker_python(given: Mapping[str, str]) -> None:
    """Name the interpreter of workers in this process's environment, which the JVM inherits; what is named, stays.

    Workers run the interpreter of this process: else they run whatever ``python3`` is on the PATH. On a local master
    they are started by `LAUNCHER`; executors on other machines may not have it.

    Args:
        given: the settings of the session.
    """
    is_launched = os.access(LAUNCHER, os.X_OK) and is_local(given)
    if is_launched:
        os.environ[_INTERPRETER] = sys.executable
    for key in _KEYS:
        named = os.environ.get(key)
        if named in (None, sys.executable, LAUNCHER):  # the latter two: by an earlier session
            os.environ[key] = LAUNCHER if is_launched else sys.executable


def is_local(given: Mapping[str, str]) -> bool:
    """Whether a session will run in this machine alone, as far as can be seen before the JVM starts.

    Args:
        given: its settings; without a master, defaults files and the arguments of spark-submit may name another one.
    """
    if _MASTER in given:
        return given[_MASTER].startswith("local") and not given[_MASTER].startswith("local-cluster")
    environment = os.environ
    if not environment.keys().isdisjoint({"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "MASTER", "SPARK_REMOTE"}):
        return False
    home = environment.get("SPARK_HOME", os.path.dirname(pyspark.__file__))
    return not Path(environment.get("SPARK_CONF_DIR", f"{home}/conf"), "spark-defaults.conf").exists()


# ---- A Spark session that suits pipelines: small batches with little delay, the same interpreter everywhere, no jars


REDACTED: Final = (
    "(?i)secret|passw|passphrase|token|credential|jaas|private|user[._-]?info|access[._-]?key|account[._-]key|api_?key"
    "|[._-]sas[._-]|[._-](pem|sas|auth|config)(=|$)|://[^/:@]*:.*@"
    "|(?<!primary)(?<!bucket)(?<!partition)(?<!index)(?<!nested)(?<!sort)(?<!catalog)(?<!clustering)[._-]key(=|$)"
)
"""Of keys and values of settings and options; what is hidden elsewhere has ``lsm.secret_names``."""

TIME_SWITCH: Final = "spark.sql.timeType.enabled"

SETTINGS: Final[Mapping[str, str]] = {
    # Rows between the JVM and Python pass through a socket of the kernel's instead of the network stack: 5 to 40 ms
    # per batch.
    "spark.python.unix.domain.socket.enabled": "true",
    # A micro-batch knows how its rows are spread (by bucket), so re-planning between stages only costs: about 20 ms
    # per batch.
    "spark.sql.adaptive.enabled": "false",
    # Vectorised work pays per Arrow batch: 65,536 rows make the fixed cost small; the bytes of a batch stay bounded
    # by Spark's spark.sql.execution.arrow.maxBytesPerBatch.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Spark hides what it knows as secrets in plans, its UI and its event log, by key or value: not those of Kafka's
    # clients and of stores.
    "spark.redaction.regex": REDACTED,
    # Else tasks of sources and tasks of frames differ in their environment, and each kind gets a daemon of its own with
    # workers of its own in every executor: 0.9 s of processor time for its imports. Errors show the whole traceback.
    "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled": "false",
    # Tables have columns of TIME, which Spark has behind a switch.
    TIME_SWITCH: "true",
    # Text and timestamps convert the same way on every machine.
    "spark.sql.session.timeZone": "UTC",
}
"""Settings for every master."""

LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    # A laptop's host name may resolve to an address that is gone after the next change of network.
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # Driver and executor are one process: a machine that was asleep for minutes has lost none of them. With Spark's
    # default of two minutes the JVM ends itself, up to ten minutes later.
    "spark.storage.blockManagerHeartbeatTimeoutMs": "2592000000",
    # See engine/worker_daemon.py; elsewhere it is not known whether the executors have it.
    "spark.python.daemon.module": "engine.worker_daemon",
    # Spark's default asks the operating system for file status through child processes (33 ms for each of the two or
    # three files of a batch). This manager, which Spark itself takes where a file system has nothing better, does the
    # same look, write and rename by plain calls of the file system (11 ms).
    "spark.sql.streaming.checkpointFileManagerClass": CHECKPOINT_FILES,
}
"""Settings for local masters only."""

LOCAL_CHECKPOINT_SETTINGS: Final[Mapping[str, str]] = {
    # No checksum file beside each file of a checkpoint, which ext4 and its like do not need (4 ms).
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    # Else Hadoop hands out the checksumming object that it has already made for this scheme.
    "fs.file.impl.disable.cache": "true",
}
"""Settings while a query with a checkpoint on a local disk starts; the query keeps its own copy."""

_HADOOP_PREFIX: Final = "spark.hadoop."
_SOURCES: Final = {"pyspark_fluvial": FluvialDataSource, "pyspark_fluvial_kafka": KafkaSource}


def session(
    app_name: str = "fluvial", master: str | None = None, conf: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with Fluvial's settings where the user gave none, and with Fluvial's sources registered.

    A session that already runs is used as it is: only ``conf`` is applied to it.

    Args:
        app_name: name in Spark's UI.
        master: ``local[4]``, ``spark://...``; None = what spark-submit or the defaults file say, else ``local[*]``.
        conf: settings that win over all others.
    """
    _log_errors_once()
    given = dict(conf or {})
    if has_context():
        return with_sources(_built(given))

    if master is not None:
        given["spark.master"] = master
    # Workers take the interpreter and module path from the environment of the JVM, so both are set before it starts.
    set_worker_python(given)
    _make_importable()
    if os.environ["PYSPARK_PYTHON"] == LAUNCHER:
        start_worker_server(os.environ)  # it imports while the JVM starts
    given["spark.app.name"] = app_name
    # Once the JVM runs, the settings of spark-defaults.conf and spark-submit can be read.
    with class_sharing():
        _start_jvm(given)
    settled = dict(SparkConf().getAll()) | given
    is_local = settled.get("spark.master", "local").startswith("local")
    defaults = {**SETTINGS, **(LOCAL_SETTINGS if is_local else {})}
    spark = _built(given | {key: value for key, value in defaults.items() if key not in settled})
    if is_local and "spark.sql.shuffle.partitions" not in settled:
        # 200 tasks of nothing cost seconds on a machine with few cores
        spark.conf.set("spark.sql.shuffle.partitions", str(spark.sparkContext.defaultParallelism))
    return with_sources(spark)


def submit_settings(*, is_local: bool) -> dict[str, str]:
    """The settings that make a session of spark-submit or spark-defaults.conf as fast as one of ``session``.

    Args:
        is_local: for a local master, with checkpoints on a local disk.
    """
    if not is_local:
        return dict(SETTINGS)
    checkpoints = {
        key if key.startswith("spark.") else f"{_HADOOP_PREFIX}{key}": value
        for key, value in LOCAL_CHECKPOINT_SETTINGS.items()
    }
    return {**SETTINGS, **LOCAL_SETTINGS, **checkpoints}


@contextmanager
def checkpoint_settings(spark: SparkSession, location: str) -> Iterator[None]:
    """While a streaming query is started: settings that make its checkpoint fast, if ``location`` is on a local disk.

    Args:
        spark: the session that starts the query.
        location: path or URL of the checkpoint.
    """
    if not _is_local_path(spark, location):
        yield
        return
    added = [key for key in LOCAL_CHECKPOINT_SETTINGS if spark.conf.get(key, None) is None]
    for key in added:
        spark.conf.set(key, LOCAL_CHECKPOINT_SETTINGS[key])
    try:
        yield
    finally:
        for key in added:
            spark.conf.unset(key)


def _log_errors_once() -> None:
    """PySpark logs each error of a statement with the JVM's stack, before it raises the same error."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _start_jvm(settings: Mapping[str, str]) -> None:
    """Start Java. Raises: InvalidInputError: it is missing, or too old."""
    try:
        start_jvm(settings)
    except PySparkRuntimeError as error:
        find_java()  # the usual reasons have errors of their own
        raise InvalidInputError(
            f"Java ended before Spark had started: java_home={os.environ.get('JAVA_HOME')} reason={error} "
            "fix='its own words are above, or in the log of Spark: options of the JVM, or no memory'"
        ) from error


def _built(conf: Mapping[str, str]) -> SparkSession:
    builder = SparkSession.builder
    for key, value in conf.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def with_sources(spark: SparkSession) -> SparkSession:
    """Spark finds the sources of an installed Fluvial and refuses to register them again; else they are registered."""
    for module, source in _SOURCES.items():
        if find_spec(module) is None:
            spark.dataSource.register(source)
    return spark


def _make_importable() -> None:
    """Workers find Fluvial's packages even when they run from a checkout that is not installed."""
    root = str(Path(__file__).resolve().parents[2])
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if "site-packages" not in root and root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *filter(None, paths)])


def _is_local_path(spark: SparkSession, location: str) -> bool:
    scheme = urlsplit(location).scheme
    if not scheme:
        # core-site.xml may say that a path without a scheme is on HDFS
        scheme = urlsplit(hadoop_setting(spark, "fs.defaultFS") or "").scheme
    return scheme == "file"
