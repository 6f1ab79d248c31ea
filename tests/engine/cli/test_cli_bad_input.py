"""Bad input to the command ``fluvial``: one clear line, an exit code, and nothing half-written."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.cli.app import run_command
from engine.cli.exit_codes import EXIT_FAILED, EXIT_INVALID
from filestore.commit.query_run import RUNS_DIRECTORY

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = pa.schema([pa.field("id", pa.int64()), pa.field("v", pa.int32())])
JOB = """
name: bad
warehouse: {warehouse}
tables:
  shop.orders:
    columns: {{id: BIGINT, v: INT}}
    primary_key: [id]
    options: {{bucket: 1{options}}}
pipelines:
- name: orders
  source: {{format: {source}, options: {{{source_options}}}, columns: {{{columns}}}}}
  target: shop.{target}
  checkpoint: {root}/checkpoint
spark: {{master: "local[1]", conf: {{spark.ui.enabled: false}}}}
"""


@dataclass(frozen=True)
class World:
    """A warehouse, an input directory, and ways to run a job over them."""

    root: Path
    capture: pytest.CaptureFixture[str]

    @property
    def warehouse(self) -> str:
        return str(self.root / "warehouse")

    def table_files(self) -> dict[str, bytes]:
        """Every file of the tables, but for the notes that name the run of a query."""
        files = (path for path in Path(self.warehouse).glob("*.db/**/*") if path.is_file())  # lineage lies elsewhere
        return {str(path): path.read_bytes() for path in files if path.parent.name != RUNS_DIRECTORY}

    def filled(self) -> None:
        """The table of the job with one row."""
        table = Catalog(self.warehouse).create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "1"})
        table.write(pa.table({"id": [1], "v": [1]}, schema=SCHEMA))

    def job(
        self,
        *,
        options: str = "",
        source: str = "parquet",
        source_options: str | None = None,
        columns: str = "id: BIGINT, v: INT",
        target: str = "orders",
    ) -> str:
        """A job file."""
        path = self.root / "job.yaml"
        given = f"path: {self.root}/input" if source_options is None else source_options
        path.write_text(
            JOB.format(
                warehouse=self.warehouse, root=self.root, options=options, source=source, source_options=given,
                columns=columns, target=target,
            )
        )  # fmt: skip
        return str(path)

    def run(self, *arguments: str) -> tuple[int, str]:
        """Exit code and the one line on standard error; nothing may be on standard output."""
        code = run_command(arguments)
        captured = self.capture.readouterr()
        return code, only_line(captured.out, captured.err)

    def run_apart(self, *arguments: str) -> tuple[int, str]:
        """The same in a process of its own: with Spark."""
        done = subprocess.run(
            [sys.executable, "-m", "engine.cli", *arguments, "--spark-log", str(self.root / "spark.log"), "--quiet"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        return done.returncode, only_line(done.stdout, done.stderr)

    def run_with(self, spark: SparkSession, patch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, str]:
        """The same here, with a session that goes on; what its JVM prints is seen by ``run_apart``."""
        patch.setattr("engine.deploy.job.job_session", lambda _: spark)
        patch.setattr(spark, "stop", lambda: None)
        return self.run(*arguments)


def only_line(out: str, err: str) -> str:
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1, err
    assert "Traceback" not in err
    return err


@pytest.fixture
def world(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> World:
    (tmp_path / "input").mkdir()
    return World(tmp_path, capsys)


# ---- rows


@pytest.mark.sampled(1)
@pytest.mark.spark
@pytest.mark.parametrize(
    ("rows", "columns", "facts"),
    [
        (
            pa.table({"id": pa.array([7, 8], pa.int64()), "v": ["12", "many"]}),
            "id: BIGINT, v: STRING",
            ["column=v", "given=string wanted=int"],
        ),
        (pa.table({"id": pa.array([7, None], pa.int64()), "v": pa.array([1, 2], pa.int32())}), "id: BIGINT, v: INT",
         ["column=id", "null"]),
    ],
    ids=["wrong type", "null key"],
)  # fmt: skip
def test_a_row_that_the_table_cannot_hold(
    world: World,
    rows: pa.Table,
    columns: str,
    facts: list[str],
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A value of another type and a null in the key are named; the table keeps what it had.

    Both end a task in the same way: one of them in a process of its own, of which all output is seen.
    """
    world.filled()
    before = world.table_files()
    pq.write_table(rows, world.root / "input" / "rows.parquet")
    asked = ("run", world.job(columns=columns))
    code, line = (
        world.run_apart(*asked) if facts == ["column=id", "null"] else world.run_with(spark, monkeypatch, *asked)
    )
    assert code == EXIT_INVALID, line
    for fact in facts:
        assert fact in line
    assert world.table_files() == before


# ---- options and names


