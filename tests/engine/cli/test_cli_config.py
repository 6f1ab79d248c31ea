"""The command ``fluvial config``."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from engine.cli.app import run_command

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.int64())])


@pytest.mark.sweep
def test_config_tells_every_value_and_where_it_came_from(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Catalog(str(tmp_path)).create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "4"})
    where = ["--warehouse", str(tmp_path), "--catalog-option", "s3.secret-key=never", "--catalog-option", "bucket=9"]
    assert run_command(["config", "shop.orders", "--json", *where]) == 0
    said = capsys.readouterr().out
    assert "never" not in said
    reported = json.loads(said)
    options = {each["key"]: (each["value"], each["origin"]) for each in reported["options"]}
    assert options["bucket"] == ("4", "table")  # a table that exists keeps its own
    assert options["num-sorted-run.compaction-trigger"] == ("5", "default")
    catalog = {each["key"]: (each["value"], each["origin"]) for each in reported["catalog"]}
    assert catalog["s3.secret-key"] == ("******", "command line")
    assert run_command(["config", *where]) == 0
    shown = capsys.readouterr().out
    assert "never" not in shown
    assert "bucket" in shown
    assert "command line" in shown
    assert "write-buffer-size" not in shown
    assert run_command(["config", "--all", *where]) == 0
    assert "write-buffer-size" in capsys.readouterr().out


def test_config_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["config", "--warehouse", str(tmp_path), "--catalog-option", "buckets=1"]) == 2
    assert "unknown option: option=buckets did_you_mean=['bucket'" in capsys.readouterr().err
