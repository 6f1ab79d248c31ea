"""Sessions, frames and settings in Spark's JVM, where PySpark has no public counterpart.

``tests/engine/spark_internals/test_session.py`` fails, by name, when a release of PySpark lacks one.
"""

import inspect
import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import IO, TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

from lsm.errors import InvalidInputError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


JvmError: Final = Py4JError
"""The JVM does not answer, has ended, or has no such member; PySpark turns Spark's own errors into its own classes."""

_ABSENT: Final = (Py4JError, AttributeError, ImportError, TypeError)  # a release without the member
_UNKNOWN_BYTES: Final = 2**63 - 1  # as Spark says it
_TABLES: Final = ("UnresolvedRelation", "UnresolvedTable", "UnresolvedTableOrView", "UnresolvedView")
_DATABASES: Final = ("UnresolvedNamespace", "CurrentNamespace")
_HELPER: Final = "org.apache.spark.sql.execution.command.ViewHelper"
_THRIFT_SERVER: Final = "org.apache.spark.sql.hive.thriftserver.HiveThriftServer2"
_CHECKPOINTS: Final = "" if pyspark.__version__.startswith("4.0.") else "checkpointing."
CHECKPOINT_FILES: Final = f"org.apache.spark.sql.execution.streaming.{_CHECKPOINTS}FileSystemBasedCheckpointFileManager"
"""What writes the files of a checkpoint by plain calls of the file system."""
_LARGE_KEY: Final = "spark.sql.execution.arrow.useLargeVarTypes"
_arrow: "WeakKeyDictionary[Any, tuple[Any, Any]]" = WeakKeyDictionary()
_catalogs: "WeakKeyDictionary[SparkSession, Any]" = WeakKeyDictionary()
_heaps: "WeakKeyDictionary[Any, int]" = WeakKeyDictionary()
_kept: "WeakKeyDictionary[Any, Any]" = WeakKeyDictionary()  # by context, what knows the rows that it keeps
_views: "WeakKeyDictionary[Any, _ViewParts]" = WeakKeyDictionary()


@contextmanager
def _needed(member: str) -> Iterator[None]:
    """Raises: InvalidInputError: this release of Spark has no such member, and there is no other way."""
    try:
        yield
    except (AttributeError, ImportError) as error:
        raise InvalidInputError(
            f"this release of Spark lacks what Fluvial needs: spark={pyspark.__version__} member={member} "
            "fix='use a release of Spark that docs/spark-releases.md names'"
        ) from error


def is_lost_connection(error: BaseException | None) -> bool:
    """Whether an error, or one that it comes from, is that the JVM has closed its connections."""
    while error is not None:
        if isinstance(error, ConnectionError | EOFError | Py4JNetworkError):
            return True
        error = error.__cause__ or error.__context__
    return False


def has_context() -> bool:
    """Whether a Spark context runs in this process."""
    from pyspark import SparkContext

    return getattr(SparkContext, "_active_spark_context", None) is not None


def start_jvm(settings: Mapping[str, str]) -> None:
    """Start the JVM without a context, with what must be known at its start: memory, Java options, jars."""
    from pyspark import SparkConf, SparkContext

    with _needed("SparkContext._ensure_initialized"):
        SparkContext._ensure_initialized(conf=SparkConf(loadDefaults=False).setAll(list(settings.items())))


def jvm_exit_code(wait_s: float) -> int | None:
    """Exit code of the JVM that this process started, negative for a signal; None: it runs, or another one started it.

    Args:
        wait_s: how long to wait for its end.
    """
    from pyspark import SparkContext

    process = getattr(getattr(SparkContext, "_gateway", None), "proc", None)
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
    with _needed("SparkContext._gateway"):
        return context._gateway, context._jvm


def jvm_query(spark: "SparkSession", query_id: str | None) -> Any:
    """The JVM's object of a streaming query that runs; None: there is none of this id."""
    # The frame of a micro-batch is of a clone of the session, which does not list its query; the shared state does.
    with suppress(*_ABSENT):
        running = jvm_session(spark).sharedState().activeStreamingQueries().values()
        return next((each for each in running if each.id().toString() == query_id), None)
    return None


def when_query_ends(spark: "SparkSession", query_id: str, act: Callable[[], None]) -> None:
    """Call a function, in a thread of its own, when a streaming query has ended; at once if it does not run."""
    query = jvm_query(spark, query_id)

    def wait() -> None:
        with suppress(Exception):  # that of the query, or the JVM has ended
            query.awaitTermination()
        act()

    threading.Thread(target=wait, name="fluvial-query", daemon=True).start()


