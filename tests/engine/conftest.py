"""The one Spark session of a test run, a warehouse for each test, and the command line."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine import Catalog
from engine.cli.app import run_command
from engine.spark.session import session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """As users get it, but quiet and small."""
    home: Path = tmp_path_factory.mktemp("spark")
    running = session(
        "tests",
        "local[2]",
        {
            "spark.ui.enabled": "false",
            "spark.log.level": "OFF",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(home / "warehouse"),
        },
    )
    yield running
    running.stop()


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """An empty warehouse on disk."""
    return Catalog(str(tmp_path / "warehouse"))


@pytest.fixture
def fluvial(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command; gives its exit code, output and error output."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_command(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run
