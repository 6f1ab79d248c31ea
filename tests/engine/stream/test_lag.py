"""Lag in every unit: what a stream reports, and what ``fluvial lag`` finds in a checkpoint and in consumers."""

import json
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Table
from engine.cli.app import run_command
from engine.deploy.config.job_config import JobConfig
from engine.deploy.job import table_watch
from engine.deploy.pipeline.job_watch import JobWatch, lags_now
from engine.stream.position.position import Position
from tests.engine.stream.conftest import NewTable
from tests.support.rows import id_rows
from tests.support.streams import Query, as_foreign

pytestmark = pytest.mark.broker

MARKERS = 2  # between the records of two transactions of each bucket stands one
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def reported(query: Query) -> dict[str, int]:
    found = query.reader.reportLatestOffset()
    assert found is not None
    return {key: value for key, value in found.items() if key != "lag_bytes"}


def checkpoint(root: Path, query: Query) -> Path:
    """What Spark keeps of a query."""
    place = root / "cp"
    for part in ("offsets", "commits"):
        (place / part).mkdir(parents=True, exist_ok=True)
    (place / "metadata").write_text('{"id":"7"}')
    for number, end in enumerate(query.planned):
        (place / "offsets" / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"other":1}}\n{end}')
        (place / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return place


def lag_report(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert run_command(["lag", *arguments, "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_stream_says_how_far_it_is_behind_its_target(table: Table, tmp_path: Path) -> None:
    table.write(id_rows(range(10)))
    query = Query(tmp_path, table.name, read_stream_maxRowsPerTrigger="4")
    query.batch()  # half of the snapshot's splits, each taken whole
    query.available()
    assert reported(query) == {"lag_snapshots": 0, "lag_records": 0, "lag_seconds": 0}
    table.write(id_rows(range(20)))
    query.batch()
    behind = reported(query)  # when the batch was planned: nothing of it was delivered yet
    assert behind["lag_snapshots"] == 1
    assert 20 <= behind["lag_records"] <= 20 + 2 * MARKERS
    query.available()
    assert reported(query)["lag_records"] == 0


@pytest.mark.parametrize("has_log", [True, False])
def test_a_jobs_lag_is_that_of_the_moment_while_its_batch_hangs(
    new_table: NewTable, tmp_path: Path, has_log: bool
) -> None:
    """Soak 4: a stream asks with its batches, and a batch of 184 s left the gauges at 0. Every unit."""
    table = new_table(bucket="2", log=has_log)
    table.write(id_rows([1, 2, 3]))
    query = Query(tmp_path, table.name)
    query.available()
    delivered: list[Position] = []
    pipeline = {
        "name": "copy",
        "source": {"format": "fluvial", "options": {"table": table.name}},
        "target": "db.copy",
        "checkpoint": str(tmp_path / "cp"),
    }
    config = JobConfig.model_validate({"name": "j", "warehouse": str(tmp_path), "pipelines": [pipeline]})
    watch = table_watch(config, config.pipelines[0], lambda: delivered[-1] if delivered else None)
    assert watch is not None
    watch.look()
    assert watch.lags == {}, "no batch has finished yet"
    delivered.append(Position.from_json(query.position).place)
    watch.look()
    assert lags_now(watch) == {
        "copy": {"lag_snapshots": 0, "lag_records": 0, "lag_bytes": 0, "lag_seconds": 0},
    }
    for each in ([4, 5], [6]):  # no batch is planned
        table.write(id_rows(each))
    time.sleep(1.1)
    watch.look()
    found = lags_now(watch)["copy"]
    assert found["lag_snapshots"] == 2
    assert 3 <= found["lag_records"] <= 3 + 2 * MARKERS
    assert found["lag_bytes"] > 0
    assert 1 <= found["lag_seconds"] < 60
    assert JobWatch([watch]).lags() == {"copy": found}


def test_changes_that_are_in_files_only_count_as_well(table: Table, tmp_path: Path) -> None:
    table.write(id_rows([1]))
    query = Query(tmp_path, table.name, read_stream_maxRowsPerTrigger="1")
    query.available()
    Table(table.files.with_options({"log.system": "none"})).write(id_rows([2, 3]))
    as_foreign(table)
    table.write(id_rows([4]))
    query.batch()
    assert reported(query)["lag_snapshots"] == 2  # one split of two is delivered
    query.available()
    assert reported(query)["lag_records"] == 0


def test_the_command_reads_checkpoints_and_consumers(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.write(id_rows([1, 2, 3]))
    query = Query(tmp_path, table.name, consumer__id="copy")
    query.options["consumer-id"] = "copy"
    query.available()
    place = checkpoint(tmp_path, query)
    table.write(id_rows([4, 5]))
    found = lag_report(capsys, table.name, "--warehouse", str(tmp_path), "--checkpoint", str(place))
    by_name = {each["stream"]: each for each in found["streams"]}
    assert by_name.keys() == {str(place), "consumer copy"}
    for each in by_name.values():
        assert (each["snapshot"], each["lag_snapshots"]) == (1, 1)
        assert 2 <= each["lag_records"] <= 2 + MARKERS
        assert each["lag_bytes"] > 0
    assert len(found["buckets"]) == 2
    assert run_command(["lag", table.name, "--warehouse", str(tmp_path), "--checkpoint", str(place)]) == 0
    assert "records behind" in capsys.readouterr().out


@pytest.mark.parametrize("made", [False, True])
def test_what_is_no_checkpoint_of_ours_is_said(
    table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str], made: bool
) -> None:
    place = tmp_path / "nothing"
    if made:
        for part in ("offsets", "commits"):
            (place / part).mkdir(parents=True)
        (place / "metadata").write_text("{}")
        (place / "offsets" / "0").write_text('v1\n{}\n{"topic":{"0":1}}')
        (place / "commits" / "0").write_text("v1\n{}")
    assert run_command(["lag", table.name, "--warehouse", str(tmp_path), "--checkpoint", str(place)]) == 2
    assert f"checkpoint={place}" in capsys.readouterr().err
