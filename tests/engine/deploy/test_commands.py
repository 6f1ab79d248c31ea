"""The commands about job files: what they print, and the exit codes that systemd, Kubernetes and Airflow go by."""

import configparser
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pytest
import yaml

from engine.broker.broker import Broker
from engine.catalog import Catalog
from engine.cli.app import run_command
from engine.cli.commands.deploy import exit_code, with_metrics
from engine.cli.exit_codes import EXIT_CHANGES, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_INVALID, EXIT_TERMINATED
from engine.deploy.config.job_config import parse_job
from engine.deploy.config.json_schema import schema_text
from engine.deploy.pipeline.pipeline import PipelineResult
from logstore.kafka.topics import LogTopics
from tests.support.commands import parse_command, shown_commands
from tests.support.kills.processes import name_of
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
DEPLOY = ROOT / "conf" / "deploy"
FLUVIAL = f"{shlex.quote(sys.executable)} -m engine.cli"
Fluvial = Callable[..., tuple[int, str, str]]
JOB = """\
name: slow
warehouse: {home}/warehouse
tables:
  db.a: {{columns: {{id: BIGINT}}, primary_key: [id], options: {{bucket: 1, log.system: none}}}}
pipelines:
- name: slow
  source: {{format: json, options: {{path: {home}/in}}}}
  limits: {{files: 1}}
  targets: [{{table: db.a, transform: {{python: "slowly:one_second"}}}}]
  checkpoint: {home}/checkpoint
health: {{file: {home}/health.json}}
logging: {{format: json, file: {home}/fluvial.log, levels: {{fluvial: debug}}}}
spark: {{master: "local[1]", conf: {{spark.ui.enabled: false}}}}
"""
SLOWLY = "import time\ndef one_second(frame):\n    time.sleep(1)\n    return frame\n"


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A job in a directory of its own, which is where commands are run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    (tmp_path / "in").mkdir()
    (tmp_path / "job.yaml").write_text(JOB.format(home=tmp_path))
    (tmp_path / "slowly.py").write_text(SLOWLY)
    return tmp_path / "job.yaml"


def environment(**more: str) -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "engine" / "plugin")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **more}


@pytest.mark.long
@pytest.mark.spark
def test_the_end_of_spark_is_named_and_sigterm_ends_the_next_run_after_its_micro_batch(
    job: Path, tmp_path: Path
) -> None:
    """SIGKILL of the JVM, as of a machine without memory; the next run begins where this one was, in the same log.

    Twenty files of a second each: nobody waits for the last one.
    """
    for number in range(20):
        (tmp_path / "in" / f"{number}.json").write_text(f'{{"id": {number}}}\n')
    running = started(job)
    wait_until(lambda: committed(tmp_path) or running.poll() is not None, "no batch was committed", 120)
    assert running.poll() is None
    (jvm,) = (each for each in psutil.Process(running.pid).children() if name_of(each) == "java")
    jvm.kill()
    _, err = running.communicate(timeout=60)
    assert running.returncode == EXIT_FAILED
    (said,) = (line for line in err.splitlines() if line.startswith("error:"))
    assert re.search(r"error: Spark has ended: cause='signal 9' fix='see .*spark_log=.*spark.log last_lines=", said)
    before, first = (tmp_path / "spark.log").read_text(), len(committed(tmp_path))

    running = started(job)
    wait_until(lambda: len(committed(tmp_path)) > first or running.poll() is not None, "no batch was committed", 120)
    assert running.poll() is None, running.stderr and running.stderr.read()
    assert json.loads((tmp_path / "health.json").read_text())["ready"] in (True, False)
    os.kill(running.pid, signal.SIGTERM)
    out, err = running.communicate(timeout=60)
    assert running.returncode == EXIT_TERMINATED, err
    [result] = json.loads(out)
    assert (tmp_path / "spark.log").read_text().startswith(before)
    table = Catalog(f"{tmp_path}/warehouse").table("db.a")
    assert table.latest_snapshot() is not None
    assert not result["is_complete"]
    rows = table.read().to_arrow().num_rows
    noted = len(committed(tmp_path))
    assert noted <= rows <= noted + 1 < 20  # what was written and not noted is found by the next run
    assert 1 <= result["row_count"] <= rows - first + 1, "a batch that Spark had not noted is written again"
    lines = [json.loads(line) for line in (tmp_path / "fluvial.log").read_text().splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)


