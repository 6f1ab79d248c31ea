"""The job of a soak: a topic into a table with a log, and that table, as a stream, into a copy; and its supervisor."""

import json
import os
import signal
import time
from pathlib import Path
from typing import Final

import yaml

from tests.soak.feed import TOPIC
from tests.support.kills.processes import Tree, python

TABLE: Final = "soak.orders"
COPY: Final = "soak.copy"
_COLUMNS: Final = {"id": "BIGINT", "v": "BIGINT", "batch": "BIGINT", "salt": "STRING"}
# Years in minutes: snapshots expire after seconds, so each part of housekeeping runs hundreds of times.
_OPTIONS: Final = {
    "bucket": 2,
    "snapshot.num-retained.min": 3,
    "snapshot.num-retained.max": 20,
    "snapshot.time-retained": "10 s",
}


class SoakJob:
    """``fluvial run`` on a job file; started again when it has ended, as a service would be."""

    def __init__(self, home: Path, servers: str) -> None:
        self.home = home
        self.starts = 0
        self.codes: list[int] = []
        self.tree: Tree
        (home / "tmp").mkdir(parents=True)
        os.environ["TMPDIR"] = str(home / "tmp")
        tables = {
            TABLE: {"columns": _COLUMNS, "primary_key": ["id"], "options": {**_OPTIONS, "log.system": "kafka"}},
            COPY: {"columns": _COLUMNS, "primary_key": ["id"], "options": {**_OPTIONS, "log.system": "none"}},
        }
        source = {"options": {"subscribe": TOPIC, "value.format": "debezium-json"}}
        files = {"format": "fluvial", "options": {"table": TABLE}}
        job = {
            "name": "soak",
            "warehouse": f"{home}/warehouse",
            "log": {"kafka.bootstrap.servers": servers},
            "health": {"file": f"{home}/health.json"},
            "metrics": {"file": f"{home}/metrics.prom"},
            "logging": {"file": f"{home}/job.log", "level": "info"},
            "on-failure": {"policy": "restart", "max-backoff": "5s"},
            "tables": tables,
            "pipelines": [
                self._pipeline("orders", source, TABLE),
                self._pipeline("copy", files, COPY),
            ],
            "spark": {"master": "local[2]", "conf": {"spark.ui.enabled": "false", "spark.driver.memory": "700m"}},
        }
        (home / "job.yaml").write_text(yaml.safe_dump(job, sort_keys=False))

    def start(self) -> None:
        """Start it, or start it again."""
        command = python("engine.cli", "run", str(self.home / "job.yaml"))
        self.tree = Tree(command, self.home / f"run-{self.starts}.log", cwd=self.home)
        self.starts += 1

    def look(self) -> None:
        """Start it again if it has ended."""
        code = self.tree.exit_code
        if code is not None:
            self.codes.append(code)
            self.tree.kill()  # workers that outlive it
            self.start()

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        self.tree.process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + 120
        while self.tree.exit_code is None:
            assert time.monotonic() < deadline, f"does not stop: {self.tree.tail()}"
            time.sleep(0.1)
        code = self.tree.exit_code
        self.tree.kill()
        assert code is not None
        return code

    def batches(self) -> int:
        """Micro-batches of this start, by its health file."""
        try:
            health = json.loads((self.home / "health.json").read_text())
        except (OSError, ValueError):
            return 0
        return sum(each["batch_count"] for each in health["pipelines"].values())

    def _pipeline(self, name: str, source: dict[str, object], target: str) -> dict[str, object]:
        checkpoint = f"{self.home}/checkpoints/{name}"
        trigger = {"processing-time": "500ms"}
        return {"name": name, "source": source, "target": target, "trigger": trigger, "checkpoint": checkpoint}
