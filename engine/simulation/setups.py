"""The tables that histories begin with; each is made once by the code itself, and copied for every history."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from engine.simulation.log.clients import connected
from engine.simulation.log.operations import LOG_BUCKETS, LOG_TOPIC
from engine.simulation.model import MAIN, Catalogue, ModelTable, frozen
from engine.simulation.operations import (
    BRANCH,
    FIRST,
    ON_BRANCH,
    SECOND,
    SIMULATED_SCHEMA,
    TABLE,
    TAG,
    THIRD,
    arrow_rows,
)
from engine.simulation.seams import ActorNames, SimulatedTime
from engine.table import Table
from filestore.branch.branches import create_branch
from filestore.catalog.catalog import FileCatalog
from filestore.io.file_io import FileIO
from filestore.io.memory_files import MemoryFiles, MemoryObjects
from filestore.options.log_place import SERVERS_KEY
from filestore.tag.automatic_tags import create_batch_tag
from filestore.tag.savepoints import create_savepoint
from filestore.tag.tags import create_tag
from logstore.kafka.memory.cluster import MemoryCluster
from lsm.errors import InvalidInputError

BEGAN_MS: Final = 1_700_000_000_000
_MAKER: Final = 99
_MEMORY: Final = "/w"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """What a history begins with."""

    name: str
    has_key: bool = True
    has_branch: bool = False  # of the newest snapshot
    tagged: int | None = None  # the snapshot of a tag
    has_savepoint: bool = False  # of the newest snapshot, in a snapshot of its own
    has_batch_tags: bool = False  # of the newest snapshot
    has_log: bool = False
    is_empty: bool = False  # without the three snapshots
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Of the table."""
        return ("id",) if self.has_key else ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """Files of a setup below its root, and the state that the model begins with."""

    files: Mapping[str, bytes]
    state: Catalogue
    time_ms: int
    cluster: MemoryCluster  # empty without a log


_OPTIONS: Final = {"bucket": "1", "num-sorted-run.compaction-trigger": "3", "manifest.merge-min-count": "4"}
_LOG_OPTIONS: Final = {
    **_OPTIONS,
    "bucket": str(LOG_BUCKETS),
    "write.backpressure": "off",
    "log.system": "kafka",
    "log.kafka.bootstrap.servers": "unconnected:9092",
    "log.kafka.topic": LOG_TOPIC,
    "log.transactional-id.prefix": "simulated",
}
_BATCH_TAGS: Final = {
    "tag.automatic-creation": "batch",
    "tag.num-retained-max": "1",
    "tag.default-time-retained": "1 h",
}
_EXACT: Final = {"log.changelog-mode": "all", "changelog-producer": "lookup", "write-only": "true"}
SETUPS: Final = {
    each.name: each
    for each in (
        Setup(name="keyed", options=_OPTIONS),
        Setup(name="empty", options=_OPTIONS, is_empty=True),
        Setup(name="versioned", options=_OPTIONS, has_branch=True, tagged=1),
        Setup(name="tagged", options=_OPTIONS, tagged=3),
        Setup(name="saved", options=_OPTIONS, has_savepoint=True),
        Setup(name="batches", options={**_OPTIONS, **_BATCH_TAGS}, has_batch_tags=True),
        Setup(name="append", options={**_OPTIONS, "bucket": "-1", "compaction.min.file-num": "2"}, has_key=False),
        Setup(name="logged", options=_LOG_OPTIONS, has_log=True),
        Setup(name="logged-exact", options={**_LOG_OPTIONS, **_EXACT}, has_log=True),
        Setup(name="logged-append", options={**_LOG_OPTIONS, "bucket-key": "id"}, has_key=False, has_log=True),
    )
}


def setup_named(name: str, *, file_format: str = "parquet") -> Setup:
    """A setup with its data files in a format. Raises: InvalidInputError naming all."""
    if name not in SETUPS:
        raise InvalidInputError(f"no such setup: setup={name} setups={sorted(SETUPS)}")
    found = SETUPS[name]
    return replace(found, options={**found.options, "file.format": file_format})


def prepared(setup: Setup) -> Prepared:
    """The files of a setup; made at the first call."""
    return _prepared(setup.name, setup.options["file.format"])


def memory_of(
    files: Mapping[str, bytes], root: str, time: SimulatedTime, *, is_object_store: bool
) -> MemoryFiles | MemoryObjects:
    """A file system with these files, which are old, below a root; changes are dated by ``time``."""
    kind = MemoryObjects if is_object_store else MemoryFiles
    return kind({f"{root}/{path}": body for path, body in files.items()}, clock=time)


@cache
def _prepared(name: str, file_format: str) -> Prepared:
    setup, io, time = setup_named(name, file_format=file_format), MemoryFiles(), SimulatedTime(BEGAN_MS)
    catalog, cluster = catalog_of(_MEMORY, io, time, ActorNames(_MAKER)), MemoryCluster()
    options = dict(setup.options)
    if setup.has_log:
        cluster.create_topic(LOG_TOPIC, LOG_BUCKETS)
        options["log.kafka.topic-id"] = cluster.topic(LOG_TOPIC).topic_id
    table = catalog.create_table(TABLE, SIMULATED_SCHEMA, primary_key=setup.primary_key, options=options)
    with ExitStack() as stack:
        if setup.has_log:
            table = table.with_options({SERVERS_KEY: connected(cluster, time, None, stack)})
        for key, value in ({} if setup.is_empty else THIRD).items():
            time.sleep(1)
            if setup.has_log:
                Table(table).write(arrow_rows({key: value}))
            else:
                table.write(arrow_rows({key: value}))
    cluster.settle()
    state = ModelTable(early=()) if setup.is_empty else ModelTable(branches=((MAIN, frozen(THIRD)),))
    if setup.tagged is not None:
        rows = (FIRST, SECOND, THIRD)[setup.tagged - 1]
        create_tag(table.store, TAG, snapshot_id=setup.tagged)
        state = replace(state, tags=((TAG, setup.tagged, frozen(rows)),))
    if setup.has_savepoint:
        create_savepoint(table.store, compact=False)
        state = replace(state, savepoints=(frozen(THIRD),))
    if setup.has_batch_tags:
        create_batch_tag(table.store, table.store.snapshots.read(3))
    if setup.has_branch:
        create_branch(table.store, BRANCH, snapshot_id=3)
        new = {key: value for key, value in ON_BRANCH.items() if key not in THIRD}
        catalog.table(TABLE, branch=BRANCH).write(arrow_rows(new))
        state = state.with_rows(BRANCH, ON_BRANCH).with_base(BRANCH, THIRD)
    files = {path.removeprefix(f"{_MEMORY}/"): body for path, body in io.files.items()}
    return Prepared(files, ((TABLE, state),), time.ms, cluster)


def catalog_of(root: str, io: FileIO, clock: object, names: ActorNames) -> FileCatalog:
    """A catalog with nothing of its own."""
    return FileCatalog(root, io=io, clock=clock, names=names)  # type: ignore[arg-type]
