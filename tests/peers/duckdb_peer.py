"""DuckDB with its Iceberg extension as a reader of our metadata: a process of .venv-peers, which has its version."""

import json
import subprocess
from pathlib import Path
from typing import Any

from tests.peers import PeerError
from tests.peers.pypaimon_peer import peer_python

SERVER = Path(__file__).with_name("duckdb_server.py")


class DuckDB:
    """DuckDB's own reader of Iceberg tables, without a catalog."""

    def __init__(self) -> None:
        """Start the process."""
        self._process = subprocess.Popen(
            [str(peer_python()), "-I", str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def close(self) -> None:
        """End the process and wait for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def read(self, location: str, *, snapshot_id: int | None = None, where: str = "true") -> list[tuple[Any, ...]]:
        """The rows of a table, or of one of its snapshots, sorted; what JSON has not is a text."""
        version = "" if snapshot_id is None else f", snapshot_from_id = {snapshot_id}"
        return self._answer(f"SELECT * FROM iceberg_scan('{location}'{version}) WHERE {where} ORDER BY ALL")

    def _answer(self, query: str) -> list[tuple[Any, ...]]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(query) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer = json.loads(line) if line else {"error": f"it ended: python={peer_python()} fix=make venv-peers"}
        if "error" in answer:
            raise PeerError(f"DuckDB: {answer['error']} query={query}")
        return [tuple(row) for row in answer["rows"]]
