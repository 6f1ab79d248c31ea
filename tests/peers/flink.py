"""Apache Flink with Apache Paimon's connector: one cluster inside one Java virtual machine, driven by SQL.

Nothing of ours runs in it: it knows a table by its directory, and Kafka by what the table stores.
"""

import importlib.util
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.java_collections import JavaArray, JavaList, JavaMap
from py4j.java_gateway import JavaObject
from py4j.protocol import Py4JError

from engine.broker.jars import fetch_jars, read_lock
from tests.peers import PeerError
from tests.peers.jvm import Jvm

LOCK_FILE: Final = Path(__file__).parents[2] / "conf" / "flink-jars.lock"
WAIT_S: Final = 120

_OPENED: Final = ("util", "lang", "net", "time", "util.concurrent")  # packages that Flink's serializers look into
_SPARK_JARS: Final = ("hadoop-client-api-*", "hadoop-client-runtime-*")
_SLOTS: Final = 8
_CHECKPOINT: Final = "execution.checkpointing.interval"
_WAITING: Final = 25  # a sink of the log first ends as many transactions, of a job before it; each waits for the broker
_ENVIRONMENT: Final = "org.apache.flink.table.api.TableEnvironment"
_SETTINGS: Final = "org.apache.flink.table.api.EnvironmentSettings"
_RESULT: Final = "org.apache.flink.table.api.TableResult"

Change = tuple[Any, ...]
"""What Flink emits: the kind ("+I", "-U", "+U", "-D"), then the values."""


def flink_jars() -> tuple[Path, ...]:
    """Flink, its Kafka connector and Paimon's, fetched once and checked against their lock file."""
    return fetch_jars(read_lock(LOCK_FILE).coordinates, LOCK_FILE)


class FlinkStream:
    """A query that runs until it is ended, and what it has emitted since; its rows are fetched by a thread."""

    def __init__(self, result: Any) -> None:
        """Begin to fetch."""
        self._result = result
        self._changes: list[Change] = []
        self._times: list[float] = []
        self._arrived = threading.Condition()
        self._error: Exception | None = None
        self._has_ended = False
        self._thread = threading.Thread(target=self._fetch, daemon=True)
        self._thread.start()

    @property
    def changes(self) -> list[Change]:
        """All changes until now."""
        with self._arrived:
            return list(self._changes)

    @property
    def arrivals(self) -> list[tuple[Change, float]]:
        """All changes until now, each with the second of ``time.perf_counter`` at which it came."""
        with self._arrived:
            return list(zip(self._changes, self._times, strict=True))

    def wait(self, enough: Callable[[list[Change]], bool], timeout_s: float = WAIT_S) -> list[Change]:
        """All changes, as soon as they are enough."""
        with self._arrived:
            arrived = self._arrived.wait_for(
                lambda: enough(self._changes) or self._error is not None or self._has_ended, timeout_s
            )
            assert arrived, f"not in time: {len(self._changes)} changes, the last ones {self._changes[-5:]}"
            if self._error is not None and not enough(self._changes):
                raise self._error
            return list(self._changes)

    def until(self, rows: Mapping[Any, tuple[Any, ...]], key: Sequence[int] = (0,)) -> list[Change]:
        """All changes, as soon as they lead to these rows by the values at `key`."""
        try:
            return self.wait(lambda changes: rows_of_changes(changes, key) == rows)
        except AssertionError:
            found = rows_of_changes(self.changes, key)
            assert found == rows, "not in time"
            return self.changes

    def cancel(self) -> None:
        """End the job."""
        client = self._result.getJobClient().get()
        if not self._has_ended:
            client.cancel().get()
        self._thread.join(WAIT_S)

    def _fetch(self) -> None:
        try:
            rows = self._result.collect()
            while rows.hasNext():
                change = _change(rows.next())
                with self._arrived:
                    self._changes.append(change)
                    self._times.append(time.perf_counter())
                    self._arrived.notify_all()
        except Exception as error:  # noqa: BLE001  (py4j's; what was cancelled ends with one, too)
            self._error = PeerError(f"flink: {_causes(error)}")
        finally:
            with self._arrived:
                self._has_ended = True
                self._arrived.notify_all()


class FlinkJob:
    """An ``INSERT`` that does not end."""

    def __init__(self, result: Any) -> None:
        """Of a job that has begun."""
        self._client = result.getJobClient().get()

    def check(self) -> None:
        """Raises: PeerError, the job has failed or ended."""
        state = str(self._client.getJobStatus().get().name())
        if state in ("FAILED", "FAILING", "CANCELED", "FINISHED"):
            try:
                self._client.getJobExecutionResult().get()
            except Py4JError as error:
                raise PeerError(f"flink: {_causes(error)}") from None
            raise PeerError(f"flink: the job is {state}")

    def cancel(self) -> None:
        """End the job."""
        self._client.cancel().get()


