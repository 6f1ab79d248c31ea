"""What ``fluvial validate --online`` finds before a start: everything at once."""

from collections.abc import Callable
from pathlib import Path

import yaml

from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment

SERVERS = "online.memory:9092"


def test_all_missing_topics_are_named_at_once(tmp_path: Path, fluvial: Callable[..., tuple[int, str, str]]) -> None:
    """It stopped at the first missing topic (finding 14); a job that waits for its topics has none missing."""
    job = {
        "name": "j",
        "warehouse": str(tmp_path / "warehouse"),
        "log": {"kafka.bootstrap.servers": SERVERS},
        "on-failure": "stop-all",
        "tables": {f"db.{name}": {"columns": {"id": "BIGINT"}, "primary_key": ["id"]} for name in "ab"},
        "pipelines": [
            {
                "name": name,
                "source": {"options": {"subscribe": f"{name}1,{name}2", "value.format": "debezium-json"}},
                "target": f"db.{name}",
                "checkpoint": str(tmp_path / name),
            }
            for name in "ab"
        ],
    }
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job), encoding="utf-8")
    with serving(SERVERS, MemoryEnvironment(MemoryCluster())):
        code, _, error = fluvial("validate", "--online", str(file))
        assert code == 2
        assert "pipeline a: topic does not exist: option=subscribe topic=a1,a2" in error
        assert "pipeline b: topic does not exist: option=subscribe topic=b1,b2" in error
        assert fluvial("validate", "--online", str(file), "--set", "on-failure=continue")[0] == 0
