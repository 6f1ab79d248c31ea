"""The process of a stream's source starts without pandas; processes with code of users have it."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from engine.runtime.hidden_pandas import STREAM_RUNNER

SCRIPT = """
import importlib, sys, types
sys.modules["__main__"].__spec__ = types.SimpleNamespace(name=sys.argv[1])
importlib.import_module(sys.argv[2])
import pyarrow as pa
pa.array([1])
print("pandas" in sys.modules)
"""


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("main", "source", "has_pandas"),
    [
        (STREAM_RUNNER, "engine.spark.data_source", "False"),
        (STREAM_RUNNER, "engine.kafka.source", "False"),
        ("pyspark.daemon", "engine.spark.data_source", "True"),
    ],
)
def test_pandas_is_hidden_from_the_source_of_a_stream_alone(main: str, source: str, has_pandas: str) -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT, main, source], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == has_pandas


def test_spark_has_a_module_of_that_name() -> None:
    assert find_spec(STREAM_RUNNER) is not None