class Flink:
    """The cluster. Its SQL knows one Paimon catalog per warehouse, by the name that `catalog` gives."""

    def __init__(self, directory: Path) -> None:
        """Start it: about five seconds."""
        spark = importlib.util.find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        jars = Path(spark.origin).parent / "jars"
        hadoop = [next(jars.glob(f"{name}.jar")) for name in _SPARK_JARS]
        options = [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]
        options.append(f"-Djava.util.concurrent.ForkJoinPool.common.parallelism={_WAITING}")
        gateway_jar = next(jars.glob("py4j-*.jar"))
        self._jvm = Jvm([*flink_jars(), *hadoop], gateway_jar=gateway_jar, max_heap="1g", options=options)
        self._catalogs: dict[str, str] = {}
        self._flink = self._jvm.root.org.apache.flink
        self._planner = self._jvm.root.java.util.concurrent.Executors.newSingleThreadExecutor()
        with self._jvm.errors():
            settings = self._settings(
                {
                    "rest.bind-port": "0",
                    "restart-strategy.type": "none",
                    "taskmanager.numberOfTaskSlots": str(_SLOTS),
                    "taskmanager.memory.network.min": "32mb",
                    "taskmanager.memory.network.max": "32mb",
                    "io.tmp.dirs": str(directory),
                    "blob.storage.directory": str(directory),
                }
            )
            config = self._flink.runtime.minicluster.MiniClusterConfiguration.Builder()
            config = config.setConfiguration(settings).setNumTaskManagers(1).setNumSlotsPerTaskManager(_SLOTS)
            self._cluster = self._flink.runtime.minicluster.MiniCluster(config.build())
            self._cluster.start()
            address = self._cluster.getRestAddress().get()
        self._target = {
            "execution.target": "remote",
            "rest.address": str(address.getHost()),
            "rest.port": str(address.getPort()),
            "parallelism.default": "1",
            "table.local-time-zone": "UTC",
            "table.exec.sink.upsert-materialize": "NONE",
            "restart-strategy.type": "none",
        }
        self._batch = self._environment({"execution.runtime-mode": "BATCH"})
        streaming = {"execution.runtime-mode": "STREAMING"}
        # what is collected is given at once, not with the next checkpoint; Paimon's sink refuses that
        at_once = {"execution.checkpointing.mode": "AT_LEAST_ONCE", _CHECKPOINT: "200ms"}
        self._reading = self._environment(streaming | at_once)
        # a job that writes ends with a checkpoint, and Kafka has what it wrote with the next
        self._writing = self._environment(streaming | {_CHECKPOINT: "50ms"})

    def close(self) -> None:
        """End the cluster and its machine."""
        with self._jvm.errors():
            self._planner.shutdownNow()
            self._cluster.close()
        self._jvm.close()

    def kill(self) -> None:
        """End the cluster as a crash does, with all its jobs."""
        self._jvm.kill()

    def begin(self, statements: Sequence[str], checkpoints: Path) -> FlinkJob:
        """Start the job of the last statement, from its newest checkpoint if there is one; the others define tables.

        Args:
            statements: for streams; those of this call know nothing of other calls'.
            checkpoints: a directory of this job, which keeps the newest when the job ends in any way.
        """
        options = {
            "execution.runtime-mode": "STREAMING",
            _CHECKPOINT: "200ms",
            "execution.checkpointing.dir": checkpoints.as_uri(),
            "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
            # Paimon's sink commits what a restored checkpoint left, then fails on purpose: its job is to start again
            "restart-strategy.type": "fixed-delay",
            "restart-strategy.fixed-delay.attempts": "3",
            "restart-strategy.fixed-delay.delay": "100ms",
        }
        found = [path.parent for path in checkpoints.glob("*/chk-*/_metadata")]
        if found:
            newest = max(found, key=lambda path: (path.stat().st_mtime_ns, int(path.name.removeprefix("chk-"))))
            options["execution.state-recovery.path"] = newest.as_uri()
        environment = self._environment(options)
        results = [self._run(environment, statement) for statement in statements]
        with self._jvm.errors():
            return FlinkJob(results[-1])

    def catalog(self, warehouse: Path) -> str:
        """The name that a warehouse has in SQL."""
        key = str(warehouse)
        if key not in self._catalogs:
            name = f"c{len(self._catalogs)}"
            self.define(f"CREATE CATALOG {name} WITH ('type'='paimon', 'warehouse'='{key}', 'cache-enabled'='false')")
            self._catalogs[key] = name
        return self._catalogs[key]

    def sql(self, statement: str, *, streaming: bool = False) -> list[Change]:
        """Run a statement, a set of inserts or a query that ends, and give what it emits."""
        with self._jvm.errors():
            writes = statement.lstrip().upper().startswith(("INSERT", "DELETE", "UPDATE", "EXECUTE"))
            result = self._run((self._writing if writes else self._reading) if streaming else self._batch, statement)
            if writes:
                # its own client asks twice as late each time, up to two seconds: the cluster says when it has ended
                self._cluster.requestJobResult(result.getJobClient().get().getJobID()).get()
                getattr(result, "await")()
                return []
            rows = result.collect()
            found = []
            while rows.hasNext():
                found.append(_change(rows.next()))
            return found

    def define(self, statement: str) -> None:
        """Run a statement of definitions for batch and streams."""
        for environment in (self._batch, self._reading, self._writing):
            self._run(environment, statement)

    @contextmanager
    def stream(self, query: str) -> Iterator[FlinkStream]:
        """Run a query that does not end."""
        with self._jvm.errors():
            result = self._run(self._reading, query)
        running = FlinkStream(result)
        try:
            yield running
        finally:
            running.cancel()

    def _run(self, environment: Any, statement: str) -> Any:
        with self._jvm.errors():
            execute = self._jvm.instance_handle(_ENVIRONMENT, "executeSql", _RESULT, ["java.lang.String"])
            return self._by_planner(execute, environment, statement)

    def _environment(self, options: Mapping[str, str]) -> Any:
        with self._jvm.errors():
            settings = self._flink.table.api.EnvironmentSettings.newInstance()
            settings = settings.withConfiguration(self._settings({**self._target, **options})).build()
            create = self._jvm.static_handle(_ENVIRONMENT, "create", _ENVIRONMENT, [_SETTINGS])
            return self._by_planner(create, settings)

    def _by_planner(self, handle: Any, *arguments: Any) -> Any:
        """Call a method in the one thread that plans: Flink's planner keeps things by thread."""
        for argument in arguments:
            handle = self._jvm.first_bound(handle, argument)
        return self._planner.submit(self._jvm.callable(handle)).get()

    def _settings(self, options: Mapping[str, str]) -> Any:
        return self._flink.configuration.Configuration.fromMap(self._jvm.java_map(options))


