"""The members of PySpark that are not public and have no public counterpart. No other module touches one.

``tests/engine/runtime/test_spark_internals.py`` fails, by name, when a release of PySpark lacks one.
"""

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


_HELPER: Final = "org.apache.spark.sql.execution.command.ViewHelper"
_LARGE_KEY: Final = "spark.sql.execution.arrow.useLargeVarTypes"
_arrow: "WeakKeyDictionary[Any, tuple[Any, Any]]" = WeakKeyDictionary()
_catalogs: "WeakKeyDictionary[SparkSession, Any]" = WeakKeyDictionary()
_heaps: "WeakKeyDictionary[Any, int]" = WeakKeyDictionary()
_kept: "WeakKeyDictionary[Any, Any]" = WeakKeyDictionary()  # by context, what knows the rows that it keeps
_views: "WeakKeyDictionary[Any, _ViewParts]" = WeakKeyDictionary()


def has_context() -> bool:
    """Whether a Spark context runs in this process."""
    from pyspark import SparkContext

    return SparkContext._active_spark_context is not None


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM without a context, with what must be known at its start: memory, Java options, jars."""
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))


def jvm_exit_code(wait_s: float) -> int | None:
    """Exit code of the JVM that this process started, negative for a signal; None: it runs, or another one started it.

    Args:
        wait_s: how long to wait for its end.
    """
    from pyspark import SparkContext

    process = getattr(SparkContext._gateway, "proc", None)
    if process is None:
        return None
    try:
        return int(process.wait(wait_s))
    except subprocess.TimeoutExpired:
        return None


def end_jvm() -> None:
    """End the JVM that this process started, in order, and wait for it; its session has been stopped."""
    from pyspark import SparkContext

    process = SparkContext._gateway.proc
    process.stdin.close()
    process.wait()


def jvm_frame(frame: "DataFrame") -> Any:
    """The JVM's object of a frame; None with Spark Connect."""
    return getattr(frame, "_jdf", None)


def jvm_session(spark: "SparkSession | None") -> Any:
    """The JVM's object of a session; None with Spark Connect, or without a session."""
    return getattr(spark, "_jsparkSession", None)


def jvm_of(spark: "SparkSession") -> tuple[Any, Any]:
    """py4j's gateway of a session, and the root of the names in its JVM; neither exists with Spark Connect."""
    context: Any = spark.sparkContext
    return context._gateway, context._jvm


def jvm_query(spark: "SparkSession", query_id: str | None) -> Any:
    """The JVM's object of a streaming query that runs; None: there is none of this id."""
    # The frame of a micro-batch is of a clone of the session, which does not list its query; the shared state does.
    running = jvm_session(spark).sharedState().activeStreamingQueries().values()
    return next((each for each in running if each.id().toString() == query_id), None)


def hadoop_setting(spark: "SparkSession", key: str) -> str | None:
    """A setting of Hadoop's configuration, which includes core-site.xml; None when it is not set."""
    found = spark.sparkContext._jsc.hadoopConfiguration().get(key)
    return None if found is None else str(found)


def heap_bytes(spark: "SparkSession") -> int:
    """The most memory that the heap of this process's JVM can take."""
    jvm: Any = spark.sparkContext._jvm
    found = _heaps.get(jvm)
    if found is None:
        found = _heaps[jvm] = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    return found


def keeps_rows(spark: "SparkSession") -> bool:
    """Whether the application keeps rows of any frame or table: ``cache()``, ``CACHE TABLE``."""
    session = jvm_session(spark)
    if session is None:
        return False
    found = _kept.get(spark.sparkContext)
    if found is None:
        found = _kept[spark.sparkContext] = session.sharedState().cacheManager()
    return not found.isEmpty()


def planned_bytes(frame: "DataFrame") -> int:
    """Bytes that a frame is computed from, as its plan knows: of files as they are stored; 2^63 - 1: unknown."""
    return int(jvm_frame(frame).queryExecution().optimizedPlan().stats().sizeInBytes())


def is_shuffled(frame: "DataFrame") -> bool:
    """Whether rows of a frame have come from other partitions; those that the frame needs for that are computed."""
    return "Shuffled" in jvm_frame(frame).queryExecution().toRdd().toDebugString()


def most_rows_of(frame: "DataFrame") -> int | None:
    """The number of rows that a frame cannot exceed, as its plan knows; None: any number."""
    found = jvm_frame(frame).queryExecution().optimizedPlan().maxRows()
    return int(found.get()) if found.isDefined() else None


def small_frame(spark: "SparkSession", rows: "pa.Table") -> "DataFrame":
    """Few rows as a frame, as `createDataFrame` makes it, which asks the JVM fifty times for its settings.

    Args:
        spark: the session.
        rows: texts and numbers are handed over in one file, all else as usual.
    """
    import pyarrow as pa
    from pyspark.sql.classic.dataframe import DataFrame
    from pyspark.sql.pandas.types import from_arrow_schema

    context: Any = spark.sparkContext
    kinds = (pa.types.is_string, pa.types.is_signed_integer, pa.types.is_boolean)
    is_plain = all(any(test(each) for test in kinds) for each in rows.schema.types)
    if not is_plain or context._encryption_enabled or spark.conf.get(_LARGE_KEY, "false") != "false":
        return spark.createDataFrame(rows)
    with tempfile.NamedTemporaryFile(dir=context._temp_dir) as file:
        with pa.ipc.new_stream(file, rows.schema) as stream:
            stream.write_table(rows)
        file.flush()
        schema, (read, made) = from_arrow_schema(rows.schema), _arrow_members(context._jvm)
        return DataFrame(made(read(file.name), schema.json(), jvm_session(spark)), spark)


