"""The non-public members of Spark's JVM that a catalog in Python needs.

What Spark calls a catalog, a table or a parser are interfaces, which py4j lets Python implement. How a session gets
them is not public without a jar: the map of a session's catalogs, the field that holds its parser, its extensions.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Final

import pyspark
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from engine.spark_internals.session import jvm_of, jvm_session
from lsm.errors import InvalidInputError

TESTED: Final = ("4.2", "4.3")
"""Spark releases whose internal APIs this module was tested with."""

_WITHOUT: Final = "fix='fluvial.sql(spark, ...) and format(\"fluvial\") work without it'"
_CATALOG: Final = "org.apache.spark.sql.connector.catalog."
_ANALYSIS: Final = "org.apache.spark.sql.catalyst.analysis."
_SOURCES: Final = "org.apache.spark.sql.execution.datasources."
_OPTIONS: Final = "org.apache.spark.sql.util.CaseInsensitiveStringMap"
_EXPRESSIONS: Final = "org.apache.spark.sql.catalyst.expressions."
_CONVERTERS: Final = "scala.jdk.javaapi.CollectionConverters"
_ANALYSIS_ERROR: Final = "org.apache.spark.sql.AnalysisException"
_EXECUTION: Final = "spark.sql.execution.id"
_EXECUTIONS: Final = "org.apache.spark.sql.execution.SQLExecution"
_MARKS: Final = ("?", ":")  # of a parameter in a text
_PARSE_ERROR: Final = "org.apache.spark.sql.catalyst.parser.ParseException"
PARSER: Final = "org.apache.spark.sql.catalyst.parser.ParserInterface"
"""What a session's parser implements."""
JavaError: Final = Py4JJavaError
"""An error of the JVM, with the object that it is there."""
_UNCHECKED: Final = "java.lang.RuntimeException"
_WRAPPERS: Final = ("java.util.concurrent.ExecutionException", "java.lang.reflect.UndeclaredThrowableException")


def check_spark(spark: SparkSession, version: str = pyspark.__version__) -> None:
    """Refuse a Spark that cannot have a catalog in Python.

    Raises:
        InvalidInputError: the release is not among ``TESTED``, or the session is one of Spark Connect.
    """
    if not version.startswith(tuple(f"{each}." for each in TESTED)):
        raise InvalidInputError(
            f"unsupported Spark version for a catalog in Spark's own SQL: spark={version} "
            f"known={', '.join(TESTED)} {_WITHOUT}"
        )
    if jvm_session(spark) is None:
        raise InvalidInputError(f"Spark Connect has no catalogs in Python: session={type(spark).__name__} {_WITHOUT}")


_ANY_WORDS: Final = "_LEGACY_ERROR_USER_RAISED_EXCEPTION"  # Spark's condition for an error with words of its own


