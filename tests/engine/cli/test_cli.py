"""The command ``fluvial``: results on standard output, one line for what is wrong, and exit codes to trust."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import click
import pyarrow as pa
import pytest

from engine.broker.broker import Broker
from engine.catalog import Catalog
from engine.cli.app import cli
from engine.cli.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_INVALID
from engine.runtime.spark_messages import fluvial_error
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError

ROOT = Path(__file__).resolve().parents[3]
COLUMNS = pa.schema(
    [
        pa.field("dt", pa.string()),
        pa.field("id", pa.int64()),
        pa.field("amount", pa.decimal128(10, 2)),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
ROWS = pa.Table.from_pydict(
    {
        "dt": ["d1", "d1", "d2"],
        "id": [1, 2, 3],
        "amount": [pa.scalar("1.50").cast(pa.decimal128(10, 2)).as_py(), None, None],
        "tags": [["a", "b[c]"], [], None],
    },
    schema=COLUMNS,
)

Fluvial = Callable[..., tuple[int, str, str]]


@pytest.fixture
def warehouse(tmp_path: Path) -> str:
    """A table of two partitions without a log, written twice."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    options = {"bucket": "1", "log.system": "none"}
    table = catalog.create_table(
        "shop.orders", COLUMNS, primary_key=["dt", "id"], partition_by=["dt"], options=options, comment="as they are"
    )
    table.write(ROWS)
    table.write(ROWS.slice(0, 1))
    return catalog.warehouse


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [path]
    context = click.Context(group, **group.context_settings)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found += commands(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]
    return found


@pytest.mark.parametrize("path", commands(cli), ids=" ".join)
def test_every_command_explains_itself(fluvial: Fluvial, path: Sequence[str]) -> None:
    code, out, err = fluvial(*path, "--help")
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: {' '.join(['fluvial', *path])}")
    assert "--help" in out


def test_columns_and_options_of_a_table_can_be_seen(fluvial: Fluvial, warehouse: str) -> None:
    code, out, _ = fluvial("describe", "shop.orders", "--warehouse", warehouse, "--json")
    described = json.loads(out)
    assert code == 0
    assert described["comment"] == "as they are"
    assert described["options"]["bucket"] == "1"
    assert [(each["name"], each["type"], each["key"]) for each in described["columns"]] == [
        ("dt", "STRING NOT NULL", True),
        ("id", "BIGINT NOT NULL", True),
        ("amount", "DECIMAL(10, 2)", False),
        ("tags", "ARRAY<STRING>", False),
    ]
    assert "ARRAY<STRING>" in fluvial("describe", "shop.orders", "--warehouse", warehouse)[1]


def test_runs_and_bytes_of_each_bucket_can_be_seen_before_and_after_compaction(
    fluvial: Fluvial, warehouse: str
) -> None:
    _, out, _ = fluvial("inspect", "shop.orders", "--warehouse", warehouse, "--json")
    state = json.loads(out)
    assert [(each["partition"], each["bucket"], len(each["runs"])) for each in state["buckets"]] == [
        ("dt=d1", 0, 2),
        ("dt=d2", 0, 1),
    ]
    assert state["size_bytes"] == sum(each["size_bytes"] for each in state["buckets"]) > 0
    assert [each["commit_kind"] for each in state["snapshots"]] == ["APPEND", "APPEND"]

    code, out, _ = fluvial("compact", "shop.orders", "--warehouse", warehouse, "--full", "--json")
    assert code == 0
    done = {each["partition"]: (each["files_before"], each["files_after"]) for each in json.loads(out)["rows"]}
    assert done["dt=d1"] == (2, 1)
    _, out, _ = fluvial("inspect", "shop.orders", "--warehouse", warehouse, "--json")
    assert json.loads(out)["max_run_count"] == 1
    assert "dt=d1" in fluvial("inspect", "shop.orders", "--warehouse", warehouse)[1]


