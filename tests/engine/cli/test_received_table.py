"""A table received from a stranger is opened by every command, procedure and reader: nothing happens outside of it.

Canaries: files outside of the warehouse, a shared library that writes a file when it is loaded, secrets of the opener,
and a socket at the addresses that the table's files name.
"""

import hashlib
import inspect
import json
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.cli.app import run_command
from engine.cli.command_list import ACTIONS, COMMANDS
from engine.procedures import PROCEDURES, create_savepoint, create_tag
from engine.procedures.registry import ParameterKind
from engine.system_tables.names import ROW_TABLES
from engine.ui.parts import table_address, what_if_address
from engine.versions.branches import create_branch
from filestore.evolution.schema_change import SetOption
from filestore.manifest.entries import ManifestEntry
from filestore.system_tables import SYSTEM_TABLES
from lsm.errors import FluvialError
from tests.support.consoles import running
from tests.support.rows import id_rows
from tests.support.stored_login import store_options
from tests.support.warehouses import ID_SCHEMA, new_table

SECRET = "hush-7f3a"
NAME = "db.received"
NO_TABLE = {
    **dict.fromkeys(["broker", "simulate", "spark-conf", "init", "package"], "opens no table of a warehouse"),
    "trace": "reads a directory of its own",
    **dict.fromkeys(["run", "plan", "validate", "recover", "cdc"], "by a job file: its tables are opened as below"),
    "serve": "by SQL, as `sql`",
    "ui": "by its pages, below",
}
COMMAND_LINES: dict[str, list[list[str]]] = {
    "describe": [[NAME], [f"{NAME}$branch_b"]],
    "diff": [[NAME, "1", "2"]],
    "doctor": [[NAME], [f"{NAME}$branch_b"]],
    "lineage": [[NAME], []],
    "ls": [[], [NAME.partition(".")[0]]],
    "read": [
        [NAME],
        [f"{NAME}$branch_b"],
        *([f"{NAME}${each}"] for each in (*SYSTEM_TABLES, *ROW_TABLES)),
        ["sys.tables"],
        ["sys.partitions"],
        ["sys.all_table_options"],
    ],
    "sql": [],  # below, with Spark
    "shell": [],  # as `sql`
    "tail": [[NAME, "--limit", "3"]],
    "top": [["--once", NAME], ["--once"]],
}
"""Of commands that take more than the name of a table; a new one is called with that alone."""
ARGUMENTS: dict[str, object] = {
    "branch": "b", "from_branch": "b", "to_branch": "c", "tag": "x", "target_tag": "y", "savepoint": 1, "snapshot": 2,
    "snapshot_id": 2, "timestamp": "2020-01-01 00:00:00", "watermark": 1, "bucket_num": 2, "order_by": "id",
    "partitions": "id=1", "before": "1", "consumer_id": "c", "job": "j", "table": NAME, "tables": NAME,
    "source_table": NAME, "target_table": "db.copied", "query": "SELECT * FROM t",
}  # fmt: skip
CALLED_WITH: dict[str, object] = {
    "name": NAME, "new_name": "db.renamed", "other": "db.second", "database": "db", "options": {}, "before": 1,
    "changes": [SetOption("snapshot.num-retained.max", "2")], "schema": ID_SCHEMA, "rows": id_rows([9]), "handle": "x",
    "Catalog.create_database.name": "db2", "Catalog.drop_database.name": "db", "Catalog.drop_database.cascade": True,
    "Catalog.system_table.name": "sys.tables", "Table.writer.name": "w", "Table.stream.idle_s": 0,
    "Catalog.create_table.name": "db.new",
}  # fmt: skip
"""By parameter, of all public calls or of one. A new call is in the sweep, and fails without its parameters here."""
NOT_CALLED = {
    "Table.append": "takes a frame of Spark, and writes it as `write`",
    "Table.dataframe": "by Spark, as `sql`",
    "Table.handle_of": "of a commit that was made here",
}


