"""Tables, their sources, and the drivers that write them until they are killed; in the end all must be as it should.

A world has lanes: each is a source, a query and a table, with or without a log, written by ``engine.sink`` or by
``format("fluvial")``. One driver runs all of them, so one start of Spark is killed in four places at least. Everything
random comes from the seed of the world; what a failure prints (seed, start, points) is what runs it again.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa

from engine import Catalog, Table
from engine.broker.broker import Broker
from tests.support.kills.oracle import Source, check_agreement, check_log, check_table, committed_records
from tests.support.kills.points import Point, Strike
from tests.support.kills.processes import Cluster, Tree, python, until

TABLE_SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("batch", pa.int64()), ("salt", pa.string())]
)
# Compaction and expiry run all the time: the first commit of each start looks for what has expired.
TABLE_OPTIONS = {
    "bucket": "2",
    "num-sorted-run.compaction-trigger": "3",
    "snapshot.num-retained.min": "2",
    "snapshot.num-retained.max": "4",
    "snapshot.time-retained": "1 s",
}
ALL_LANES = ("sink_log", "sink_files", "format_log", "format_files")
DRIVER_S = 400.0


@dataclass
class Lane:
    """One query and its table."""

    name: str
    writer: str  # "sink" (by tasks), "driver" (the sink by threads of the driver) or "format"
    log: bool
    source: Source
    table: Table

    @property
    def next_batch(self) -> int:
        """The first batch that is in no snapshot that is still there."""
        snapshots = self.table.store.snapshots
        found = [snapshots.find(each) for each in snapshots.ids()]
        done = [each.commit_identifier for each in found if each is not None and each.commit_kind.value == "APPEND"]
        return max(done, default=-1) + 1


@dataclass
class Start:
    """One start of the job."""

    number: int
    tree: Tree
    points: tuple[Point, ...]
    report_file: Path
    answered: set[Point] = field(default_factory=set)

    def errors(self, lane: str | None = None) -> list[str]:
        """Why queries failed, in order."""
        if not self.report_file.exists():
            return []
        found = [json.loads(line) for line in self.report_file.read_text().splitlines()]
        return [each["error"] for each in found if lane in (None, each["lane"])]


class World:
    """The lanes, and what happens to them."""

    def __init__(
        self,
        root: Path,
        broker: Broker,
        *,
        seed: int,
        master: str = "local[2,4]",
        conf: Mapping[str, str] | None = None,
        cluster: Cluster | None = None,
        options: Mapping[str, str] | None = None,
        lanes: Sequence[str] = ALL_LANES,
        rows: tuple[int, int] = (1, 40),
        keys: int = 60,
    ) -> None:
        self.root, self.broker, self.seed = root, broker, seed
        self._master, self._conf, self._cluster = master, dict(conf or {}), cluster
        self.marks = root / "marks"
        self.marks.mkdir(parents=True)
        self.catalog = Catalog(str(root / "warehouse"))
        self.lanes: dict[str, Lane] = {}
        self.starts: list[Start] = []
        self.happened = 0  # kills and pauses
        for number, name in enumerate(lanes):
            source = Source(root / "input" / name, seed * 1_000 + number, rows=rows, keys=keys)
            self.lanes[name] = self._lane(name, source, {**TABLE_OPTIONS, **(options or {})})

    def _lane(self, name: str, source: Source, options: Mapping[str, str]) -> Lane:
        writer, _, kind = name.partition("_")
        log = kind == "log"
        if log:
            options = {**options, "log.system": "kafka", "log.kafka.bootstrap.servers": self.broker.bootstrap_servers}
        table = self.catalog.create_table(
            f"db.{name}_{crc32(str(self.root).encode())}", TABLE_SCHEMA, primary_key=["id"], options=options
        )
        return Lane(name, writer, log, source, table)

    @property
    def place(self) -> str:
        """What to print: by this a failure is run again."""
        starts = "; ".join(f"{each.number}: {', '.join(map(str, each.points))}" for each in self.starts)
        return f"seed={self.seed} master={self._master} starts=[{starts}] root={self.root}"

    def feed(self, batches: int) -> None:
        """More input for every lane."""
        for lane in self.lanes.values():
            lane.source.feed(batches)

    def point(self, lane: str, step: str, strike: Strike, *, after: int = 0) -> Point:
        """A strike in the batch so many after the next one of a lane."""
        return Point(lane, step, self.lanes[lane].next_batch + after, strike)

    def start(self, *points: Point, lanes: Sequence[str] | None = None, restarts: int = 30) -> Start:
        """Start the job on some lanes, by default on all; it ends when they have their input."""
        number = len(self.starts)
        config = {
            "master": self._master,
            "conf": self._conf,
            "warehouse": str(self.root / "warehouse"),
            "marks": str(self.marks),
            "report": str(self.root / f"report-{number}.jsonl"),
            "restarts": restarts,
            "points": [(each.lane, each.step, each.batch, each.strike.value) for each in points],
            "lanes": [
                {
                    "name": lane.name,
                    "writer": lane.writer,
                    "files_by": "commit" if lane.log else "tasks",  # of format("fluvial")
                    "table": lane.table.name,
                    "input": str(lane.source.directory),
                    "checkpoint": str(self.root / "checkpoints" / lane.name),
                }
                for lane in (self.lanes[name] for name in lanes or self.lanes)
            ],
        }
        file = self.root / f"config-{number}.json"
        file.write_text(json.dumps(config))
        command = python("tests.support.kills.job", str(file))
        tree = Tree(command, self.root / f"driver-{number}.log", cwd=self.root)
        started = Start(number, tree, tuple(points), Path(config["report"]))  # type: ignore[arg-type]
        self.starts.append(started)
        return started

    def until_end(self, start: Start) -> int:
        """Do what the points of a start ask for until its driver has ended; its exit code, negative when killed."""
        self._attend(start, lambda: start.tree.exit_code is not None)
        if start.tree.exit_code != 0:
            start.tree.kill()  # Python workers that outlive their driver
        code = start.tree.exit_code
        assert code is not None
        self.happened += sum(each.strike is not Strike.HOLD for each in self.struck(start))
        return code

    def until_struck(self, start: Start, point: Point) -> None:
        """Do what the other points ask for until this one is reached."""
        reached = point.mark(self.marks)
        self._attend(start, lambda: reached.exists() or start.tree.exit_code is not None)
        assert reached.exists(), f"the driver ended early: {self.place}\n{start.errors()}\n{start.tree.tail()}"

    def resume(self, start: Start, point: Point) -> None:
        """Let a paused driver go on, with the process that reached the point: on a cluster that is none of its own."""
        start.tree.thaw()
        with suppress(ProcessLookupError):
            os.kill(int(point.mark(self.marks).read_text().split()[0]), signal.SIGCONT)

    def release(self, point: Point) -> None:
        """Let a held process go on."""
        point.answer(self.marks).touch()

    def struck(self, start: Start) -> list[Point]:
        """The points of a start that were reached."""
        return [each for each in start.points if each.mark(self.marks).exists()]

    def _attend(self, start: Start, ended: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DRIVER_S
        while not ended():
            assert time.monotonic() < deadline, f"hangs: {self.place}\n{start.errors()}\n{start.tree.tail()}"
            for point in start.points:
                if point not in start.answered and point.mark(self.marks).exists():
                    self._answer(start, point)
            time.sleep(0.02)

    def _answer(self, start: Start, point: Point) -> None:
        start.answered.add(point)
        if point.strike is Strike.BROKER:
            self.broker.kill()
            self.release(point)  # it continues without a broker
            self.broker.start()
        elif point.strike is Strike.EXECUTORS:
            assert self._cluster is not None
            self._cluster.kill_executors(len(start.answered) % 2)
            self.release(point)

    def state(self, lane: str) -> Any:
        """What a run could change of a lane's rows, log and schema; compactions of others may come in between."""
        table = self.lanes[lane].table
        snapshots = table.store.snapshots
        kept = [each for each in map(snapshots.find, snapshots.ids()) if each is not None]
        commits = [(each.id, each.uuid) for each in kept if each.commit_kind.value != "COMPACT"]
        ends = table.log_end_offsets() if table.log is not None else {}
        return commits, dict(ends), table.store.schemas.ids(), sorted(map(str, table.read().to_arrow().to_pylist()))

    def check(self) -> None:
        """Every lane holds what its source says. Raises: AssertionError with the place."""
        for lane in self.lanes.values():
            try:
                self._check(lane)
            except AssertionError as error:
                raise AssertionError(f"lane={lane.name} {self.place}\n{error}") from error

    def _check(self, lane: Lane) -> None:
        table = self.catalog.table(lane.table.name)
        rows: Sequence[Mapping[str, Any]] = table.read().to_arrow().to_pylist()
        check_table(lane.source, rows)
        newest = table.latest_snapshot()
        assert newest is not None
        if lane.log:
            assert table.log is not None
            log = committed_records(self.broker.bootstrap_servers, table.log.topic, newest.log_offsets)
            check_log(lane.source, log)
            check_agreement(rows, log)
        snapshots = table.store.snapshots
        kept = [each for each in map(snapshots.find, snapshots.ids()) if each is not None]
        commits = [(each.commit_user, each.commit_identifier) for each in kept if each.commit_kind.value == "APPEND"]
        assert len(commits) == len(set(commits)), f"committed twice: {commits}"
        staged = [path for path in Path(table.store.paths.root, "staging").rglob("*") if path.is_file()]
        assert staged == [], "staged rows stay"

    def close(self) -> None:
        """End what still runs."""
        for each in self.starts:
            each.tree.kill()


def wait_for_end(start: Start, world: World, seconds: float = 120.0) -> int:
    """The exit code of a driver that needs nothing from the harness any more."""
    until(lambda: start.tree.exit_code is not None, seconds, lambda: f"{world.place}\n{start.tree.tail()}")
    assert start.tree.exit_code is not None
    return start.tree.exit_code