def _arrow_members(jvm: Any) -> tuple[Any, Any]:
    """What reads a stream of Arrow, and what makes a frame of it: py4j asks for both at each use."""
    found = _arrow.get(jvm)
    if found is None:
        helper = jvm.PythonSQLUtils
        found = _arrow[jvm] = helper.readArrowStreamFromFile, helper.toDataFrame
    return found


def empty_frame(spark: "SparkSession", schema: "StructType") -> "DataFrame":
    """No rows of some columns: Spark leaves out what would be computed from them."""
    from pyspark.sql.classic.dataframe import DataFrame

    session = jvm_session(spark)
    if session is None:
        return spark.createDataFrame([], schema)
    context: Any = spark.sparkContext
    none, columns = context._jvm.java.util.ArrayList(), session.parseDataType(schema.json())
    return DataFrame(session.createDataFrame(none, columns), spark)


def sql_frame(spark: "SparkSession", text: str) -> "DataFrame":
    """A text without parameters, for which `SparkSession.sql` asks the JVM four times more."""
    from pyspark.sql.classic.dataframe import DataFrame

    session = jvm_session(spark)
    return spark.sql(text) if session is None else DataFrame(session.sql(text), spark)


def put_view(spark: "SparkSession", name: str, frame: "DataFrame") -> None:
    """Give a frame a name, as `createOrReplaceTempView`, whose command costs as much as planning a small query.

    Args:
        spark: the session.
        name: that no view has.
        frame: of the session; it is analysed.
    """
    session = jvm_session(spark)
    if session is not None:
        with suppress(Py4JError, TypeError):  # a Spark that makes views in another way
            parts = _view_parts(spark)
            plan = jvm_frame(frame).queryExecution().analyzed()
            view = parts.helper.createTemporaryViewRelation(
                parts.identifier(name),
                session,
                True,
                parts.no_views,
                parts.none,
                plan,
                plan,
                parts.no_names,
                parts.none,
            )
            _views_of(spark).createTempView(name, view, True)
            return
    frame.createOrReplaceTempView(name)


def drop_view(spark: "SparkSession", name: str) -> None:
    """Take the name of a frame away; none is no error."""
    session = jvm_session(spark)
    if session is None:
        spark.catalog.dropTempView(name)
    else:
        _views_of(spark).dropTempView(name)


def _views_of(spark: "SparkSession") -> Any:
    """What keeps the temporary views of a session, which the JVM is asked for once."""
    found = _catalogs.get(spark)
    if found is None:
        found = _catalogs[spark] = jvm_session(spark).sessionState().catalog()
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _ViewParts:
    """What a JVM makes a view of, asked for once."""

    helper: Any
    identifier: Any
    none: Any
    no_names: Any
    no_views: Any  # a function that knows no view of any name


def _view_parts(spark: "SparkSession") -> _ViewParts:
    """Raises: Py4JError: this Spark has none of these."""
    jvm = jvm_of(spark)[1]
    found = _views.get(jvm)
    if found is None:

        def scala_object(name: str) -> Any:
            return getattr(getattr(jvm, name + "$"), "MODULE$")

        found = _views[jvm] = _ViewParts(
            helper=scala_object(_HELPER),
            identifier=getattr(jvm, "org.apache.spark.sql.catalyst.TableIdentifier"),
            none=scala_object("scala.None"),
            no_names=scala_object("scala.collection.immutable.Nil"),
            no_views=scala_object("scala.PartialFunction").empty().lift(),
        )
    return found


def has_arrow_results() -> bool:
    """Whether this PySpark has what ``arrow_results`` needs."""
    from pyspark import util
    from pyspark.errors.exceptions import captured

    return hasattr(util, "_load_from_socket") and hasattr(captured, "unwrap_spark_exception")


@contextmanager
def arrow_results(frame: "DataFrame") -> Iterator[IO[bytes]]:
    """Compute a frame; within the block its rows can be read: one Arrow stream, batches as partitions are computed.

    Behind it are 4-byte numbers, big endian: how many batches there are, or -1 when the job failed, then the places of
    the batches in the frame's order. The block may end early, which fails the job.

    Raises:
        PySparkException: the frame cannot be computed.
    """
    from pyspark.errors.exceptions.captured import unwrap_spark_exception
    from pyspark.util import _load_from_socket

    port, secret, server = jvm_frame(frame).collectAsArrowToPython()
    try:
        with _load_from_socket((port, secret), _AsItIs()) as stream:
            yield stream
    finally:
        with unwrap_spark_exception():
            server.getResult()


class _AsItIs:
    """In place of a serializer of PySpark."""

    def load_stream(self, stream: IO[bytes]) -> IO[bytes]:
        return stream