def test_rows_are_printed_for_people_and_for_programs(fluvial: Fluvial, warehouse: str) -> None:
    place = ("shop.orders", "--warehouse", warehouse)
    rows = [json.loads(line) for line in fluvial("read", *place, "--format", "json")[1].splitlines()]
    assert sorted(rows, key=lambda row: row["id"]) == [
        {"dt": "d1", "id": 1, "amount": 1.5, "tags": ["a", "b[c]"]},
        {"dt": "d1", "id": 2, "amount": None, "tags": []},
        {"dt": "d2", "id": 3, "amount": None, "tags": None},
    ]
    arguments = ("--format", "json", "--columns", "id,dt", "--filter", "dt = 'd2' or id = 1")
    rows = [json.loads(line) for line in fluvial("read", *place, *arguments)[1].splitlines()]
    assert sorted(list(row.values()) for row in rows) == [[1, "d1"], [3, "d2"]]
    assert len(fluvial("read", *place, "--format", "json", "--limit", "2")[1].splitlines()) == 2
    table = fluvial("read", *place)[1]
    assert "1.50" in table
    assert '["a","b[c]"]' in table
    assert "dt" in fluvial("read", *place, "--filter", "id > 100")[1]


@pytest.mark.sweep
def test_csv_can_be_read_back(warehouse: str) -> None:
    command = [sys.executable, "-m", "engine.cli", "read", "shop.orders", "--warehouse", warehouse, "--format", "csv"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = sorted(csv.DictReader(io.StringIO(done.stdout)), key=lambda row: row["id"])
    assert [row["id"] for row in rows] == ["1", "2", "3"]
    assert json.loads(rows[0]["tags"]) == ["a", "b[c]"]


@pytest.mark.parametrize(
    ("arguments", "code", "fact"),
    [
        (("read", "shop.orders"), EXIT_INVALID, "no warehouse"),
        (("read", "shop.oders", "--warehouse", "{}"), EXIT_INVALID, "shop.oders"),
        (("read", "shop.orders", "--warehouse", "{}", "--columns", "nope"), EXIT_INVALID, "nope"),
        (("read", "shop.orders", "--warehouse", "{}", "--filter", "id >"), EXIT_INVALID, "id >"),
        (("read", "shop.orders", "--warehouse", "{}", "--fromat", "csv"), EXIT_INVALID, "--format"),
        (("read", "shop.orders", "--warehouse", "{}", "--limit", "x"), EXIT_INVALID, "--limit"),
        (("describe", "shop.orders", "--warehouse", "{}", "--catalog-option", "x"), EXIT_INVALID, "key=value"),
        (("run", "nowhere.yaml"), EXIT_INVALID, "nowhere.yaml"),
        (("raed",), EXIT_INVALID, "raed"),
    ],
)
def test_a_wrong_request_is_one_line_and_code_2(
    fluvial: Fluvial, warehouse: str, arguments: Sequence[str], code: int, fact: str
) -> None:
    found, out, err = fluvial(*[each.format(warehouse) for each in arguments])
    assert (found, out) == (code, "")
    assert fact in err
    assert "Traceback" not in err
    if err.startswith("error:"):
        assert err.count("\n") == 1


def test_broken_data_is_one_line_and_code_1_and_a_traceback_on_request(fluvial: Fluvial, warehouse: str) -> None:
    """A truncated manifest is named."""
    manifests = Path(warehouse) / "shop.db" / "orders" / "manifest"
    for path in manifests.iterdir():
        path.write_bytes(path.read_bytes()[:-7])
    code, out, err = fluvial("read", "shop.orders", "--warehouse", warehouse)
    assert (code, out) == (EXIT_FAILED, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "manifest" in err
    assert "Traceback" in fluvial("--debug", "read", "shop.orders", "--warehouse", warehouse)[2]


def test_the_warehouse_can_come_from_a_job_file_or_the_environment(
    fluvial: Fluvial, warehouse: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = tmp_path / "job.yaml"
    pipeline = (
        "{name: p, target: shop.orders, checkpoint: c, source: {options: {subscribe: t, kafka.bootstrap.servers: b:1}}}"
    )
    job.write_text(f"name: job\nwarehouse: {warehouse}\npipelines: [{pipeline}]\n")
    assert fluvial("describe", "shop.orders", "--config", str(job))[0] == 0
    monkeypatch.setenv("FLUVIAL_WAREHOUSE", warehouse)
    assert fluvial("describe", "shop.orders")[0] == 0
    code, out, _ = fluvial("validate", str(job), "--json", "--set", "pipelines.p.target=a.b")
    assert (code, json.loads(out)["pipelines"][0]["target"]) == (0, "a.b")


def test_secrets_are_not_shown(fluvial: Fluvial, warehouse: str, tmp_path: Path) -> None:
    job = tmp_path / "job.yaml"
    secrets = "kafka.sasl.password: hush1, kafka.ssl.key.pem: hush2, kafka.sasl.username: loud"
    source = f"{{options: {{subscribe: t, kafka.bootstrap.servers: b:1, {secrets}}}}}"
    job.write_text(
        f"name: job\nwarehouse: {warehouse}\ncatalog: {{log.kafka.sasl.jaas.config: hush3, log.key.format: loud}}\n"
        f"pipelines: [{{name: p, target: a.b, checkpoint: c, source: {source}}}]\n"
    )
    _, out, _ = fluvial("validate", str(job), "--json")
    assert "hush" not in out
    assert out.count("loud") == 2


@pytest.mark.long
@pytest.mark.broker
def test_the_state_of_a_broker_is_told_with_its_exit_code(fluvial: Fluvial, broker: Broker, tmp_path: Path) -> None:
    code, out, _ = fluvial("broker", "status", "--dir", str(broker.data_dir), "--json")
    assert (code, json.loads(out)["bootstrap_servers"]) == (0, broker.bootstrap_servers)
    code, out, _ = fluvial("broker", "status", "--dir", str(tmp_path / "none"))
    assert code == EXIT_FAILED
    assert "not running" in out


@pytest.mark.long
@pytest.mark.broker
@pytest.mark.spark
def test_a_job_runs_from_its_file_is_interrupted_and_goes_on_where_it_was(
    fluvial: Fluvial, kafka: KafkaProperties, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """FL-191: ``fluvial run`` end to end: tables and topic made, SQL and deletes applied, Ctrl-C is code 130, no change
    taken twice.
    """
    servers, topic = kafka.by_name["bootstrap.servers"], new_topic(bucket_count=2)
    job = tmp_path / "job.yaml"
    job.write_text(
        f"""
name: test
warehouse: {tmp_path}/warehouse
catalog: {{log.kafka.bootstrap.servers: "{servers}", log.kafka.topic: "{topic}-log"}}
tables:
  shop.orders:
    columns: {{id: BIGINT, name: STRING}}
    primary_key: [id]
    options: {{bucket: 2, log.system: kafka}}
pipelines:
- name: orders
  source: {{options: {{subscribe: "{topic}", value.format: debezium-json}}}}
  transform: SELECT id, upper(name) AS name, _row_kind FROM source
  target: shop.orders
  trigger: {{processing-time: 100 ms}}
  checkpoint: {tmp_path}/checkpoint
on-failure: {{policy: restart, backoff: 100 ms}}  # Spark gives the process of a source ten seconds to begin
spark: {{master: "local[2]", conf: {{spark.ui.enabled: false}}}}
"""
    )

    def send(op: str, key: int, name: str) -> None:
        row = {"id": key, "name": name}
        value = {"before": row if op == "d" else None, "after": None if op == "d" else row, "op": op}
        producer.produce(topic, json.dumps(value).encode(), str(key).encode())

    producer = kafka.producer(ErrorNotes(), transactional_id=None)
    for key in range(10):
        send("c", key, "first")
    producer.flush(30)
    command = [sys.executable, "-m", "engine.cli", "run", str(job), "--spark-log", str(tmp_path / "spark.log")]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    committed = tmp_path / "checkpoint" / "commits" / "0"  # Spark knows that the table has it
    deadline = time.monotonic() + 240
    while not committed.exists():
        assert running.poll() is None, running.stderr and running.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.kill(running.pid, signal.SIGINT)
    _, err = running.communicate(timeout=120)
    assert running.returncode == EXIT_INTERRUPTED
    assert "Traceback" not in err

    send("u", 1, "second")
    send("d", 2, "first")
    producer.flush(30)
    done = subprocess.run(
        [*command, "--json", "--quiet", "--set", "pipelines.orders.trigger=available-now"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    [result] = json.loads(done.stdout)
    assert (result["batch_count"], result["row_count"]) == (1, 2)
    table = Catalog(f"{tmp_path}/warehouse").table("shop.orders")
    rows = table.read().to_arrow(["id", "name"]).to_pydict()
    assert dict(zip(rows["id"], rows["name"], strict=True)) == {
        0: "FIRST",
        1: "SECOND",
        **{key: "FIRST" for key in range(3, 10)},
    }
    code, out, _ = fluvial("lag", "shop.orders", "--config", str(job), "--json")
    assert code == 0
    assert [each["lag"] for each in json.loads(out)["buckets"]] == [0, 0]


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        (
            "x\n  File y\nlsm.errors.InvalidInputError: no such column: a=b\n\tat org...",
            InvalidInputError,
            "no such column: a=b",
        ),
        (
            "lsm.errors.CorruptDataError: cause\n\nDuring handling...\nlsm.errors.UnavailableError: outer\n",
            FluvialError,
            "outer",
        ),
        (
            "E   lsm.errors.CorruptDataError: indented",
            CorruptDataError,
            "doing reason=E   lsm.errors.CorruptDataError: indented",
        ),
        ("", FluvialError, "doing reason=no message"),
    ],
)
def test_our_errors_are_found_in_the_text_of_others(text: str, kind: type[FluvialError], message: str) -> None:
    found = fluvial_error(RuntimeError(text), "doing")
    assert str(found) == message
    assert isinstance(found, kind) or message.startswith("doing")


class Terminal(io.StringIO):
    """What is shown to a person."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("quiet_s", "shown"), [(0.01, True), (60.0, False)])
def test_who_waits_longer_than_a_second_sees_what_for(
    monkeypatch: pytest.MonkeyPatch, warehouse: str, fluvial: Fluvial, quiet_s: float, shown: bool
) -> None:
    """On a terminal alone, and never in the results."""
    looked = threading.Event()
    terminal = Terminal()

    def slow(*given: object) -> list[object]:
        end_s = time.monotonic() + 20 * shown
        while "asking for the lag" not in terminal.getvalue() and time.monotonic() < end_s:
            looked.wait(0.01)
        return []

    monkeypatch.setattr("engine.cli.output._QUIET_S", quiet_s)
    monkeypatch.setattr("engine.cli.commands.lag.log_lags", slow)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", terminal)
    code, out, _ = fluvial("lag", "shop.orders", "--json", "--warehouse", warehouse)
    assert (code, json.loads(out)["streams"]) == (0, [])
    assert ("asking for the lag of shop.orders" in terminal.getvalue()) is shown


def test_a_watched_answer_comes_again_until_it_is_interrupted(
    monkeypatch: pytest.MonkeyPatch, warehouse: str, fluvial: Fluvial
) -> None:
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr("engine.cli.output.time.sleep", wait)
    place = ("--warehouse", warehouse)
    code, out, _ = fluvial("lag", "shop.orders", "--json", "--watch", "7", *place)
    assert (code, waits) == (0, [7.0] * 3)
    once = fluvial("lag", "shop.orders", "--json", *place)[1]
    assert out == once * 3
    assert fluvial("lag", "shop.orders", "--watch", "0", *place)[0] == 2
    assert fluvial("cdc", "status", "--watch", "x")[0] == 2


def test_the_shell_is_the_prompt_of_sql(monkeypatch: pytest.MonkeyPatch, warehouse: str, fluvial: Fluvial) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SHOW TABLES;"))
    code, out, error = fluvial("shell", "--database", "shop", "--warehouse", warehouse)
    assert (code, error) == (0, "")
    assert "orders" in out
