"""The command ``fluvial config``."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from engine.cli.app import run_command
from engine.monitor.doctor import diagnose, examine

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


FILES_WORD = {
    "log.kafka.bootstrap.servers": "evil:1",
    "log.kafka.plugin.library.paths": "/x.so",
    "log.kafka.sasl.username": "bob",
    "log.schema-registry.ssl.ca.location": "/ca",
    "data-file.external-paths": "file:///data/x",
}


def test_config_and_doctor_name_what_has_no_effect_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table received from others: its files say what only who opens it may say."""
    made = Catalog(str(tmp_path)).create_table("shop.orders", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    path = Path(made.store.paths.root) / "schema" / "schema-0"
    body = json.loads(path.read_text())
    path.write_text(json.dumps({**body, "options": {**body["options"], **FILES_WORD}}))
    where = ["--warehouse", str(tmp_path)]

    def said(*given: str) -> dict[str, str]:
        assert run_command(["config", "shop.orders", "--json", *where, *given]) == 0
        found = {each["key"]: each["doc"] for each in json.loads(capsys.readouterr().out)["options"]}
        return {key: found[key] for key in FILES_WORD if found[key].startswith("has no effect: ")}

    ignored = said()
    assert set(ignored) == set(FILES_WORD) - {"log.kafka.bootstrap.servers"}
    assert ignored["log.kafka.sasl.username"].endswith("gives it, beside log.kafka.bootstrap.servers")
    assert "external-paths.allowed" in ignored["data-file.external-paths"]
    login = {
        "log.kafka.bootstrap.servers": "evil:1",
        "log.kafka.sasl.username": "me",
        "external-paths.allowed": "/data",
    }
    mine = [word for key, text in login.items() for word in ("--catalog-option", f"{key}={text}")]
    assert set(said(*mine)) == {"log.kafka.plugin.library.paths", "log.schema-registry.ssl.ca.location"}
    assert set(said("--catalog-option", "log.kafka.sasl.username=me")) == set(ignored)
    path.write_text(json.dumps({**body, "options": {**body["options"], "data-file.external-paths": "/x"}}))
    (found,) = (
        each for each in diagnose(examine(Catalog(str(tmp_path)).table("shop.orders"))) if each.check == "login"
    )
    assert "data-file.external-paths is read only below external-paths.allowed" in found.fact


def test_config_names_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["config", "--warehouse", str(tmp_path), "--catalog-option", "buckets=1"]) == 2
    assert "unknown option: option=buckets did_you_mean=['bucket'" in capsys.readouterr().err