def hadoop_setting(spark: "SparkSession", key: str) -> str | None:
    """A setting of Hadoop's configuration, which includes core-site.xml; None when it is not set."""
    with _needed("SparkContext._jsc"):
        found = spark.sparkContext._jsc.hadoopConfiguration().get(key)
    return None if found is None else str(found)


def heap_bytes(spark: "SparkSession") -> int:
    """The most memory that the heap of this process's JVM can take."""
    jvm = jvm_of(spark)[1]
    found = _heaps.get(jvm)
    if found is None:
        found = _heaps[jvm] = int(jvm.java.lang.Runtime.getRuntime().maxMemory())
    return found


def keeps_rows(spark: "SparkSession") -> bool:
    """Whether the application keeps rows of any frame or table: ``cache()``, ``CACHE TABLE``."""
    session = jvm_session(spark)
    if session is None:
        return False
    with suppress(*_ABSENT):
        found = _kept.get(spark.sparkContext)
        if found is None:
            found = _kept[spark.sparkContext] = session.sharedState().cacheManager()
        return not found.isEmpty()
    return True  # it may: callers look for the rows of their own table


def planned_bytes(frame: "DataFrame") -> int:
    """Bytes that a frame is computed from, as its plan knows: of files as they are stored; 2^63 - 1: unknown."""
    with suppress(*_ABSENT):
        return int(jvm_frame(frame).queryExecution().optimizedPlan().stats().sizeInBytes())
    return _UNKNOWN_BYTES


def is_shuffled(frame: "DataFrame") -> bool:
    """Whether rows of a frame may have come from other partitions; those that the frame needs for that are computed."""
    with suppress(*_ABSENT):
        return "Shuffled" in jvm_frame(frame).queryExecution().toRdd().toDebugString()
    return True


def most_rows_of(frame: "DataFrame") -> int | None:
    """The number of rows that a frame cannot exceed, as its plan knows; None: any number."""
    with suppress(*_ABSENT):
        found = jvm_frame(frame).queryExecution().optimizedPlan().maxRows()
        return int(found.get()) if found.isDefined() else None
    return None


def small_frame(spark: "SparkSession", rows: "pa.Table") -> "DataFrame":
    """Few rows as a frame, as `createDataFrame` makes it, which asks the JVM fifty times for its settings.

    Args:
        spark: the session.
        rows: texts and numbers are handed over in one file, all else as usual.
    """
    import pyarrow as pa

    context: Any = spark.sparkContext
    kinds = (pa.types.is_string, pa.types.is_signed_integer, pa.types.is_boolean)
    is_plain = all(any(test(each) for test in kinds) for each in rows.schema.types)
    if is_plain and spark.conf.get(_LARGE_KEY, "false") == "false":
        with suppress(*_ABSENT):
            if not context._encryption_enabled:
                return _handed_over(spark, context, rows)
    return arrow_frame(spark, rows)


def arrow_frame(spark: "SparkSession", rows: "pa.Table", schema: "StructType | None" = None) -> "DataFrame":
    """Few rows as a frame, before 4.0 by way of Python objects; no schema: that of the rows."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.types import from_arrow_schema

    if hasattr(DataFrame, "toArrow"):
        return spark.createDataFrame(rows) if schema is None else spark.createDataFrame(rows, schema)
    values = [tuple(each.values()) for each in rows.to_pylist()]
    return spark.createDataFrame(values, from_arrow_schema(rows.schema) if schema is None else schema)


def _handed_over(spark: "SparkSession", context: Any, rows: "pa.Table") -> "DataFrame":
    """Raises: ``_ABSENT``: this release has another way."""
    import pyarrow as pa
    from pyspark.sql.classic.dataframe import DataFrame
    from pyspark.sql.pandas.types import from_arrow_schema

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
    session = jvm_session(spark)
    if session is not None:
        with suppress(*_ABSENT):
            from pyspark.sql.classic.dataframe import DataFrame

            context: Any = spark.sparkContext
            none, columns = context._jvm.java.util.ArrayList(), session.parseDataType(schema.json())
            return DataFrame(session.createDataFrame(none, columns), spark)
    return spark.createDataFrame([], schema)


def sql_frame(spark: "SparkSession", text: str) -> "DataFrame":
    """A text without parameters, for which `SparkSession.sql` asks the JVM four times more."""
    session = jvm_session(spark)
    try:
        from pyspark.sql.classic.dataframe import DataFrame
    except ImportError:
        session = None
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
        with suppress(*_ABSENT):  # a Spark that makes views in another way
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
    if session is not None:
        with suppress(AttributeError):
            _views_of(spark).dropTempView(name)
            return
    spark.catalog.dropTempView(name)


def _views_of(spark: "SparkSession") -> Any:
    """What keeps the temporary views of a session, which the JVM is asked for once."""
    found = _catalogs.get(spark)
    if found is None:
        found = _catalogs[spark] = jvm_session(spark).sessionState().catalog()
    return found


def has_view(spark: "SparkSession", name: str) -> bool:
    """Whether the session has a temporary view of this name; the case of names does not matter."""
    session = jvm_session(spark)
    if session is not None:
        with suppress(*_ABSENT):
            return bool(session.sessionState().catalog().getTempView(name).isDefined())
    return any(each.isTemporary and each.name.lower() == name.lower() for each in spark.catalog.listTables())


def can_parse(spark: "SparkSession | None", text: str) -> bool:
    """Whether Spark's parser takes a text as a statement; without a session of this process, or a parser, no."""
    session = jvm_session(spark)
    if session is None:
        return False
    try:
        session.sessionState().sqlParser().parsePlan(text)
    except (PySparkException, *_ABSENT):
        return False
    return True