def rows_of_changes(changes: Sequence[Change], key: Sequence[int] = (0,)) -> dict[Any, tuple[Any, ...]]:
    """The rows that changes lead to, by the values at `key`."""
    rows: dict[Any, tuple[Any, ...]] = {}
    for kind, *values in changes:
        place = tuple(values[index] for index in key)
        if kind in ("+I", "+U"):
            rows[place] = tuple(values)
        elif kind == "-D":
            rows.pop(place, None)
    return rows


def replayed(changes: Sequence[Change], key: Sequence[int] = (0,)) -> dict[Any, tuple[Any, ...]]:
    """The same of an exact changelog: each retraction is of the row that stands, each insert of none."""
    rows: dict[Any, tuple[Any, ...]] = {}
    for kind, *values in changes:
        place = tuple(values[index] for index in key)
        if kind in ("-U", "-D"):
            assert rows.pop(place, None) == tuple(values), (kind, values)
        else:
            assert place not in rows, (kind, values, rows[place])
            rows[place] = tuple(values)
    return rows


def _change(row: Any) -> Change:
    return (str(row.getKind().shortString()), *(_value(row.getField(index)) for index in range(row.getArity())))


def _value(value: Any) -> Any:
    """A value in Python: texts for times, tuples for rows and lists."""
    if isinstance(value, JavaMap):
        return {_value(name): _value(each) for name, each in value.items()}
    if isinstance(value, JavaArray | JavaList):
        return tuple(map(_value, value))
    if isinstance(value, JavaObject):
        if value.getClass().getName() == "org.apache.flink.types.Row":
            return tuple(_value(value.getField(index)) for index in range(value.getArity()))
        return str(value.toString())
    return bytes(value) if isinstance(value, bytearray) else value


def _causes(error: Exception) -> str:
    cause, texts = getattr(error, "java_exception", None), []
    while cause is not None:
        texts.append(str(cause.toString()).splitlines()[0])
        cause = cause.getCause()
    return " <- ".join(texts) or repr(error)