@dataclass
class Received:
    """A warehouse from a stranger, and what must stay as it is."""

    warehouse: Path
    outside: Path
    given: dict[str, str]
    heard: list[bytes] = field(default_factory=list)  # by the socket

    def state(self) -> dict[str, str]:
        files = [path for path in self.outside.rglob("*") if path.is_file()]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    def opened(self) -> Table:
        return Catalog(str(self.warehouse), options=self.given).table(NAME)

    def command(self, *words: str) -> int:
        options = [word for key, text in self.given.items() for word in ("--catalog-option", f"{key}={text}")]
        return run_command([*words, "--warehouse", str(self.warehouse), *options])

    def check(self, before: dict[str, str], doing: object) -> None:
        assert self.state() == before, doing
        assert not any(SECRET.encode() in each for each in self.heard), doing


@pytest.fixture
def listening() -> Iterator[tuple[str, list[bytes]]]:
    """An address, and what is sent to it."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hear() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    client.settimeout(0.2)
                    with client, suppress(OSError):
                        heard.append(client.recv(1 << 16))

        threading.Thread(target=hear, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}", heard
        server.shutdown(socket.SHUT_RDWR)


def library(directory: Path) -> str:
    """A shared library that leaves a file beside itself when it is loaded; garbage where nothing compiles one."""
    path = directory / "evil.so"
    compiler = shutil.which("cc")
    if compiler is None:
        path.write_bytes(b"\x7fELF")
        return str(path)
    source = f'#include <stdio.h>\n__attribute__((constructor)) void f(void){{fopen("{directory}/LOADED", "w");}}'
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)]
    subprocess.run(command, input=source, text=True, check=True, capture_output=True)
    return str(path)


def forged(table: Table, victim: Path) -> None:
    """Its replaced files, by all manifests, lie at the victim's place."""

    def change(entry: ManifestEntry) -> ManifestEntry:
        if entry.file.level:
            return entry
        return replace(entry, file=replace(entry.file, external_path=str(victim), extra_files=("extra.txt",)))

    manifests = table.store.manifests
    for snapshot_id in table.store.snapshots.ids():
        path = Path(table.store.paths.snapshot(snapshot_id))
        body = json.loads(path.read_text())
        for kind in ("base", "delta"):
            metas = manifests.read_list(body[f"{kind}ManifestList"], body[f"{kind}ManifestListSize"])
            changed = [manifests.write_manifest(list(map(change, manifests.read_manifest(each)))) for each in metas]
            body[f"{kind}ManifestList"], body[f"{kind}ManifestListSize"] = manifests.write_list(changed)
        path.write_text(json.dumps(body))


