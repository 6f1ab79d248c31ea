"""A real Kafka broker on this machine, for tests, demos and single-machine use.

One KRaft node, without TLS. All state lives in ``data_dir``: the data, the ports, the password, the log and the process
id. Any process of the same user can ask for the status or stop the broker, and a restart after a stop or a kill finds
the same port and the same records.
"""

import contextlib
import json
import os
import random
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

from engine.broker.class_archive import NewArchive, archive_of, options_of
from engine.broker.jars import broker_jars, find_java
from engine.runtime.logs import is_loopback
from lsm.errors import InvalidInputError, UnavailableError

# ---- Where a broker of this machine listens, and the login that it asks clients for: one user, with a password in a
# file
#
# The file is its owner's alone, as is the broker's own file of properties, which has the password, too. There is no
# TLS: who reads the network between the machines reads the password. It keeps out other users of this machine, and of
# others.


HERE: Final = "127.0.0.1"
USER: Final = "fluvial"
_PASSWORD_FILE: Final = "password"
_FILE: Final = "ports.json"
_LISTENERS: Final = """\
controller.quorum.voters=1@{here}:{controller_port}
listeners={protocol}://{host}:{port},CONTROLLER://{here}:{controller_port}
advertised.listeners={protocol}://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:{protocol},{protocol}:{protocol}
"""
_LOGIN: Final = """\
inter.broker.listener.name=SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
sasl.mechanism.controller.protocol=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config={module}
listener.name.controller.plain.sasl.jaas.config={module}
"""
_MODULE: Final = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="{user}" password="{password}" user_{user}="{password}";'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """The addresses of a broker and whether it asks for a login, as its directory keeps them."""

    port: int
    controller_port: int
    host: str = HERE
    has_login: bool = False

    @classmethod
    def of(cls, directory: Path) -> Self | None:
        """As at the last start; None: it was never started."""
        with suppress(FileNotFoundError):
            return cls(**json.loads(directory.joinpath(_FILE).read_text(encoding="utf-8")))
        return None

    def keep(self, directory: Path) -> None:
        """Remember it for the next start."""
        write_own(directory / _FILE, json.dumps(asdict(self)))

    def __str__(self) -> str:
        return f"{self.servers}{' with a login' if self.has_login else ''}"

    @property
    def servers(self) -> str:
        """``host:port`` for clients."""
        return f"{self.host}:{self.port}"

    def client_options(self, directory: Path, *, shown: bool) -> dict[str, str]:
        """Options of a client, by Kafka's names; ``shown``: with a reference in place of the password."""
        if not self.has_login:
            return {"bootstrap.servers": self.servers}
        file = directory / _PASSWORD_FILE
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": f"${{file:{file}}}" if shown else file.read_text(encoding="utf-8").strip(),
        }

    def server_properties(self, directory: Path) -> str:
        """The broker's own; makes the password, if there is none."""
        protocol = "SASL_PLAINTEXT" if self.has_login else "PLAINTEXT"
        listeners = _LISTENERS.format(
            here=HERE, protocol=protocol, host=self.host, port=self.port, controller_port=self.controller_port
        )
        if not self.has_login:
            return listeners
        with suppress(FileExistsError):
            file = os.open(directory / _PASSWORD_FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with open(file, "w", encoding="utf-8") as opened:
                opened.write(secrets.token_hex(24))
        password = self.client_options(directory, shown=False)["sasl.password"]
        return listeners + _LOGIN.format(module=_MODULE.format(user=USER, password=password))


def write_own(path: Path, text: str) -> None:
    """Replace a file atomically with one that only its owner reads."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
        file.write(text)
    temporary.replace(path)


# ---- A real Kafka broker on this machine, for tests, demos and single-machine use


START_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 30.0

# Below the ephemeral port range: no outgoing connection takes the port between our probe and the broker's bind.
_PORTS: Final = range(20_000, 32_000)
_POLL_S: Final = 0.05
_CLUSTER_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
log.dirs={log_dir}
auto.create.topics.enable=false
# after a kill, the new process is fenced until the old session expires: 3 s instead of 9
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
# no records of its own twice a second, by which other controllers would see that this one lives: there is no other
metadata.max.idle.interval.ms=0
# one node holds the only copy of everything, its own topics included
default.replication.factor=1
min.insync.replicas=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# few threads, partitions and buffers: the broker shares a laptop with Spark
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
num.network.threads=2
num.io.threads=4
background.threads=2
log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=8388608
"""
_LOG4J_PROPERTIES: Final = """\
status=ERROR
# keep the broker's last log lines
shutdownHook=disable
appender.file.type=RollingFile
appender.file.name=file
appender.file.fileName={log_file}
appender.file.filePattern={log_file}.%i
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d] %p %m (%c)%n
appender.file.policy.type=SizeBasedTriggeringPolicy
appender.file.policy.size=10MB
appender.file.strategy.type=DefaultRolloverStrategy
appender.file.strategy.max=3
rootLogger.level=INFO
rootLogger.appenderRef.file.ref=file
"""
# Runs between fork and exec without Python code in a forked copy of a threaded process (which may deadlock): ask the
# kernel for a SIGTERM when the parent dies, give up when it has died already, become the broker. 1 = PR_SET_PDEATHSIG.
_DIE_WITH_PARENT: Final = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15);"
    "os.getppid() == int(sys.argv[1]) or sys.exit(1); os.execv(sys.argv[2], sys.argv[2:])"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerStatus:
    """Status of the broker of one directory, as any process can read it."""

    running: bool
    pid: int | None  # None when not running
    bootstrap_servers: str | None  # None before the first start; kept after a stop
    client_options: Mapping[str, str]  # address and login, the password as a reference to its file; {} before
    data_dir: Path
    log_file: Path