def started(job: Path) -> subprocess.Popen[str]:
    """``fluvial run`` in the directory of the job file."""
    command = [*shlex.split(FLUVIAL), "run", str(job), "--json", "--spark-log", str(job.parent / "spark.log")]
    return subprocess.Popen(
        command, cwd=job.parent, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def committed(home: Path) -> list[str]:
    """The batches that Spark has noted as done."""
    return [path.name for path in home.glob("checkpoint/commits/*") if path.name.isdigit()]


@pytest.mark.parametrize(
    ("trigger", "is_complete", "code"),
    [
        ("available-now", True, 0),
        ("available-now", False, EXIT_TERMINATED),
        ("{processing-time: 1s}", False, 0),
    ],
)
def test_to_stop_is_how_an_endless_job_ends_and_is_not_how_another_one_does(
    trigger: str, is_complete: bool, code: int
) -> None:
    text = JOB.format(home="/data").replace("  limits:", f"  trigger: {trigger}\n  limits:")
    config = parse_job(text, name="job.yaml", environment={})
    result = PipelineResult(
        pipeline="slow", targets=(), batch_count=0, row_count=0, seconds=1.0, is_complete=is_complete
    )
    assert exit_code(config, [result]) == code


def test_a_plan_can_be_read_by_scripts_and_its_exit_code_says_whether_something_is_to_be_done(
    fluvial: Fluvial, job: Path
) -> None:
    code, out, _ = fluvial("plan", str(job), "--json", "--detailed-exitcode")
    planned = json.loads(out)
    assert (code, planned["possible"], planned["changes"]) == (EXIT_CHANGES, True, True)
    assert [(each["action"], each["kind"]) for each in planned["steps"]] == [("create", "table"), ("start", "pipeline")]
    code, out, _ = fluvial("plan", str(job))
    assert (code, "create" in out) == (0, True)
    code, out, _ = fluvial("plan", str(job), "--set", "pipelines.slow.targets=[db.b]")
    assert (code, "refuse" in out) == (EXIT_INVALID, True)
    code, _, err = fluvial("validate", str(job), "--online", "--set", "pipelines.slow.targets=[db.b]")
    assert (code, "pipeline slow" in err) == (EXIT_INVALID, True)
    assert fluvial("validate", str(job), "--online")[0] == 0


@pytest.mark.sweep
def test_several_files_are_checked_and_the_schema_is_printed(fluvial: Fluvial, job: Path) -> None:
    code, out, _ = fluvial("validate", str(job), str(job))
    assert (code, out.count("no problem found")) == (0, 2)
    assert fluvial("validate", "--schema") == (0, schema_text(), "")
    assert fluvial("validate")[0] == EXIT_INVALID


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        ("pipelines.slow.source.options.path=''", ["option=path", "pipelines[0].source", "line=7"]),
        (
            "pipelines.slow.targets=[{table: db.a, transform: 'SELECT (1 FROM source'}]",
            ["not a query", "[0].targets[0]"],
        ),
        ("pipelines.slow.options={write-onyl: true}", ["write-onyl", "did_you_mean=write-only", "line=6"]),
        ("tables.db.a.options.bucket=x", ["bucket", "tables.db.a", "line=4"]),
        ("tables.db.a.options.bukket=1", ["bukket", "did_you_mean"]),
        (
            "pipelines.slow.source={format: kafka, options: {subscribe: t}}",
            ["bootstrap.servers", "[0].source"],
        ),
        ("pipelines.slow.source={format: fluvial}", ["no table to read"]),
    ],
)
def test_options_are_checked_without_brokers_tables_and_spark(
    fluvial: Fluvial, job: Path, change: str, facts: list[str]
) -> None:
    text = job.read_text().replace("  limits: {files: 1}\n", "")
    job.write_text(text)
    code, _, err = fluvial("validate", str(job), "--set", change)
    assert (code, [fact for fact in facts if fact not in err]) == (EXIT_INVALID, []), err


