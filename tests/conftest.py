"""The one Kafka broker of a test session, what tests of the log need around it, and what makes a run cheap."""

import ast
import gc
import os
import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import settings

from engine.broker.broker import Broker
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from tests.support import class_archive

pytest_plugins = [
    "tests.support.groups",  # which tests share a process
    "tests.support.tiers",  # what make test leaves to make test-all
    "tests.peers.fixtures",  # java_peer, pypaimon_peer: other implementations of the table format
    "tests.support.log_formats",  # format_options
    "tests.stores.fixtures",  # object_store, postgres: where tables can live
]


gc.disable()  # until everything is imported and collected: nothing of it is garbage
class_archive.use()

# Compiled modules are kept, also where the environment says otherwise: to compile and to rewrite the asserts of every
# test takes each process of a run ten seconds, and every process that a test starts a third of one.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# No test cuts the power, and a process that is killed loses nothing that it wrote: a sync is only a wait, of which a
# commit has a dozen. That files are synced is shown by tests/filestore/io/test_effects.py.
os.fsync = lambda fd: None


_parse = ast.parse


def _parse_again(*given: Any, **more: Any) -> Any:
    """Python 3.11 may fail to parse where two threads do at a time ("AST constructor recursion depth mismatch")."""
    for _ in range(10):
        with suppress(SystemError):
            return _parse(*given, **more)
    return _parse(*given, **more)


ast.parse = _parse_again


@sa.event.listens_for(sa.Engine, "connect")
def _sync_nothing(connection: Any, _: object) -> None:
    """SQLite's syncs are its own: each transaction of a store of lineage waited for the disk, for milliseconds."""
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


# A run gives what the last one gave: what fails is the change's fault. `make explore` looks for what nobody has tried.
settings.register_profile("same", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("same")

# What a session starts once, in seconds, and the process that has it: of the first that a test needs. Some tests need
# both databases. A module that takes minutes by itself (kills, restarts) names a group of its own.
PROCESSES = {
    "flink": "flink",  # with a broker and a Spark of their own
    # with a broker of their own
    **dict.fromkeys(("connect", "postgres_source", "mariadb_source"), "databases"),
    **{name: name for name in ("spark", "broker", "secure_broker", "java_peer", "pypaimon_peer", "object_store")},
    "azure_store": "object_store",
    **dict.fromkeys(("hive_metastore", "hdfs"), "hadoop"),
    **dict.fromkeys(("postgres", "postgresql", "mysql"), "databases"),
}
# Two processes share the tests of Spark, and two those of a broker: these rooms are the second one's.
_HALVED = ("spark", "broker")
_SECOND = {"cdc", "cli", "deploy", "lineage", "log", "test_day_in_the_life.py", "versions", "write"}
# The groups that take longest, the longest first: none runs alone when all the others are done.
_LONGEST = (
    "spark", "broker", "spark 2", "broker 2", "databases", "benchmarks", "flink", "java_peer", "object_store", "serve",
    "dbt", "test_session", "kills", "secure_broker",
)  # fmt: skip
# What a test needs is also its marker: `make test-fast` leaves out what starts more than Python.
_MARKERS = {
    "spark": "spark",
    "broker": "broker",
    "secure_broker": "broker",
    "java_peer": "interop",
    "pypaimon_peer": "interop",
    "flink": "interop",
    **dict.fromkeys(("hive_metastore", "hdfs"), "interop"),
    **dict.fromkeys(("object_store", "azure_store", "postgres", "postgresql", "mysql", "apicurio", "connect"), "store"),
    **dict.fromkeys(("postgres_source", "mariadb_source", "browser"), "store"),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Name for ``pytest -n 4 --dist loadgroup`` the process of each test, and mark those that need a server."""
    for item in items:
        needed = needed_by(item)
        for marker in {_MARKERS[name] for name in needed if name in _MARKERS}:
            item.add_marker(getattr(pytest.mark, marker))
        if item.get_closest_marker("xdist_group") is not None:
            continue
        process = next((PROCESSES[name] for name in PROCESSES if name in needed), None)
        if process is None and item.get_closest_marker("spark") is not None:
            process = item.path.stem  # starts Spark in processes of its own
        if process in _HALVED and not _SECOND.isdisjoint(item.path.parts):
            process = f"{process} 2"
        if process is not None:
            item.add_marker(pytest.mark.xdist_group(process))
    sizes = Counter(item.path for item in items)
    # with --no-loadscope-reorder, the order in which groups and then files begin: a large file is not the last one
    items.sort(key=lambda item: (turn := _turn(item), turn > len(_LONGEST) and -sizes[item.path]))


def _turn(item: pytest.Item) -> int:
    group = item.get_closest_marker("xdist_group")
    if group is None:
        return len(_LONGEST) + 1
    return _LONGEST.index(group.args[0]) if group.args[0] in _LONGEST else len(_LONGEST)


def pytest_collection_finish() -> None:
    """What was imported and collected stays to the end: no collection of garbage ever looks through it."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """A failure never ends the run: Python 3.11 may refuse to parse the sources that a report quotes.

    It does where two threads parse at a time ("AST constructor recursion depth mismatch"); then nothing is quoted.
    """
    try:
        return (yield)
    except SystemError:
        item.config.option.tbstyle = "native"
        return pytest.TestReport.from_item_and_call(item, call)


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """A failure has a name as soon as it is there, not only at the end of half an hour."""
    if report.failed and "PYTEST_XDIST_WORKER" not in os.environ:
        print(f"\n{report.when} failed: {report.nodeid} ({report.duration:.0f} s)", file=sys.__stderr__, flush=True)


def needed_by(item: pytest.Item) -> tuple[str, ...]:
    """Names of a test's fixtures, and its values that are texts: a fixture may be asked for by a value."""
    callspec = getattr(item, "callspec", None)
    values = () if callspec is None else callspec.params.values()
    return (*getattr(item, "fixturenames", ()), *(value for value in values if isinstance(value, str)))


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A running broker; it must run for a test to pass, so nothing here skips. It dies with this process."""
    with Broker(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def kafka(broker: Broker) -> KafkaProperties:
    """How clients reach the broker."""
    return KafkaProperties.parse({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture(scope="session")
def topics(kafka: KafkaProperties) -> LogTopics:
    """Administration of the broker."""
    return LogTopics(kafka)


_numbers = count(1)


@pytest.fixture
def new_topic(topics: LogTopics) -> Callable[..., str]:
    """Makes topics that no other test uses and gives their names: ``new_topic(bucket_count=3)``."""

    def make(bucket_count: int = 1, **config: str) -> str:
        name = f"test-{next(_numbers)}"
        topics.create_topic(
            name, bucket_count=bucket_count, config={key.replace("_", "."): value for key, value in config.items()}
        )
        return name

    return make