class Broker:
    """The broker of one directory. Used as a context manager, it starts and stops; its data stays.

    Args:
        data_dir: created if missing.
        port: 0 reuses the port of the last start, or picks a free one the first time.
        host: where it listens, by the name or address by which clients reach it; None: as at the last start, the first
            time 127.0.0.1.
        has_login: whether clients need the login; None: as at the last start, the first time where ``host`` is not only
            of this machine.
        detached: True: the broker outlives this process (``fluvial broker start``); False: it stops when the calling
            thread dies.
        heap_mb: Java heap; 256 serves a few hundred thousand records a second.
        jars: the Kafka jars; by default fetched and verified by `engine.broker.jars`.
    """

    def __init__(
        self,
        data_dir: Path | str,
        *,
        port: int = 0,
        host: str | None = None,
        has_login: bool | None = None,
        detached: bool = False,
        heap_mb: int = 256,
        jars: Sequence[Path] | None = None,
    ) -> None:
        self.data_dir = Path(data_dir).absolute()
        asked = {"port": port or None, "host": host, "has_login": has_login}
        self._asked: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
        self._detached = detached
        self._heap_mb = heap_mb
        self._jars = jars
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` for clients. Raises: InvalidInputError: the broker was never started; call `start` first."""
        return self._listening.servers

    @property
    def client_properties(self) -> dict[str, str]:
        """Address and login of a client, with the password. Raises: InvalidInputError: it was never started."""
        return self._listening.client_options(self.data_dir, shown=False)

    @property
    def _listening(self) -> Listening:
        known = Listening.of(self.data_dir)
        if known is None:
            raise InvalidInputError(f"broker was never started: data_dir={self.data_dir}")
        return known

    def status(self) -> BrokerStatus:
        """Status from the directory and the process table; never waits."""
        known = Listening.of(self.data_dir)
        pid = self._live_pid()
        return BrokerStatus(
            running=pid is not None,
            pid=pid,
            bootstrap_servers=None if known is None else known.servers,
            client_options={} if known is None else known.client_options(self.data_dir, shown=True),
            data_dir=self.data_dir,
            log_file=self._file("broker.log"),
        )

    def start(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Start and wait until transactions work. Does nothing if the broker is already running.

        Raises:
            InvalidInputError: Java is missing or too old, a port is taken, or the broker already runs at another
                address or with another login.
            UnavailableError: the broker exited or timed out, or the jars cannot be fetched.
        """
        if self._live_pid() is not None:
            self._check_same()
            return self
        deadline = time.monotonic() + timeout_s
        java, jars = find_java(), self._jars or broker_jars()
        self._prepare()
        self._format(java, jars)
        self._spawn(java, jars)
        while not self._answers():
            self._check_start(deadline, timeout_s)
            time.sleep(_POLL_S)
        self._warm_up(deadline)
        return self

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop it in order, by force after `timeout_s`. Does nothing if it is not running. The data stays."""
        self._end(signal.SIGTERM, timeout_s)

    def kill(self) -> None:
        """Stop it at once with SIGKILL, as a crash would."""
        self._end(signal.SIGKILL, STOP_TIMEOUT_S)

    def _end(self, how: signal.Signals, timeout_s: float) -> None:
        pid = self._live_pid()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, how)
            deadline = time.monotonic() + timeout_s
            while self._live_pid() is not None:
                if time.monotonic() > deadline:
                    how = signal.SIGKILL
                    os.kill(pid, how)
                time.sleep(_POLL_S)
        if self._process is not None:
            self._process.wait()
        archive = NewArchive(self.data_dir)
        archive.keep() if pid is not None and how is signal.SIGTERM else archive.drop()
        self._file("broker.pid").unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self.data_dir / name

    def _check_same(self) -> None:
        known = self._listening
        wanted = replace(known, **self._asked)
        if wanted != known:
            raise InvalidInputError(
                f"broker runs on another port or address, or with another login: known='{known}' wanted='{wanted}' "
                "fix='stop it, and start it again'"
            )

    def _wanted(self, known: Listening | None) -> Listening:
        """As at the last start, but for what is asked; an address that others reach has a login unless one says no."""
        if known is None:
            port = self._asked.get("port") or _free_port()
            known = Listening(port=port, controller_port=_free_port(other_than=port))
        host = self._asked.get("host", known.host)
        has_login = known.has_login if host == known.host else not is_loopback(host)
        return replace(known, **{"has_login": has_login, **self._asked})

    def _live_pid(self) -> int | None:
        if self._process is not None:
            self._process.poll()  # reaps: a dead child that was not waited for keeps its process id
        try:
            pid = int(self._file("broker.pid").read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        # process ids are reused: this one is the broker only if its command line names our directory
        return pid if str(self._file("server.properties")) in _command_line(pid) else None

    def _prepare(self) -> None:
        self._file("kafka-logs").mkdir(parents=True, exist_ok=True)
        self._file("kafka-logs").chmod(0o700)  # other users of the machine read no records
        listening = self._wanted(Listening.of(self.data_dir))
        for wanted, host in ((listening.port, listening.host), (listening.controller_port, HERE)):
            if not _is_free(wanted, host):
                raise InvalidInputError(
                    f"port is taken: port={wanted} host={host} data_dir={self.data_dir}"
                    " fix=stop what listens there or start with another port"
                )
        listening.keep(self.data_dir)
        write_own(self._file("log4j2.properties"), _LOG4J_PROPERTIES.format(log_file=self._file("broker.log")))
        write_own(
            self._file("server.properties"),
            listening.server_properties(self.data_dir) + _CLUSTER_PROPERTIES.format(log_dir=self._file("kafka-logs")),
        )

    def _java_command(self, java: Path, jars: Sequence[Path], heap_mb: int, main: str) -> list[str]:
        return [
            str(java),
            f"-Xmx{heap_mb}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            "-XX:+ExitOnOutOfMemoryError",
            "-Xshare:auto",
            *options_of(archive_of(java, jars)),
            "-Djava.awt.headless=true",
            f"-Dlog4j2.configurationFile={self._file('log4j2.properties')}",
            *("-cp", os.pathsep.join(map(str, jars)), main),
        ]

    def _format(self, java: Path, jars: Sequence[Path]) -> None:
        if self._file("kafka-logs").joinpath("meta.properties").exists():
            return
        # Not meta.properties by ourselves, which is faster: StorageTool also sets the feature levels (transactions 2)
        # starts with a letter: a leading "-" would be parsed as an option
        cluster_id = "F" + urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")[1:]
        arguments = ["format", "-t", cluster_id, "-c", str(self._file("server.properties")), "--ignore-formatted"]
        command = [*self._java_command(java, jars, 128, "kafka.tools.StorageTool"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, umask=0o077)
        if done.returncode != 0:
            raise UnavailableError(
                f"broker's storage cannot be formatted: data_dir={self.data_dir}"
                f" said={_tail(done.stdout + done.stderr)!r}"
            )

    def _spawn(self, java: Path, jars: Sequence[Path]) -> None:
        command = [*self._java_command(java, jars, self._heap_mb, "kafka.Kafka"), str(self._file("server.properties"))]
        command[1:1] = NewArchive(self.data_dir).options(archive_of(java, jars))
        if not self._detached and sys.platform == "linux":
            command = [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *command]
        with self._file("broker.out").open("wb") as out:
            # a separate session: Ctrl-C in the terminal stops the user's program, which then stops the broker in order
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, umask=0o077
            )
        write_own(self._file("broker.pid"), str(self._process.pid))

    def _check_start(self, deadline: float, timeout_s: float) -> None:
        assert self._process is not None
        code = self._process.poll()
        if code is not None:
            raise UnavailableError(f"broker ended while starting: exit_code={code} {self._evidence()}")
        if time.monotonic() > deadline:
            evidence = self._evidence()
            self.kill()
            raise UnavailableError(f"broker did not answer in time: timeout_s={timeout_s:g} {evidence}")

    def _evidence(self) -> str:
        texts = [
            path.read_text(encoding="utf-8", errors="replace")
            for path in map(self._file, ("broker.log", "broker.out"))
            if path.exists()
        ]
        return f"log_file={self._file('broker.log')} last_lines={_tail(''.join(texts))!r}"

    def _answers(self) -> bool:
        """Whether the broker is registered: requests for its versions are answered too early to be a sign."""
        client = AdminClient({**self.client_properties, "log_level": 0, "reconnect.backoff.ms": 20})
        try:
            return bool(client.list_topics(timeout=1.0).brokers)
        except KafkaException:
            return False

    def _warm_up(self, deadline: float) -> None:
        """Run one transaction: a new broker's first one waits a second for the coordinator's topic."""
        quiet = {"transactional.id": "fluvial.broker-warm-up", "log_level": 0}
        producer = Producer({**self.client_properties, **quiet})
        while True:
            try:
                producer.init_transactions(max(1.0, deadline - time.monotonic()))
            except KafkaException as error:
                cause = error.args[0]
                if cause.retriable() and time.monotonic() < deadline:  # it still reads its transactions
                    time.sleep(_POLL_S)
                    continue
                evidence = self._evidence()
                self.kill()
                raise UnavailableError(f"broker answers but its transactions do not: {cause} {evidence}") from error
            producer.close()
            return


def make_class_archive() -> None:
    """Start and stop a broker, if none has kept its classes for the next ones; see `class_archive`."""
    if not archive_of(find_java(), broker_jars()).exists():
        with tempfile.TemporaryDirectory(prefix="fluvial-classes-") as directory, Broker(directory):
            pass


def _free_port(other_than: int = 0) -> int:
    for port in random.SystemRandom().sample(_PORTS, k=len(_PORTS)):
        if port != other_than and _is_free(port):
            return port
    raise UnavailableError(f"no free port: first={_PORTS.start} last={_PORTS.stop - 1}")


def _is_free(port: int, host: str = HERE) -> bool:
    with socket.socket() as probe:
        # as the broker does: connections in TIME_WAIT do not block the port
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _command_line(pid: int) -> str:
    """The command line of a live process; empty for a dead one."""
    if Path("/proc/self/cmdline").exists():
        try:
            return (
                Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            )  # empty for a zombie
        except OSError:
            return ""
    return subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout


def _tail(text: str, lines: int = 12) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])
