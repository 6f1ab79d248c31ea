"""``fluvial-python``: settings alone make catalogs known to the sessions of a script and of Spark's shell."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog
from engine.dialect.spark_sql.driver_python import configured_names, run_driver
from lsm.errors import InvalidInputError

ROOT = Path(__file__).resolve().parents[4]
SCRIPT = """import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
from helper import word
spark = SparkSession.builder.appName("plain").getOrCreate()
found = spark.sql("SELECT id, v FROM lake.shop.t ORDER BY id").collect()
again = SparkSession.builder.getOrCreate().newSession().table("lake.shop.t").count()
print(json.dumps([__name__, word, sys.argv[1:], [list(row) for row in found], again]))
"""


def printed_by(home: Path, *command: str, text: str = "") -> str:
    """What a program of Spark's prints, with a catalog and its driver's Python by settings only."""
    tools = Path(sys.executable).parent
    settings = {
        "spark.pyspark.driver.python": tools / "fluvial-python",
        "spark.sql.catalog.lake.warehouse": home / "warehouse",
        "spark.ui.enabled": "false",
    }
    conf = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    done = subprocess.run(
        [str(tools / command[0]), "--master", "local[1]", *conf, *command[1:]],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
        cwd=home,
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A home with a warehouse, in which is ``shop.t``."""
    rows = pa.table({"id": [1, 2], "v": ["a", "b"]})
    table = Catalog(str(tmp_path / "warehouse")).create_table("shop.t", rows.schema, primary_key=["id"])
    table.write(rows)
    return tmp_path


@pytest.mark.long
@pytest.mark.spark
def test_a_script_of_spark_submit_finds_the_catalog_of_its_settings(lake: Path) -> None:
    """The script, with its arguments and a module beside it, names nothing of Fluvial."""
    (lake / "job").mkdir()
    (lake / "job" / "script.py").write_text(SCRIPT)
    (lake / "job" / "helper.py").write_text("word = 'beside'")
    printed = printed_by(lake, "spark-submit", "job/script.py", "--day", "1")
    assert json.loads(printed.splitlines()[-1]) == ["__main__", "beside", ["--day", "1"], [[1, "a"], [2, "b"]], 2]


@pytest.mark.long
@pytest.mark.spark
def test_the_shell_finds_the_catalog_of_its_settings(lake: Path) -> None:
    text = "print('counted', spark.table('lake.shop.t').count())\nspark.sql('DELETE FROM lake.shop.t WHERE id = 1')\n"
    assert "counted 2" in printed_by(lake, "pyspark", text=text)
    assert Catalog(str(lake / "warehouse")).table("shop.t").read().to_arrow().to_pylist() == [{"id": 2, "v": "b"}]


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({}, []),
        ({"spark.sql.catalog.lake.warehouse": "/w", "spark.sql.catalog.b.warehouse": "/v"}, ["b", "lake"]),
        ({"spark.sql.catalog.ice.warehouse": "/w", "spark.sql.catalog.ice": "org.apache.iceberg.Catalog"}, []),
        ({"spark.sql.catalog.lake.table-default.warehouse": "/w", "spark.sql.warehouse.dir": "/v"}, []),
    ],
)
def test_a_catalog_is_configured_by_its_warehouse_and_no_class(settings: dict[str, Any], names: list[str]) -> None:
    assert configured_names(settings) == names


@pytest.mark.parametrize("arguments", [["-c", "print()"], ["-i"], ["-m"]])
def test_other_options_of_python_are_refused(arguments: list[str]) -> None:
    with pytest.raises(InvalidInputError, match="fix='a script with its arguments"):
        run_driver(arguments)


def test_a_module_is_run_with_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stated.py").write_text("import sys\nprint(__name__, sys.argv[1:])")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [*sys.argv])
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", SparkSession.Builder.getOrCreate)
    run_driver(["-m", "stated", "a"])
    assert capsys.readouterr().out == "__main__ ['a']\n"
