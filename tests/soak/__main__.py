"""Runs a job through kills, freezes and outages, for as long as one likes, and looks for what grows.

``python -m tests.soak --minutes 60``: prints one line of JSON, writes ``.bench/soak.html``, and fails on a lost or
repeated change, a job that does not come back, or a floor that rises.
"""

import argparse
import itertools
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

import psutil
from confluent_kafka.admin import NewTopic

from engine import Catalog
from engine.broker.broker import Broker
from tests.soak.feed import PARTITIONS, TOPIC, Feed
from tests.soak.job import COPY, TABLE, SoakJob
from tests.soak.page import soak_page
from tests.soak.samples import ALLOWED, ALLOWED_AT_FIRST, OUTLIVE, sample
from tests.soak.slopes import leaks, slope_of
from tests.soak.strikes import FATAL, LONG_FREEZE, PASSING, Strikes
from tests.support.clients import quiet_admin
from tests.support.kills.oracle import Change, committed_records
from tests.support.kills.processes import REPOSITORY

SAMPLE_S = 2.0
HEAP_S = 20.0  # between two collections of the JVM's garbage
STRUCK = 0.5  # of the run: in what is left no process ends, so that what grows with time is seen
LONG_MINUTES = 30.0  # a run of so many has one freeze of minutes
LAST_S = 300.0  # until the table is what the source is