@pytest.mark.parametrize(
    ("options", "meant"),
    [(", num-sorted-run.compaction-triger: 4", "num-sorted-run.compaction-trigger"), (", bukcet: 4", "bucket")],
)
def test_an_unknown_option_of_a_table_is_named_with_the_one_that_was_meant(
    world: World, options: str, meant: str
) -> None:
    code, line = world.run("run", world.job(options=options))
    assert code == EXIT_INVALID
    assert f"did_you_mean=['{meant}'" in line
    assert world.table_files() == {}


def test_an_unknown_option_of_the_source_is_named_with_the_one_that_was_meant(world: World) -> None:
    job = world.job(source="kafka", source_options="subscribe: t, startingOfsets: earliest, "
                    'kafka.bootstrap.servers: "127.0.0.1:1"')  # fmt: skip
    code, line = world.run("run", job)
    assert code == EXIT_INVALID
    assert "did_you_mean=startingOffsets" in line


@pytest.mark.parametrize("command", ["read", "describe", "inspect", "compact", "lag"])
def test_a_missing_table_is_named(world: World, command: str) -> None:
    world.filled()
    before = world.table_files()
    code, line = world.run(command, "shop.oders", "--warehouse", world.warehouse)
    assert code == EXIT_INVALID
    assert "no such table: table=shop.oders" in line
    assert world.table_files() == before


def test_a_job_with_a_missing_target_makes_nothing_there(world: World) -> None:
    code, line = world.run("run", world.job(target="oders"))
    assert code == EXIT_INVALID
    assert "no such table: table=shop.oders" in line
    assert not (world.root / "checkpoint").exists()
    assert not (Path(world.warehouse) / "shop.db" / "oders").exists()


# ---- places


@pytest.mark.parametrize("command", ["read", "describe", "inspect", "compact", "lag", "run"])
def test_a_foreign_directory_is_left_as_it_is(world: World, command: str) -> None:
    directory = Path(world.warehouse) / "shop.db" / "orders"
    directory.mkdir(parents=True)
    (directory / "thesis.txt").write_text("years of work")
    before = world.table_files()
    place = [world.job()] if command == "run" else ["shop.orders", "--warehouse", world.warehouse]
    code, line = world.run(command, *place)
    assert code == EXIT_INVALID
    assert str(directory) in line
    assert "no schema" in line or "not empty" in line
    assert world.table_files() == before


@pytest.mark.sweep
@pytest.mark.parametrize("at", ["table", "source"])
def test_a_missing_broker_is_said_within_ten_seconds(world: World, at: str) -> None:
    """Nobody listens at the address: it is named before Spark is started, and nothing is made."""
    broker = '"127.0.0.1:1"'
    job = (
        world.job(options=f", log.kafka.bootstrap.servers: {broker}")
        if at == "table"
        else world.job(source="kafka", source_options=f"subscribe: t, kafka.bootstrap.servers: {broker}")
    )
    if at == "source":
        world.filled()
    before, began = world.table_files(), time.monotonic()
    code, line = world.run("run", job)
    assert time.monotonic() - began < 30  # of a busy machine; a request may take a minute
    assert code == EXIT_FAILED
    assert "bootstrap.servers=127.0.0.1:1" in line
    assert "Connection refused" in line
    assert ("log.kafka.bootstrap.servers" in line) == (at == "table")
    assert world.table_files() == before


# ---- broken files


def truncate_manifests(world: World, is_meant: Callable[[str], bool]) -> list[str]:
    directory = Path(world.warehouse) / "shop.db" / "orders" / "manifest"
    names = [path.name for path in directory.iterdir() if is_meant(path.name)]
    for name in names:
        (directory / name).write_bytes((directory / name).read_bytes()[:-7])
    return names


@pytest.mark.parametrize("command", ["read", "inspect", "compact"])
@pytest.mark.parametrize("kind", ["manifest", "manifest list"])
def test_a_truncated_manifest_is_named(world: World, command: str, kind: str) -> None:
    world.filled()
    names = truncate_manifests(world, lambda name: name.startswith("manifest-list") == (kind == "manifest list"))
    before = world.table_files()
    code, line = world.run(command, "shop.orders", "--warehouse", world.warehouse)
    assert code == EXIT_FAILED
    assert any(name in line for name in names)
    assert world.table_files() == before


@pytest.mark.spark
def test_a_job_does_not_write_on_top_of_a_truncated_manifest(
    world: World, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.filled()
    names = truncate_manifests(world, lambda name: not name.startswith("manifest-list"))
    before = world.table_files()
    pq.write_table(pa.table({"id": [7], "v": pa.array([1], pa.int32())}), world.root / "input" / "rows.parquet")
    code, line = world.run_with(spark, monkeypatch, "run", world.job())
    assert code == EXIT_FAILED
    assert any(name in line for name in names)
    assert world.table_files() == before