@dataclass(frozen=True)
class SparkNames:
    """The names that Spark looks up to run a text, each in its parts."""

    command: str  # the class of its plan
    tables: Sequence[tuple[str, ...]]
    databases: Sequence[tuple[str, ...]]  # () is the current one


def knows_catalog(spark: "SparkSession", name: str) -> bool:
    """Whether a session has a catalog of a name."""
    with suppress(*_ABSENT):
        return bool(jvm_session(spark).sessionState().catalogManager().isCatalogRegistered(name))
    return False


def names_of_text(spark: "SparkSession", text: str) -> SparkNames | None:
    """The names that Spark would look up for a text, without its WITH queries; None: it has no plan that shows them."""
    session = jvm_session(spark)
    try:
        plan = json.loads(session.sessionState().sqlParser().parsePlan(text).toJSON())
    except (PySparkException, *_ABSENT):
        return None
    nodes = list(_nodes(plan))
    own = {(str(each.get("_1")),) for node in nodes for each in node.get("cteRelations") or ()}
    named = [(_kind(node), _parts(node)) for node in nodes]
    tables = [parts for kind, parts in named if kind in _TABLES and parts not in own]
    return SparkNames(_kind(plan[0]), tables, [parts for kind, parts in named if kind in _DATABASES])


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    """The nodes of a plan in JSON, with those inside of them."""
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _nodes(each)
    if isinstance(value, dict):
        yield value


def _kind(node: Mapping[str, Any]) -> str:
    return str(node.get("class", "")).rpartition(".")[2].rstrip("$")


def _parts(node: Mapping[str, Any]) -> tuple[str, ...]:
    text = str(node.get("multipartIdentifier", "")).removeprefix("[").removesuffix("]")
    return tuple(text.split(", ")) if text else ()


def start_thrift_server(spark: "SparkSession", settings: Mapping[str, str]) -> Any:
    """Spark's own Thrift server in the JVM of a session; ``stop()`` ends it.

    Args:
        spark: its application is served.
        settings: of all sessions that connections get, which begin with what the context says.

    Raises:
        Py4JError, TypeError: this Spark has no such server, or it does not start.
    """
    session = jvm_session(spark)
    for key, value in settings.items():
        session.sparkContext().conf().set(key, value)
    return getattr(jvm_of(spark)[1], _THRIFT_SERVER).startWithContext(session.sqlContext())


def arrow_schema_of(schema: "StructType") -> "pa.Schema":
    """The Arrow schema of Spark's, as Spark hands rows over; times are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, **_in_utc())


def arrow_type_of(given: "DataType") -> "pa.DataType":
    """The Arrow type of Spark's; times are in UTC."""
    from pyspark.sql.pandas.types import to_arrow_type

    return to_arrow_type(given, **_in_utc())


@cache
def _in_utc() -> Mapping[str, str]:
    """Before 4.2 Spark has no other zone."""
    from pyspark.sql.pandas.types import to_arrow_type

    return {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_type).parameters else {}


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
    context: Any = spark.sparkContext
    jvm = context._jvm
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
