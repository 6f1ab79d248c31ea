"""The health of a job: a file, an HTTP port, and systemd notifications.

Live: the pipelines are supervised, and no micro-batch exceeds its timeout. Ready: every pipeline runs or has ended,
none waits for a restart or has failed, and the brokers answer.
"""

import json
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final, Protocol

from engine.deploy.config.operation_config import HealthConfig
from engine.deploy.pipeline.job_watch import NO_WATCH
from engine.deploy.pipeline.supervision import PipelineState
from engine.runtime.listener import BoundedListener, TimedHandler
from engine.runtime.logs import warn_if_open
from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError

_EVERY_S: Final = 2.0
_STALE_S: Final = 120.0  # since the last supervision
_NOTIFY_SOCKET: Final = "NOTIFY_SOCKET"
_LOCAL: Final = "127.0.0.1"
_ASKED_S: Final = 1.0
_LARGEST_BYTES: Final = 1 << 20


class BatchTimes(Protocol):
    """How long the running micro-batch has taken so far."""

    @property
    def batch_seconds(self) -> float:
        """0 when none is running."""


class SupervisedPipeline(Protocol):
    """The state of a pipeline, for the health report."""

    batch_count: int
    row_count: int
    restart_count: int

    @property
    def name(self) -> str:
        """Name of the pipeline in the job file."""

    @property
    def write(self) -> BatchTimes | None:
        """Times of the pipeline's micro-batches; None before its first start."""


class Supervised(Protocol):
    """The pipelines of a job: ``Supervisor``, or what runs a whole database."""

    def states(self) -> Mapping[str, PipelineState]:
        """State of each pipeline, by its name."""

    def pipelines(self) -> Sequence[SupervisedPipeline]:
        """All pipelines of the job."""


class Health:
    """The health of a running job."""

    def __init__(self, config: HealthConfig, job: str, supervisor: Supervised) -> None:
        self._config = config
        self._job = job
        self._supervisor = supervisor
        self._looked_s: float | None = None  # None: Spark is starting
        self._published_s = float("-inf")
        self._is_announced = False
        self.watch = NO_WATCH

    def look(self) -> None:
        """Publish the state; called several times a second by the supervising thread."""
        now_s = self._looked_s = time.monotonic()
        if now_s - self._published_s < _EVERY_S:
            return
        self._published_s = now_s
        state = self.state()
        if self._config.file is not None:
            _replace(Path(self._config.file), json.dumps(state, indent=2))
        if state["live"]:
            _notify("WATCHDOG=1")
        if state["ready"] and not self._is_announced:
            _notify("READY=1")
            self._is_announced = True

    def state(self) -> dict[str, Any]:
        """The state for JSON: live, ready, and each pipeline."""
        states, lags = self._supervisor.states(), self.watch.lags()
        brokers = {
            servers: {"reachable": lost_s is None, "unreachable_seconds": round(lost_s or 0.0, 1)}
            for servers, lost_s in self.watch.reachable().items()
        }
        pipelines: dict[str, dict[str, Any]] = {
            each.name: {
                "state": states[each.name].value,
                "batch_count": each.batch_count,
                "row_count": each.row_count,
                "restart_count": each.restart_count,
                "batch_seconds": round(0.0 if each.write is None else each.write.batch_seconds, 1),
                **lags.get(each.name, {}),
            }
            for each in self._supervisor.pipelines()
        }
        limit_s = self._config.batch_timeout or float("inf")
        is_supervised = self._looked_s is None or time.monotonic() - self._looked_s < _STALE_S
        return {
            "job": self._job,
            "live": is_supervised and all(each["batch_seconds"] <= limit_s for each in pipelines.values()),
            "ready": all(each in (PipelineState.RUNNING, PipelineState.ENDED) for each in states.values())
            and all(each["reachable"] for each in brokers.values()),
            "brokers": brokers,
            "pipelines": pipelines,
        }


@contextmanager
def health_of(config: HealthConfig, job: str, supervisor: Supervised) -> Iterator[Health]:
    """The health of a job while it runs.

    Raises:
        InvalidInputError: the port is taken, or the file cannot be written.
    """
    health = Health(config, job, supervisor)
    if config.file is not None:
        _replace(Path(config.file), json.dumps(health.state() | {"ready": False}, indent=2))
    server = None if config.port is None else _server(config, health)
    try:
        if server is not None:
            threading.Thread(target=server.serve_forever, name="fluvial-health", daemon=True).start()
        yield health
    finally:
        _notify("STOPPING=1")
        if server is not None:
            server.shutdown()
            server.server_close()
        if config.file is not None:
            Path(config.file).unlink(missing_ok=True)


def published_health(config: HealthConfig) -> dict[str, Any] | None:
    """The health that a running job publishes, from its file, else from its port; None: nothing is found there.

    Raises:
        UnavailableError: the file cannot be read.
        CorruptDataError: it is no health of a job.
    """
    body, place = None, ""
    if config.file is not None:
        place = f"health.file={config.file}"
        try:
            with open(config.file, "rb") as file:
                body = file.read(_LARGEST_BYTES)
        except FileNotFoundError:
            body = None
        except OSError as error:
            raise UnavailableError(f"the health of a job cannot be read: {place} reason={error.strerror}") from error
    if body is None and config.port:
        place = f"health.port={config.port}"
        with suppress(OSError, HTTPException), closing(HTTPConnection(_LOCAL, config.port, timeout=_ASKED_S)) as asked:
            asked.request("GET", "/")
            body = asked.getresponse().read(_LARGEST_BYTES)
    if body is None:
        return None
    try:
        found = json.loads(body)
        pipelines = {str(name): dict(each) for name, each in found["pipelines"].items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise CorruptDataError(f"not the health of a job: {place} reason={error!r:.200}") from error
    return {**found, "pipelines": pipelines}


def _server(config: HealthConfig, health: Health) -> BoundedListener:
    class Handler(TimedHandler):
        def do_GET(self) -> None:
            state = health.state()
            name = self.path.strip("/")
            if name not in ("", "live", "ready"):
                self.send_error(HTTPStatus.NOT_FOUND)
                return
            body = json.dumps(state).encode()
            self.send_response(HTTPStatus.OK if state.get(name, True) else HTTPStatus.SERVICE_UNAVAILABLE)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Probes every few seconds are not logged."""

    try:
        server = BoundedListener((config.host, config.port or 0), Handler)
    except OSError as error:
        raise InvalidInputError(
            f"health cannot be served: health.host={config.host} health.port={config.port} reason={error.strerror} "
            "fix=choose another port"
        ) from error
    warn_if_open(config.host, server.server_port, shows="the job's state, with names of tables")
    return server


def _replace(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # its directory may be one that all write to, where others could put a link at a name that they guess
        with tempfile.NamedTemporaryFile(
            "w", prefix=f".{path.name}.", dir=path.parent, delete=False, encoding="utf-8"
        ) as made:
            made.write(text + "\n")
            os.fchmod(made.fileno(), 0o644)
        os.replace(made.name, path)
    except OSError as error:
        raise InvalidInputError(
            f"health file cannot be written: health.file={path} reason={error.strerror} fix=name a writable file"
        ) from error


def _notify(text: str) -> None:
    """Notify systemd, if NOTIFY_SOCKET is set. Source: sd_notify(3)."""
    address = os.environ.get(_NOTIFY_SOCKET)
    if not address:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifier:
        notifier.connect("\0" + address[1:] if address.startswith("@") else address)
        notifier.sendall(text.encode())
