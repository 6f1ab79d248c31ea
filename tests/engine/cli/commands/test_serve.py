"""``fluvial serve``: JDBC clients and dbt work on the tables, and a signal ends the server cleanly."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest

from engine import Catalog
from engine.cli.app import run_command
from tests.stores import processes

ROOT = Path(__file__).resolve().parents[4]
PROJECT = ROOT / "docs/examples/dbt"
SCHEMA = pa.schema([("id", pa.int64()), ("customer", pa.string()), ("amount", pa.int64()), ("state", pa.string())])
BEELINE = Path(pyspark.__file__).parent / "bin" / "beeline"
ONE_SERVER = [pytest.mark.spark, pytest.mark.sweep, pytest.mark.xdist_group("serve")]


@dataclass
class Server:
    """The command as a process."""

    process: subprocess.Popen[bytes]
    port: int
    output: Path
    catalog: Catalog


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the module; its last test ends it."""
    home = tmp_path_factory.mktemp("serve")
    output, warehouse = home / "output", str(home / "warehouse")
    place = ["--warehouse", warehouse, "--port", "0", "--master", "local[2]", "--spark-log", str(home / "spark.log")]
    command = [sys.executable, "-m", "engine.cli", "serve", *place]
    process = processes.start(command, output, lambda: "jdbc:" in output.read_text())
    port = int(output.read_text().partition("jdbc:hive2://127.0.0.1:")[2].partition("/")[0])
    yield Server(process, port, output, Catalog(warehouse))
    processes.end(process)


def through_jdbc(server: Server, database: str, *statements: str) -> list[str]:
    """What Hive's JDBC client prints for statements on one connection: names of columns, then rows, as CSV."""
    url = f"jdbc:hive2://127.0.0.1:{server.port}/{database}"
    form = ["--silent=true", "--outputformat=csv2", "--force=true"]
    texts = [word for statement in statements for word in ("-e", statement)]
    done = subprocess.run(
        [str(BEELINE), "-u", url, *form, *texts], capture_output=True, text=True, check=False, timeout=200
    )
    lines = (line.rpartition("> ")[2].strip() for line in (done.stdout + done.stderr).splitlines())  # behind a prompt
    return [line for line in lines if line]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy of the project in the documents."""
    return Path(shutil.copytree(PROJECT, tmp_path / "project"))


DBT = """
import json, sys
from dbt.cli.main import dbtRunner
for line in sys.stdin:
    print("ended", dbtRunner().invoke(json.loads(line)).success, flush=True)