class Soak:
    """One run."""

    def __init__(self, home: Path, broker: Broker, *, seed: int, rate: int, freeze_s: float) -> None:
        servers = broker.bootstrap_servers
        self.admin = quiet_admin(servers)
        self.admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(30)
        self.home, self.broker, self.servers = home, broker, servers
        self.feed = Feed(servers, seed=seed, rate=rate)
        self.job = SoakJob(home, servers)
        self.strikes = Strikes(self.job, broker, freeze_s=freeze_s, idle=self.idle)
        self.series: dict[str, list[list[tuple[float, float]]]] = {name: [[]] for name in ALLOWED}
        self._began_s, self._sampled_s, self._heap_s, self._start = time.monotonic(), 0.0, 0.0, 0
        self._chance = random.Random(seed)

    def idle(self, seconds: float) -> None:
        """Wait, sample, and start the job again if it has ended."""
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            self.job.look()
            if time.monotonic() - self._sampled_s >= SAMPLE_S:
                self._sampled_s = time.monotonic()
                self._sample()
            time.sleep(0.2)

    def run(self, minutes: float) -> dict[str, object]:
        """Everything; the facts of the end."""
        self.feed.start()
        self.job.start()
        self._until_batches(2)
        end_s = self._began_s + 60 * minutes
        struck_s = self._began_s + 60 * minutes * STRUCK
        turns = itertools.cycle(self._chance.sample([*FATAL, *PASSING], len(FATAL) + len(PASSING)))
        if minutes >= LONG_MINUTES:
            self.strikes.strike(LONG_FREEZE)
        while time.monotonic() < struck_s:
            self.strikes.strike(next(turns))
            self.idle(min(15.0, max(0.0, struck_s - time.monotonic())))
        for what in PASSING:
            if time.monotonic() < end_s - 60:
                self.strikes.strike(what)
        while time.monotonic() < end_s:
            self.idle(1.0)
        self.feed.stop()
        self._until_equal()
        code = self.job.stop()
        assert code == 0, f"the job did not stop well: code={code}\n{self.job.tree.tail()}"
        return {
            "changes": len(self.feed.changes),
            **self._check_log(),
            "starts": self.job.starts,
            "codes": self.job.codes,
            "strikes": len(self.strikes.done),
            "slowest return s": max((each.back_s for each in self.strikes.done), default=0.0),
        }

    def _sample(self) -> None:
        new_life = self.job.starts != self._start
        self._start = self.job.starts
        at_s = round(time.monotonic() - self._began_s, 1)
        pid = self.broker.status().pid
        with_heap = time.monotonic() - self._heap_s >= HEAP_S
        if with_heap:
            self._heap_s = time.monotonic()
        broker = None if pid is None else psutil.Process(pid)
        found = {} if broker is None else sample(self.job.tree, broker, self.admin, self.home, with_heap=with_heap)
        for name, lives in self.series.items():
            if new_life and name not in OUTLIVE and lives[-1]:
                lives.append([])
            if name in found:
                lives[-1].append((at_s, found[name]))

    def _until_batches(self, count: int) -> None:
        deadline = time.monotonic() + 180
        while self.job.batches() < count:
            assert time.monotonic() < deadline, f"the job does not start: {self.job.tree.tail()}"
            self.idle(0.5)

    def _rows(self, name: str) -> dict[int, int]:
        table = Catalog(f"{self.home}/warehouse").table(name).read().to_arrow(columns=["id", "v"])
        return dict(zip(table["id"].to_pylist(), table["v"].to_pylist(), strict=True))

    def _until_equal(self) -> None:
        wanted = {key: change.v for key, change in self.feed.rows().items()}
        deadline = time.monotonic() + LAST_S
        for name in (TABLE, COPY):
            while (found := self._rows(name)) != wanted:
                differing = sorted(found.items() ^ wanted.items())[:10]
                assert time.monotonic() < deadline, f"not what the source is: table={name} differ={differing}"
                self.idle(2.0)

    def _check_log(self) -> dict[str, object]:
        table = Catalog(f"{self.home}/warehouse", options={"log.kafka.bootstrap.servers": self.servers}).table(TABLE)
        assert table.log is not None
        ends = table.store.log_offsets_at(table.latest_snapshot())
        assert ends is not None
        records = committed_records(self.servers, table.log.topic, ends)
        numbers = [change.v for changes in records.values() for change in changes if not change.is_delete]
        wanted = {change.v for change in self.feed.changes if not change.is_delete}
        deletes = sum(change.is_delete for changes in records.values() for change in changes)
        assert deletes == sum(change.is_delete for change in self.feed.changes)
        fold: dict[int, Change] = {}
        for changes in records.values():
            for change in changes:
                fold.pop(change.id, None)
                if not change.is_delete:
                    fold[change.id] = change
        assert {key: change.v for key, change in fold.items()} == {
            key: change.v for key, change in self.feed.rows().items()
        }
        lost, repeated = len(wanted - set(numbers)), len(numbers) - len(set(numbers))
        assert (lost, repeated) == (0, 0), f"lost={lost} repeated={repeated}"
        return {"log records": len(numbers) + deletes, "lost": lost, "repeated": repeated}


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--rate", type=int, default=300, help="changes a second")
    arguments.add_argument("--freeze", type=float, default=20.0, help="seconds of each freeze and outage")
    arguments.add_argument("--out", type=Path, default=REPOSITORY / ".bench" / "soak.html")
    given = arguments.parse_args()
    home = Path(tempfile.mkdtemp(prefix="fluvial-soak-"))
    print(f"soak: home={home} minutes={given.minutes:g} seed={given.seed}", file=sys.stderr, flush=True)
    with Broker(home / "broker") as broker:
        soak = Soak(home, broker, seed=given.seed, rate=given.rate, freeze_s=given.freeze)
        try:
            facts = soak.run(given.minutes)
        finally:
            soak.job.tree.kill()
    slopes = {
        name: slope_of(lives, allowed=ALLOWED[name], at_first=ALLOWED_AT_FIRST.get(name))
        for name, lives in soak.series.items()
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(soak_page(facts, soak.series, slopes, soak.strikes.done))
    found = leaks(slopes)
    growth = {name: round(slope.growth, 1) for name, slope in slopes.items() if slope.floors}
    print(json.dumps({"benchmark": "soak", "minutes": given.minutes, **facts, "growth": growth, "leaks": found}))
    if not found:
        shutil.rmtree(home)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