def test_secrets_of_files_are_not_shown(fluvial: Fluvial, job: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("hush\n")
    code, out, _ = fluvial("validate", str(job), "--json", "--set", f"warehouse=/${{file:{tmp_path}/secret}}/w")
    assert (code, json.loads(out)["warehouse"]) == (0, "/******/w")


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_from_an_empty_directory_to_a_running_deploy_in_less_than_ten_commands(
    tmp_path: Path, broker: Broker, topics: LogTopics
) -> None:
    """After `python -m venv` and `pip install fluvial`; FL-191."""
    for topic in ("order-changes", "shop.orders"):  # a broker of one's own has none
        topics.delete_topic(topic)
    commands = [
        "fluvial broker start",
        "fluvial init demo",
        "python demo/send_changes.py 100",
        "fluvial plan demo/orders.yaml",
        "fluvial run demo/orders.yaml",
        "fluvial read shop.orders --config demo/orders.yaml --format json",
    ]
    assert len(commands) + 2 < 10
    said = {}
    for command in commands:
        program, *arguments = command.split()
        programs = {"fluvial": shlex.split(FLUVIAL), "python": [sys.executable]}
        done = subprocess.run(
            [*programs[program], *arguments],
            cwd=tmp_path,
            env=environment(FLUVIAL_BROKER_DIR=str(broker.data_dir)),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        said[command] = done.stdout
    assert "210 changes of 100 orders" in said[commands[2]]
    assert "order-changes" in said[commands[3]] or "create" in said[commands[3]]
    rows = [json.loads(line) for line in said[commands[-1]].splitlines()]
    assert len(rows) == 90
    assert {row["state"] for row in rows} == {"paid"}
    assert {row["customer"] for row in rows} == {"Ada", "Grace", "Edsger", "Barbara"}
    assert run_command(["init", str(tmp_path / "demo")]) == EXIT_INVALID
    topics.delete_topic("shop.orders")


def test_the_deploy_examples_say_what_the_exit_codes_and_signals_need() -> None:
    """Long enough for the micro-batch, SIGTERM to the job alone, no retry of what is wrong."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "fluvial@.service")
    service = unit["Service"]
    assert (service["Type"], service["KillMode"]) == ("notify", "mixed")
    assert (service["RestartPreventExitStatus"], service["SuccessExitStatus"]) == (
        str(EXIT_INVALID),
        str(EXIT_TERMINATED),
    )
    forever, hourly = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    pod = forever["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > 30
    assert [pod["containers"][0][probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")] == [
        "/live",
        "/ready",
    ]
    rules = hourly["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    assert [rule["onExitCodes"]["values"] for rule in rules] == [[EXIT_INVALID], [EXIT_TERMINATED]]


def test_the_commands_of_the_examples_are_commands() -> None:
    """systemd, Kubernetes and Airflow: every command is there, and has every option that is given."""
    forever, hourly = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    pods = [forever["spec"]["template"]["spec"], hourly["spec"]["jobTemplate"]["spec"]["template"]["spec"]]
    commands = [pod["containers"][0]["command"] for pod in pods]
    for unit in DEPLOY.glob("*.service"):
        commands += re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    commands += re.findall(r'bash_command="(?:exec )?(fluvial [^"]*)"', (DEPLOY / "airflow_dag.py").read_text())
    names = set()
    for command in commands:
        program, *words = shlex.split(command) if isinstance(command, str) else command
        assert Path(program).name == "fluvial"
        names.add(parse_command(words)[0])
    names |= {parse_command(words)[0] for words in shown_commands((ROOT / "docs/deploy.md").read_text("utf-8"))}
    assert {"run", "validate", "plan", "compact-database"} <= names


def test_the_plan_is_applied(fluvial: Fluvial, job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are made, columns, options and comments are changed; what cannot be is refused before anything is done."""
    code, _, err = fluvial("plan", str(job), "--apply")
    assert (code, "fix=give --yes" in err) == (EXIT_INVALID, True)
    code, out, _ = fluvial("plan", str(job), "--apply", "--yes", "--json")
    assert (code, json.loads(out)["applied"]) == (0, [{"table": "db.a", "statement": None}])
    assert [each["action"] for each in json.loads(out)["steps"]] == ["keep", "start"]
    changed = [
        *("--set", "tables.db.a.columns={id: BIGINT, note: {type: STRING, comment: new}}"),
        *("--set", "tables.db.a.options.write-only=true", "--set", "tables.db.a.comment=all"),
    ]
    assert fluvial("plan", str(job), *changed)[0] == 0
    assert fluvial("plan", str(job), *changed, "--detailed-exitcode")[0] == EXIT_CHANGES
    code, _, err = fluvial("validate", str(job), *changed, "--online")  # a run would not start before that
    assert (code, "needed before a run" in err) == (EXIT_INVALID, True)
    code, _, err = fluvial("plan", str(job), *changed, "--set", "tables.db.a.primary_key=[]", "--apply", "--yes")
    assert code == EXIT_INVALID
    assert "no statement can change this, nothing was done: table db.a: other keys" in err
    catalog = Catalog(str(tmp_path / "warehouse"))
    assert (catalog.table("db.a").schema.column_names, catalog.list_tables("db")) == (("id",), ["a"])
    monkeypatch.setattr("sys.stdin", Terminal("n\n"))
    assert fluvial("plan", str(job), *changed, "--apply")[0] == EXIT_INTERRUPTED
    assert catalog.table("db.a").schema.id == 0
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    code, out, _ = fluvial("plan", str(job), *changed, "--apply")
    assert (code, "done: ALTER TABLE db.a ADD COLUMN note STRING COMMENT 'new'" in out) == (0, True)
    schema = catalog.table("db.a").schema
    assert (schema.column_names, schema.options["write-only"], schema.comment) == (("id", "note"), "true", "all")
    code, out, _ = fluvial("plan", str(job), *changed, "--apply", "--json")
    assert (code, json.loads(out)["applied"]) == (0, [])


def test_a_typing_error_in_a_target_is_found_without_a_warehouse(fluvial: Fluvial, job: Path, tmp_path: Path) -> None:
    """What is nearly declared is not meant, unless it is there; what is quite another name may be there."""
    wrong = ["--set", "pipelines.slow.targets=[db.aa]"]
    code, _, err = fluvial("validate", str(job), *wrong)
    assert (code, "target=db.aa did_you_mean=db.a" in err) == (EXIT_INVALID, True)
    assert fluvial("validate", str(job), "--set", "pipelines.slow.targets=[other.thing]")[0] == 0
    Catalog(str(tmp_path / "warehouse")).create_table("db.aa", pa.schema([("id", pa.int64())]), primary_key=["id"])
    assert fluvial("validate", str(job), *wrong)[0] == 0


class Terminal(io.StringIO):
    """Somebody who types."""

    def isatty(self) -> bool:
        return True


def test_the_command_line_wins_over_the_files_metrics(job: Path) -> None:
    text = job.read_text() + "metrics: {port: 1, host: 0.0.0.0}\n"
    config = parse_job(text, name="job.yaml", environment={})
    assert with_metrics(config, 9108, None).metrics.model_dump() == {"port": 9108, "host": "0.0.0.0", "file": None}
    assert with_metrics(config, None, "m.prom").metrics.model_dump() == {
        "port": 1,
        "host": "0.0.0.0",
        "file": "m.prom",
    }
    assert with_metrics(config, None, None) is config


def test_init_writes_the_files_of_deployments(tmp_path: Path, fluvial: Fluvial) -> None:
    made = tmp_path / "deploy"
    kinds = ("--systemd", "--kubernetes", "--spark-submit", "--airflow", "--monitoring", "--examples")
    code, out, _ = fluvial("init", str(made), *kinds)
    names = {path.name for path in made.iterdir()}
    assert (code, names) == (0, {path.name for path in DEPLOY.rglob("*") if path.is_file()} | {
        "orders.yaml", "orders-prod.yaml", "events.yaml", "fluvial.schema.json"
    })  # fmt: skip
    assert all(f"{made / name}" in out for name in names)
    assert (made / "spark-submit.sh").read_bytes() == (DEPLOY / "spark-submit.sh").read_bytes()
    assert os.access(made / "spark-submit.sh", os.X_OK)
    code, _, err = fluvial("init", str(made), "--kubernetes")
    assert (code, "file exists and is not overwritten" in err) == (EXIT_INVALID, True)
