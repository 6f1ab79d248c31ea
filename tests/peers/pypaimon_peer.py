"""pypaimon, the format's Python implementation, as a peer: a process of its own, because it needs an older pyarrow."""

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.peers import INSERT, Condition, PeerError, PeerRefusedError, Row, TableDefinition, normalise

ROOT = Path(__file__).parents[2]
SERVER = Path(__file__).with_name("pypaimon_server.py")


def peer_python() -> Path:
    """The Python that has pypaimon: FLUVIAL_PEERS_PYTHON, else .venv-peers in the checkout."""
    found = Path(os.environ.get("FLUVIAL_PEERS_PYTHON") or ROOT / ".venv-peers" / "bin" / "python")
    if not found.exists():
        raise PeerError(
            f"the environment of pypaimon is missing: python={found} fix=make venv-peers, or set FLUVIAL_PEERS_PYTHON"
        )
    return found


class PyPaimonPeer:
    """pypaimon, see `tests.peers.Peer`. It cannot compact, nor write row kinds but those in a `rowkind.field`."""

    name = "pypaimon"

    def __init__(self) -> None:
        """Start the process: two seconds, so keep it for the session."""
        python = peer_python()
        self._catalog: Mapping[str, str] = {}
        self._work = tempfile.TemporaryDirectory(prefix="pypaimon-peer-")
        self._log = (Path(self._work.name) / "log").open("w+b")
        self._process = subprocess.Popen(
            [str(python), "-I", str(SERVER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    def close(self) -> None:
        """End the process and wait for it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._process.stdout.close()
        self._log.close()
        self._work.cleanup()

    @contextmanager
    def with_catalog(self, options: Mapping[str, str]) -> Iterator[None]:
        """What is asked meanwhile is asked of catalogs with these options; a warehouse may be an address then."""
        self._catalog = options
        try:
            yield
        finally:
            self._catalog = {}

    def create(self, warehouse: Path | str, table: str, definition: TableDefinition) -> None:
        """Create the table, and its database when missing."""
        self._ask(
            "create",
            warehouse,
            table,
            columns=list(definition.columns),
            primary_key=list(definition.primary_key),
            partition_by=list(definition.partition_by),
            options=dict(definition.options),
        )

    def read(
        self,
        warehouse: Path | str,
        table: str,
        *,
        snapshot_id: int | None = None,
        columns: Sequence[str] | None = None,
        where: Sequence[Condition] = (),
        options: Mapping[str, str] | None = None,
    ) -> list[Row]:
        """Rows, see `Peer.read`; the values of `where` must be what JSON can say."""
        dynamic = dict(options or {}) | ({} if snapshot_id is None else {"scan.snapshot-id": str(snapshot_id)})
        target = Path(self._work.name) / "rows.arrow"
        self._ask(
            "read",
            warehouse,
            table,
            options=dynamic,
            columns=None if columns is None else list(columns),
            where=[list(condition) for condition in where],
            target=str(target),
        )
        with pa.memory_map(str(target)) as source, pa.ipc.open_file(source) as reader:
            return normalise(reader.read_all())

    def write(self, warehouse: Path | str, table: str, rows: pa.Table, *, kinds: Sequence[int] | None = None) -> None:
        """Append rows and commit. Kinds other than INSERT are refused: only a `rowkind.field` could carry them."""
        if kinds is not None and any(kind != INSERT for kind in kinds):
            raise PeerRefusedError(
                f"pypaimon writes row kinds only from a column named by rowkind.field: kinds={sorted(set(kinds))}"
            )
        source = Path(self._work.name) / "source.arrow"
        with pa.ipc.new_file(str(source), rows.schema) as sink:
            sink.write_table(rows)
        self._ask("write", warehouse, table, source=str(source))

    def option_names(self) -> list[str]:
        """The options of tables that it knows."""
        target = Path(self._work.name) / "options"
        self._ask("options", "", "", target=str(target))
        return target.read_text(encoding="utf-8").split()

    def _ask(self, command: str, warehouse: Path | str, table: str, **arguments: Any) -> None:
        place = {"warehouse": str(warehouse), "catalog": dict(self._catalog), "table": table}
        request = {"command": command, **place, **arguments}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            self._log.seek(0)
            raise PeerError(f"pypaimon's process ended: {self._log.read().decode('utf-8', 'replace')[-4000:]}")
        answer = json.loads(line)
        if not answer["ok"]:
            failure = PeerRefusedError if answer["refused"] else PeerError
            raise failure(f"pypaimon peer: {answer['error']}\n{answer['trace']}")