"""
"""What the program ``dbt`` runs, for one command after another: most of what one costs is to import dbt."""


@pytest.fixture
def dbt(project: Path, server: Server) -> Iterator[Callable[..., dict[str, str]]]:
    """Runs ``dbt`` in its own environment: the status of each node in its run log; of ``docs`` nodes by name."""
    python = ROOT / ".venv-dbt" / "bin" / "python"
    assert python.exists(), "the environment of dbt is missing: fix=make venv-dbt"
    with subprocess.Popen(
        [str(python), "-c", DBT],
        env={**os.environ, "FLUVIAL_PORT": str(server.port)},
        cwd=project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        commands, output = process.stdin, process.stdout

        def run(*words: str) -> dict[str, str]:
            said: list[str] = []
            print(json.dumps([*words, "--profiles-dir", str(project)]), file=commands, flush=True)
            while not said or not said[-1].startswith("ended "):
                said.append(output.readline())
                assert said[-1], "".join(said)[-4000:]
            assert said[-1] == "ended True\n", "".join(said)[-4000:]
            if words[0] == "docs":
                found = json.loads((project / "target" / "catalog.json").read_text(encoding="utf-8"))
                assert not found["errors"]
                return {name: ",".join(each["columns"]) for name, each in (found["nodes"] | found["sources"]).items()}
            log = json.loads((project / "target" / "run_results.json").read_text(encoding="utf-8"))
            return {each["unique_id"]: each["status"] for each in log["results"]}

        yield run
        commands.close()


class TestServer:
    pytestmark = ONE_SERVER

    def test_a_jdbc_client_writes_merges_and_reads_and_gets_sparks_errors(self, server: Server) -> None:
        """Issue 19, 2: names relative to the URL's database, a temporary view, an unknown table."""
        server.catalog.create_database("bi")
        found = through_jdbc(
            server,
            "bi",
            "CREATE TABLE t (id BIGINT PRIMARY KEY NOT ENFORCED, v STRING, d DECIMAL(5,2)) WITH ('bucket' = '1')",
            "INSERT INTO t VALUES (1, 'a', 1.5), (2, 'b', 2.5)",
            "CREATE TEMPORARY VIEW news AS SELECT * FROM VALUES (2L, 'z', 9.25), (3L, 'c', 3.5) AS n(id, v, d)",
            "MERGE INTO t USING news ON t.id = news.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            "SELECT * FROM t VERSION AS OF 1 WHERE id = 2",
            "SELECT id, v, d FROM t ORDER BY id",
            "SELECT * FROM t_that_is_not_there",
        )
        assert "2,b,2.50" in found
        assert [line for line in found if line.endswith(",1.50")] == ["1,a,1.50"]
        assert found[found.index("1,a,1.50") :][:3] == ["1,a,1.50", "2,z,9.25", "3,c,3.50"]
        assert any("TABLE_OR_VIEW_NOT_FOUND" in line for line in found)

    @pytest.mark.long
    def test_dbt_builds_an_incremental_model_by_merge_and_a_snapshot(
        self, server: Server, dbt: Callable[..., dict[str, str]]
    ) -> None:
        """Issue 19, 2: a first run, then one after an order was paid and another one came."""
        orders = server.catalog.create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "1"})
        rows = {"customer": ["ada", "bob"], "amount": [10, 20], "state": ["new", "new"]}
        orders.write({"id": [1, 2], **rows})
        expected = {"model.shop.customers": "success", "snapshot.shop.order_states": "success"}
        assert dbt("build") == expected
        customers = server.catalog.table("shop.customers")
        first = customers.latest_snapshot()
        assert first is not None

        orders.write({"id": [2, 3], "customer": ["bob", "ada"], "amount": [20, 5], "state": ["paid", "new"]})
        assert dbt("build", "--vars", "{after: 2}") == expected
        found = customers.read().to_arrow().sort_by("customer").to_pylist()
        assert found == [{"customer": "ada", "amount": 15, "orders": 2}, {"customer": "bob", "amount": 20, "orders": 1}]
        merged = customers.diff(first.id).to_arrow().to_pylist()
        assert [(row["_row_kind"], row["customer"]) for row in merged] == [("-U", "ada"), ("+U", "ada")]

        states = server.catalog.table("shop.order_states").read().to_arrow()
        states = states.sort_by([("id", "ascending"), ("dbt_valid_from", "ascending")]).to_pylist()
        assert [(row["id"], row["state"]) for row in states] == [(1, "new"), (2, "new"), (2, "paid"), (3, "new")]
        assert [row["dbt_valid_to"] is None for row in states] == [True, False, True, True]
        assert states[1]["dbt_valid_to"] == states[2]["dbt_valid_from"]

        assert dbt("docs", "generate") == {
            "source.shop.shop.orders": "id,customer,amount,state",
            "model.shop.customers": "customer,amount,orders",
            "snapshot.shop.order_states": "id,state,dbt_scd_id,dbt_updated_at,dbt_valid_from,dbt_valid_to",
        }

    def test_sigterm_ends_it_cleanly(self, server: Server) -> None:
        """Issue 19, 2. It is the last test of the server."""
        assert processes.is_listening(server.port)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        assert not processes.is_listening(server.port)
        assert server.output.read_text().splitlines()[-1] == "stopped"


def test_a_port_in_use_is_refused_before_spark_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Issue 19, 2: the option, the port, and what to do."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert run_command(["serve", "--warehouse", str(tmp_path), "--port", str(port)]) == 2
    said = f"error: the port is in use: port={port} host=127.0.0.1 fix='--port 0 for one that is free'\n"
    assert capsys.readouterr().err == said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--host", "203.0.113.1"], "no server can listen there: host=203.0.113.1 port=0"),
        (["--conf", "shuffle"], "a setting of Spark is written key=value: --conf=shuffle"),
        (["--conf", "my.secret=x"], "a setting of Spark is written key=value: --conf=my.secret fix"),
    ],
)
def test_mistakes_are_refused_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    """The option, its value and a fix; of a setting only its name."""
    assert run_command(["serve", "--warehouse", str(tmp_path), "--port", "0", *arguments]) == 2
    assert said in capsys.readouterr().err