class SparkInside:
    """The inside of the JVM of one application."""

    def __init__(self, spark: SparkSession) -> None:
        """The JVM of a session; from now on it can call Python.

        Raises:
            InvalidInputError: see ``check_spark``.
        """
        check_spark(spark)
        self.gateway, self.jvm = jvm_of(spark)
        self._context = spark.sparkContext
        self._classes: dict[str, Any] = {}
        self._members: dict[tuple[str, str], Any] = {}
        self._kinds: dict[str, Any] = {}
        self._capabilities: dict[str, Any] = {}
        self.parquet_tables: dict[tuple[object, ...], Any] = {}  # that have looked at their files, the last one last
        ensure_callback_server_started(self.gateway)
        # An error of Spark's that a called function raises reaches the JVM as the object that it is there.
        self.gateway.python_parameters.propagate_java_exceptions = True

    def named(self, name: str) -> Any:
        """A class by its whole name, which the JVM is asked for once."""
        found = self._classes.get(name)
        if found is None:
            found = self._classes[name] = getattr(self.jvm, name)
        return found

    def static(self, name: str, method: str) -> Any:
        """A static method of a class, which the JVM is asked for once: py4j asks at each use."""
        found = self._members.get((name, method))
        if found is None:
            found = self._members[name, method] = getattr(self.named(name), method)
        return found

    def of_catalog(self, name: str) -> Any:
        """A class of Spark's catalog interface."""
        return self.named(_CATALOG + name)

    def python_session(self, session: Any) -> SparkSession:
        """A session of the JVM as PySpark's."""
        return SparkSession(self._context, session)

    def array(self, kind: Any, values: Sequence[Any]) -> Any:
        """A Java array."""
        made = self.gateway.new_array(kind, len(values))
        for index, value in enumerate(values):
            made[index] = value
        return made

    def texts(self, values: Sequence[str]) -> Any:
        """A Java array of texts."""
        return self._from_json(list(values), "[Ljava.lang.String;")

    def dotted(self, names: Any) -> str:
        """A Java array of texts as one text with points, in one call."""
        return ".".join(json.loads(self._mapper.writeValueAsString(names)))

    def parts_of(self, identifier: Any) -> tuple[str, str]:
        """The namespace with points, and the name, of Spark's ``Identifier``: most are said by one call."""
        space, point, name = str(identifier.toString()).rpartition(".")
        if point and "`" not in space + name:
            return space, name
        return self.dotted(identifier.namespace()), str(identifier.name())

    def one(self, value: Any) -> Any:
        """A Java iterator over one object; None: over nothing."""
        if value is None:
            return self.static("java.util.Collections", "emptyIterator")()
        return self.static("java.util.Collections", "singleton")(value).iterator()

    def texts_by_key(self, values: Any) -> dict[str, str]:
        """A Java map of texts, in one call: item by item each is two."""
        found: dict[str, str] = json.loads(self._mapper.writeValueAsString(values))
        return found

    def names_of(self, schema: Any) -> list[str]:
        """The names of a schema's columns."""
        found: list[str] = json.loads(self._mapper.writeValueAsString(schema.fieldNames()))
        return found

    @cached_property
    def _mapper(self) -> Any:
        return self.named("com.fasterxml.jackson.databind.ObjectMapper")()

    def _from_json(self, value: Any, name: str) -> Any:
        """An object of a class, from one text: a call for each item costs more than the item."""
        kind = self._kinds.get(name)
        if kind is None:
            kind = self._kinds[name] = self.named("java.lang.Class").forName(name)
        return self._mapper.readValue(json.dumps(value), kind)

    def namespaces(self, names: Sequence[str]) -> Any:
        """A Java array of namespaces of one part."""
        made = self.gateway.new_array(self.jvm.java.lang.String, len(names), 1)
        for index, name in enumerate(names):
            made[index][0] = name
        return made

    def identifiers(self, database: str, names: Sequence[str]) -> Any:
        """A Java array of tables of a database."""
        kind, space = self.of_catalog("Identifier"), self.texts([database])
        return self.array(kind, [kind.of(space, name) for name in names])

    def set_of(self, values: Sequence[str]) -> Any:
        """A Java set of texts."""
        return self._from_json(list(values), "java.util.HashSet")

    def capabilities(self, names: Sequence[str]) -> Any:
        """A Java set of what a table can do."""
        key = ",".join(names)
        found = self._capabilities.get(key)
        if found is None:
            kind = self.of_catalog("TableCapability")
            found = self.named("java.util.HashSet")()
            for name in names:
                found.add(getattr(kind, name))
            self._capabilities[key] = found
        return found

    @cached_property
    def text_parameter(self) -> Any:
        """The parameters of a procedure that takes one text."""
        kind = self.of_catalog("procedures.ProcedureParameter")
        text = self.named("org.apache.spark.sql.types.DataType").fromDDL("string")
        return self.array(kind, [getattr(kind, "in")("text", text).build()])

    def struct(self, schema: StructType) -> Any:
        """A schema in the JVM."""
        return self.static("org.apache.spark.sql.types.DataType", "fromJson")(schema.json())

    def columns(self, schema: Any) -> Any:
        """The columns of a schema of the JVM, as catalogs name them: texts with their lengths."""
        sized = self.static("org.apache.spark.sql.catalyst.util.CharVarcharUtils", "getRawSchema")(schema)
        return self.static(_CATALOG + "CatalogV2Util", "structTypeToV2Columns")(sized, False)

    def options(self, values: Mapping[str, str]) -> Any:
        """Options whose keys have no case."""
        return self.named(_OPTIONS)(self.text_map(values))

    @cached_property
    def no_options(self) -> Any:
        """Options without a key."""
        return self.options({})

    def text_map(self, values: Mapping[str, str]) -> Any:
        """A Java map of texts."""
        return self._from_json(dict(values), "java.util.HashMap")

    def module(self, name: str) -> Any:
        """A Scala object."""
        return getattr(self.named(name + "$"), "MODULE$")

    def called(self, target: Any, method: str, kind: str) -> Any:
        """What a method without arguments gives that only an interface has: py4j does not see such methods.

        Args:
            target: an object of the JVM.
            method: its name.
            kind: what the target is: all targets of a kind have one class, which is asked for the method once.
        """
        no_kinds, nothing = self._nothing
        found = self._members.get((kind, method))
        if found is None:
            found = target.getClass().getMethod(method, no_kinds)
            found.setAccessible(True)
            self._members[kind, method] = found
        return found.invoke(target, nothing)

    @cached_property
    def _nothing(self) -> tuple[Any, Any]:
        return self.array(self.named("java.lang.Class"), []), self.array(self.named("java.lang.Object"), [])

    def is_python(self, value: Any) -> bool:
        """Whether an object of the JVM is one in Python behind an interface."""
        return bool(self._proxies.isInstance(value))

    @cached_property
    def _proxies(self) -> Any:
        """The class of all objects behind interfaces; only py4j makes any that reach Python."""
        return self.named("java.lang.Class").forName("java.lang.reflect.Proxy")

    def serve_sessions(self, server: Any, made: Callable[[Any, Any], Any]) -> None:
        """Give Spark's Thrift server another map of its sessions by their handles.

        Args:
            server: that runs.
            made: the other map, of the server's own one and of that of Spark's sessions by the same handles.

        Raises:
            InvalidInputError: this Spark has another server.
        """
        with known_inside():
            services = list(server.getServices())
            service = next(each for each in services if each.getClass().getSimpleName() == "SparkSQLCLIService")
            manager = service.getSessionManager()
            kind = self.named("java.lang.Class").forName("org.apache.hive.service.cli.session.SessionManager")
            field = kind.getDeclaredField("handleToSession")
            field.setAccessible(True)
            contexts = manager.getOperationManager().sessionToContexts()
            field.set(manager, made(field.get(manager), contexts))

    def weak(self, value: Any) -> Any:
        """A reference that does not keep an object of the JVM."""
        return self.named("java.lang.ref.WeakReference")(value)

    # ---- sessions

    def parser(self, session: Any) -> Any:
        """The parser of a session."""
        return session.sessionState().sqlParser()

    def set_parser(self, session: Any, parser: Any) -> None:
        """Give a session another parser."""
        state = session.sessionState()
        found = next(each for each in state.getClass().getDeclaredFields() if each.getName() == "sqlParser")
        found.setAccessible(True)
        found.set(state, parser)

    def inject_parser(self, session: Any, builder: Any) -> None:
        """Every session that is made later of this one's application gets the parser that ``builder`` makes."""
        session.extensions().injectParser(builder)

    def inject_check(self, session: Any, builder: Any) -> None:
        """Every session that is made later asks ``builder`` for a check of its plans when it resolves names."""
        session.extensions().injectCheckRule(builder)

    def settings_of(self, session: Any) -> dict[str, str]:
        """All that a session's own settings say."""
        return self.texts_by_key(session.sessionState().conf().settings())

    def no_check(self) -> Any:
        """A function of the JVM that does nothing."""
        return getattr(self.module("scala.Predef"), "$conforms")()

    def put_catalog(self, session: Any, name: str, catalog: Any) -> None:
        """Give a session a catalog; None takes it away."""
        manager = session.sessionState().catalogManager()
        found = next(each for each in manager.getClass().getDeclaredFields() if each.getName().endswith("catalogs"))
        found.setAccessible(True)
        catalogs = found.get(manager)
        catalogs.remove(name) if catalog is None else catalogs.put(name, catalog)

    def temporary_views(self, session: Any) -> list[str]:
        """The names of a session's own views."""
        found = session.sessionState().catalog().listLocalTempViews("*")
        return [str(found.apply(index).table()) for index in range(found.size())]

    def current_catalog(self, session: Any) -> str:
        """The name of the current catalog."""
        return str(session.catalog().currentCatalog())

    def current_place(self, session: Any) -> tuple[str, str]:
        """The current catalog, and the current namespace with points."""
        manager = session.sessionState().catalogManager()
        return str(manager.currentCatalog().name()), self.dotted(manager.currentNamespace())

    def is_resolving_view(self) -> bool:
        """Whether this thread of the JVM resolves the text of a view, whose names are relative to another place."""
        context = self.static(_ANALYSIS + "AnalysisContext", "get")()
        return bool(context.catalogAndNamespace().nonEmpty())

    # ---- plans

    def plan_of(self, frame: Any) -> Any:
        """The analysed plan of a frame of the JVM."""
        return frame.queryExecution().analyzed()

    def look(self, session: Any, plan: Any) -> None:
        """Resolve the names of a plan. Raises: PySparkException: one is not there."""
        session.sessionState().analyzer().checkAnalysis(session.sessionState().analyzer().execute(plan))

    def look_at_plan(self, session: Any, plan: Any) -> None:
        """Plan a statement, and run nothing. Raises: PySparkException: a table cannot do it."""
        mode = self.module("org.apache.spark.sql.execution.CommandExecutionMode").SKIP()
        session.sessionState().executePlan(plan, mode).sparkPlan()

    def running_query(self) -> Any:
        """The query that this thread of the JVM computes, with its plans; None: it computes none."""
        number = self._context.getLocalProperty(_EXECUTION)
        return self.static(_EXECUTIONS, "getQueryExecution")(int(number)) if number else None

    def rows_of(self, frame: Any) -> Any:
        """The rows of a frame of the JVM, as an array of Spark's internal rows."""
        return frame.queryExecution().executedPlan().executeCollect()

    def text_of(self, predicate: Any) -> str:
        """A pushed condition as SQL. Raises: Py4JError: it has no text."""
        return str(self.named("org.apache.spark.sql.connector.util.V2ExpressionSQLBuilder")().build(predicate))

    def substituted(self, text: str, parameters: Any) -> str:
        """A text with its parameters put in. Without any Spark is not asked: it reads its own grammar only."""
        if not any(mark in text for mark in _MARKS) or parameters.productElement(0).isEmpty():
            return text
        handler = self.named("org.apache.spark.sql.catalyst.parser.ParameterHandler")
        return str(handler.substituteParameters(text, parameters)._1())

    def python_table(self, schema: Any, format_name: str) -> Any:
        """Spark's own table over a data source in Python."""
        place = "org.apache.spark.sql.execution.datasources.v2.python."
        source = self.named(place + "PythonDataSourceV2")()
        source.setShortName(format_name)
        return self.named(place + "PythonTable")(source, format_name, schema)

    def parquet_table(self, session: Any, name: str, schema: Any, paths: Sequence[str]) -> Any:
        """Spark's own table over Parquet files."""
        several = self.static(_CONVERTERS, "asScala")(self._texts_listed(paths)).toSeq()
        return self.named(_SOURCES + "v2.parquet.ParquetTable")(
            name, session, self.no_options, several, self.named("scala.Some")(schema), self._parquet_format
        )

    def columnar_mode(self, session: Any, schema: Any) -> Any:
        """Whether Spark's scan of Parquet files gives columns, by the rule of its readers.

        The scan itself makes a reader to answer, and with it sends Hadoop's settings to all tasks, for each of the
        copies of a plan. Raises: Py4JError, TypeError: this Spark has another rule.
        """
        conf = session.sessionState().conf()
        gives = (
            self.static(_SOURCES + "parquet.ParquetUtils", "isBatchReadSupportedForSchema")(conf, schema)
            and conf.wholeStageEnabled()
            and not self.static("org.apache.spark.sql.execution.WholeStageCodegenExec", "isTooManyFields")(conf, schema)
        )
        mode = "org.apache.spark.sql.connector.read.Scan$ColumnarSupportMode"
        return self.static(mode, "SUPPORTED" if gives else "UNSUPPORTED")

    @cached_property
    def _parquet_format(self) -> Any:
        loader = self.jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return loader.loadClass(_SOURCES + "parquet.ParquetFileFormat")

    def _texts_listed(self, values: Sequence[str]) -> Any:
        return self._from_json(list(values), "java.util.ArrayList")

    def write_info(self, info: Any, options: Mapping[str, str]) -> Any:
        """What Spark says of a write, with more options."""
        merged = {**self.texts_by_key(info.options().asCaseSensitiveMap()), **options}
        return self.named("org.apache.spark.sql.connector.write.LogicalWriteInfoImpl")(
            info.queryId(), info.schema(), self.options(merged), info.rowIdSchema(), info.metadataSchema()
        )

    # ---- errors

    def about(self, error: str, name: Any) -> Exception:
        """What Spark calls ``NoSuchTable``, ``TableAlreadyExists``, ``NoSuchFunction`` or ``NoSuchNamespace``."""
        return _raised(self.named(f"{_ANALYSIS}{error}Exception")(name))

    def refused(self, text: str, condition: str, parameters: Mapping[str, str]) -> Exception:
        """An error of a statement, in Spark's words for a condition with its parameters."""
        given = self._parameters(parameters)
        origin = self.module("org.apache.spark.sql.catalyst.trees.CurrentOrigin").get()
        made = self.named("org.apache.spark.sql.catalyst.parser.ParseException")
        return _raised(made(self.named("scala.Some")(text), origin, condition, given))

    def failed(self, problem: str) -> Exception:
        """An error of Fluvial's while Spark asks it: one that Spark passes on as it is, because it has a condition."""
        given = self._parameters({"errorMessage": problem})
        made = self.named("org.apache.spark.SparkIllegalArgumentException")
        return _raised(made(_ANY_WORDS, given, self._no_context, "", None))

    def raising(self, condition: str, problem: str, row: Any) -> Any:
        """A Java iterator that raises an ``AnalysisException``, which no method of Python's can raise.

        Java wraps what an interface does not declare; an expression of Spark's that is computed raises it as it is.

        Args:
            condition: Spark's.
            problem: the message.
            row: any row of Spark's, for which the expression is computed.

        Raises:
            Py4JJavaError: see ``failed``: this Spark has no such expression.
        """
        none, of_name = self.module("scala.None"), self.named("java.lang.Class").forName
        words = problem if problem.startswith("[") else f"[{condition}] {problem}"
        try:
            error = self.named(_ANALYSIS_ERROR)(
                words, none, none, none, self.named("scala.Some")(condition), self._parameters({}), self._no_context
            )
            kind = self.named("org.apache.spark.sql.types.ObjectType")
            literal = self.named(_EXPRESSIONS + "Literal")(error, kind(of_name("java.lang.Throwable")))
            thrower, nothing = of_name("org.apache.spark.unsafe.Platform"), kind(of_name("java.lang.Object"))
            expression = self.named(_EXPRESSIONS + "objects.StaticInvoke")(
                thrower, nothing, "throwException", self._several(literal), self._several(), False, True, True, none
            )
            computed = self.named(_EXPRESSIONS + "InterpretedMutableProjection")(self._several(expression))
            rows = self.module("scala.collection.Iterator").single(row).map(computed)
            return self.static(_CONVERTERS, "asJava")(rows)
        except (Py4JError, TypeError):
            raise self.failed(problem) from None

    def _several(self, *values: Any) -> Any:
        """A Scala sequence."""
        listed = self.named("java.util.ArrayList")()
        for each in values:
            listed.add(each)
        return self.static(_CONVERTERS, "asScala")(listed).toSeq()

    def too_long(self, limit: str, problem: str) -> Exception:
        """Spark's error of a text that is longer than its column, with Fluvial's sentence behind it."""
        given, made = self._parameters({"limit": limit}), self.named("org.apache.spark.SparkRuntimeException")
        return _raised(made("EXCEED_LIMIT_LENGTH", given, None, self._no_context, problem))

    def _parameters(self, texts: Mapping[str, str]) -> Any:
        given = self.module("scala.collection.immutable.Map").empty()
        for key, value in texts.items():
            given = given.updated(key, value)
        return given

    @property
    def _no_context(self) -> Any:
        return self.array(self.named("org.apache.spark.QueryContext"), [])

    def passed_on(self, error: Exception) -> Exception:
        """An error on its way to the JVM: one from there is the same object, if Java does not wrap it as undeclared.

        What a thread of its own has wrapped is taken out. An error of a method of Java's stays what that one declares.
        """
        is_sparks = isinstance(error, PySparkException)
        origin: Any = getattr(error, "_origin" if is_sparks else "java_exception", None)
        cause = origin
        if origin is None:  # it is Python's
            return error
        while (names := [*_names_of(cause.getClass())])[0] in _WRAPPERS and cause.getCause() is not None:
            cause = cause.getCause()
        if not is_sparks and cause is origin:
            return error
        if _PARSE_ERROR in names or _UNCHECKED in names:
            return _raised(cause)
        return _raised(self.jvm.java.lang.IllegalArgumentException(cause.getMessage() or cause.toString(), cause))


def _raised(error: Any) -> Exception:
    found: Exception = Py4JJavaError("", error)
    return found


def _names_of(kind: Any) -> Iterator[str]:
    """Names of a class and of those that it extends."""
    while kind is not None:
        yield str(kind.getName())
        kind = kind.getSuperclass()


@contextmanager
def known_inside() -> Iterator[None]:
    """Translate errors of the block. Raises: InvalidInputError: an internal member of Spark is missing or differs."""
    try:
        yield
    except (Py4JError, AttributeError, StopIteration, TypeError) as error:
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise InvalidInputError(
            f"Spark's internal classes differ from the released ones: spark={pyspark.__version__} "
            f"reason='{reason}' {_WITHOUT}"
        ) from error