def received(home: Path, address: str, log: dict[str, str], *, is_forged: bool) -> Received:
    """The stranger has made the table, and then changed its files by hand."""
    outside, warehouse = home / "outside", home / "warehouse"
    outside.mkdir()
    victim = outside / "data-victim.parquet"
    victim.write_bytes(b"PAR1 secret")
    for name in ("extra.txt", "events.json"):
        (outside / name).write_text("kept")
    table = new_table(Catalog(str(warehouse), options=log), name=NAME, options={"bucket": "1", **log})
    for number in range(3):
        table.write(id_rows([number]))
    table.compact(full=True)
    create_tag(table, "x")
    create_savepoint(table)
    create_branch(table.store, "b")
    if is_forged:
        forged(table, victim)
    table_root = Path(table.store.paths.root)
    hostile = {
        "log.kafka.plugin.library.paths": library(outside),
        "log.kafka.ssl.engine.location": str(outside / "evil.so"),
        "log.kafka.metadata.broker.list": address,
        "log.kafka.enable.ssl.certificate.verification": "false",
        "log.schema-registry.basic-auth.user-info": "u:p",
        "data-file.external-paths": f"file://{outside}",
        "metadata.iceberg.storage": "rest-catalog",
        "metadata.iceberg.rest.uri": f"http://{address}",
        "commit.callbacks": "os.system",
        "trace.directory": str(outside),
        "path": str(outside),
    }
    for body in [*table_root.glob("schema/schema-*"), *table_root.glob("branch/*/schema/schema-*")]:
        store_options(str(body), hostile)
    for place in ("", "bucket-0", "manifest", "index", "statistics", "changelog", "tag", "branch", "snapshot"):
        (table_root / place).mkdir(exist_ok=True)
        (table_root / place / "bucket-9").symlink_to(outside, target_is_directory=True)
        (table_root / place / "data-link.parquet").symlink_to(victim)
    catalog = warehouse / ".fluvial" / "catalog.json"
    if catalog.exists():
        store_options(catalog, {"openlineage.url": str(outside / "events.json")})
    return Received(warehouse=warehouse, outside=outside, given={})


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What the victim has: in the environment, and in options of a catalog."""
    monkeypatch.setenv("PYICEBERG_CATALOG__FLUVIAL__TOKEN", SECRET)
    monkeypatch.setenv("PGPASSWORD", SECRET)
    return {"log.kafka.sasl.username": "me", "log.kafka.sasl.password": SECRET}


@pytest.fixture(params=["manifests, too", "options only"])
def files_only(
    request: pytest.FixtureRequest, tmp_path: Path, listening: tuple[str, list[bytes]], secrets: dict[str, str]
) -> Received:
    """Without a log. With its manifests as they were, commands go further."""
    world = received(tmp_path, listening[0], {}, is_forged=request.param == "manifests, too")
    return replace(world, heard=listening[1])


def test_every_command_is_in_the_sweep() -> None:
    assert {*COMMAND_LINES, *NO_TABLE} <= {*COMMANDS}
    assert {each.replace("-", "_") for each in ACTIONS} <= {*PROCEDURES}


@pytest.mark.long
def test_commands_and_readers_do_nothing_outside(files_only: Received) -> None:
    before = files_only.state()
    for name in COMMANDS.keys() - NO_TABLE.keys():
        for words in COMMAND_LINES.get(name, [[NAME]]):
            files_only.command(name, *words)
            files_only.check(before, (name, words))


@pytest.mark.long
def test_pages_of_the_console_do_nothing_outside(files_only: Received) -> None:
    before = files_only.state()
    with running(files_only.warehouse) as client:
        pages = [table_address(NAME, page) for page in ("", "/data", "/changes")]
        for path in ("/", *pages, "/lineage", what_if_address(NAME, 2)):
            assert client.ask(path).status in (200, 404, 500, 503), path
            assert "unexpected" not in client.ask(path).text, path
            files_only.check(before, ("ui", path))


def public_calls() -> Iterator[tuple[type, str, Callable[..., Any] | None]]:
    """All that is public of a catalog and of a table: methods, and None for what is asked for without a call."""
    for kind in (Catalog, Table):
        for name, found in inspect.getmembers_static(kind):
            if not name.startswith("_") and f"{kind.__name__}.{name}" not in NOT_CALLED:
                yield kind, name, found if inspect.isfunction(found) else None


def arguments_of(kind: type, method: Callable[..., Any]) -> dict[str, object]:
    """The required arguments of a method, and those that are for it alone."""
    prefix = f"{kind.__name__}.{method.__name__}."
    own = {key.removeprefix(prefix): value for key, value in CALLED_WITH.items() if key.startswith(prefix)}
    _, *parameters = inspect.signature(method).parameters.values()
    required = [each.name for each in parameters if each.default is each.empty and each.kind is not each.VAR_KEYWORD]
    return {name: CALLED_WITH[name] for name in required if name not in own} | own


@pytest.mark.long
def test_public_calls_do_nothing_outside(files_only: Received, tmp_path: Path) -> None:
    """Each on a copy of its own, on main and on the branch, and its result to the end."""
    before, done = files_only.state(), set()
    for kind, name, method in public_calls():
        for opened in (NAME, f"{NAME}$branch_b") if kind is Table else (NAME,):
            place = tmp_path / "copies" / f"{kind.__name__}-{name}-{opened}"
            shutil.copytree(files_only.warehouse, place, symlinks=True)
            with suppress(FluvialError):
                catalog = Catalog(str(place), options=files_only.given)
                target: Any = catalog if kind is Catalog else catalog.table(opened)
                found = getattr(target, name) if method is None else method(target, **arguments_of(kind, method))
                if hasattr(found, "to_arrow"):
                    found.to_arrow()
                elif isinstance(found, Iterator):
                    list(found)
                if hasattr(found, "close"):
                    found.close()
                done.add(name)
            files_only.check(before, (kind, name, opened))
    assert len(done) >= 20, f"too many stop before they do anything: {sorted(done)}"


@pytest.mark.long
def test_procedures_do_nothing_outside(files_only: Received, tmp_path: Path) -> None:
    """Each on a copy of its own, with every argument that it asks for: by its command, where it has one."""
    before = files_only.state()
    ran = []
    for number, (name, each) in enumerate(PROCEDURES.items()):
        place = tmp_path / f"copy-{number}"
        shutil.copytree(files_only.warehouse, place, symlinks=True)
        mine = tmp_path / f"mine-{number}"  # places that the user names
        asked = [one for one in each.parameters if one.is_required]
        assert all(one.kind is ParameterKind.TEXT or one.name in ARGUMENTS for one in asked)
        wanted = {one.name: ARGUMENTS.get(one.name, str(mine / one.name)) for one in asked}
        if (action := name.replace("_", "-")) in ACTIONS:
            words = [part for key, value in wanted.items() for part in (f"--{key.replace('_', '-')}", str(value))]
            table = [NAME] if each.is_of_table else []
            if replace(files_only, warehouse=place).command(action, *table, *words) in {0, 1}:
                ran.append(name)
            files_only.check(before, name)
            continue
        catalog = Catalog(str(place))
        with suppress(FluvialError):
            target: Any = catalog.table(NAME) if each.is_of_table else catalog
            each.run(target, wanted)
            ran.append(name)
        files_only.check(before, name)
    assert len(ran) >= 30, f"too many stop before they do anything: {sorted({*PROCEDURES} - {*ran})}"


LOG_DEEDS: Sequence[Callable[[Table], Any]] = (
    lambda table: table.write(id_rows([9])),
    lambda table: table.read(options={"scan.log.union": "true"}).to_arrow(),
    lambda table: list(table.stream("full", idle_s=0)),
    lambda table: PROCEDURES["verify"].run(table, {"rows": True}),
    lambda table: PROCEDURES["sync_log"].run(table, {}),
    lambda table: PROCEDURES["reset_log"].run(table, {}),
)


@pytest.mark.long
@pytest.mark.broker
def test_who_opens_the_log_loads_nothing_and_sends_no_login(
    tmp_path: Path, broker: Broker, listening: tuple[str, list[bytes]], secrets: dict[str, str], new_topic: Any
) -> None:
    """Its brokers are real: so every command goes as far as it can. The login is for others, and goes nowhere."""
    log = {"log.kafka.bootstrap.servers": broker.bootstrap_servers, "log.kafka.topic": new_topic()}
    world = replace(received(tmp_path, listening[0], log, is_forged=False), heard=listening[1])
    before = world.state()
    mine = {"log.kafka.bootstrap.servers": "127.0.0.1:9", **secrets}
    for given in ({}, mine):
        world.given = given
        for name in ("doctor", "lag", "tail", "top", "metrics"):
            for words in COMMAND_LINES.get(name, [[NAME]]):
                world.command(name, *words)
                world.check(before, (name, words))
        for deed in LOG_DEEDS:
            with suppress(FluvialError):
                deed(world.opened())
            world.check(before, deed)
    assert world.heard == [], "nobody asks the other address, under whatever name"


COMPUTED = {
    "computed-column.0": "loaded AS reflect('java.lang.System', 'load', '{library}')",
    "watermark.column": "at",
    "watermark.expression": "reflect('java.lang.System', 'load', '{library}')",
}


@pytest.mark.long
@pytest.mark.spark
def test_sql_does_nothing_outside(files_only: Received) -> None:
    before = files_only.state()
    statements = [
        f"SELECT * FROM {NAME}", f"SELECT id FROM {NAME}", f"SELECT count(*) FROM `{NAME}$files`",
        f"DESCRIBE EXTENDED {NAME}",
        f"INSERT INTO {NAME} VALUES (7, 'x')", f"DELETE FROM {NAME} WHERE id = 7", f"SHOW CREATE TABLE {NAME}",
        f"CALL sys.expire_snapshots(table => '{NAME}', retain_max => 1, retain_min => 1)",
        f"CALL sys.remove_orphan_files(table => '{NAME}', older_than => '2999-01-01 00:00:00')",
        f"DROP TABLE {NAME}",
    ]  # fmt: skip
    store_options(
        next((files_only.warehouse / "db.db" / "received" / "schema").glob("schema-*")),
        {key: text.format(library=files_only.outside / "evil.so") for key, text in COMPUTED.items()},
    )
    for each in statements:
        files_only.command("sql", each)
        files_only.check(before, each)
